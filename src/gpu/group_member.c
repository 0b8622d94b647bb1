/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Windows of members, and the driver's calls on one member. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "gpu/condition.h"
#include "gpu/group_step.h"

static int cannot_answer(const struct gpucr_member *member, const char *why,
                         struct gpucr_error *err)
{
    char who[96];
    int rc;

    gpucr_condition_describe(member->pid, who, sizeof(who));
    rc = gpucr_error_set(err, GPUCR_ERR_BUSY, "%s cannot answer the driver: %s", who, why);
    return gpucr_error_pid(err, rc, member->pid);
}

static int enter_stopped(struct gpucr_group *group, struct gpucr_member *member,
                         struct gpucr_error *err)
{
    int rc;

    if (!group->tracer)
        return cannot_answer(member, "it is stopped; send it SIGCONT", err);
    rc = gpucr_tracer_open_window(group->tracer, member->pid, err);
    if (rc == 0) {
        member->window_open = true;
        return 0;
    }
    if (gpucr_condition_is_gone(member->pid)) {
        member->ended = true;
        return 1;
    }
    return rc;
}

int gpucr_member_enter(struct gpucr_group *group, struct gpucr_member *member,
                       struct gpucr_error *err)
{
    enum gpucr_condition condition;
    int rc;

    if (member->window_open)
        return 0;
    rc = gpucr_condition_read(member->pid, &condition, err);
    if (rc < 0)
        return rc;
    switch (condition) {
    case GPUCR_CONDITION_RUNS:
        return 0;
    case GPUCR_CONDITION_STOPPED:
        return enter_stopped(group, member, err);
    case GPUCR_CONDITION_TRACED:
        return cannot_answer(member, "a debugger holds it; detach the debugger", err);
    case GPUCR_CONDITION_FROZEN:
        return cannot_answer(member, "its cgroup is frozen (a paused container); thaw it", err);
    case GPUCR_CONDITION_GONE:
        break;
    }
    gpucr_info("process %d has ended on its own", member->pid);
    member->ended = true;
    return 1;
}

int gpucr_member_leave(struct gpucr_group *group, struct gpucr_member *member,
                       struct gpucr_error *err)
{
    int rc;

    if (!member->window_open)
        return 0;
    member->window_open = false;
    rc = gpucr_tracer_close_window(group->tracer, member->pid, err);
    if (rc < 0 && gpucr_condition_is_gone(member->pid)) {
        member->ended = true;
        return 0;
    }
    return rc;
}

int gpucr_member_visit(struct gpucr_group *group, struct gpucr_member *member, gpucr_member_fn fn,
                       void *arg, struct gpucr_error *err)
{
    struct gpucr_error closing = GPUCR_ERROR_INIT;
    int rc = gpucr_member_enter(group, member, err);
    int rc_close;

    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = fn(group, member, arg, err);
    rc_close = gpucr_member_leave(group, member, &closing);
    if (rc < 0 || rc_close >= 0)
        return rc;
    if (err)
        *err = closing;
    return rc_close;
}

int gpucr_group_enter(struct gpucr_group *group, gpucr_wants_fn wants, struct gpucr_error *err)
{
    for (size_t i = 0; i < group->count; i++) {
        struct gpucr_member *member = &group->members[i];
        struct gpucr_error why = GPUCR_ERROR_INIT;
        int rc;

        if (member->ended || !wants(member))
            continue;
        rc = gpucr_member_enter(group, member, &why);
        if (rc == 0)
            continue;
        if (rc > 0)
            rc = gpucr_error_set(&why, GPUCR_ERR_TARGET_DIED,
                                 "process %d has ended while it was being handled", member->pid);
        why.pid = member->pid;
        member->error = why;
        (void)gpucr_group_leave(group, NULL);
        if (err)
            *err = why;
        return rc;
    }
    return 0;
}

int gpucr_group_leave(struct gpucr_group *group, struct gpucr_error *err)
{
    int first = 0;

    for (size_t i = group->count; i > 0; i--) {
        struct gpucr_member *member = &group->members[i - 1];
        struct gpucr_error why = GPUCR_ERROR_INIT;
        int rc = gpucr_member_leave(group, member, &why);

        if (rc >= 0)
            continue;
        if (member->error.code == 0)
            member->error = why;
        if (first == 0) {
            first = rc;
            if (err)
                *err = why;
        }
    }
    return first;
}

int gpucr_member_refresh(struct gpucr_group *group, struct gpucr_member *member,
                         struct gpucr_error *err)
{
    enum gpucr_cuda_state state;
    struct gpucr_error why = GPUCR_ERROR_INIT;
    int rc = group->driver->ops->get_state(group->driver, member->pid, &state, &why);

    if (rc == 0) {
        member->state = state;
        return 0;
    }
    if (rc == GPUCR_ERR_TARGET_DIED)
        member->ended = true;
    if (rc == GPUCR_ERR_POISONED)
        member->state = GPUCR_CUDA_FAILED;
    if (err)
        *err = why;
    return rc;
}

