/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The way back. It starts from what the driver says now, not from what the last step
 * was meant to reach, and does for each member what can be done for it.
 */
#include "base/cleanup.h"
#include "gpu/group_step.h"

enum { RELOCK_MS = 10000 };

static bool is_away(const struct gpucr_member *member)
{
    return member->probed && member->state != member->before;
}

static bool wants_all(const struct gpucr_member *member)
{
    return member->probed;
}

static bool wants_restore(const struct gpucr_member *member)
{
    return is_away(member) && member->state == GPUCR_CUDA_CHECKPOINTED;
}

static bool wants_unlock(const struct gpucr_member *member)
{
    return is_away(member) && member->state == GPUCR_CUDA_LOCKED &&
           member->before == GPUCR_CUDA_RUNNING;
}

/* To CHECKPOINTED only while its threads are held: the driver takes memory from under them. */
static bool wants_lock(const struct gpucr_member *member)
{
    return is_away(member) && member->state == GPUCR_CUDA_RUNNING &&
           (member->before == GPUCR_CUDA_LOCKED || member->window_open);
}

static bool wants_checkpoint(const struct gpucr_member *member)
{
    return is_away(member) && member->state == GPUCR_CUDA_LOCKED &&
           member->before == GPUCR_CUDA_CHECKPOINTED && member->window_open;
}

struct move {
    gpucr_member_fn fn;
    void *arg;
};

/*
 * Whether the member can answer is asked before each call. Windows stay open until the
 * end: opening and closing costs more than a call.
 */
static int move_member(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                       struct gpucr_error *err)
{
    const struct move *move = arg;
    int rc = gpucr_member_enter(group, member, err);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    return move->fn(group, member, move->arg, err);
}

static int refresh(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                   struct gpucr_error *err)
{
    (void)arg;
    return gpucr_member_refresh(group, member, err);
}

static int confirm_before(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                          struct gpucr_error *err)
{
    (void)arg;
    return gpucr_member_confirm(group, member, member->before, err);
}

struct stage {
    const char *what;
    gpucr_wants_fn wants;
    struct move move;
    uint64_t expected_ms;
};

/* Run a stage; only the first failure of all is reported. */
static void run(struct gpucr_group *group, struct stage *stage, int *first, struct gpucr_error *err)
{
    const struct gpucr_step step = {
        .what = stage->what,
        .stage = GPUCR_STAGE_ROLLBACK,
        .wants = stage->wants,
        .call = move_member,
        .arg = &stage->move,
        .reverse = true,
        .keep_errors = true,
        .expected_ms = stage->expected_ms,
        .bytes_per_ms = GPUCR_EXPECT_CHECKPOINT_BYTES_PER_MS,
    };
    struct gpucr_error why = GPUCR_ERROR_INIT;
    int rc = gpucr_step_run(group, &step, &why);

    if (rc >= 0 || *first < 0)
        return;
    *first = rc;
    if (err)
        *err = why;
}

/* A member that the operation killed is not where it was, though nothing is left to undo. */
static void count_the_dead(const struct gpucr_group *group, int *first, struct gpucr_error *err)
{
    for (size_t i = 0; i < group->count && *first == 0; i++) {
        const struct gpucr_member *member = &group->members[i];

        if (!member->ended || member->error.code != GPUCR_ERR_TARGET_DIED)
            continue;
        *first = member->error.code;
        if (err)
            *err = member->error;
    }
}

int gpucr_group_rollback(struct gpucr_group *group, struct gpucr_error *err)
{
    struct gpucr_deadline relock = gpucr_deadline_in_ms(RELOCK_MS);
    struct stage stages[] = {
        {"GetState", wants_all, {refresh, NULL}, GPUCR_EXPECT_STATE_MS},
        {"Restore", wants_restore, {gpucr_member_restore, NULL}, GPUCR_EXPECT_RESTORE_MS},
        {"Unlock", wants_unlock, {gpucr_member_unlock, NULL}, GPUCR_EXPECT_UNLOCK_MS},
        {"Lock", wants_lock, {gpucr_member_lock, &relock}, RELOCK_MS + GPUCR_EXPECT_LOCK_SLACK_MS},
        {"Checkpoint",
         wants_checkpoint,
         {gpucr_member_checkpoint, NULL},
         GPUCR_EXPECT_CHECKPOINT_MS},
        {"GetState", wants_all, {confirm_before, NULL}, GPUCR_EXPECT_STATE_MS},
    };
    struct gpucr_error closing = GPUCR_ERROR_INIT;
    int first = 0;
    int rc;

    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(stages); i++)
        run(group, &stages[i], &first, err);
    rc = gpucr_group_leave(group, &closing);
    if (rc < 0 && first == 0) {
        first = rc;
        if (err)
            *err = closing;
    }
    count_the_dead(group, &first, err);
    return first;
}
