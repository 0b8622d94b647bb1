/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "gpu/condition.h"
#include "gpu/group_step.h"

/*
 * Processes that share device memory can make each other wait: while one is locked,
 * driver calls on another hang without regard to their timeout (public reports up to
 * driver 575). The way out is to unlock what is locked already; so those are listed.
 */
struct lock_work {
    struct gpucr_deadline deadline;
    pthread_mutex_t mutex;
    struct gpucr_member **locked;
    size_t count;
    struct gpucr_member *late; /* the one whose Lock did not return */
};

static int lock_entered(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                        struct gpucr_error *err)
{
    struct lock_work *work = arg;

    return gpucr_member_lock(group, member, &work->deadline, err);
}

static int lock_member(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                       struct gpucr_error *err)
{
    struct lock_work *work = arg;
    int rc = gpucr_member_visit(group, member, lock_entered, work, err);

    if (rc == 0 && member->state == GPUCR_CUDA_LOCKED) {
        GPUCR_SCOPED_LOCK(lock, &work->mutex);

        work->locked[work->count++] = member;
    }
    return rc;
}

/* On the watcher's thread, while the others' calls are over and the late one hangs. */
static void free_late(struct gpucr_group *group, struct gpucr_member *late, void *arg)
{
    struct lock_work *work = arg;
    GPUCR_SCOPED_LOCK(lock, &work->mutex);

    work->late = late;
    while (work->count > 0) {
        struct gpucr_member *member = work->locked[--work->count];

        gpucr_warn("unlocking process %d: the Lock of process %d does not return", member->pid,
                   late->pid);
        (void)gpucr_member_visit(group, member, gpucr_member_unlock, NULL, NULL);
    }
}

static bool wants_lock(const struct gpucr_member *member)
{
    return member->state == GPUCR_CUDA_RUNNING;
}

/* States from which there is no way to LOCKED, found before anything is touched. */
static int check_states(const struct gpucr_group *group, struct gpucr_error *err)
{
    for (size_t i = 0; i < group->count; i++) {
        const struct gpucr_member *member = &group->members[i];
        char who[96];
        int rc;

        if (member->ended || member->state <= GPUCR_CUDA_CHECKPOINTED)
            continue;
        gpucr_condition_describe(member->pid, who, sizeof(who));
        if (member->state == GPUCR_CUDA_FAILED)
            rc = gpucr_error_set(err, GPUCR_ERR_POISONED,
                                 "the driver says that %s failed in an earlier checkpoint or "
                                 "restore; it cannot be brought back",
                                 who);
        else
            rc = gpucr_error_set(err, GPUCR_ERR_BUSY, "%s is %s: another program is handling it",
                                 who, gpucr_cuda_state_name(member->state));
        (void)gpucr_error_stage(err, rc, GPUCR_STAGE_LOCK);
        return gpucr_error_pid(err, rc, member->pid);
    }
    return 0;
}

static int late_error(const struct gpucr_member *late, struct gpucr_error *err)
{
    char who[96];
    int rc;

    gpucr_condition_describe(late->pid, who, sizeof(who));
    rc = gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                         "the Lock of %s did not return in time and came through only after the "
                         "other processes had been unlocked: they share device memory (CUDA IPC, "
                         "NCCL) in a way that this driver cannot lock",
                         who);
    (void)gpucr_error_stage(err, rc, GPUCR_STAGE_LOCK);
    return gpucr_error_pid(err, rc, late->pid);
}

int gpucr_group_lock(struct gpucr_group *group, struct gpucr_deadline deadline,
                     struct gpucr_error *err)
{
    struct lock_work work = {.deadline = deadline, .mutex = PTHREAD_MUTEX_INITIALIZER};
    const struct gpucr_step step = {
        .what = "Lock",
        .stage = GPUCR_STAGE_LOCK,
        .wants = wants_lock,
        .call = lock_member,
        .arg = &work,
        .stop_at_failure = true,
        .expected_ms = (uint64_t)gpucr_deadline_left_ms(deadline) + GPUCR_EXPECT_LOCK_SLACK_MS,
        .late = free_late,
    };
    int rc = check_states(group, err);

    if (rc < 0 || group->count == 0)
        return rc;
    /* Nobody is paused who could not be restored later: that needs an initialised driver. */
    rc = gpucr_driver_wait_init(group->driver, err);
    if (rc < 0)
        return gpucr_error_stage(err, rc, GPUCR_STAGE_LOCK);
    work.locked = calloc(group->count, sizeof(*work.locked));
    if (!work.locked)
        return gpucr_error_no_memory(err);
    rc = gpucr_step_run(group, &step, err);
    free(work.locked);
    if (rc == 0 && work.late)
        rc = late_error(work.late, err);
    return rc;
}
