/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Checkpoint and resume of the group. */
#include "gpu/condition.h"
#include "gpu/group_step.h"

/* The first failure counts; closing the windows is tried in any case. */
static int leave_after(struct gpucr_group *group, int rc, struct gpucr_error *err)
{
    struct gpucr_error closing = GPUCR_ERROR_INIT;
    int rc_close = gpucr_group_leave(group, &closing);

    if (rc < 0 || rc_close >= 0)
        return rc;
    if (err)
        *err = closing;
    return rc_close;
}

static bool wants_checkpoint(const struct gpucr_member *member)
{
    return member->state == GPUCR_CUDA_LOCKED;
}

/* A member that is still RUNNING would be left behind on the GPU: never by accident. */
static int check_none_runs(const struct gpucr_group *group, struct gpucr_error *err)
{
    for (size_t i = 0; i < group->count; i++) {
        const struct gpucr_member *member = &group->members[i];
        int rc;

        if (member->ended || member->state == GPUCR_CUDA_LOCKED ||
            member->state == GPUCR_CUDA_CHECKPOINTED)
            continue;
        rc = gpucr_error_set(err, GPUCR_ERR_INTERNAL,
                             "process %d is %s and cannot be checkpointed: it was not locked",
                             member->pid, gpucr_cuda_state_name(member->state));
        return gpucr_error_pid(err, rc, member->pid);
    }
    return 0;
}

int gpucr_group_checkpoint(struct gpucr_group *group, struct gpucr_error *err)
{
    const struct gpucr_step step = {
        .what = "Checkpoint",
        .stage = GPUCR_STAGE_CHECKPOINT,
        .wants = wants_checkpoint,
        .call = gpucr_member_checkpoint,
        .expected_ms = GPUCR_EXPECT_CHECKPOINT_MS,
        .bytes_per_ms = GPUCR_EXPECT_CHECKPOINT_BYTES_PER_MS,
    };
    int rc = check_none_runs(group, err);

    /* What could not be restored afterwards is not taken off the GPU. */
    if (rc == 0)
        rc = gpucr_driver_wait_init(group->driver, err);
    if (rc == 0)
        rc = gpucr_group_enter(group, wants_checkpoint, err);
    if (rc < 0)
        return gpucr_error_stage(err, rc, GPUCR_STAGE_CHECKPOINT);
    return leave_after(group, gpucr_step_run(group, &step, err), err);
}

static bool wants_restore(const struct gpucr_member *member)
{
    return member->state == GPUCR_CUDA_CHECKPOINTED && member->goal != GPUCR_CUDA_CHECKPOINTED;
}

static bool wants_unlock(const struct gpucr_member *member)
{
    return member->state == GPUCR_CUDA_LOCKED && member->goal == GPUCR_CUDA_RUNNING;
}

static bool wants_resume(const struct gpucr_member *member)
{
    return wants_restore(member) || wants_unlock(member);
}

static bool wants_confirmation(const struct gpucr_member *member)
{
    (void)member;
    return true;
}

static int confirm_goal(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                        struct gpucr_error *err)
{
    (void)arg;
    return gpucr_member_confirm(group, member, member->goal, err);
}

/* Confirmed with the windows that are open; a member without one is entered for it. */
static int confirm_goal_visited(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                                struct gpucr_error *err)
{
    if (member->window_open)
        return confirm_goal(group, member, arg, err);
    return gpucr_member_visit(group, member, confirm_goal, arg, err);
}

static int resume_entered(struct gpucr_group *group, struct gpucr_gpu_map *map,
                          struct gpucr_error *err)
{
    const struct gpucr_step restore = {
        .what = "Restore",
        .stage = GPUCR_STAGE_RESTORE,
        .wants = wants_restore,
        .call = gpucr_member_restore,
        .arg = map,
        .expected_ms = GPUCR_EXPECT_RESTORE_MS,
        .bytes_per_ms = GPUCR_EXPECT_RESTORE_BYTES_PER_MS,
    };
    const struct gpucr_step unlock = {
        .what = "Unlock",
        .stage = GPUCR_STAGE_UNLOCK,
        .wants = wants_unlock,
        .call = gpucr_member_unlock,
        .expected_ms = GPUCR_EXPECT_UNLOCK_MS,
    };
    const struct gpucr_step confirm = {
        .what = "GetState",
        .stage = GPUCR_STAGE_READBACK,
        .wants = wants_confirmation,
        .call = confirm_goal_visited,
        .expected_ms = GPUCR_EXPECT_STATE_MS,
    };
    int rc = gpucr_step_run(group, &restore, err);

    if (rc == 0)
        rc = gpucr_step_run(group, &unlock, err);
    if (rc == 0)
        rc = gpucr_step_run(group, &confirm, err);
    return rc;
}

int gpucr_group_resume(struct gpucr_group *group, const struct gpucr_gpu_pair *pairs,
                       uint32_t pair_count, struct gpucr_error *err)
{
    struct gpucr_gpu_map map = {.pairs = pairs, .count = pair_count};
    int rc = 0;

    if (pair_count > 0 && !group->driver->can_remap)
        rc = gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                             "the device map cannot be used: that needs driver 580 (CUDA 13.0) or "
                             "newer");
    /* Restore would wait for it; its failure belongs before the first window. */
    if (rc == 0)
        rc = gpucr_driver_wait_init(group->driver, err);
    if (rc == 0)
        rc = gpucr_group_enter(group, wants_resume, err);
    if (rc < 0)
        return gpucr_error_stage(err, rc, GPUCR_STAGE_RESTORE);
    return leave_after(group, resume_entered(group, &map, err), err);
}
