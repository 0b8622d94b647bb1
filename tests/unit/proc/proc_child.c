/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc_child.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "proc/tree.h"

struct child_shared *child_shared;

enum { STARTED_MAX = 64, PATIENCE_MS = 10000 };

static pid_t started[STARTED_MAX];
static size_t started_count;

int child_group_setup(void **state)
{
    (void)state;
    /* Grandchildren whose parents die come to us, so that teardown finds them all. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return -1;
    child_shared = mmap(NULL, sizeof(*child_shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return child_shared == MAP_FAILED ? -1 : 0;
}

int child_reset(void **state)
{
    (void)state;
    (void)memset(child_shared, 0, sizeof(*child_shared));
    return 0;
}

static void kill_descendants(void)
{
    struct gpucr_tree tree;

    if (gpucr_tree_scan(getpid(), &tree, NULL) < 0)
        return;
    for (size_t i = 1; i < tree.count; i++)
        (void)kill(tree.items[i].pid, SIGKILL);
    gpucr_tree_done(&tree);
}

int child_teardown(void **state)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(PATIENCE_MS);
    pid_t pid;

    (void)state;
    started_count = 0;
    for (;;) {
        kill_descendants();
        do {
            pid = waitpid(-1, NULL, WNOHANG);
        } while (pid > 0);
        if (pid < 0)
            return 0;
        if (gpucr_deadline_passed(deadline))
            return -1;
        gpucr_sleep_us(500);
    }
}

pid_t child_fork(void)
{
    pid_t parent = getpid();
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    return 0;
}

pid_t child_start(void (*fn)(int arg), int arg)
{
    pid_t pid = child_fork();

    if (pid == 0) {
        fn(arg);
        _exit(0);
    }
    assert_true(pid > 0);
    assert_true(started_count < STARTED_MAX);
    started[started_count++] = pid;
    return pid;
}

void child_kill(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    for (size_t i = 0; i < started_count; i++) {
        if (started[i] == pid) {
            started[i] = started[--started_count];
            return;
        }
    }
}

void child_count(int counter)
{
    struct timespec t = {.tv_nsec = 50000};

    child_shared->pids[counter] = getpid();
    for (;;) {
        child_shared->counters[counter]++;
        (void)nanosleep(&t, NULL);
    }
}

void child_count_fast(int counter)
{
    child_shared->pids[counter] = getpid();
    for (;;)
        child_shared->counters[counter]++;
}

void *child_count_thread(void *arg)
{
    child_count((int)(intptr_t)arg);
    return NULL;
}

void child_threads(int first_count)
{
    int count = child_shared->flags[0];

    for (int i = 1; i <= count; i++) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, child_count_thread,
                           (void *)(intptr_t)(first_count + i)) != 0)
            _exit(1);
    }
    child_count(first_count);
}

void child_await_flag(int flag, int value)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(PATIENCE_MS);

    while (child_shared->flags[flag] < value) {
        assert_false(gpucr_deadline_passed(deadline));
        gpucr_sleep_us(200);
    }
}

void child_await_count(int counter, uint64_t value)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(PATIENCE_MS);

    while (child_shared->counters[counter] < value) {
        assert_false(gpucr_deadline_passed(deadline));
        gpucr_sleep_us(200);
    }
}

bool child_rests(int counter)
{
    uint64_t before = child_shared->counters[counter];

    gpucr_sleep_us(20000);
    return child_shared->counters[counter] == before;
}

bool child_moves(int counter)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(PATIENCE_MS);
    uint64_t before = child_shared->counters[counter];

    while (child_shared->counters[counter] == before) {
        if (gpucr_deadline_passed(deadline))
            return false;
        gpucr_sleep_us(200);
    }
    return true;
}

char child_state(pid_t pid)
{
    struct gpucr_proc_stat stat;

    return gpucr_proc_stat_read(pid, &stat, NULL) == 0 ? stat.state : '-';
}

bool child_await_state(pid_t pid, char state)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(PATIENCE_MS);

    while (child_state(pid) != state) {
        if (gpucr_deadline_passed(deadline))
            return false;
        gpucr_sleep_us(200);
    }
    return true;
}

bool child_await_gone(pid_t pid)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(PATIENCE_MS);

    while (child_state(pid) != '-' && child_state(pid) != 'Z') {
        if (gpucr_deadline_passed(deadline))
            return false;
        gpucr_sleep_us(200);
    }
    return true;
}