int gpucr_member_confirm(struct gpucr_group *group, struct gpucr_member *member,
                         enum gpucr_cuda_state expected, struct gpucr_error *err)
{
    char who[96];
    int rc = gpucr_member_refresh(group, member, err);

    if (rc < 0 || member->state == expected)
        return rc;
    gpucr_condition_describe(member->pid, who, sizeof(who));
    rc =
        gpucr_error_set(err, GPUCR_ERR_VERIFY, "the driver says that %s is %s where it must be %s",
                        who, gpucr_cuda_state_name(member->state), gpucr_cuda_state_name(expected));
    return gpucr_error_pid(err, rc, member->pid);
}

static int died(const struct gpucr_member *member, int rc, struct gpucr_error *err)
{
    if (rc == GPUCR_ERR_TARGET_DIED)
        return rc;
    (void)gpucr_error_wrap(err, rc, "process %d has died", member->pid);
    if (err)
        err->code = GPUCR_ERR_TARGET_DIED;
    return GPUCR_ERR_TARGET_DIED;
}

/*
 * After a failed call the driver is asked where the process is now: what it says, not
 * what was hoped for, decides about the way back. The call's error stays; only whether
 * the process is lost is decided here.
 */
static int after_failure(struct gpucr_group *group, struct gpucr_member *member, int rc,
                         struct gpucr_error *err)
{
    int rc_state;

    if (gpucr_condition_is_gone(member->pid)) {
        member->ended = true;
        return died(member, rc, err);
    }
    rc_state = gpucr_member_refresh(group, member, NULL);
    if (rc_state == GPUCR_ERR_TARGET_DIED)
        return died(member, rc, err);
    if (member->state == GPUCR_CUDA_FAILED)
        rc = GPUCR_ERR_POISONED;
    else if (rc == GPUCR_ERR_POISONED && rc_state == 0)
        rc = GPUCR_ERR_DRIVER; /* it answers: not lost */
    if (err && err->code != rc)
        err->code = rc;
    if (err && rc_state == 0) {
        size_t used = strlen(err->text);

        (void)snprintf(err->text + used, sizeof(err->text) - used, "; the process is %s now",
                       gpucr_cuda_state_name(member->state));
    }
    return rc;
}

int gpucr_member_checkpoint(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                            struct gpucr_error *err)
{
    int rc = group->driver->ops->checkpoint(group->driver, member->pid, err);

    (void)arg;
    if (rc < 0)
        return after_failure(group, member, rc, err);
    return gpucr_member_confirm(group, member, GPUCR_CUDA_CHECKPOINTED, err);
}

int gpucr_member_restore(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                         struct gpucr_error *err)
{
    const struct gpucr_gpu_map none = {0};
    const struct gpucr_gpu_map *map = arg ? arg : &none;
    int rc = group->driver->ops->restore(group->driver, member->pid, map->pairs, map->count, err);

    if (rc < 0)
        return after_failure(group, member, rc, err);
    return gpucr_member_confirm(group, member, GPUCR_CUDA_LOCKED, err);
}

int gpucr_member_unlock(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                        struct gpucr_error *err)
{
    int rc = group->driver->ops->unlock(group->driver, member->pid, err);

    (void)arg;
    if (rc < 0)
        return after_failure(group, member, rc, err);
    member->state = GPUCR_CUDA_RUNNING;
    return 0;
}

/* A thread that its owner stopped inside a CUDA call holds it open for as long as it is stopped. */
static int lock_timed_out_stopped(const struct gpucr_member *member, struct gpucr_error *err)
{
    int driver_code = err ? err->driver_code : 0;
    char who[96];
    int rc;

    gpucr_condition_describe(member->pid, who, sizeof(who));
    rc = gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                         "%s cannot be locked: it was stopped by its owner inside a CUDA call; "
                         "continue it first (kill -CONT %d)",
                         who, member->pid);
    if (err)
        err->driver_code = driver_code;
    return gpucr_error_pid(err, rc, member->pid);
}

int gpucr_member_lock(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                      struct gpucr_error *err)
{
    const struct gpucr_deadline *deadline = arg;
    int left_ms = gpucr_deadline_left_ms(*deadline);
    int rc;

    if (left_ms <= 0)
        return gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                               "the deadline passed before process %d could be locked",
                               member->pid);
    rc = group->driver->ops->lock(group->driver, member->pid, (uint32_t)left_ms, err);
    if (rc == 0) {
        member->state = GPUCR_CUDA_LOCKED;
        return 0;
    }
    rc = after_failure(group, member, rc, err);
    if (rc == GPUCR_ERR_TIMEOUT && member->was_stopped)
        return lock_timed_out_stopped(member, err);
    return rc;
}
