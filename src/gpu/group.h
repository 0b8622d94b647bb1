/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file group.h
 * The targets of one job, taken through the driver's states together: all are
 * locked before one is checkpointed, all are restored before one is unlocked.
 *
 * Each member keeps the state it had before, the state we brought it to, and its
 * own error. gpucr_group_rollback() brings every member back to where it was.
 */
#ifndef GPUCR_GPU_GROUP_H
#define GPUCR_GPU_GROUP_H

#include <stdatomic.h>

#include "base/clock.h"
#include "gpu/driver.h"
#include "proc/tracer.h"

struct gpucr_member {
    pid_t pid;
    bool was_stopped;             /* its owner had stopped it: it needs a window even for Lock */
    atomic_bool window_open;      /* read by the watcher of a step */
    bool ended;                   /* exited on its own, or died, meanwhile */
    bool probed;                  /* `before` is known; without it rollback leaves it alone */
    bool no_cuda;                 /* while probing: the driver does not know it */
    enum gpucr_cuda_state before; /* when it was probed: where rollback brings it */
    enum gpucr_cuda_state state;  /* as last confirmed by the driver */
    /**
     * Where resume brings it: RUNNING unless the caller says otherwise. A process that
     * its owner had locked or checkpointed himself gets that state here (by the caller,
     * from `before` or from a record of it) and ends in it.
     */
    enum gpucr_cuda_state goal;
    uint64_t device_bytes; /* set by the caller; tells how long a call may take */
    uint64_t call_ns;      /* time inside the driver since the caller set it to 0 */
    struct gpucr_error error;
};

struct gpucr_group {
    struct gpucr_driver *driver;  /* borrowed */
    struct gpucr_tracer *tracer;  /* borrowed; NULL: stopped processes are GPUCR_ERR_BUSY */
    struct gpucr_member *members; /* ascending by pid */
    size_t count;
    size_t capacity;
    bool sequential; /* one after another, by pid */
    /**
     * Told each second that a call takes longer than it should and is still being waited
     * for (no driver call is ever cut off); may be NULL. Called on a thread of the group,
     * one call at a time. @p what is the step ("Lock"), with the cause where it is known
     * ("Lock: the process was stopped meanwhile …"), valid during the call.
     */
    void (*waiting)(void *arg, pid_t pid, const char *what, uint64_t waited_ms);
    void *waiting_arg;
};

/** Release the members. The driver and the tracer stay. */
void gpucr_group_done(struct gpucr_group *group);

/** Add a process (kept sorted; twice is once). The state is probed by gpucr_group_probe(). */
int gpucr_group_add(struct gpucr_group *group, pid_t pid, bool was_stopped,
                    struct gpucr_error *err);

/** The member of that pid, or NULL. Valid until the next add or probe. */
struct gpucr_member *gpucr_group_find(struct gpucr_group *group, pid_t pid);

/*
 * The steps below return 0 or the code of the failure that came first; err is that
 * failure, with pid, driver code and stage, and every member that failed has its own.
 * Members that have ended are left out. Whether a member gets a tracer window is
 * decided by its state in /proc: stopped ones do, running ones do not; one that is
 * frozen by a cgroup or held by a debugger is GPUCR_ERR_BUSY, since it could not answer.
 */

/**
 * Ask the driver for the state of every member, in parallel. A member that the
 * driver does not know (NOT_INITIALIZED) is removed: no CUDA state. Stopped
 * processes are probed inside a window. One that has ended stays, marked `ended`.
 */
int gpucr_group_probe(struct gpucr_group *group, struct gpucr_error *err);

/**
 * Lock all that are RUNNING, in parallel, under one deadline. Waits for the driver's
 * init first: a process that could not be restored later is not paused. After the first
 * failure no further Lock is begun; those locked stay so until the caller rolls
 * back. When a Lock does not even return by its deadline (processes that share
 * device memory can wait for each other so), those locked here are unlocked again,
 * which frees it.
 */
int gpucr_group_lock(struct gpucr_group *group, struct gpucr_deadline deadline,
                     struct gpucr_error *err);

/**
 * Open windows, Checkpoint all that are LOCKED, read each state back, close windows.
 * Members that failed stay as the driver left them, the others are CHECKPOINTED.
 */
int gpucr_group_checkpoint(struct gpucr_group *group, struct gpucr_error *err);

/**
 * Open windows, Restore all that are CHECKPOINTED; when all succeeded Unlock all, as
 * far as their goal wants it; read back that each is at its goal; close windows. When
 * one Restore fails nothing is unlocked.
 */
int gpucr_group_resume(struct gpucr_group *group, const struct gpucr_gpu_pair *pairs,
                       uint32_t pair_count, struct gpucr_error *err);

/**
 * Bring every member back to `before`, in reverse order of progress: restore what
 * was checkpointed here, unlock what was locked here; after a failed resume, lock and
 * checkpoint what was brought back, but only what is T: a process that runs would not
 * survive it. Members may be T (windows are opened) or running.
 * One member's failure does not keep the others from going back. 0 only if every
 * member is where it was; err is the first failure, each member has its own, which
 * quotes the earlier one that led to the rollback.
 */
int gpucr_group_rollback(struct gpucr_group *group, struct gpucr_error *err);

/** Read every member's state again; GPUCR_ERR_VERIFY names the first that is not @p expected. */
int gpucr_group_verify(struct gpucr_group *group, enum gpucr_cuda_state expected,
                       struct gpucr_error *err);

/** The same, each against its own `goal`. */
int gpucr_group_verify_goals(struct gpucr_group *group, struct gpucr_error *err);

#endif
