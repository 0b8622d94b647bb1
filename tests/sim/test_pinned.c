/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pinned memory is gone while checkpointed: who touches it dies, who is held does not. */
#include "support.h"

#include <signal.h>
#include <sys/wait.h>

static void check_not_held(void)
{
    struct test_program program = test_program_start("counter --mib 8 --pinned-poll 1048576");
    CUprocessState state;
    CUresult result;
    int status;

    CHECK_EQUAL(0, test_lock(program.pid, 5000));
    result = test_checkpoint(program.pid);
    status = test_program_wait(&program, 5000);
    /* A sanitizer catches the signal, takes its time to report it, and exits. */
    CHECK(SIM_SANITIZED || result == CUDA_ERROR_OPERATING_SYSTEM);
    CHECK(SIM_SANITIZED ? WEXITSTATUS(status) == 1
                        : WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, test_driver()->get_state(program.pid, &state));
    CHECK_EQUAL(0, test_vram_used(0));
}

static void check_held(void)
{
    struct test_program program =
        test_program_start("counter --mib 8 --pinned-poll 1048576 --timer-us 1000 --term-counter");

    for (int i = 0; i < 3; i++) {
        uint64_t terms = (uint64_t)i;

        CHECK_EQUAL(0, test_lock(program.pid, 5000));
        test_hold_begin(program.pid);
        /* Only the driver's thread could take it; the tracer keeps it away. */
        kill(program.pid, SIGTERM);
        CHECK_EQUAL(0, test_hold_call(test_checkpoint, program.pid));
        test_hold_end();
        test_sleep_ms(50);
        test_hold_begin(program.pid);
        CHECK_EQUAL(0, test_hold_call(test_restore, program.pid));
        CHECK_EQUAL(0, test_hold_call(test_unlock, program.pid));
        test_hold_end();
        kill(program.pid, SIGCONT);
        /* Any thread may take the signal, at its own time. */
        for (int tries = 0; tries < 50; tries++) {
            test_sleep_ms(20);
            test_program_verify(&program);
            if (test_program_field(&program, "term") > terms)
                break;
        }
        CHECK_EQUAL(terms + 1, test_program_field(&program, "term"));
    }
    test_program_end(&program);
}

int main(void)
{
    test_root_create(1, "1GiB");
    CHECK_EQUAL(0, test_driver()->init(0));
    for (int i = 0; i < 3; i++)
        check_not_held();
    check_held();
    return 0;
}
