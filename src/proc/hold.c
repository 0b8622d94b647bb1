/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/hold.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "proc/hold_cgroup.h"
#include "proc/rest.h"

enum { LEAVE_MS = 5000, DYING_MS = 50, POLL_MIN_US = 50, POLL_MAX_US = 2000 };

void gpucr_hold_free(struct gpucr_hold *hold)
{
    if (!hold)
        return;
    for (size_t i = 0; i < hold->count; i++)
        gpucr_ident_done(&hold->items[i].ident);
    gpucr_hold_forget_cgroups(hold);
    free(hold->items);
    free(hold);
}

/* Opens the process, or marks it as ended. */
static int adopt_process(pid_t pid, bool was_stopped, struct gpucr_held *ret,
                         struct gpucr_error *err)
{
    struct gpucr_held held = {.ident = {.pid = pid, .pidfd = -1}, .was_stopped = was_stopped};
    struct gpucr_proc_stat stat;
    int rc = gpucr_ident_open(pid, &held.ident, err);

    if (rc == 0)
        rc = gpucr_proc_stat_read(pid, &stat, err);
    if (rc == 0) {
        held.parent_pid = stat.parent_pid;
    } else if (rc == GPUCR_ERR_NOT_FOUND) {
        gpucr_info("process %d has ended and is not held", (int)pid);
        gpucr_ident_done(&held.ident);
        held.ended = true;
    } else {
        gpucr_ident_done(&held.ident);
        return rc;
    }
    *ret = held;
    return 0;
}

static bool is_placed(const struct gpucr_hold *hold, size_t count, pid_t pid)
{
    for (size_t i = 0; i < count; i++) {
        if (hold->items[i].ident.pid == pid)
            return true;
    }
    return false;
}

/* Parents before children: each round places those whose parent waits no more. */
static void order_by_parents(struct gpucr_hold *hold)
{
    size_t placed = 0;

    while (placed < hold->count) {
        size_t before = placed;

        for (size_t i = placed; i < hold->count; i++) {
            struct gpucr_held held = hold->items[i];
            bool waits = false;

            for (size_t k = placed; k < hold->count && !waits; k++)
                waits = k != i && hold->items[k].ident.pid == held.parent_pid;
            if (waits)
                continue;
            (void)memmove(&hold->items[placed + 1], &hold->items[placed],
                          (i - placed) * sizeof(held));
            hold->items[placed++] = held;
        }
        if (placed == before) /* a circle: pids changed hands; any order will do */
            return;
    }
}

int gpucr_hold_adopt(const struct gpucr_pids *pids, const bool *was_stopped,
                     struct gpucr_hold **ret, struct gpucr_error *err)
{
    struct gpucr_hold *hold;
    int rc = 0;

    if (pids->count == 0)
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "there are no processes to hold");
    hold = calloc(1, sizeof(*hold));
    if (!hold)
        return gpucr_error_no_memory(err);
    hold->root = pids->ids[0];
    hold->items = calloc(pids->count, sizeof(*hold->items));
    if (!hold->items)
        rc = gpucr_error_no_memory(err);
    for (size_t i = 0; i < pids->count && rc == 0; i++) {
        if (is_placed(hold, hold->count, pids->ids[i]))
            continue;
        rc = adopt_process(pids->ids[i], was_stopped && was_stopped[i], &hold->items[hold->count],
                           err);
        if (rc == 0)
            hold->count++;
    }
    if (rc == 0) {
        order_by_parents(hold);
        rc = gpucr_hold_find_cgroups(hold, err);
    }
    if (rc < 0) {
        gpucr_hold_free(hold);
        return rc;
    }
    *ret = hold;
    return 0;
}

static int check_tracer(pid_t pid, pid_t tid, struct gpucr_error *err)
{
    pid_t tracer;
    int rc;

    if (tid == 0 || gpucr_rest_tracer(pid, tid, &tracer) >= 0)
        return 0;
    rc = gpucr_error_set(err, GPUCR_ERR_BUSY, "thread %d of process %d is traced by process %d",
                         (int)tid, (int)pid, (int)tracer);
    return gpucr_error_pid(err, rc, pid);
}

/*
 * A process that is killed runs for a moment, and while it does, its cgroup does not
 * count as frozen: what looks wrong is given that moment.
 */
static int explain_running(const struct gpucr_hold *hold, const struct gpucr_held *held,
                           const struct gpucr_rest *rest, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(DYING_MS);
    pid_t pid = held->ident.pid;
    int rc;

    while (!gpucr_ident_ended(&held->ident)) {
        if (hold->cgroup_count > 0 && gpucr_hold_is_frozen(hold, pid))
            return 0;
        if (gpucr_deadline_passed(deadline)) {
            rc = gpucr_error_set(err, GPUCR_ERR_VERIFY,
                                 "process %d does not stay stopped: its thread %d is in state %c",
                                 (int)pid, (int)(rest->tid ? rest->tid : pid),
                                 rest->state ? rest->state : '?');
            return gpucr_error_pid(err, rc, pid);
        }
        gpucr_sleep_us(POLL_MAX_US);
    }
    rc = gpucr_error_set(err, GPUCR_ERR_TARGET_DIED, "process %d has ended while it was held",
                         (int)pid);
    return gpucr_error_pid(err, rc, pid);
}

