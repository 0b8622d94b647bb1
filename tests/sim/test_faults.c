/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Scripted faults: each action, on the calls of a caller and on those of an application. */
#define _GNU_SOURCE
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static CUresult get_state(int pid)
{
    CUprocessState state;

    return test_driver()->get_state(pid, &state);
}

static CUresult get_tid(int pid)
{
    int tid;

    return test_driver()->get_tid(pid, &tid);
}

static CUresult lock(int pid)
{
    return test_lock(pid, 5000);
}

/* The calls in an order in which each is allowed. */
static const struct {
    const char *rule;
    CUresult (*run)(int pid);
} calls[] = {{"getstate", get_state},         {"gettid", get_tid},       {"lock", lock},
             {"checkpoint", test_checkpoint}, {"restore", test_restore}, {"unlock", test_unlock}};

static void set_rule(const char *call, const char *rest)
{
    char rule[128];

    snprintf(rule, sizeof(rule), "# a comment\n%s %s", call, rest);
    test_faults_set(rule);
}

/* The fault has no effect: the same call goes through afterwards. */
static void check_refusals(const char *action, CUresult expected, bool poisons_restore)
{
    struct test_program program = test_program_start("counter --mib 4");

    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        if (poisons_restore && !strcmp(calls[i].rule, "restore"))
            continue;
        set_rule(calls[i].rule, action);
        CHECK_EQUAL(expected, calls[i].run(program.pid));
        test_faults_set(NULL);
        if (poisons_restore && !strcmp(calls[i].rule, "unlock"))
            CHECK_EQUAL(0, test_restore(program.pid));
        CHECK_EQUAL(0, calls[i].run(program.pid));
    }
    test_program_verify(&program);
    test_program_end(&program);
}

/* Too little memory at Restore, by rule: the process is lost. */
static void check_restore_oom(void)
{
    struct test_program program = test_program_start("counter --mib 4");

    CHECK_EQUAL(0, lock(program.pid));
    CHECK_EQUAL(0, test_checkpoint(program.pid));
    set_rule("restore", "oom");
    CHECK_EQUAL(CUDA_ERROR_OUT_OF_MEMORY, test_restore(program.pid));
    test_faults_set(NULL);
    CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, get_state(program.pid));
    CHECK_EQUAL(CUDA_ERROR_ILLEGAL_STATE, test_unlock(program.pid));
    test_program_kill(&program);
}

static void go_to(int pid, size_t call)
{
    for (size_t i = 0; i < call; i++)
        CHECK_EQUAL(0, calls[i].run(pid));
}

static void check_crash(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        for (int late = 0; late < 2; late++) {
            struct test_program program = test_program_start("counter --mib 4");
            int status;

            go_to(program.pid, i);
            set_rule(calls[i].rule, late ? "late crash" : "crash");
            CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, calls[i].run(program.pid));
            test_faults_set(NULL);
            status = test_program_wait(&program, 5000);
            CHECK(SIM_SANITIZED || (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
        }
    }
}

static void check_poison(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        struct test_program program = test_program_start("counter --mib 4");
        bool unlock = !strcmp(calls[i].rule, "unlock");

        go_to(program.pid, i);
        set_rule(calls[i].rule, "poison");
        CHECK_EQUAL(unlock ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_OPERATING_SYSTEM,
                    calls[i].run(program.pid));
        test_faults_set(NULL);
        /* One that is not locked learns of it at its next call, and ends. */
        if (calls[i].run == get_state || calls[i].run == get_tid || calls[i].run == lock) {
            CHECK_EQUAL(3, WEXITSTATUS(test_program_wait(&program, 5000)));
            continue;
        }
        CHECK_EQUAL(CUDA_ERROR_ILLEGAL_STATE, test_unlock(program.pid));
        CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, test_checkpoint(program.pid));
        CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, get_state(program.pid));
        test_program_kill(&program);
    }
}

/* The call takes effect, and its caller is told otherwise. */
static void check_late(void)
{
    struct test_program program = test_program_start("counter --mib 4");

    set_rule("lock", "late fail=999");
    CHECK_EQUAL(CUDA_ERROR_UNKNOWN, lock(program.pid));
    CHECK_EQUAL(CU_PROCESS_STATE_LOCKED, test_state(program.pid));
    set_rule("checkpoint", "late fail=304");
    CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, test_checkpoint(program.pid));
    CHECK_EQUAL(CU_PROCESS_STATE_CHECKPOINTED, test_state(program.pid));
    CHECK_EQUAL(0, test_restore(program.pid));
    CHECK_EQUAL(0, test_unlock(program.pid));
    set_rule("getstate", "state=3");
    CHECK_EQUAL(CU_PROCESS_STATE_FAILED, test_state(program.pid));
    test_faults_set(NULL);
    CHECK_EQUAL(CU_PROCESS_STATE_RUNNING, test_state(program.pid));
    test_program_verify(&program);
    test_program_end(&program);
}

