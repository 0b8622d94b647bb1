/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The hold as a careful caller does it; it also shows that the driver's threads can be traced. */
#define _GNU_SOURCE
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS_MAX 64
#define ALL_SIGNALS (~0ull)

static struct {
    pid_t tid;
    uint64_t mask;
} held[THREADS_MAX];
static unsigned held_count;
static unsigned created_count;
static pid_t held_pid;

static char thread_state(pid_t pid, const char *tid)
{
    char path[300], text[512];
    const char *end;
    FILE *file;
    size_t length;

    snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", pid, tid);
    file = fopen(path, "re");
    if (!file)
        return 'T';
    length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    end = strrchr(text, ')');
    return end ? end[2] : '?';
}

bool test_all_stopped(pid_t pid)
{
    char path[64];
    struct dirent *entry;
    bool stopped = true;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    dir = opendir(path);
    CHECK(dir);
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] != '.' && thread_state(pid, entry->d_name) != 'T' &&
            thread_state(pid, entry->d_name) != 't')
            stopped = false;
    }
    closedir(dir);
    return stopped;
}

static bool is_driver_thread(pid_t pid, const char *tid)
{
    char path[300], name[32] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", pid, tid);
    file = fopen(path, "re");
    if (!file)
        return false;
    if (!fgets(name, sizeof(name), file))
        name[0] = '\0';
    fclose(file);
    return strncmp(name, "cuda", 4) == 0;
}

static void block_all(unsigned index)
{
    uint64_t all = ALL_SIGNALS, mask = ALL_SIGNALS;

    ptrace(PTRACE_GETSIGMASK, held[index].tid, 8, &mask);
    if (mask != ALL_SIGNALS)
        held[index].mask = mask;
    ptrace(PTRACE_SETSIGMASK, held[index].tid, 8, &all);
}

static void seize(pid_t tid)
{
    int status;

    CHECK(held_count < THREADS_MAX);
    CHECK(ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACECLONE) == 0);
    CHECK(waitpid(tid, &status, __WALL) == tid);
    held[held_count].tid = tid;
    held[held_count].mask = ALL_SIGNALS;
    block_all(held_count++);
    CHECK(ptrace(PTRACE_CONT, tid, 0, 0) == 0);
}

static void wait_stopped(void)
{
    uint64_t deadline = test_now_ms() + 5000;

    while (!test_all_stopped(held_pid)) {
        CHECK(test_now_ms() < deadline);
        test_sleep_ms(1);
    }
}

void test_hold_begin(pid_t pid)
{
    char path[64];
    struct dirent *entry;
    DIR *dir;

    held_count = created_count = 0;
    held_pid = pid;
    kill(pid, SIGSTOP);
    wait_stopped();
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    dir = opendir(path);
    CHECK(dir);
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] != '.' && is_driver_thread(pid, entry->d_name))
            seize((pid_t)strtol(entry->d_name, NULL, 10));
    }
    closedir(dir);
    CHECK_EQUAL(2, held_count);
}

struct call {
    CUresult (*run)(int pid);
    pid_t pid;
    CUresult result;
    atomic_bool done;
};

static void *run_call(void *arg)
{
    struct call *call = arg;

    call->result = call->run(call->pid);
    atomic_store(&call->done, true);
    return NULL;
}

static int find_held(pid_t tid)
{
    for (unsigned i = 0; i < held_count; i++) {
        if (held[i].tid == tid)
            return (int)i;
    }
    return -1;
}

static void handle_stop(pid_t tid, int status)
{
    int index = find_held(tid);
    int number = 0;

    if (!WIFSTOPPED(status)) {
        if (index >= 0)
            held[index] = held[--held_count];
        return;
    }
    if (index < 0) {
        CHECK(held_count < THREADS_MAX);
        index = (int)held_count++;
        held[index].tid = tid;
        held[index].mask = ALL_SIGNALS;
        created_count++;
    }
    /*
     * A thread that was seized inside a signal handler gets its old mask back when the handler
     * returns, and the next signal arrives here. Blocked again and then injected, it is put back
     * into the queue by the kernel. SIGSTOP cannot be blocked, and has had its effect.
     */
    if (status >> 16 == 0 && WSTOPSIG(status) != SIGSTOP) {
        block_all((unsigned)index);
        number = WSTOPSIG(status);
    }
    ptrace(PTRACE_CONT, tid, 0, number);
}

CUresult test_hold_call(CUresult (*run)(int pid), pid_t pid)
{
    struct call call = {.run = run, .pid = pid};
    uint64_t deadline = test_now_ms() + 30000;
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, run_call, &call) == 0);
    while (!atomic_load(&call.done)) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL | WNOHANG);

        if (tid > 0)
            handle_stop(tid, status);
        else
            usleep(100);
        CHECK(test_now_ms() < deadline);
    }
    pthread_join(thread, NULL);
    return call.result;
}

unsigned test_hold_end(void)
{
    for (unsigned i = 0; i < held_count; i++) {
        uint64_t mask = 0;
        int status;

        if (ptrace(PTRACE_INTERRUPT, held[i].tid, 0, 0) != 0 ||
            waitpid(held[i].tid, &status, __WALL) != held[i].tid || !WIFSTOPPED(status))
            continue;
        /* Another mask is its own: a handler has ended meanwhile. */
        if (ptrace(PTRACE_GETSIGMASK, held[i].tid, 8, &mask) == 0 && mask == ALL_SIGNALS)
            ptrace(PTRACE_SETSIGMASK, held[i].tid, 8, &held[i].mask);
        ptrace(PTRACE_DETACH, held[i].tid, 0, 0);
    }
    held_count = 0;
    /* A thread that is let go stops again by itself, but not at once. */
    wait_stopped();
    return created_count;
}
