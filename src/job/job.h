/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file job/job.h
 * One operation on one tree: what it holds, and the steps that operations share.
 *
 * A flow is: open, scan, preflight, steps that each push their undo, finish.
 * gpucr_job_finish() runs the undo stack when a step failed, reads back what every
 * process is now, and turns that into the outcome that the caller is told.
 */
#ifndef GPUCR_JOB_JOB_H
#define GPUCR_JOB_JOB_H

#include <pthread.h>

#include <gpucr/job.h>

#include "base/clock.h"
#include "base/undo.h"
#include "engine/engine.h"
#include "gpu/driver.h"
#include "gpu/group.h"
#include "gpu/nvml.h"
#include "job/monitor.h"
#include "proc/hold.h"
#include "proc/tracer.h"
#include "proc/tree.h"

/** What an operation is going to do; decides which findings apply. */
enum gpucr_operation {
    GPUCR_OPERATION_SUSPEND = 1 << 0,
    GPUCR_OPERATION_RESUME = 1 << 1,
    GPUCR_OPERATION_CHECKPOINT = 1 << 2,
    GPUCR_OPERATION_RESTORE = 1 << 3,
    GPUCR_OPERATION_LIST = 1 << 4,
};

struct gpucr_job {
    enum gpucr_operation operation;
    const struct gpucr_job_options *options;
    struct gpucr_result *result;
    struct gpucr_driver *driver; /* NULL: none here, driver_error says why */
    struct gpucr_error driver_error;
    struct gpucr_nvml *nvml; /* by gpucr_job_nvml(), which waits until it is open */
    pthread_t nvml_thread;
    bool nvml_opening;
    struct gpucr_tracer *tracer;
    struct gpucr_tree tree;
    struct gpucr_group group;
    struct gpucr_hold *hold;
    int entered; /* result of moving the held tree to its cgroup */
    bool held;   /* the hold is in force: nobody there answers the driver */
    struct gpucr_undo undo;
    struct gpucr_monitor monitor;
    uint64_t begin_ns;
    bool changed;    /* something outside gpucr was touched */
    bool uses_known; /* NVML listed processes before */
    bool unclean;    /* an undo or the engine could not put something back */
    int lock_fd;     /* one gpucr per target */
    int32_t lock_pid;
};

/**
 * Begin: driver and NVML are bound (missing ones are remembered, not an error),
 * cuInit starts on its own thread. The result is emptied.
 */
int gpucr_job_open(struct gpucr_job *job, enum gpucr_operation operation,
                   const struct gpucr_job_options *options, struct gpucr_result *result);

/**
 * End: on failure (@p rc negative, err in result->error) undo what was done; read
 * back every process; set the outcome; release everything. Returns @p rc, or a
 * code of its own when the end state is not the promised one.
 */
int gpucr_job_finish(struct gpucr_job *job, int rc);

/** The same without tracer and without cuInit, for calls that only look. */
int gpucr_job_open_to_look(struct gpucr_job *job, const struct gpucr_job_options *options,
                           struct gpucr_result *result);
void gpucr_job_close_after_look(struct gpucr_job *job, int rc);

/** NVML, opened beside the first steps; NULL where there is none. */
struct gpucr_nvml *gpucr_job_nvml(struct gpucr_job *job);

/** Read the tree and its evidence into job->tree and result->processes. Touches nothing. */
int gpucr_job_scan(struct gpucr_job *job, struct gpucr_error *err);

/** Entry of @p pid, NULL if there is none. */
struct gpucr_process_result *gpucr_job_process(struct gpucr_job *job, pid_t pid);

/** New entry from a stat; existing ones are kept. */
int gpucr_job_add_process(struct gpucr_job *job, const struct gpucr_proc_stat *stat,
                          struct gpucr_error *err);

/** Fill device memory and GPUs of all entries from NVML, before (or after) the operation. */
void gpucr_job_read_uses(struct gpucr_job *job, bool after);

/** Form the group of the processes with evidence, ask the driver; is_cuda follows its answer. */
int gpucr_job_probe(struct gpucr_job *job, struct gpucr_error *err);

/** GPUCR_ERR_CANCELLED when the caller asked to stop. */
int gpucr_job_check_cancel(const struct gpucr_job *job, struct gpucr_error *err);

/** Lock all, hold the tree, take in late ones, Checkpoint all; undo is pushed. */
int gpucr_job_freeze(struct gpucr_job *job, struct gpucr_error *err);

/** Restore and unlock all members; the tree stays held. */
int gpucr_job_bring_back(struct gpucr_job *job, struct gpucr_error *err);

/** The phase in which the hold is released. */
int gpucr_job_let_run(struct gpucr_job *job, struct gpucr_error *err);

/** gpucr_job_bring_back(), then gpucr_job_let_run(). */
int gpucr_job_unfreeze(struct gpucr_job *job, struct gpucr_error *err);

/** Device memory fell to nothing and the driver's process list forgot the targets. */
int gpucr_job_verify_gpu_free(struct gpucr_job *job, struct gpucr_error *err);

/** Every target is where it is to end, by the driver's last answer, and none is held. */
int gpucr_job_verify_running(struct gpucr_job *job, struct gpucr_error *err);

/** Tell the members their device memory: how long a driver call may take follows from it. */
void gpucr_job_note_bytes(struct gpucr_job *job);

/** Sum of device memory of the targets when the operation began. */
uint64_t gpucr_job_device_bytes(const struct gpucr_job *job);

/** Sum of resident memory of the tree when the operation began. */
uint64_t gpucr_job_host_bytes(const struct gpucr_job *job);

/** Let the held tree run; job->held is true as long as it does not. */
int gpucr_job_release(struct gpucr_job *job, struct gpucr_error *err);

/** Pids of the tree as a list; release with gpucr_pids_done(). */
int gpucr_job_pids(const struct gpucr_job *job, struct gpucr_pids *ret, struct gpucr_error *err);

uint64_t gpucr_job_timeout_ms(const struct gpucr_job_options *options);

#endif