static atomic_int hang_result;

static void *run_hanging(void *arg)
{
    atomic_store(&hang_result, lock(*(int *)arg));
    return NULL;
}

static void check_time(void)
{
    struct test_program program = test_program_start("counter --mib 4");
    pthread_t thread;
    uint64_t start;

    for (int i = 0; i < 2; i++) {
        set_rule("getstate", i ? "hang=300" : "latency=300");
        start = test_now_ms();
        CHECK_EQUAL(0, get_state(program.pid));
        CHECK(test_now_ms() - start >= 300);
    }
    set_rule("lock", "hang=0");
    atomic_store(&hang_result, -1);
    CHECK(pthread_create(&thread, NULL, run_hanging, &program.pid) == 0);
    test_sleep_ms(300);
    CHECK_EQUAL(-1, atomic_load(&hang_result));
    test_faults_set(NULL);
    pthread_join(thread, NULL);
    CHECK_EQUAL(0, atomic_load(&hang_result));
    CHECK_EQUAL(0, test_unlock(program.pid));
    test_program_end(&program);
}

/* pid= and nth= choose the call; the count goes on across processes. */
static void check_choice(void)
{
    struct test_program one = test_program_start("counter --mib 4");
    struct test_program two = test_program_start("counter --mib 4");
    char rule[64];

    snprintf(rule, sizeof(rule), "pid=%d fail=999", two.pid);
    set_rule("getstate", rule);
    CHECK_EQUAL(0, get_state(one.pid));
    CHECK_EQUAL(999, get_state(two.pid));
    set_rule("getstate", "nth=3 fail=998");
    CHECK_EQUAL(0, get_state(one.pid));
    CHECK_EQUAL(0, get_state(two.pid));
    CHECK_EQUAL(998, get_state(one.pid));
    CHECK_EQUAL(0, get_state(one.pid));
    set_rule("getstate", "nth=1 fail=998 # written anew: counted anew");
    CHECK_EQUAL(998, get_state(one.pid));
    test_faults_set("getstate latency=50\ngetstate fail=5\nlock fail=6");
    CHECK_EQUAL(5, get_state(one.pid));
    CHECK_EQUAL(6, lock(one.pid));
    test_faults_set(NULL);
    test_program_end(&one);
    test_program_end(&two);
}

static void check_application(void)
{
    struct test_program program = test_program_start("counter --mib 4");

    set_rule("launch", "hang=1000");
    test_sleep_ms(200);
    CHECK_EQUAL(CUDA_ERROR_NOT_READY, test_lock(program.pid, 100));
    set_rule("launch", "fail=719");
    CHECK(test_program_expect(&program, "error ", 5000));
    CHECK(strstr(program.line, "call=cuLaunchKernel code=719"));
    CHECK_EQUAL(3, WEXITSTATUS(test_program_wait(&program, 5000)));
    set_rule("launch", "crash");
    program = test_program_start("counter --mib 4 --bytes 0");
    CHECK(SIM_SANITIZED || WIFSIGNALED(test_program_wait(&program, 5000)));
    test_faults_set(NULL);
}

/* The table names every call; each can be made to fail. */
static void check_table(void)
{
    static const char *const rules[] = {
#define SIM_CALL(id, rule, base, symbol) rule,
#include "../../sim/common/sim_calls.def"
#undef SIM_CALL
    };
    CUresult (*alloc)(CUdeviceptr *, size_t) =
        (CUresult(*)(CUdeviceptr *, size_t))test_symbol("cuMemAlloc_v2");
    CUdeviceptr pointer;

    for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(rules[i], rules[j]) != 0);
    }
    set_rule("memalloc", "oom");
    CHECK_EQUAL(CUDA_ERROR_OUT_OF_MEMORY, alloc(&pointer, 100));
    set_rule("memalloc", "fail=7");
    CHECK_EQUAL(7, alloc(&pointer, 100));
    set_rule("init", "fail=100");
    CHECK_EQUAL(100, test_driver()->init(0));
    set_rule("nvmlquery", "latency=1");
    test_vram_used(0);
    test_faults_set(NULL);
}

int main(void)
{
    test_root_create(1, "1GiB");
    CHECK_EQUAL(0, test_driver()->init(0));
    check_refusals("fail=999", 999, false);
    check_refusals("refuse", CUDA_ERROR_NOT_SUPPORTED, false);
    check_refusals("oom", CUDA_ERROR_OUT_OF_MEMORY, true);
    check_restore_oom();
    check_crash();
    check_poison();
    check_late();
    check_time();
    check_choice();
    check_application();
    check_table();
    return 0;
}
