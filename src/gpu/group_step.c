/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gpu/group_step.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/parallel.h"
#include "gpu/condition.h"

enum { CALLS_MAX = 64, TICK_MS = 1000 };

/* A member as one step sees it. */
struct slot {
    struct gpucr_member *member;
    atomic_uint_fast64_t start_ns; /* 0: not inside the call */
    int rc;
    unsigned order; /* of the failures */
};

struct run {
    struct gpucr_group *group;
    const struct gpucr_step *step;
    struct slot *slots;
    size_t count;
    atomic_uint failures;
    pthread_mutex_t mutex; /* for done */
    pthread_cond_t cond;
    bool done;
    bool late_called;
};

/* The failure of a rollback must not hide what led to it; of several, the first counts. */
static void keep_error(struct gpucr_member *member, const struct gpucr_error *error, bool quote)
{
    struct gpucr_error earlier = member->error;
    size_t used;

    if (quote && earlier.code != 0 && earlier.stage == error->stage)
        return;
    member->error = *error;
    if (!quote || earlier.code == 0)
        return;
    used = strlen(member->error.text);
    (void)snprintf(member->error.text + used, sizeof(member->error.text) - used,
                   "; before that: %s", earlier.text);
}

static void run_one(void *arg, size_t index)
{
    struct run *run = arg;
    struct slot *slot = &run->slots[index];
    struct gpucr_member *member = slot->member;
    struct gpucr_error error = GPUCR_ERROR_INIT;
    uint64_t start_ns = gpucr_now_ns();
    uint64_t took_ns;

    if (run->step->stop_at_failure && atomic_load(&run->failures) > 0)
        return;
    atomic_store(&slot->start_ns, start_ns);
    slot->rc = run->step->call(run->group, member, run->step->arg, &error);
    took_ns = gpucr_now_ns() - start_ns;
    member->call_ns += took_ns;
    atomic_store(&slot->start_ns, 0);
    if (slot->rc >= 0) {
        gpucr_debug("%s of process %d: %llu us", run->step->what, member->pid,
                    (unsigned long long)(took_ns / 1000));
        return;
    }
    error.pid = member->pid;
    error.stage = run->step->stage;
    if (error.code == GPUCR_ERR_TARGET_DIED)
        member->ended = true;
    keep_error(member, &error, run->step->keep_errors);
    slot->order = atomic_fetch_add(&run->failures, 1);
    gpucr_debug("%s of process %d failed: %s", run->step->what, member->pid, error.text);
}

/* Why does a call hang? A process that was stopped in the middle cannot answer. */
static const char *cause_of_waiting(const struct gpucr_member *member)
{
    enum gpucr_condition condition;

    if (member->window_open || gpucr_condition_read(member->pid, &condition, NULL) < 0)
        return NULL;
    switch (condition) {
    case GPUCR_CONDITION_STOPPED:
        return "the process was stopped meanwhile and cannot answer; send it SIGCONT";
    case GPUCR_CONDITION_FROZEN:
        return "the process was frozen meanwhile by a cgroup and cannot answer; thaw it";
    case GPUCR_CONDITION_TRACED:
        return "the process is held by a debugger and cannot answer; let it go on";
    case GPUCR_CONDITION_RUNS:
    case GPUCR_CONDITION_GONE:
        break;
    }
    return NULL;
}

static uint64_t expected_ms(const struct gpucr_step *step, const struct gpucr_member *member)
{
    return step->expected_ms + (step->bytes_per_ms ? member->device_bytes / step->bytes_per_ms : 0);
}

static void watch_slot(struct run *run, struct slot *slot)
{
    const struct gpucr_step *step = run->step;
    struct gpucr_member *member = slot->member;
    uint64_t start_ns = atomic_load(&slot->start_ns);
    uint64_t waited_ms = (gpucr_now_ns() - start_ns) / 1000000;
    const char *cause;
    char what[192];

    if (start_ns == 0)
        return;
    cause = cause_of_waiting(member);
    if (!cause && waited_ms <= expected_ms(step, member))
        return;
    (void)snprintf(what, sizeof(what), "%s%s%s", step->what, cause ? ": " : "", cause ? cause : "");
    gpucr_warn("still waiting for process %d after %llu ms: %s", member->pid,
               (unsigned long long)waited_ms, what);
    if (run->group->waiting)
        run->group->waiting(run->group->waiting_arg, member->pid, what, waited_ms);
    if (step->late && !cause && !run->late_called) {
        run->late_called = true;
        step->late(run->group, member, step->arg);
    }
}

static bool wait_tick(struct run *run)
{
    GPUCR_SCOPED_LOCK(lock, &run->mutex);
    struct timespec at;

    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += TICK_MS / 1000;
    while (!run->done) {
        if (pthread_cond_timedwait(&run->cond, &run->mutex, &at) == ETIMEDOUT)
            break;
    }
    return !run->done;
}

static void *watch(void *arg)
{
    struct run *run = arg;

    while (wait_tick(run)) {
        for (size_t i = 0; i < run->count; i++)
            watch_slot(run, &run->slots[i]);
    }
    return NULL;
}

static bool start_watcher(struct run *run, pthread_t *ret)
{
    pthread_condattr_t attributes;

    (void)pthread_mutex_init(&run->mutex, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&run->cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return gpucr_thread_start(ret, watch, run) == 0;
}

static void end_watcher(struct run *run, pthread_t thread, bool started)
{
    (void)pthread_mutex_lock(&run->mutex);
    run->done = true;
    (void)pthread_cond_signal(&run->cond);
    (void)pthread_mutex_unlock(&run->mutex);
    if (started)
        (void)pthread_join(thread, NULL);
    (void)pthread_cond_destroy(&run->cond);
    (void)pthread_mutex_destroy(&run->mutex);
}

static int select_members(struct run *run, struct gpucr_error *err)
{
    struct gpucr_group *group = run->group;

    run->slots = calloc(group->count ? group->count : 1, sizeof(*run->slots));
    if (!run->slots)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; i < group->count; i++) {
        struct gpucr_member *member =
            &group->members[run->step->reverse ? group->count - 1 - i : i];

        if (member->ended || !run->step->wants(member))
            continue;
        if (!run->step->keep_errors)
            member->error = (struct gpucr_error)GPUCR_ERROR_INIT;
        run->slots[run->count++].member = member;
    }
    return 0;
}

static int first_failure(const struct run *run, struct gpucr_error *err)
{
    const struct slot *first = NULL;

    for (size_t i = 0; i < run->count; i++) {
        const struct slot *slot = &run->slots[i];

        if (slot->rc >= 0)
            continue;
        if (!first || (!run->step->report_by_pid && slot->order < first->order))
            first = slot;
    }
    if (!first)
        return 0;
    if (err)
        *err = first->member->error;
    return first->rc;
}

int gpucr_step_run(struct gpucr_group *group, const struct gpucr_step *step,
                   struct gpucr_error *err)
{
    struct run run = {.group = group, .step = step};
    pthread_t watcher;
    bool watched;
    int rc = select_members(&run, err);

    if (rc < 0)
        return rc;
    if (run.count > 0) {
        watched = start_watcher(&run, &watcher);
        gpucr_parallel_for(run.count, group->sequential ? 1 : CALLS_MAX, run_one, &run);
        end_watcher(&run, watcher, watched);
    }
    rc = first_failure(&run, err);
    free(run.slots);
    return rc;
}
