/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file cuda_api.h
 * The part of the CUDA driver's binary interface that gpucr uses, declared here
 * so that no vendor header is needed to build.
 *
 * Every argument struct of the checkpoint calls is 64 bytes and must be zero
 * apart from the fields named here. Only these fields may be relied on: what
 * follows them was re-used between CUDA 12.8, 13.0 and 13.3.
 */
#ifndef GPUCR_GPU_CUDA_API_H
#define GPUCR_GPU_CUDA_API_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/** CUresult values that gpucr decides by. */
enum {
    GPUCR_CU_SUCCESS = 0,
    GPUCR_CU_INVALID_VALUE = 1,
    GPUCR_CU_OUT_OF_MEMORY = 2,
    GPUCR_CU_NOT_INITIALIZED = 3,
    GPUCR_CU_STUB_LIBRARY = 34,
    GPUCR_CU_NO_DEVICE = 100,
    GPUCR_CU_OPERATING_SYSTEM = 304,
    GPUCR_CU_ILLEGAL_STATE = 401,
    GPUCR_CU_NOT_READY = 600,
    GPUCR_CU_NOT_SUPPORTED = 801,
    GPUCR_CU_DRIVER_MISMATCH = 803,
    GPUCR_CU_UNKNOWN = 999,
};

enum {
    GPUCR_CUDA_VERSION_CHECKPOINT = 12080, /* first with the six calls: driver 570 */
    GPUCR_CUDA_VERSION_REMAP = 13000,      /* first whose Restore reads gpu_pairs: driver 580 */
};

struct gpucr_cu_lock_args {
    uint32_t timeout_ms; /* 0 waits for ever */
    uint32_t reserved0;
    uint64_t reserved1[7];
};

struct gpucr_cu_checkpoint_args {
    uint64_t reserved[8];
};

struct gpucr_cu_gpu_pair {
    unsigned char old_uuid[16];
    unsigned char new_uuid[16];
};

struct gpucr_cu_restore_args {
    const struct gpucr_cu_gpu_pair *gpu_pairs;
    uint32_t gpu_pair_count;
    uint32_t reserved0;
    uint64_t reserved1[6];
};

struct gpucr_cu_unlock_args {
    uint64_t reserved[8];
};

static_assert(sizeof(struct gpucr_cu_lock_args) == 64, "CUcheckpointLockArgs");
static_assert(sizeof(struct gpucr_cu_checkpoint_args) == 64, "CUcheckpointCheckpointArgs");
static_assert(sizeof(struct gpucr_cu_restore_args) == 64, "CUcheckpointRestoreArgs");
static_assert(offsetof(struct gpucr_cu_restore_args, gpu_pair_count) == 8, "gpuPairsCount");
static_assert(sizeof(struct gpucr_cu_unlock_args) == 64, "CUcheckpointUnlockArgs");
static_assert(sizeof(struct gpucr_cu_gpu_pair) == 32, "CUcheckpointGpuPair");

/**
 * The calls: X(field, symbol, version of its interface, arguments). All return a
 * CUresult. cuGetProcAddress is asked for that version, so that a later, changed
 * interface under the same name is never called by accident.
 */
#define GPUCR_CUDA_CALLS(X)                                                                        \
    X(init, "cuInit", 2000, (unsigned flags))                                                      \
    X(get_state, "cuCheckpointProcessGetState", 12080, (int pid, int *state))                      \
    X(get_restore_thread, "cuCheckpointProcessGetRestoreThreadId", 12080, (int pid, int *tid))     \
    X(lock, "cuCheckpointProcessLock", 12080, (int pid, struct gpucr_cu_lock_args *args))          \
    X(checkpoint, "cuCheckpointProcessCheckpoint", 12080,                                          \
      (int pid, struct gpucr_cu_checkpoint_args *args))                                            \
    X(restore, "cuCheckpointProcessRestore", 12080, (int pid, struct gpucr_cu_restore_args *args)) \
    X(unlock, "cuCheckpointProcessUnlock", 12080, (int pid, struct gpucr_cu_unlock_args *args))

struct gpucr_cuda_calls {
#define GPUCR_CUDA_FIELD(field, symbol, version, args) int(*field) args;
    GPUCR_CUDA_CALLS(GPUCR_CUDA_FIELD)
#undef GPUCR_CUDA_FIELD
};

/** The two calls by which the others are found; exported by every libcuda. */
typedef int (*gpucr_cu_driver_get_version_fn)(int *version);
typedef int (*gpucr_cu_get_proc_address_fn)(const char *symbol, void **ret, int cuda_version,
                                            uint64_t flags, int *status);

#endif
