/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The whole chain on one program, as its memory, descriptors and the GPU show it. */
#include "support.h"

#include <signal.h>

static void check_chain(const char *command, uint64_t device_bytes)
{
    struct test_program program = test_program_start(command);
    struct test_look before = test_look(program.pid), away, after;
    uint64_t counter = test_program_verify(&program);
    uint64_t used = test_vram_used(0);

    CHECK(before.device_fds >= 20 && before.device_maps >= 30);
    CHECK(used >= device_bytes);
    CHECK(test_vram_has(0, program.pid));
    CHECK_EQUAL(CU_PROCESS_STATE_RUNNING, test_state(program.pid));
    CHECK_EQUAL(0, test_lock(program.pid, 5000));
    CHECK_EQUAL(CU_PROCESS_STATE_LOCKED, test_state(program.pid));

    test_hold_begin(program.pid);
    CHECK_EQUAL(0, test_hold_call(test_checkpoint, program.pid));
    CHECK_EQUAL(2, test_hold_end());
    CHECK(test_all_stopped(program.pid));
    away = test_look(program.pid);
    CHECK_EQUAL(0, away.device_fds);
    CHECK_EQUAL(0, away.device_maps);
    CHECK_EQUAL(0, away.arena_maps);
    CHECK(away.event_fds >= before.event_fds + 20);
    CHECK(away.private_bytes >= before.private_bytes + device_bytes);
    CHECK_EQUAL(0, test_vram_used(0));
    CHECK(!test_vram_has(0, program.pid));

    test_hold_begin(program.pid);
    CHECK_EQUAL(0, test_hold_call(test_restore, program.pid));
    CHECK_EQUAL(0, test_hold_call(test_unlock, program.pid));
    CHECK_EQUAL(2, test_hold_end());
    CHECK(test_all_stopped(program.pid));
    kill(program.pid, SIGCONT);
    after = test_look(program.pid);
    CHECK_EQUAL(before.device_fds, after.device_fds);
    CHECK_EQUAL(before.device_maps, after.device_maps);
    CHECK_EQUAL(before.event_fds, after.event_fds);
    CHECK_EQUAL(used, test_vram_used(0));
    CHECK(test_vram_has(0, program.pid));
    CHECK_EQUAL(CU_PROCESS_STATE_RUNNING, test_state(program.pid));
    test_sleep_ms(100);
    CHECK(test_program_verify(&program) > counter);
    CHECK_EQUAL(0, test_program_field(&program, "thread_bad"));
    test_program_end(&program);
    CHECK_EQUAL(0, test_vram_used(0));
}

/* Without a hold, with threads that block at their next call, ten times in a row. */
static void check_repeated(void)
{
    struct test_program program = test_program_start("counter --mib 8 --threads 8");

    for (int i = 0; i < 10; i++) {
        CHECK_EQUAL(0, test_lock(program.pid, 5000));
        CHECK_EQUAL(0, test_checkpoint(program.pid));
        CHECK_EQUAL(CU_PROCESS_STATE_CHECKPOINTED, test_state(program.pid));
        CHECK_EQUAL(0, test_restore(program.pid));
        CHECK_EQUAL(CU_PROCESS_STATE_LOCKED, test_state(program.pid));
        CHECK_EQUAL(0, test_unlock(program.pid));
        test_program_verify(&program);
    }
    test_program_end(&program);
}

int main(void)
{
    test_root_create(1, "4GiB");
    CHECK_EQUAL(0, test_driver()->init(0));
    check_chain("counter --mib 64", 64ull << 20);
    check_chain("counter --mib 130 --vmm --threads 8 --timer-us 1000 --term-counter", 130ull << 20);
    check_chain("counter --mib 16 --pinned-poll 8388608", 24ull << 20);
    check_chain("counter --bytes 0 --nvml", 0);
    check_repeated();
    return 0;
}
