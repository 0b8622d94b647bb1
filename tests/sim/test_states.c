/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which call is allowed when, and what the others return. */
#define _GNU_SOURCE
#include "support.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_wrong_states(void)
{
    struct test_program program = test_program_start("counter --mib 4");
    int pid = program.pid, tid = 0;
    char path[64], name[32] = "";
    FILE *file;

    CHECK_EQUAL(CUDA_ERROR_ILLEGAL_STATE, test_checkpoint(pid));
    CHECK_EQUAL(CUDA_ERROR_ILLEGAL_STATE, test_restore(pid));
    CHECK_EQUAL(CUDA_ERROR_ILLEGAL_STATE, test_unlock(pid));
    CHECK_EQUAL(0, test_lock(pid, 0));
    CHECK_EQUAL(CUDA_ERROR_ILLEGAL_STATE, test_lock(pid, 0));
    CHECK_EQUAL(CUDA_ERROR_ILLEGAL_STATE, test_restore(pid));
    CHECK_EQUAL(0, test_checkpoint(pid));
    CHECK_EQUAL(CUDA_ERROR_ILLEGAL_STATE, test_lock(pid, 0));
    CHECK_EQUAL(CUDA_ERROR_ILLEGAL_STATE, test_checkpoint(pid));
    CHECK_EQUAL(CUDA_ERROR_ILLEGAL_STATE, test_unlock(pid));
    CHECK_EQUAL(0, test_driver()->get_tid(pid, &tid));
    snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", pid, tid);
    file = fopen(path, "re");
    CHECK(file && fgets(name, sizeof(name), file));
    fclose(file);
    CHECK_EQUAL(4 + 11 + 1, strlen(name));
    CHECK_EQUAL(0, strncmp(name, "cuda", 4));
    CHECK_EQUAL(11, strspn(name + 4, "0123456789abcdef"));
    CHECK_EQUAL(0, test_restore(pid));
    CHECK_EQUAL(0, test_unlock(pid));
    test_program_verify(&program);
    test_program_end(&program);
}

static void check_not_cuda(void)
{
    struct test_program cpu = test_program_start("cpuonly --threads 2");
    struct test_program nvml = test_program_start("nvmlonly");
    struct test_program forker = test_program_start("forker --mib 4");
    int child = (int)test_program_field(&forker, "child");
    CUprocessState state;
    int tid;

    CHECK_EQUAL(CUDA_ERROR_NOT_INITIALIZED, test_driver()->get_state(cpu.pid, &state));
    CHECK_EQUAL(CUDA_ERROR_NOT_INITIALIZED, test_driver()->get_state(nvml.pid, &state));
    CHECK(test_look(nvml.pid).device_fds >= 2);
    CHECK_EQUAL(CUDA_ERROR_NOT_INITIALIZED, test_driver()->get_state(child, &state));
    CHECK_EQUAL(CUDA_ERROR_NOT_INITIALIZED, test_driver()->get_tid(child, &tid));
    CHECK_EQUAL(CUDA_ERROR_NOT_INITIALIZED, test_lock(child, 100));
    CHECK(test_look(child).device_fds >= 20 && test_look(child).device_maps >= 30);
    CHECK_EQUAL(CU_PROCESS_STATE_RUNNING, test_state(forker.pid));
    CHECK_EQUAL(0, test_lock(forker.pid, 0));
    CHECK_EQUAL(0, test_checkpoint(forker.pid));
    CHECK_EQUAL(0, test_look(forker.pid).device_fds);
    CHECK(test_look(child).device_fds >= 20);
    CHECK_EQUAL(0, test_restore(forker.pid));
    CHECK_EQUAL(0, test_unlock(forker.pid));
    test_program_verify(&forker);
    test_program_verify(&cpu);
    test_program_end(&forker);
    test_program_end(&cpu);
    test_program_end(&nvml);
}

static void check_gone(void)
{
    struct test_program program = test_program_start("counter --mib 4");
    CUprocessState state;
    int pid = program.pid;

    kill(pid, SIGKILL);
    /* Not reaped yet: a zombie is as gone as one that is. */
    while (test_driver()->get_state(pid, &state) == 0)
        test_sleep_ms(1);
    CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, test_lock(pid, 0));
    test_program_kill(&program);
    CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, test_driver()->get_state(pid, &state));
    CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, test_unlock(pid));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, test_driver()->get_state(-5, &state));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, test_driver()->get_state(pid, NULL));
    CHECK_EQUAL(0, test_vram_used(0));
}

