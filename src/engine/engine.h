/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file engine.h
 * What saves and restores the CPU side of a stopped process tree.
 *
 * Promise of every engine: after a failed dump, for whatever reason (refusal,
 * crash, hang), every process of the tree is as it was before the call: stopped,
 * untraced, with its own registers, memory and descriptors (verified), and what
 * the engine left elsewhere is removed. After a failed restore no process of it
 * is left. Where the promise cannot be kept the error says so by
 * GPUCR_ERR_VERIFY and names the process.
 */
#ifndef GPUCR_ENGINE_ENGINE_H
#define GPUCR_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <gpucr/job.h>

#include "base/err.h"
#include "proc/procfs.h"
#include "proc/tracer.h"

/** Options that dump and restore share. */
struct gpucr_engine_options {
    bool shell_job;
    bool tcp_established;
    bool file_locks;
    bool link_remap;
    bool ext_unix_sk;
    uint64_t ghost_limit_bytes;
    const struct gpucr_name_value *extra; /* further options by name */
    size_t extra_count;
    uint64_t idle_timeout_ms; /* no progress (log, image or memory) for so long means hung */
};

struct gpucr_engine_dump {
    struct gpucr_engine_options options;
    pid_t root;
    const struct gpucr_pids *pids; /* the whole tree, all stopped */
    int images_fd;
    int work_fd;        /* log and statistics */
    bool leave_running; /* leave the tree stopped instead of killing it */
    struct gpucr_tracer *tracer;
    /** called when the images are complete and before anything is killed; failing rolls back */
    int (*commit)(void *arg, struct gpucr_error *err);
    void *commit_arg;
    const volatile int *cancel;
};

struct gpucr_engine_restore {
    struct gpucr_engine_options options;
    const struct gpucr_pids *pids; /* as in the image: to be looked for in failure clean-up */
    pid_t root;
    int images_fd;
    int work_fd;
    bool pid_namespace; /* in a fresh pid namespace */
    const volatile int *cancel;
};

/** What a restore made. */
struct gpucr_engine_restored {
    pid_t root; /**< the root's pid as the caller sees it */
    /**
     * With pid_namespace: the first process of the fresh pid namespace, which is the
     * root's parent and a child of the calling process. It lives as long as the root
     * and ends with its status (128 + signal if it was killed); ending it ends the
     * tree. 0 otherwise: then the root itself is a child of the calling process.
     */
    pid_t keeper;
};

/** Why it failed, in the engine's own words, made readable. */
struct gpucr_engine_log {
    struct gpucr_log_line lines[GPUCR_LOG_LINES_MAX];
    size_t count;
};

struct gpucr_engine;

struct gpucr_engine_ops {
    const char *name;
    /** Could the engine be given these options? GPUCR_ERR_USAGE names the one it could not. */
    int (*check_options)(const struct gpucr_engine_options *options, struct gpucr_error *err);
    /**
     * @p ret_committed tells whether commit() succeeded: then the image counts. What is
     * left then is to end the processes, or with leave_running to leave them stopped;
     * an error is about that. (Without leave_running the engine ends them itself where
     * CRIU fails to, and that is a success.)
     */
    int (*dump)(struct gpucr_engine *engine, const struct gpucr_engine_dump *request,
                struct gpucr_engine_log *log, bool *ret_committed, struct gpucr_error *err);
    /** The tree is restored stopped. */
    int (*restore)(struct gpucr_engine *engine, const struct gpucr_engine_restore *request,
                   struct gpucr_engine_log *log, struct gpucr_engine_restored *ret,
                   struct gpucr_error *err);
    void (*close)(struct gpucr_engine *engine);
};

struct gpucr_engine {
    const struct gpucr_engine_ops *ops;
    char path[GPUCR_ERROR_PATH_BYTES]; /* the program */
    int32_t version;                   /* 40101 for 4.1.1 */
    bool hardware_breakpoints;         /* do they fire on this machine? */
};

/**
 * Find CRIU (@p path, else GPUCR_CRIU, else PATH) and ask it for its version by
 * RPC. GPUCR_ERR_ENGINE_MISSING when there is none, GPUCR_ERR_UNSUPPORTED when it
 * is too old (naming the minimum), GPUCR_ERR_ENGINE_HUNG when it does not answer.
 */
int gpucr_engine_open_criu(const char *path, struct gpucr_engine **ret, struct gpucr_error *err);

/**
 * The ids of all processes and threads of a CRIU image, as they were in the pid
 * namespace in which CRIU saw them: a restore without pid_namespace needs them free.
 * If the first is 1, the tree had a namespace of its own, and gets one again.
 */
int gpucr_engine_image_pids(int images_fd, struct gpucr_pids *ret, struct gpucr_error *err);

/** NULL is fine. Returns NULL. */
struct gpucr_engine *gpucr_engine_close(struct gpucr_engine *engine);

#endif
