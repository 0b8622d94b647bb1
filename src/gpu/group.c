/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gpu/group.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "gpu/condition.h"
#include "gpu/group_step.h"

enum { MEMBERS_MAX = 32768 };

void gpucr_group_done(struct gpucr_group *group)
{
    free(group->members);
    group->members = NULL;
    group->count = 0;
    group->capacity = 0;
}

static size_t place_of(const struct gpucr_group *group, pid_t pid)
{
    size_t low = 0;
    size_t high = group->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (group->members[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct gpucr_member *gpucr_group_find(struct gpucr_group *group, pid_t pid)
{
    size_t at = place_of(group, pid);

    if (at < group->count && group->members[at].pid == pid)
        return &group->members[at];
    return NULL;
}

static int make_room(struct gpucr_group *group, struct gpucr_error *err)
{
    size_t capacity = group->capacity ? group->capacity * 2 : 16;
    struct gpucr_member *grown;

    if (group->count < group->capacity)
        return 0;
    if (group->count >= MEMBERS_MAX)
        return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                               "a job of more than %d CUDA processes is not supported",
                               MEMBERS_MAX);
    grown = reallocarray(group->members, capacity, sizeof(*grown));
    if (!grown)
        return gpucr_error_no_memory(err);
    group->members = grown;
    group->capacity = capacity;
    return 0;
}

int gpucr_group_add(struct gpucr_group *group, pid_t pid, bool was_stopped, struct gpucr_error *err)
{
    size_t at = place_of(group, pid);
    int rc;

    if (at < group->count && group->members[at].pid == pid)
        return 0;
    rc = make_room(group, err);
    if (rc < 0)
        return rc;
    (void)memmove(&group->members[at + 1], &group->members[at],
                  (group->count - at) * sizeof(*group->members));
    group->members[at] = (struct gpucr_member){
        .pid = pid,
        .was_stopped = was_stopped,
        .goal = GPUCR_CUDA_RUNNING,
        .error = GPUCR_ERROR_INIT,
    };
    group->count++;
    return 0;
}

static bool wants_all(const struct gpucr_member *member)
{
    (void)member;
    return true;
}

static int probe_entered(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                         struct gpucr_error *err)
{
    int rc = gpucr_member_refresh(group, member, err);

    (void)arg;
    if (rc == GPUCR_ERR_NOT_CUDA) {
        member->no_cuda = true;
        return 0;
    }
    if (rc == GPUCR_ERR_TARGET_DIED)
        return 0;
    if (rc == 0) {
        member->before = member->state;
        member->probed = true;
    }
    return rc;
}

static int probe_member(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                        struct gpucr_error *err)
{
    return gpucr_member_visit(group, member, probe_entered, arg, err);
}

static void remove_without_cuda(struct gpucr_group *group)
{
    size_t kept = 0;

    for (size_t i = 0; i < group->count; i++) {
        if (group->members[i].no_cuda) {
            gpucr_debug("process %d has no CUDA state", group->members[i].pid);
            continue;
        }
        if (kept != i)
            group->members[kept] = group->members[i];
        kept++;
    }
    group->count = kept;
}

int gpucr_group_probe(struct gpucr_group *group, struct gpucr_error *err)
{
    const struct gpucr_step step = {
        .what = "GetState",
        .stage = GPUCR_STAGE_DISCOVER,
        .wants = wants_all,
        .call = probe_member,
        .expected_ms = GPUCR_EXPECT_STATE_MS,
    };
    int rc = gpucr_step_run(group, &step, err);

    remove_without_cuda(group);
    return rc;
}

/* One state for all, or each member's own goal. */
struct expectation {
    bool own_goal;
    enum gpucr_cuda_state state;
};

static int verify_entered(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                          struct gpucr_error *err)
{
    const struct expectation *expected = arg;

    return gpucr_member_confirm(group, member, expected->own_goal ? member->goal : expected->state,
                                err);
}

static int verify_member(struct gpucr_group *group, struct gpucr_member *member, void *arg,
                         struct gpucr_error *err)
{
    return gpucr_member_visit(group, member, verify_entered, arg, err);
}

static int verify(struct gpucr_group *group, struct expectation expected, struct gpucr_error *err)
{
    const struct gpucr_step step = {
        .what = "GetState",
        .stage = GPUCR_STAGE_READBACK,
        .wants = wants_all,
        .call = verify_member,
        .arg = &expected,
        .report_by_pid = true,
        .expected_ms = GPUCR_EXPECT_STATE_MS,
    };

    return gpucr_step_run(group, &step, err);
}

int gpucr_group_verify(struct gpucr_group *group, enum gpucr_cuda_state expected,
                       struct gpucr_error *err)
{
    return verify(group, (struct expectation){.state = expected}, err);
}

int gpucr_group_verify_goals(struct gpucr_group *group, struct gpucr_error *err)
{
    return verify(group, (struct expectation){.own_goal = true}, err);
}
