/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file cuda_driver.h
 * Inside of the libcuda binding: what its two files share.
 */
#ifndef GPUCR_GPU_CUDA_DRIVER_H
#define GPUCR_GPU_CUDA_DRIVER_H

#include <pthread.h>

#include "gpu/cuda_api.h"
#include "gpu/driver.h"

enum gpucr_cuda_op {
    GPUCR_CUDA_OP_INIT,
    GPUCR_CUDA_OP_GET_STATE,
    GPUCR_CUDA_OP_GET_RESTORE_THREAD,
    GPUCR_CUDA_OP_LOCK,
    GPUCR_CUDA_OP_CHECKPOINT,
    GPUCR_CUDA_OP_RESTORE,
    GPUCR_CUDA_OP_UNLOCK,
    GPUCR_CUDA_OP_MAX,
};

struct gpucr_cuda_driver {
    struct gpucr_driver base;
    void *handle;
    struct gpucr_cuda_calls calls;
    pthread_mutex_t self_test_mutex;
    bool self_test_done;
    int self_test_rc;
    struct gpucr_error self_test_error;
};

/** A call that came back with a code. */
struct gpucr_cuda_failure {
    enum gpucr_cuda_op op;
    pid_t pid;
    int code;
    uint32_t timeout_ms;   /* Lock */
    uint32_t pair_count;   /* Restore */
    const char *now_state; /* ILLEGAL_STATE: the state it is in, or NULL */
};

/** "cuCheckpointProcessLock" */
const char *gpucr_cuda_op_name(enum gpucr_cuda_op op);

/** Make the error of a failed call on a process; returns its code. */
int gpucr_cuda_explain(const struct gpucr_cuda_failure *failure, struct gpucr_error *err);

/** The same for cuInit. */
int gpucr_cuda_explain_init(int driver_code, const char *library_path, struct gpucr_error *err);

#endif
