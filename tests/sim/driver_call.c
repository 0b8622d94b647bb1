/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * driver_call [--init] [--hold] PID CALL[=MS]... : makes driver calls on a process and prints each
 * result. It finds the driver as any program does, by its name.
 *
 * --hold: the process is held meanwhile as a careful caller holds it, and left stopped.
 */
#define _GNU_SOURCE
#include "support.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void *library;
static unsigned timeout_ms;

static void *symbol(const char *name)
{
    void *found = dlsym(library, name);

    CHECK(found);
    return found;
}

static CUresult get_state(int pid)
{
    CUprocessState state = 0;
    CUresult (*call)(int, CUprocessState *) =
        (CUresult(*)(int, CUprocessState *))symbol("cuCheckpointProcessGetState");
    CUresult result = call(pid, &state);

    if (!result)
        printf("state=%d ", (int)state);
    return result;
}

static CUresult get_tid(int pid)
{
    CUresult (*call)(int, int *) =
        (CUresult(*)(int, int *))symbol("cuCheckpointProcessGetRestoreThreadId");
    int tid = 0;
    CUresult result = call(pid, &tid);

    if (!result)
        printf("tid=%d ", tid);
    return result;
}

static CUresult with_args(int pid, const char *name, void *args)
{
    CUresult (*call)(int, void *) = (CUresult(*)(int, void *))symbol(name);

    return call(pid, args);
}

static CUresult lock(int pid)
{
    CUcheckpointLockArgs args = {.timeoutMs = timeout_ms};

    return with_args(pid, "cuCheckpointProcessLock", &args);
}

static CUresult checkpoint(int pid)
{
    CUcheckpointCheckpointArgs args = {0};

    return with_args(pid, "cuCheckpointProcessCheckpoint", &args);
}

static CUresult restore(int pid)
{
    CUcheckpointRestoreArgs args = {0};

    return with_args(pid, "cuCheckpointProcessRestore", &args);
}

static CUresult unlock(int pid)
{
    CUcheckpointUnlockArgs args = {0};

    return with_args(pid, "cuCheckpointProcessUnlock", &args);
}

static const struct {
    const char *name;
    CUresult (*run)(int pid);
} calls[] = {{"getstate", get_state},    {"gettid", get_tid},  {"lock", lock},
             {"checkpoint", checkpoint}, {"restore", restore}, {"unlock", unlock}};

static CUresult run_word(int pid, char *word, bool hold)
{
    char *value = strchr(word, '=');
    CUresult result = -1;

    if (value)
        *value++ = '\0';
    timeout_ms = value ? (unsigned)strtoul(value, NULL, 10) : 0;
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        if (!strcmp(calls[i].name, word))
            result = hold ? test_hold_call(calls[i].run, pid) : calls[i].run(pid);
    }
    printf("%s=%d\n", word, result);
    fflush(stdout);
    return result;
}

int main(int argc, char **argv)
{
    bool init = false, hold = false;
    CUresult result = 0;
    int at = 1, pid;

    for (; at < argc && argv[at][0] == '-'; at++) {
        init = init || !strcmp(argv[at], "--init");
        hold = hold || !strcmp(argv[at], "--hold");
    }
    if (at + 1 >= argc)
        return 2;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library);
    if (init)
        CHECK_EQUAL(0, ((CUresult(*)(unsigned))symbol("cuInit"))(0));
    pid = (int)strtol(argv[at++], NULL, 10);
    if (hold)
        test_hold_begin(pid);
    for (; at < argc && !result; at++)
        result = run_word(pid, argv[at], hold);
    if (hold)
        test_hold_end();
    return result != 0;
}