static int check_process(const struct gpucr_hold *hold, const struct gpucr_held *held,
                         struct gpucr_error *err)
{
    struct gpucr_rest rest;
    int rc = gpucr_rest_read(held->ident.pid, &rest, err);

    if (rc < 0)
        return rc;
    if (rest.kind == GPUCR_REST_STOPPED && !gpucr_ident_ended(&held->ident))
        return check_tracer(held->ident.pid, rest.traced_tid, err);
    return explain_running(hold, held, &rest, err);
}

int gpucr_hold_check(const struct gpucr_hold *hold, struct gpucr_error *err)
{
    for (size_t i = 0; i < hold->count; i++) {
        int rc = hold->items[i].ended ? 0 : check_process(hold, &hold->items[i], err);

        if (rc < 0)
            return rc;
    }
    return 0;
}

static bool to_continue(const struct gpucr_held *held)
{
    return !held->ended && !held->was_stopped;
}

static uint64_t switches_of(pid_t pid)
{
    struct gpucr_proc_status status;

    return gpucr_proc_status_read(pid, &status, NULL) == 0 ? status.switches : UINT64_MAX;
}

/* The leader tells for all, unless it has exited before its threads. */
static bool is_stopped(const struct gpucr_held *held)
{
    struct gpucr_proc_stat leader;
    struct gpucr_rest rest;

    if (gpucr_ident_ended(&held->ident) || gpucr_proc_stat_read(held->ident.pid, &leader, NULL) < 0)
        return false;
    if (leader.state != 'Z')
        return leader.state == 'T';
    return gpucr_rest_read(held->ident.pid, &rest, NULL) == 0 && rest.any_stopped;
}

/*
 * SIGCONT wakes all threads before it returns. One that is T afterwards has stopped
 * again by itself (a background job that reads its terminal), or was never woken; its
 * context switches tell the two apart.
 */
static bool has_left(const struct gpucr_held *held, uint64_t switches_before)
{
    if (!is_stopped(held))
        return true;
    if (switches_of(held->ident.pid) <= switches_before)
        return false;
    gpucr_info("process %d was continued and has stopped again by itself", (int)held->ident.pid);
    return true;
}

static int wait_left(const struct gpucr_held *held, uint64_t switches_before,
                     struct gpucr_deadline deadline, struct gpucr_error *err)
{
    uint64_t sleep_us = POLL_MIN_US;
    int rc;

    while (!has_left(held, switches_before)) {
        if (gpucr_deadline_passed(deadline)) {
            rc = gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                                 "process %d is still stopped after it was sent SIGCONT",
                                 (int)held->ident.pid);
            return gpucr_error_pid(err, rc, held->ident.pid);
        }
        gpucr_sleep_us(sleep_us);
        sleep_us = sleep_us * 2 > POLL_MAX_US ? POLL_MAX_US : sleep_us * 2;
    }
    return 0;
}

/* Keeps the first error, goes on with the rest. */
static void keep_first(int *first, int rc, const struct gpucr_error *one, struct gpucr_error *err)
{
    if (rc >= 0)
        return;
    gpucr_warn("while letting processes run again: %s", one->text);
    if (*first == 0) {
        *first = rc;
        if (err)
            *err = *one;
    }
}

static int continue_all(struct gpucr_hold *hold, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(LEAVE_MS);
    GPUCR_AUTO_FREE uint64_t *switches = calloc(hold->count + 1, sizeof(*switches));
    int first = 0;

    for (size_t i = hold->count; i-- > 0;) { /* children first: no parent sees a stopped child */
        struct gpucr_held *held = &hold->items[i];
        struct gpucr_error one = GPUCR_ERROR_INIT;
        int rc;

        if (!to_continue(held))
            continue;
        if (switches)
            switches[i] = switches_of(held->ident.pid);
        rc = gpucr_ident_signal(&held->ident, SIGCONT, &one);
        held->ended = rc == GPUCR_ERR_NOT_FOUND;
        if (!held->ended)
            keep_first(&first, rc, &one, err);
    }
    for (size_t i = hold->count; i-- > 0;) {
        struct gpucr_error one = GPUCR_ERROR_INIT;

        if (to_continue(&hold->items[i]))
            keep_first(
                &first,
                wait_left(&hold->items[i], switches ? switches[i] : UINT64_MAX, deadline, &one),
                &one, err);
    }
    return first;
}

int gpucr_hold_release(struct gpucr_hold *hold, struct gpucr_error *err)
{
    struct gpucr_error one = GPUCR_ERROR_INIT;
    int first = 0;

    if (hold->released)
        return 0;
    keep_first(&first, gpucr_hold_thaw(hold, &one), &one, err);
    if (first < 0) /* better running too early than frozen for ever */
        (void)gpucr_hold_open_cgroups(hold, NULL);
    keep_first(&first, continue_all(hold, &one), &one, err);
    hold->released = first == 0;
    return first;
}