static void check_arguments(void)
{
    struct test_program program = test_program_start("counter --mib 4");
    CUcheckpointLockArgs lock = {.timeoutMs = 1000};
    CUcheckpointUnlockArgs unlock = {0};

    lock.reserved1[6] = 1;
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, test_driver()->lock(program.pid, &lock));
    CHECK_EQUAL(CU_PROCESS_STATE_RUNNING, test_state(program.pid));
    CHECK_EQUAL(0, test_driver()->lock(program.pid, NULL));
    unlock.reserved[0] = 1;
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, test_driver()->unlock(program.pid, &unlock));
    CHECK_EQUAL(0, test_driver()->unlock(program.pid, NULL));
    test_program_end(&program);
}

static void check_managed(void)
{
    struct test_program program = test_program_start("counter --mib 4 --managed");
    uint64_t start;

    CHECK_EQUAL(0, test_lock(program.pid, 0));
    start = test_now_ms();
    CHECK_EQUAL(CUDA_ERROR_NOT_SUPPORTED, test_checkpoint(program.pid));
    CHECK(test_now_ms() - start >= 295);
    CHECK_EQUAL(CU_PROCESS_STATE_LOCKED, test_state(program.pid));
    CHECK_EQUAL(0, test_unlock(program.pid));
    test_program_verify(&program);
    test_program_end(&program);
}

/* A kernel that runs too long: not ready, and nothing has changed. Then one that ends in time. */
static void check_long_kernel(void)
{
    struct test_program program = test_program_start("counter --mib 4 --spin-ms 1500");
    uint64_t start = test_now_ms();

    test_sleep_ms(100);
    CHECK_EQUAL(CUDA_ERROR_NOT_READY, test_lock(program.pid, 200));
    CHECK(test_now_ms() - start >= 300);
    CHECK_EQUAL(CU_PROCESS_STATE_RUNNING, test_state(program.pid));
    CHECK_EQUAL(0, test_lock(program.pid, 10000));
    CHECK_EQUAL(0, test_checkpoint(program.pid));
    CHECK_EQUAL(0, test_restore(program.pid));
    CHECK_EQUAL(0, test_unlock(program.pid));
    test_program_verify(&program);
    CHECK_EQUAL(0, test_lock(program.pid, 0));
    CHECK_EQUAL(0, test_unlock(program.pid));
    test_program_end(&program);
}

/* A process that launches without pause can be locked too. */
static void check_busy(void)
{
    struct test_program program = test_program_start("counter --mib 4 --period-ms 0 --threads 4");
    uint64_t counter = test_program_verify(&program);

    CHECK_EQUAL(0, test_lock(program.pid, 5000));
    CHECK_EQUAL(0, test_checkpoint(program.pid));
    CHECK_EQUAL(0, test_restore(program.pid));
    CHECK_EQUAL(0, test_unlock(program.pid));
    CHECK(test_program_verify(&program) > counter);
    test_program_end(&program);
}

/* A caller without cuInit of its own: everything but Restore, and that with persistence mode. */
static void check_caller_without_init(void)
{
    struct test_program program = test_program_start("counter --mib 4");
    char pid[16];
    char *arguments[] = {SIM_CALL_TOOL, pid,          "getstate", "gettid",
                         "lock",        "checkpoint", "restore",  NULL};
    char *again[] = {SIM_CALL_TOOL, pid, "restore", "unlock", NULL};
    char **words[] = {arguments, again};
    int expected[] = {1, 0};

    snprintf(pid, sizeof(pid), "%d", program.pid);
    for (int i = 0; i < 2; i++) {
        pid_t caller = fork();
        int status;

        CHECK(caller >= 0);
        if (caller == 0) {
            dup2(open("/dev/null", O_WRONLY), 1);
            execv(SIM_CALL_TOOL, words[i]);
            _exit(127);
        }
        CHECK(waitpid(caller, &status, 0) == caller && WIFEXITED(status));
        CHECK_EQUAL(expected[i], WEXITSTATUS(status));
        if (i == 0)
            CHECK_EQUAL(CU_PROCESS_STATE_CHECKPOINTED, test_state(program.pid));
        test_config_add("persistence=1");
    }
    test_program_verify(&program);
    test_program_end(&program);
}

int main(void)
{
    test_root_create(1, "1GiB");
    check_gone();
    CHECK_EQUAL(0, test_driver()->init(0));
    check_wrong_states();
    check_not_cuda();
    check_arguments();
    check_managed();
    check_long_kernel();
    check_busy();
    check_caller_without_init();
    return 0;
}
