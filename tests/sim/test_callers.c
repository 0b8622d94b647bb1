/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Stopped targets, several callers, callers that die, long copies. */
#define _GNU_SOURCE
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define TARGETS 4

struct caller {
    pthread_t thread;
    pid_t pid;
    CUresult (*run)(int pid);
    CUresult result;
    atomic_bool done;
};

static CUresult get_state(int pid)
{
    CUprocessState state;

    return test_driver()->get_state(pid, &state);
}

static void *run_caller(void *arg)
{
    struct caller *caller = arg;

    caller->result = caller->run(caller->pid);
    atomic_store(&caller->done, true);
    return NULL;
}

static void start(struct caller *caller, CUresult (*run)(int pid), pid_t pid)
{
    *caller = (struct caller){.pid = pid, .run = run, .result = -1};
    CHECK(pthread_create(&caller->thread, NULL, run_caller, caller) == 0);
}

static CUresult finish(struct caller *caller)
{
    pthread_join(caller->thread, NULL);
    return caller->result;
}

static void check_stopped(void)
{
    struct test_program program = test_program_start("counter --mib 4");
    struct caller callers[3];

    kill(program.pid, SIGSTOP);
    test_sleep_ms(20);
    for (int i = 0; i < 3; i++)
        start(&callers[i], get_state, program.pid);
    test_sleep_ms(300);
    for (int i = 0; i < 3; i++)
        CHECK(!atomic_load(&callers[i].done));
    kill(program.pid, SIGCONT);
    for (int i = 0; i < 3; i++)
        CHECK_EQUAL(0, finish(&callers[i]));
    kill(program.pid, SIGSTOP);
    test_sleep_ms(20);
    start(&callers[0], get_state, program.pid);
    test_sleep_ms(50);
    test_program_kill(&program);
    CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, finish(&callers[0]));
}

static CUresult lock(int pid)
{
    return test_lock(pid, 0);
}

/* On several targets at once; a copy of fixed speed shows that they do not wait for each other. */
static void check_parallel(void)
{
    struct test_program programs[TARGETS];
    struct caller callers[TARGETS];
    CUresult (*const steps[])(int) = {lock, test_checkpoint, test_restore, test_unlock};
    uint64_t start_ms;

    test_config_add("copy_bytes_per_s=33554432");
    for (int i = 0; i < TARGETS; i++)
        programs[i] = test_program_start("counter --mib 30");
    for (size_t step = 0; step < ARRAY_SIZE(steps); step++) {
        start_ms = test_now_ms();
        for (int i = 0; i < TARGETS; i++)
            start(&callers[i], steps[step], programs[i].pid);
        for (int i = 0; i < TARGETS; i++)
            CHECK_EQUAL(0, finish(&callers[i]));
        if (steps[step] == test_checkpoint)
            CHECK(test_now_ms() - start_ms >= 980 && test_now_ms() - start_ms < 3600);
    }
    for (int i = 0; i < TARGETS; i++) {
        test_program_verify(&programs[i]);
        test_program_end(&programs[i]);
    }
}

/* A caller that is killed midway: what it asked for is done, and the next caller is served. */
static void check_killed_caller(void)
{
    struct test_program program = test_program_start("counter --mib 30");
    uint64_t before = test_look(program.pid).private_bytes;
    pid_t caller;

    CHECK_EQUAL(0, lock(program.pid));
    caller = fork();
    CHECK(caller >= 0);
    if (caller == 0) {
        test_checkpoint(program.pid);
        _exit(0);
    }
    /* Midway: the staging memory is there, and the copy into it takes a second. */
    while (test_look(program.pid).private_bytes < before + (30ull << 20))
        test_sleep_ms(5);
    kill(caller, SIGKILL);
    CHECK(waitpid(caller, NULL, 0) == caller);
    CHECK_EQUAL(CU_PROCESS_STATE_CHECKPOINTED, test_state(program.pid));
    CHECK_EQUAL(0, test_restore(program.pid));
    CHECK_EQUAL(0, test_unlock(program.pid));
    test_program_verify(&program);
    test_program_end(&program);
}

static void check_speed(void)
{
    struct test_program program = test_program_start("counter --mib 4 --threads 8");
    uint64_t start_ms = test_now_ms();

    for (int i = 0; i < 200; i++)
        CHECK_EQUAL(0, get_state(program.pid));
    printf("one getstate: %.3f ms\n", (double)(test_now_ms() - start_ms) / 200);
    test_program_end(&program);
}

int main(void)
{
    test_root_create(1, "2GiB");
    CHECK_EQUAL(0, test_driver()->init(0));
    check_stopped();
    check_speed();
    check_parallel();
    check_killed_caller();
    return 0;
}
