/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A libcuda.so.1 with the checkpoint calls only, controlled by the test that loaded
 * it: states per process, answers and delays per call and process. It knows the
 * rules of the states, checks that arguments are zeroed, and, as the real one, does
 * not answer for a process none of whose driver threads can run.
 */
#include "fake_cuda.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu/cuda_api.h"

enum { PROCESSES_MAX = 64, SCRIPTS_MAX = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int pid;
    int state;
} processes[PROCESSES_MAX];
static struct fake_script scripts[SCRIPTS_MAX];
static size_t script_count;
static struct fake_seen seen;
static int version = 13000;
static int self_code = GPUCR_CU_NOT_INITIALIZED;
static bool initialised;

void fake_reset(void)
{
    (void)pthread_mutex_lock(&mutex);
    memset(processes, 0, sizeof(processes));
    script_count = 0;
    seen = (struct fake_seen){.calls = 0};
    version = 13000;
    self_code = GPUCR_CU_NOT_INITIALIZED;
    (void)pthread_mutex_unlock(&mutex);
}

void fake_set_version(int value)
{
    version = value;
}

void fake_set_self_code(int code)
{
    self_code = code;
}

static int *state_of(int pid)
{
    for (size_t i = 0; i < PROCESSES_MAX; i++) {
        if (processes[i].pid == pid)
            return &processes[i].state;
    }
    return NULL;
}

void fake_set_state(int pid, int state)
{
    (void)pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < PROCESSES_MAX; i++) {
        if (processes[i].pid == pid || processes[i].pid == 0) {
            processes[i].pid = pid;
            processes[i].state = state;
            break;
        }
    }
    (void)pthread_mutex_unlock(&mutex);
}

int fake_state(int pid)
{
    int *state;
    int out;

    (void)pthread_mutex_lock(&mutex);
    state = state_of(pid);
    out = state ? *state : -1;
    (void)pthread_mutex_unlock(&mutex);
    return out;
}

void fake_script(const struct fake_script *script)
{
    (void)pthread_mutex_lock(&mutex);
    scripts[script_count++] = *script;
    (void)pthread_mutex_unlock(&mutex);
}

struct fake_seen fake_seen(void)
{
    struct fake_seen out;

    (void)pthread_mutex_lock(&mutex);
    out = seen;
    (void)pthread_mutex_unlock(&mutex);
    return out;
}

static char task_state(const char *task, const char *tid)
{
    char path[128];
    char text[512] = "";
    const char *end;
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/%s/stat", task, tid);
    f = fopen(path, "re");
    if (!f)
        return '?';
    (void)!fread(text, 1, sizeof(text) - 1, f);
    (void)fclose(f);
    end = strrchr(text, ')');
    return end && end[1] ? end[2] : '?';
}

/* Can its restore thread run? A process without such a thread answers always. */
static bool answers(int pid)
{
    char task[64];
    bool out = true;
    struct dirent *entry;
    DIR *d;

    (void)snprintf(task, sizeof(task), "/proc/%d/task", pid);
    d = opendir(task);
    if (!d)
        return true;
    while ((entry = readdir(d))) {
        char path[384];
        char comm[64] = "";
        FILE *f;

        (void)snprintf(path, sizeof(path), "%s/%s/comm", task, entry->d_name);
        f = fopen(path, "re");
        if (!f)
            continue;
        (void)!fread(comm, 1, sizeof(comm) - 1, f);
        (void)fclose(f);
        if (strncmp(comm, "cuda", 4) == 0 && strlen(comm) == 16)
            out = !strchr("Tt", task_state(task, entry->d_name));
    }
    (void)closedir(d);
    return out;
}

static void sleep_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)nanosleep(&t, NULL);
}

static bool any_locked(void)
{
    for (size_t i = 0; i < PROCESSES_MAX; i++) {
        if (processes[i].pid && processes[i].state == 1)
            return true;
    }
    return false;
}

/* The scripted answer, or -1. */
static int scripted(const char *call, int pid)
{
    struct fake_script found = {.code = -1};
    bool hit = false;

    (void)pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < script_count && !hit; i++) {
        if (strcmp(scripts[i].call, call) != 0 || (scripts[i].pid && scripts[i].pid != pid))
            continue;
        if (scripts[i].times == 0)
            continue;
        if (scripts[i].times > 0)
            scripts[i].times--;
        found = scripts[i];
        hit = true;
    }
    (void)pthread_mutex_unlock(&mutex);
    if (!hit)
        return -1;
    if (found.sleep_ms)
        sleep_ms(found.sleep_ms);
    if (found.signal) {
        (void)kill(pid, found.signal);
        sleep_ms(found.signal == SIGSTOP ? 20 : 0);
    }
    if (found.new_state >= 0)
        fake_set_state(pid, found.new_state);
    while (found.hangs_while_others_locked) {
        bool locked;

        (void)pthread_mutex_lock(&mutex);
        locked = any_locked();
        (void)pthread_mutex_unlock(&mutex);
        if (!locked)
            break;
        sleep_ms(5);
    }
    return found.code;
}

