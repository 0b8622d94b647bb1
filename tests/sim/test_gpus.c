/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Several GPUs: moves from one to another, and too little memory at Restore. */
#include "support.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)

static CUuuid uuids[3];

static void read_uuids(void)
{
    CUresult (*get)(CUuuid *, CUdevice) =
        (CUresult(*)(CUuuid *, CUdevice))test_symbol("cuDeviceGetUuid_v2");

    for (int i = 0; i < 3; i++)
        CHECK_EQUAL(0, get(&uuids[i], i));
}

static CUresult restore_map(pid_t pid, const int *to, unsigned count)
{
    CUcheckpointGpuPair pairs[3] = {0};
    CUcheckpointRestoreArgs args = {.gpuPairs = pairs, .gpuPairsCount = count};

    for (unsigned i = 0; i < count; i++) {
        pairs[i].oldUuid = uuids[i];
        pairs[i].newUuid = uuids[to[i]];
    }
    return test_driver()->restore(pid, &args);
}

static void put_away(pid_t pid)
{
    CHECK_EQUAL(0, test_lock(pid, 5000));
    CHECK_EQUAL(0, test_checkpoint(pid));
}

static void check_device_file(pid_t pid, int gpu)
{
    char path[64], target[512], wanted[32];
    bool found = false;

    snprintf(wanted, sizeof(wanted), "/dev/nvidia%d", gpu);
    for (int fd = 3; fd < 64; fd++) {
        ssize_t length;

        snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
        length = readlink(path, target, sizeof(target) - 1);
        if (length <= 0)
            continue;
        target[length] = '\0';
        found = found || strstr(target, wanted);
    }
    CHECK(found);
}

static void check_move(void)
{
    struct test_program program = test_program_start("counter --mib 64 --device 0");
    static const int swap[] = {1, 0, 2}, back[] = {1, 0, 2}, twice[] = {1, 1, 2};
    uint64_t used = test_vram_used(0);

    CHECK(used >= 64 * MIB && test_vram_used(1) == 0);
    put_away(program.pid);
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, restore_map(program.pid, swap, 1));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, restore_map(program.pid, swap, 2));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, restore_map(program.pid, twice, 3));
    CHECK_EQUAL(CU_PROCESS_STATE_CHECKPOINTED, test_state(program.pid));
    CHECK_EQUAL(0, restore_map(program.pid, swap, 3));
    CHECK_EQUAL(CU_PROCESS_STATE_LOCKED, test_state(program.pid));
    CHECK_EQUAL(0, test_unlock(program.pid));
    CHECK_EQUAL(0, test_vram_used(0));
    CHECK_EQUAL(used, test_vram_used(1));
    CHECK(test_vram_has(1, program.pid));
    check_device_file(program.pid, 1);
    test_program_verify(&program);
    put_away(program.pid);
    CHECK_EQUAL(0, restore_map(program.pid, back, 3));
    CHECK_EQUAL(0, test_unlock(program.pid));
    CHECK_EQUAL(used, test_vram_used(0));
    test_program_verify(&program);
    test_program_end(&program);
}

static void check_all_gpus(void)
{
    struct test_program program = test_program_start("counter --mib 32 --devices all");
    static const int turn[] = {2, 0, 1};

    CHECK_EQUAL(3, test_program_field(&program, "devices"));
    put_away(program.pid);
    for (unsigned gpu = 0; gpu < 3; gpu++)
        CHECK_EQUAL(0, test_vram_used(gpu));
    CHECK_EQUAL(0, restore_map(program.pid, turn, 3));
    CHECK_EQUAL(0, test_unlock(program.pid));
    for (unsigned gpu = 0; gpu < 3; gpu++)
        CHECK(test_vram_used(gpu) >= 32 * MIB);
    test_program_verify(&program);
    test_program_end(&program);
}

static void check_hidden_gpus(void)
{
    struct test_program program;
    static const int swap[] = {1, 0, 2};

    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    program = test_program_start("counter --mib 32 --devices all");
    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK_EQUAL(1, test_program_field(&program, "devices"));
    CHECK(test_vram_used(1) >= 32 * MIB);
    put_away(program.pid);
    /* The map names every GPU of the machine, not only the one that the process sees. */
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, restore_map(program.pid, swap, 1));
    CHECK_EQUAL(0, restore_map(program.pid, swap, 3));
    CHECK_EQUAL(0, test_unlock(program.pid));
    CHECK(test_vram_used(0) >= 32 * MIB && test_vram_used(1) == 0);
    test_program_verify(&program);
    test_program_end(&program);
}

static void check_too_little_memory(void)
{
    struct test_program first = test_program_start("counter --mib 160 --device 2");
    struct test_program second;
    CUprocessState state;

    put_away(first.pid);
    second = test_program_start("counter --mib 160 --device 2");
    CHECK_EQUAL(CUDA_ERROR_OUT_OF_MEMORY, test_restore(first.pid));
    CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, test_driver()->get_state(first.pid, &state));
    CHECK_EQUAL(CUDA_ERROR_ILLEGAL_STATE, test_unlock(first.pid));
    CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, test_restore(first.pid));
    CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, test_lock(first.pid, 100));
    test_program_end(&second);
    CHECK_EQUAL(CUDA_ERROR_OPERATING_SYSTEM, test_restore(first.pid));
    test_program_kill(&first);
    CHECK_EQUAL(0, test_vram_used(2));
}

int main(void)
{
    test_root_create(3, "320MiB");
    CHECK_EQUAL(0, test_driver()->init(0));
    read_uuids();
    check_move();
    check_all_gpus();
    check_hidden_gpus();
    check_too_little_memory();
    return 0;
}
