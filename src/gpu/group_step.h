/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file group_step.h
 * Inside of the group: one step on several members in parallel, watched; windows;
 * and the single driver calls as steps use them.
 */
#ifndef GPUCR_GPU_GROUP_STEP_H
#define GPUCR_GPU_GROUP_STEP_H

#include "gpu/group.h"

struct gpucr_gpu_map {
    const struct gpucr_gpu_pair *pairs;
    uint32_t count;
};

/** How long the calls take where nothing is wrong; on an H200, doubled. */
enum {
    GPUCR_EXPECT_STATE_MS = 1000,
    GPUCR_EXPECT_LOCK_SLACK_MS = 2000, /* beyond its own deadline */
    GPUCR_EXPECT_CHECKPOINT_MS = 5000,
    GPUCR_EXPECT_CHECKPOINT_BYTES_PER_MS = 1000000,
    GPUCR_EXPECT_RESTORE_MS = 5000,
    GPUCR_EXPECT_RESTORE_BYTES_PER_MS = 3000000,
    GPUCR_EXPECT_UNLOCK_MS = 2000,
};

/** Does a step concern the member? */
typedef bool (*gpucr_wants_fn)(const struct gpucr_member *member);

/** Work of a step on one member; called on several threads. */
typedef int (*gpucr_member_fn)(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                               struct gpucr_error *err);

struct gpucr_step {
    const char *what; /* "Lock" */
    enum gpucr_stage stage;
    gpucr_wants_fn wants;
    gpucr_member_fn call;
    void *arg;
    bool stop_at_failure; /* begin no further call after a failure */
    bool reverse;         /* descending by pid */
    bool report_by_pid;   /* the failure to report is the first in order, not in time */
    bool keep_errors;     /* failures quote the member's earlier error */
    /** how long a call may take before somebody is told; plus the time for its bytes */
    uint64_t expected_ms;
    uint64_t bytes_per_ms;
    /** called by the watcher once, when a call is late and nothing is known to stop it */
    void (*late)(struct gpucr_group *group, struct gpucr_member *member, void *arg);
};

/** Run it. 0 or the code of the failure that came first (see report_by_pid). */
int gpucr_step_run(struct gpucr_group *group, const struct gpucr_step *step,
                   struct gpucr_error *err);

/**
 * Make sure that the member can answer: open a window if it is stopped. 0; 1 when it
 * has ended (marked so); negative when it cannot answer.
 */
int gpucr_member_enter(struct gpucr_group *group, struct gpucr_member *member,
                       struct gpucr_error *err);

/** Close the window if there is one. Harmless after the member's end. */
int gpucr_member_leave(struct gpucr_group *group, struct gpucr_member *member,
                       struct gpucr_error *err);

/**
 * Enter all that @p wants; the first failure ends it and closes what was opened. A
 * member that has ended is a failure (GPUCR_ERR_TARGET_DIED).
 */
int gpucr_group_enter(struct gpucr_group *group, gpucr_wants_fn wants, struct gpucr_error *err);

/** Close every open window. All are tried; the first failure is reported. */
int gpucr_group_leave(struct gpucr_group *group, struct gpucr_error *err);

/** Ask the driver for the state, keep it; notes the end and the loss of a member as well. */
int gpucr_member_refresh(struct gpucr_group *group, struct gpucr_member *member,
                         struct gpucr_error *err);

/** refresh, then GPUCR_ERR_VERIFY if it is not @p expected. */
int gpucr_member_confirm(struct gpucr_group *group, struct gpucr_member *member,
                         enum gpucr_cuda_state expected, struct gpucr_error *err);

/** Calls for steps. The member must be able to answer. arg: none, or as named. */
int gpucr_member_checkpoint(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                            struct gpucr_error *err);
int gpucr_member_restore(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                         struct gpucr_error *err); /* struct gpucr_gpu_map, or NULL */
int gpucr_member_unlock(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                        struct gpucr_error *err);
int gpucr_member_lock(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                      struct gpucr_error *err); /* struct gpucr_deadline */

/** Enter, call @p fn, leave: for steps that need the member's answer but no common window. */
int gpucr_member_visit(struct gpucr_group *group, struct gpucr_member *member, gpucr_member_fn fn,
                       void *arg, struct gpucr_error *err);

#endif