static int begin(const char *call, int pid)
{
    char task[64];
    int code;

    (void)pthread_mutex_lock(&mutex);
    seen.calls++;
    if (++seen.in_flight > seen.in_flight_max)
        seen.in_flight_max = seen.in_flight;
    (void)pthread_mutex_unlock(&mutex);
    (void)snprintf(task, sizeof(task), "%d", pid);
    while (!answers(pid))
        sleep_ms(2);
    code = scripted(call, pid);
    while (!answers(pid))
        sleep_ms(2);
    if (code >= 0)
        return code;
    if (pid == getpid())
        return self_code;
    if (kill(pid, 0) != 0 || task_state("/proc", task) == 'Z')
        return GPUCR_CU_OPERATING_SYSTEM;
    return fake_state(pid) < 0 ? GPUCR_CU_NOT_INITIALIZED : -1;
}

static int end(int code)
{
    (void)pthread_mutex_lock(&mutex);
    seen.in_flight--;
    (void)pthread_mutex_unlock(&mutex);
    return code;
}

static bool is_zero(const void *from, size_t size)
{
    const unsigned char *p = from;

    for (size_t i = 0; i < size; i++) {
        if (p[i])
            return false;
    }
    return true;
}

static int transition(int pid, int from, int to)
{
    int *state;
    int code = GPUCR_CU_ILLEGAL_STATE;

    (void)pthread_mutex_lock(&mutex);
    state = state_of(pid);
    if (state && *state == from) {
        *state = to;
        code = GPUCR_CU_SUCCESS;
    }
    (void)pthread_mutex_unlock(&mutex);
    return code;
}

FAKE_EXPORT int cuDriverGetVersion(int *ret)
{
    *ret = version;
    return GPUCR_CU_SUCCESS;
}

FAKE_EXPORT int cuInit(unsigned flags)
{
    int code = scripted("init", 0);

    if (code < 0)
        code = flags == 0 ? GPUCR_CU_SUCCESS : GPUCR_CU_INVALID_VALUE;
    (void)pthread_mutex_lock(&mutex);
    initialised = code == GPUCR_CU_SUCCESS;
    seen.inits++;
    (void)pthread_mutex_unlock(&mutex);
    return code;
}

#ifndef FAKE_OLD
FAKE_EXPORT int cuCheckpointProcessGetState(int pid, int *ret)
{
    int code = begin("get_state", pid);

    if (code < 0) {
        *ret = fake_state(pid);
        code = GPUCR_CU_SUCCESS;
    }
    return end(code);
}

FAKE_EXPORT int cuCheckpointProcessGetRestoreThreadId(int pid, int *ret)
{
    int code = begin("get_restore_thread", pid);

    if (code < 0) {
        *ret = pid + 1;
        code = GPUCR_CU_SUCCESS;
    }
    return end(code);
}

FAKE_EXPORT int cuCheckpointProcessLock(int pid, struct gpucr_cu_lock_args *args)
{
    int code = begin("lock", pid);

    if (args->timeout_ms == 0 || !is_zero(&args->reserved0, sizeof(*args) - 4))
        return end(GPUCR_CU_INVALID_VALUE);
    (void)pthread_mutex_lock(&mutex);
    seen.lock_timeout_ms = args->timeout_ms;
    (void)pthread_mutex_unlock(&mutex);
    return end(code >= 0 ? code : transition(pid, 0, 1));
}

FAKE_EXPORT int cuCheckpointProcessCheckpoint(int pid, struct gpucr_cu_checkpoint_args *args)
{
    int code = begin("checkpoint", pid);

    if (!is_zero(args, sizeof(*args)))
        return end(GPUCR_CU_INVALID_VALUE);
    return end(code >= 0 ? code : transition(pid, 1, 2));
}

FAKE_EXPORT int cuCheckpointProcessRestore(int pid, struct gpucr_cu_restore_args *args)
{
    int code = begin("restore", pid);

    if (!initialised)
        return end(GPUCR_CU_NOT_INITIALIZED);
    if (!is_zero(&args->reserved0, sizeof(*args) - 12))
        return end(GPUCR_CU_INVALID_VALUE);
    (void)pthread_mutex_lock(&mutex);
    seen.pair_count = args->gpu_pair_count;
    seen.pair_first = args->gpu_pair_count ? args->gpu_pairs[0].old_uuid[0] : 0;
    seen.pair_last =
        args->gpu_pair_count ? args->gpu_pairs[args->gpu_pair_count - 1].new_uuid[15] : 0;
    (void)pthread_mutex_unlock(&mutex);
    return end(code >= 0 ? code : transition(pid, 2, 1));
}

FAKE_EXPORT int cuCheckpointProcessUnlock(int pid, struct gpucr_cu_unlock_args *args)
{
    int code = begin("unlock", pid);

    if (!is_zero(args, sizeof(*args)))
        return end(GPUCR_CU_INVALID_VALUE);
    (void)pthread_mutex_lock(&mutex);
    seen.unlocks++;
    (void)pthread_mutex_unlock(&mutex);
    return end(code >= 0 ? code : transition(pid, 1, 0));
}
#endif
