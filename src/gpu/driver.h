/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file driver.h
 * The CUDA driver's checkpoint calls behind one vtable.
 *
 * A stopped or frozen process answers no driver call: these functions then block
 * for as long as it is stopped. Callers look at /proc first and open a tracer
 * window. No call is ever ended midway: that would leave driver and process out
 * of step.
 *
 * Threads: calls on different processes may run in parallel.
 */
#ifndef GPUCR_GPU_DRIVER_H
#define GPUCR_GPU_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <gpucr/result.h>

#include "base/err.h"

/** States as the driver numbers them. */
enum gpucr_cuda_state {
    GPUCR_CUDA_RUNNING = 0,
    GPUCR_CUDA_LOCKED = 1,
    GPUCR_CUDA_CHECKPOINTED = 2,
    GPUCR_CUDA_FAILED = 3,
    GPUCR_CUDA_CHECKPOINTING = 4,
    GPUCR_CUDA_RESTORING = 5,
};

struct gpucr_uuid {
    unsigned char bytes[16];
};

/** From "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as NVML writes it. False if it is none. */
bool gpucr_uuid_parse(const char *text, struct gpucr_uuid *ret);
void gpucr_uuid_format(const struct gpucr_uuid *uuid, char ret[GPUCR_UUID_BYTES]);

/** Old GPU to new GPU. */
struct gpucr_gpu_pair {
    struct gpucr_uuid from;
    struct gpucr_uuid to;
};

struct gpucr_driver;
struct gpucr_driver_init;

/**
 * Errors of the calls name the call, the process, the driver's code and what it
 * means here; err->driver_code and err->pid are set. The codes:
 * GPUCR_ERR_NOT_CUDA the process has no CUDA state; GPUCR_ERR_TIMEOUT Lock did not
 * get there in time, the process runs on; GPUCR_ERR_TARGET_DIED it has ended;
 * GPUCR_ERR_PERMISSION it is somebody else's; GPUCR_ERR_POISONED it lives, but the
 * driver lost it; GPUCR_ERR_UNSUPPORTED; GPUCR_ERR_DRIVER anything else, also that
 * the binding itself does not work (found by a self-test before the first call).
 */
struct gpucr_driver_ops {
    int (*init)(struct gpucr_driver *driver, struct gpucr_error *err);
    int (*get_state)(struct gpucr_driver *driver, pid_t pid, enum gpucr_cuda_state *ret,
                     struct gpucr_error *err);
    int (*get_restore_thread)(struct gpucr_driver *driver, pid_t pid, pid_t *ret,
                              struct gpucr_error *err);
    int (*lock)(struct gpucr_driver *driver, pid_t pid, uint32_t timeout_ms,
                struct gpucr_error *err);
    int (*checkpoint)(struct gpucr_driver *driver, pid_t pid, struct gpucr_error *err);
    int (*restore)(struct gpucr_driver *driver, pid_t pid, const struct gpucr_gpu_pair *pairs,
                   uint32_t pair_count, struct gpucr_error *err);
    int (*unlock)(struct gpucr_driver *driver, pid_t pid, struct gpucr_error *err);
    void (*close)(struct gpucr_driver *driver);
};

/** Common part; each implementation embeds it as its first member. */
struct gpucr_driver {
    const struct gpucr_driver_ops *ops;
    struct gpucr_driver_init *init; /* the thread that runs ops->init */
    int32_t cuda_version;           /* 13000 */
    bool can_remap;
    char library_path[GPUCR_ERROR_PATH_BYTES];
};

/**
 * Load the driver's library and bind the calls. GPUCR_ERR_DRIVER_MISSING when
 * there is no library, GPUCR_ERR_UNSUPPORTED (naming the minimum) when it is too
 * old. With @p driver_root the library is looked up below that folder only.
 * When gpucr runs as root the library must be owned by root and not writable by others.
 */
int gpucr_driver_open(const char *driver_root, struct gpucr_driver **ret, struct gpucr_error *err);

/** NULL is fine. Returns NULL. */
struct gpucr_driver *gpucr_driver_close(struct gpucr_driver *driver);

/**
 * Call init (cuInit, up to half a second on an idle GPU) on a thread of its own;
 * gpucr_driver_wait_init() joins it and returns its result, any number of times
 * and from any thread. Restore needs it and waits for it; it starts it when
 * nobody has. Starting twice is fine.
 */
int gpucr_driver_start_init(struct gpucr_driver *driver, struct gpucr_error *err);
int gpucr_driver_wait_init(struct gpucr_driver *driver, struct gpucr_error *err);

/** "CUDA_ERROR_NOT_READY" and the like; never NULL. */
const char *gpucr_cuda_error_name(int driver_code);

/** What the code means for checkpointing, half a sentence; never NULL. */
const char *gpucr_cuda_error_hint(int driver_code);

const char *gpucr_cuda_state_name(enum gpucr_cuda_state state);

#endif
