/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file gpucr/job.h
 * The operations: list, check, suspend, resume, checkpoint, restore.
 *
 * Each call works on one process tree, from start to a verified end state, and
 * fills a `struct gpucr_result` on success and failure. The return value is 0
 * or the code of result->error.
 *
 * Threads: one call at a time per tree; calls on different trees may run in
 * parallel. The calls start threads of their own and have joined them when they
 * return. They leave signal dispositions and masks of the program alone.
 *
 * Since: 0.1
 */
#ifndef GPUCR_JOB_H
#define GPUCR_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpucr/error.h>
#include <gpucr/result.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GPUCR_NAME_VALUE_MAX = 64, GPUCR_FORCED_MAX = 32 };

/** How far the current phase is; called from a library thread, about 5 times a second. */
typedef void (*gpucr_progress_fn)(void *arg, const char *phase, uint64_t done_bytes,
                                  uint64_t total_bytes);

/** NAME=VALUE, or a bare NAME with value NULL. */
struct gpucr_name_value {
    const char *name;
    const char *value;
};

/**
 * Options of all operations; zero means the default everywhere. Strings and
 * arrays are the caller's and must live until the call returns.
 */
struct gpucr_job_options {
    int32_t pid;                /**< root of the tree (list: 0 for all) */
    bool single_process;        /**< only this process, not its descendants (suspend, resume) */
    uint64_t timeout_ms;        /**< deadline for locking and holding; 0: 30 s */
    uint64_t engine_timeout_ms; /**< deadline for CRIU without progress; 0: 120 s */
    const char *driver_root;    /**< folder in which the driver's libraries are looked up */
    const char *dev_root;       /**< folder that holds nvidia0, nvidiactl, …; NULL: /dev */
    const char *state_dir; /**< records of suspended trees; NULL: /run/gpucr or XDG_RUNTIME_DIR */
    const char *forced[GPUCR_FORCED_MAX]; /**< names of findings to override */
    size_t forced_count;
    bool list_all;   /**< list: also processes that only hold device files */
    bool sequential; /**< driver calls one process after another, by pid */

    /* checkpoint and restore */
    const char *image_dir; /**< the image */
    const char *criu_path; /**< NULL: GPUCR_CRIU, then PATH */
    bool leave_running;    /**< checkpoint: the program goes on afterwards */
    bool shell_job;
    bool tcp_established;
    bool file_locks;
    bool link_remap;
    bool ext_unix_sk;
    uint64_t ghost_limit_bytes;                                 /**< 0: CRIU's default */
    struct gpucr_name_value criu_options[GPUCR_NAME_VALUE_MAX]; /**< any further CRIU option */
    size_t criu_option_count;

    /* restore */
    bool foreground;      /**< wait for the root process; result->exit_status tells */
    bool pid_namespace;   /**< restore under fresh pids, in a pid namespace of its own */
    uint64_t pid_wait_ms; /**< how long to wait for a pid of the image to be free; 0: 10 s */

    gpucr_progress_fn progress; /**< may be NULL */
    void *progress_arg;
    const volatile int *cancel; /**< set to non-zero by a signal handler: roll back and return */
    /** foreground restore: called once with the root's pid when the tree runs */
    void (*restored)(void *arg, int32_t pid);
    void *restored_arg;
};

/** Processes with CUDA state: one entry per process in result->processes. Touches nothing. */
int gpucr_list(const struct gpucr_job_options *options, struct gpucr_result *result);

/** Is this machine fit (pid 0), is that process tree fit? Findings only; touches nothing. */
int gpucr_check(const struct gpucr_job_options *options, struct gpucr_result *result);

/** GPU state to host memory, tree stopped, GPUs free. */
int gpucr_suspend(const struct gpucr_job_options *options, struct gpucr_result *result);

/** The reverse of gpucr_suspend(). */
int gpucr_resume(const struct gpucr_job_options *options, struct gpucr_result *result);

/** Tree to an image; the tree is gone afterwards unless leave_running. */
int gpucr_checkpoint(const struct gpucr_job_options *options, struct gpucr_result *result);

/** Image to a running tree. */
int gpucr_restore(const struct gpucr_job_options *options, struct gpucr_result *result);

/** What this machine has; for `gpucr check` and `--version`. */
struct gpucr_machine {
    int32_t driver_version; /**< 13000 for CUDA 13.0; 0: no driver */
    char driver_name[32];   /**< "580.159.04", "" if unknown */
    bool can_checkpoint;    /**< the six calls are there */
    bool can_remap;         /**< restore takes a device map */
    uint32_t gpu_count;
    char criu_path[GPUCR_ERROR_PATH_BYTES]; /**< "" if none */
    int32_t criu_version;                   /**< 40101 for 4.1.1, 0 if none */
    bool hardware_breakpoints;              /**< do they fire here? CRIU wants them */
    char kernel[96];
    struct gpucr_gpu {
        char uuid[GPUCR_UUID_BYTES];
        char name[GPUCR_NAME_BYTES];
        uint64_t memory_bytes;
        uint64_t free_bytes;
    } gpus[GPUCR_GPUS_PER_PROCESS_MAX];
};

/** Look at the machine. Missing parts are left empty; fails only on broken invariants. */
int gpucr_machine_probe(const struct gpucr_job_options *options, struct gpucr_machine *ret,
                        struct gpucr_error *err);

#ifdef __cplusplus
}
#endif
#endif
