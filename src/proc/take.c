/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stopping a tree that forks, execs and ends while it is being stopped.
 *
 * Parents are stopped before children. A parent in vfork cannot stop before its child
 * has let go of its memory, so a child in the memory of its parent is not stopped
 * before the parent rests. The tree is read again until all rest and a reading made
 * after that finds nothing new: a process that rests cannot fork.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/text.h"
#include "proc/cgroup.h"
#include "proc/hold.h"
#include "proc/rest.h"

enum {
    FIRST_CAPACITY = 16,
    SLEEP_MIN_US = 100, /* a stop takes 50 to 300 µs */
    SLEEP_MAX_US = 500,
    RESCAN_MIN_NS = 5000000, /* while something does not stop, the rest may fork on */
    RESCAN_COST_FACTOR = 4,  /* on machines with many processes a reading is dear */
    ANCESTORS_MAX = 4096,
    QUICK_NS = 2000000, /* what does not stop in this time is looked at closely */
    LET_GO_NS = 20000000,
};

struct member {
    bool signalled; /* our SIGSTOP is on its way */
    bool ours;      /* it was sent at some time: SIGCONT is ours to send */
    bool settled;
    uint64_t vfork_since_ns; /* since when a thread was seen in vfork, 0 if none is */
    struct gpucr_rest rest;
};

struct position {
    pid_t pid;
    size_t at;
};

struct taking {
    struct gpucr_hold *hold;
    struct member *members;     /* beside hold->items */
    struct position *positions; /* the same, ascending by pid */
    size_t position_count;
    size_t capacity;
    struct gpucr_cgroups cgroups;
    uint64_t own_pid_ns;
    uint64_t begin_ns;
    uint64_t scan_end_ns;
    uint64_t scan_cost_ns;
    struct gpucr_deadline deadline;
    bool checked; /* the first reading is through: from now on there is something to undo */
};

static size_t lower_position(const struct taking *t, pid_t pid)
{
    size_t low = 0;
    size_t high = t->position_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (t->positions[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Index of the newest process with that pid, or SIZE_MAX. */
static size_t find(const struct taking *t, pid_t pid)
{
    size_t i = lower_position(t, pid);

    return i < t->position_count && t->positions[i].pid == pid ? t->positions[i].at : SIZE_MAX;
}

static void remember_position(struct taking *t, pid_t pid, size_t at)
{
    size_t i = lower_position(t, pid);

    if (i < t->position_count && t->positions[i].pid == pid) { /* the pid has changed hands */
        t->positions[i].at = at;
        return;
    }
    (void)memmove(&t->positions[i + 1], &t->positions[i],
                  (t->position_count - i) * sizeof(*t->positions));
    t->positions[i] = (struct position){.pid = pid, .at = at};
    t->position_count++;
}

static int make_room(struct taking *t, struct gpucr_error *err)
{
    size_t capacity = t->capacity ? t->capacity * 2 : FIRST_CAPACITY;
    struct gpucr_held *items;
    struct member *members;
    struct position *positions;

    if (t->hold->count < t->capacity)
        return 0;
    items = reallocarray(t->hold->items, capacity, sizeof(*items));
    if (items)
        t->hold->items = items;
    members = reallocarray(t->members, capacity, sizeof(*members));
    if (members)
        t->members = members;
    positions = reallocarray(t->positions, capacity, sizeof(*positions));
    if (positions)
        t->positions = positions;
    if (!items || !members || !positions)
        return gpucr_error_no_memory(err);
    t->capacity = capacity;
    return 0;
}

static void name_of(pid_t pid, char ret[GPUCR_PROC_COMM_BYTES])
{
    struct gpucr_proc_stat stat;

    if (gpucr_proc_stat_read(pid, &stat, NULL) == 0)
        (void)memcpy(ret, stat.comm, sizeof(stat.comm));
    else
        (void)snprintf(ret, GPUCR_PROC_COMM_BYTES, "?");
}

static int refuse_traced(pid_t pid, pid_t tid, struct gpucr_error *err)
{
    struct gpucr_proc_status status = {0};
    char tracer_name[GPUCR_PROC_COMM_BYTES];
    char name[GPUCR_PROC_COMM_BYTES];
    pid_t tracer;
    int rc;

    if (gpucr_rest_tracer(pid, tid, &tracer) >= 0)
        return 0;
    (void)gpucr_proc_status_read(tracer, &status, NULL);
    name_of(pid, name);
    name_of(tracer, tracer_name);
    rc = gpucr_error_set(err, GPUCR_ERR_BUSY,
                         "process %d (%s) is traced by process %d (%s); end the debugger first",
                         (int)pid, name, (int)(status.pid ? status.pid : tracer), tracer_name);
    return gpucr_error_pid(err, rc, pid);
}

/*
 * The kernel drops SIGSTOP for the init of a pid namespace unless it comes from an
 * outer one (SIGNAL_UNKILLABLE).
 */
static int refuse_init(const struct taking *t, const struct gpucr_ident *ident,
                       const struct gpucr_proc_status *status, struct gpucr_error *err)
{
    int rc;

    if (status->ns_level_count == 0 || status->ns_pids[status->ns_level_count - 1] != 1)
        return 0;
    if (ident->pid_ns_inode != t->own_pid_ns)
        return 0;
    rc = gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                         "process %d is the init of this pid namespace, which the kernel does not "
                         "let stop from inside; run gpucr outside of the container",
                         (int)ident->pid);
    return gpucr_error_pid(err, rc, ident->pid);
}

static int refuse_frozen(const struct taking *t, pid_t pid, struct gpucr_error *err)
{
    char folder[GPUCR_CGROUP_PATH_BYTES];
    char name[GPUCR_PROC_COMM_BYTES];
    int rc;

    if (gpucr_cgroup_frozen(&t->cgroups, pid, folder) == 0)
        return 0;
    name_of(pid, name);
    rc = gpucr_error_set(err, GPUCR_ERR_BUSY,
                         "process %d (%s) is frozen by the cgroup %s; thaw it first", (int)pid,
                         name, folder);
    (void)gpucr_error_path(err, rc, folder);
    return gpucr_error_pid(err, rc, pid);
}

/* What would make the stop impossible, looked at before it is begun. */
static int check_process(const struct taking *t, const struct gpucr_ident *ident,
                         const struct gpucr_proc_stat *stat, struct gpucr_error *err)
{
    struct gpucr_proc_status status;
    int rc;

    if (stat->kernel_thread) {
        rc = gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED, "process %d (%s) is a kernel thread",
                             (int)ident->pid, stat->comm);
        return gpucr_error_pid(err, rc, ident->pid);
    }
    rc = gpucr_proc_status_read(ident->pid, &status, err);
    if (rc == 0)
        rc = refuse_init(t, ident, &status, err);
    if (rc == 0)
        rc = refuse_traced(ident->pid, ident->pid, err);
    if (rc == 0)
        rc = refuse_frozen(t, ident->pid, err);
    if (rc == 0)
        rc = gpucr_ident_signal(ident, 0, err); /* only asks for permission */
    return rc;
}

/* A process that ends while we look at it is no failure, unless it is the root. */
static int tolerate_end(const struct taking *t, int rc, pid_t pid, struct gpucr_error *err)
{
    if (rc != GPUCR_ERR_NOT_FOUND)
        return rc;
    if (pid != t->hold->root)
        return 0;
    if (!t->checked)
        return rc;
    rc = gpucr_error_set(err, GPUCR_ERR_TARGET_DIED,
                         "process %d has ended while its tree was being stopped", (int)pid);
    return gpucr_error_pid(err, rc, pid);
}

static int add_process(struct taking *t, const struct gpucr_proc_stat *stat,
                       struct gpucr_error *err)
{
    struct gpucr_held held = {.parent_pid = stat->parent_pid};
    struct member member = {0};
    bool runs = stat->state == 'R' || stat->state == 'S'; /* the leader, so no stop is in effect */
    int rc = make_room(t, err);

    if (rc < 0)
        return rc;
    rc = gpucr_ident_open(stat->pid, &held.ident, err);
    if (rc < 0)
        return rc;
    rc = check_process(t, &held.ident, stat, err);
    if (rc == 0 && !runs)
        rc = gpucr_rest_read(stat->pid, &member.rest, err);
    if (rc == 0 && member.rest.traced_tid != 0)
        rc = refuse_traced(stat->pid, member.rest.traced_tid, err);
    if (rc < 0) {
        gpucr_ident_done(&held.ident);
        return rc;
    }
    /* One thread in state T is enough: a group stop is on its way to the others. */
    held.was_stopped = member.rest.any_stopped;
    t->hold->items[t->hold->count] = held;
    t->members[t->hold->count] = member;
    remember_position(t, stat->pid, t->hold->count);
    t->hold->count++;
    return 0;
}

static bool is_known(const struct taking *t, const struct gpucr_proc_stat *stat)
{
    size_t at = find(t, stat->pid);

    return at != SIZE_MAX && t->hold->items[at].ident.start_ticks == stat->start_ticks;
}

static int add_new(struct taking *t, const struct gpucr_tree *tree, size_t *ret_added,
                   struct gpucr_error *err)
{
    size_t added = 0;

    for (size_t i = 0; i < tree->count; i++) {
        const struct gpucr_proc_stat *stat = &tree->items[i];
        bool ended = stat->state == 'Z' && stat->thread_count <= 1;
        int rc;

        if (is_known(t, stat) || (ended && stat->pid != t->hold->root))
            continue;
        rc = tolerate_end(t, add_process(t, stat, err), stat->pid, err);
        if (rc < 0)
            return rc;
        added++;
    }
    *ret_added = added;
    return 0;
}

static int read_tree(const struct taking *t, struct gpucr_tree *ret, struct gpucr_error *err)
{
    struct gpucr_tree tree = {0};
    int rc;

    if (!t->hold->single)
        return gpucr_tree_read_once(t->hold->root, ret, err);
    tree.items = calloc(1, sizeof(*tree.items));
    if (!tree.items)
        return gpucr_error_no_memory(err);
    tree.count = 1;
    rc = gpucr_proc_stat_read(t->hold->root, tree.items, err);
    if (rc < 0)
        gpucr_tree_done(&tree);
    else
        *ret = tree;
    return rc;
}

/* gpucr would stop itself, or the shell that it answers to. */
static int refuse_self(const struct taking *t, struct gpucr_error *err)
{
    pid_t pid = getpid();

    for (int i = 0; i < ANCESTORS_MAX && pid > 0; i++) {
        struct gpucr_proc_stat stat;

        if (pid == t->hold->root) {
            int rc = gpucr_error_set(err, GPUCR_ERR_USAGE,
                                     "process %d is %s: it cannot be stopped from here", (int)pid,
                                     i == 0 ? "gpucr itself" : "a parent of gpucr itself");

            return gpucr_error_pid(err, rc, pid);
        }
        if (gpucr_proc_stat_read(pid, &stat, NULL) < 0)
            break;
        pid = stat.parent_pid;
    }
    return 0;
}

/* Read the tree and take in what is new. */
static int scan(struct taking *t, size_t *ret_added, struct gpucr_error *err)
{
    uint64_t begin_ns = gpucr_now_ns();
    struct gpucr_tree tree;
    int rc = read_tree(t, &tree, err);

    if (rc < 0)
        return tolerate_end(t, rc, t->hold->root, err);
    rc = add_new(t, &tree, ret_added, err);
    gpucr_tree_done(&tree);
    t->scan_end_ns = gpucr_now_ns();
    t->scan_cost_ns = t->scan_end_ns - begin_ns;
    return rc;
}

/* Does a thread of the parent, which is in vfork, wait for this child? */
static bool is_awaited(const struct taking *t, size_t parent, size_t child)
{
    pid_t pid = t->hold->items[parent].ident.pid;
    int shares = gpucr_rest_shares_memory(pid, t->hold->items[child].ident.pid);

    if (shares == 1)
        return true;
    if (!gpucr_rest_same_program(pid, t->hold->items[child].ident.pid))
        return false;
    for (size_t i = parent + 1; i < t->hold->count && shares == 0; i++) {
        const struct gpucr_held *other = &t->hold->items[i];

        if (other->parent_pid == pid && !other->ended &&
            gpucr_rest_shares_memory(pid, other->ident.pid) == 1)
            return false;
    }
    return true; /* CLONE_VFORK without CLONE_VM has a copy of the memory */
}

static bool may_stop(const struct taking *t, size_t i)
{
    size_t parent = find(t, t->hold->items[i].parent_pid);
    pid_t pid = t->hold->items[i].ident.pid;
    int shares;

    if (parent == SIZE_MAX || parent == i || t->hold->items[parent].ended ||
        t->members[parent].settled)
        return true;
    shares = gpucr_rest_shares_memory(t->hold->items[parent].ident.pid, pid);
    if (shares == 1)
        return false;
    if (t->members[parent].rest.vfork_tid != 0)
        return !is_awaited(t, parent, i);
    return shares == 0;
}

static int mark_ended(struct taking *t, size_t i, struct gpucr_error *err)
{
    struct gpucr_held *held = &t->hold->items[i];

    held->ended = true;
    gpucr_info("process %d has ended while it was being stopped", (int)held->ident.pid);
    return tolerate_end(t, GPUCR_ERR_NOT_FOUND, held->ident.pid, err);
}

static int send_stop(struct taking *t, size_t i, struct gpucr_error *err)
{
    int rc = gpucr_ident_signal(&t->hold->items[i].ident, SIGSTOP, err);

    if (rc == GPUCR_ERR_NOT_FOUND)
        return mark_ended(t, i, err);
    if (rc < 0)
        return rc;
    t->members[i].signalled = true;
    t->members[i].ours = true;
    return 0;
}

/*
 * A parent that waits in vfork although no child of it is left to run: the awaited one
 * had a copy of the memory and was stopped before the wait was seen. It goes on.
 */
static int let_go(struct taking *t, size_t parent, struct gpucr_error *err)
{
    struct member *member = &t->members[parent];
    pid_t pid = t->hold->items[parent].ident.pid;

    if (member->rest.vfork_tid == 0) {
        member->vfork_since_ns = 0;
        return 0;
    }
    if (member->vfork_since_ns == 0)
        member->vfork_since_ns = gpucr_now_ns();
    /* The awaited child must have had the chance to be found. */
    if (gpucr_now_ns() - member->vfork_since_ns < LET_GO_NS ||
        t->scan_end_ns - t->scan_cost_ns < member->vfork_since_ns)
        return 0;
    for (size_t i = parent + 1; i < t->hold->count; i++) {
        const struct gpucr_held *held = &t->hold->items[i];
        int rc;

        if (held->parent_pid != pid || held->ended || !t->members[i].signalled ||
            !is_awaited(t, parent, i))
            continue;
        rc = gpucr_ident_signal(&held->ident, SIGCONT, err);
        if (rc < 0 && rc != GPUCR_ERR_NOT_FOUND)
            return rc;
        t->members[i].signalled = false;
        t->members[i].settled = false;
    }
    return 0;
}

static int look_again(struct taking *t, size_t i, struct gpucr_error *err)
{
    struct gpucr_held *held = &t->hold->items[i];
    struct member *member = &t->members[i];
    pid_t pid = held->ident.pid;
    pid_t vfork_tid = member->rest.vfork_tid;
    bool quick = !held->was_stopped && gpucr_now_ns() - t->scan_end_ns < QUICK_NS;
    int rc = quick ? gpucr_rest_read_quick(pid, member->rest.tid, &member->rest, err)
                   : gpucr_rest_read(pid, &member->rest, err);

    if (rc == 0 && quick && member->rest.kind == GPUCR_REST_RUNNING && member->rest.vfork_tid == 0)
        member->rest.vfork_tid = vfork_tid; /* not looked for: only a close look takes it away */
    if (rc == 0 && member->rest.traced_tid != 0)
        rc = refuse_traced(pid, member->rest.traced_tid, err);
    if (rc < 0)
        return rc;
    if (gpucr_ident_ended(&held->ident))
        return mark_ended(t, i, err);
    if (member->rest.kind == GPUCR_REST_STOPPED)
        member->settled = member->signalled || held->was_stopped;
    else if (held->was_stopped && !member->rest.any_stopped)
        held->was_stopped = false; /* continued by its owner: to be stopped by us, then */
    return let_go(t, i, err);
}

/* One round: stop what may be stopped, look who rests. */
static int step(struct taking *t, bool *ret_settled, struct gpucr_error *err)
{
    bool settled = true;

    for (size_t i = 0; i < t->hold->count; i++) {
        struct gpucr_held *held = &t->hold->items[i];
        struct member *member = &t->members[i];
        int rc = 0;

        if (held->ended || member->settled)
            continue;
        if (!member->signalled && !held->was_stopped && may_stop(t, i))
            rc = send_stop(t, i, err);
        if (rc == 0 && !held->ended)
            rc = look_again(t, i, err);
        if (rc < 0)
            return rc;
        settled = settled && (held->ended || member->settled);
    }
    *ret_settled = settled;
    return 0;
}

/* SIGCONT wakes all threads, so the leader tells, unless it has exited before them. */
static bool still_stopped(pid_t pid)
{
    struct gpucr_proc_stat leader;

    return gpucr_proc_stat_read(pid, &leader, NULL) == 0 &&
           (leader.state == 'T' || leader.state == 't');
}

/* After all have settled: does anybody run again, because somebody sent SIGCONT? */
static int recheck(struct taking *t, bool *ret_settled, struct gpucr_error *err)
{
    bool settled = true;

    for (size_t i = 0; i < t->hold->count; i++) {
        struct member *member = &t->members[i];
        int rc;

        if (t->hold->items[i].ended || still_stopped(t->hold->items[i].ident.pid))
            continue;
        member->settled = false;
        rc = look_again(t, i, err);
        if (rc < 0)
            return rc;
        if (t->hold->items[i].ended || member->settled)
            continue;
        member->signalled = false;
        settled = false;
    }
    *ret_settled = settled;
    return 0;
}

static void describe_vfork(const struct taking *t, size_t i, char *ret, size_t size)
{
    pid_t pid = t->hold->items[i].ident.pid;

    for (size_t k = i + 1; k < t->hold->count; k++) {
        pid_t child = t->hold->items[k].ident.pid;
        char name[GPUCR_PROC_COMM_BYTES];

        if (t->hold->items[k].parent_pid != pid || t->hold->items[k].ended ||
            t->members[k].signalled || !is_awaited(t, i, k))
            continue;
        name_of(child, name);
        (void)snprintf(ret, size,
                       "; it waits for its vfork child %d (%s), which has neither started a "
                       "program nor ended",
                       (int)child, name);
        return;
    }
}

static int not_stopped(const struct taking *t, size_t i, struct gpucr_error *err)
{
    pid_t pid = t->hold->items[i].ident.pid;
    unsigned long long ms = (gpucr_now_ns() - t->begin_ns) / 1000000;
    char name[GPUCR_PROC_COMM_BYTES];
    struct gpucr_rest rest;
    char vfork[160] = "";
    char wchan[64];
    int rc = gpucr_rest_read(pid, &rest, err); /* a close look, for the thread that is stuck */

    if (rc < 0)
        return rc;
    if (rest.tid == 0) /* it stopped, or has ended, in the last moment */
        rest = t->members[i].rest;
    if (rest.tid == 0)
        rest.tid = pid;
    name_of(pid, name);
    gpucr_wchan_read(pid, rest.tid, wchan, sizeof(wchan));
    if (rest.vfork_tid != 0)
        describe_vfork(t, i, vfork, sizeof(vfork));
    rc = gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                         "process %d (%s) did not stop within %llu ms: its thread %d is in state "
                         "%c, in the kernel function %s%s",
                         (int)pid, name, ms, (int)rest.tid, rest.state ? rest.state : '?',
                         wchan[0] ? wchan : "(unknown)", vfork);
    return gpucr_error_pid(err, rc, pid);
}

static int deadline_passed(const struct taking *t, struct gpucr_error *err)
{
    size_t culprit = SIZE_MAX;
    int rc;

    /* A thread stuck in the kernel explains more than those that wait for it. */
    for (size_t i = t->hold->count; i-- > 0;) {
        const struct member *m = &t->members[i];

        if (!t->hold->items[i].ended && !m->settled &&
            (culprit == SIZE_MAX || m->signalled || !t->members[culprit].signalled))
            culprit = i;
    }
    if (culprit != SIZE_MAX)
        return not_stopped(t, culprit, err);
    rc = gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                         "new processes appear below process %d faster than they can be stopped "
                         "(%zu so far)",
                         (int)t->hold->root, t->hold->count);
    return gpucr_error_pid(err, rc, t->hold->root);
}

/* Until all have settled, or it is time to read the tree again. */
static int settle(struct taking *t, bool *ret_settled, struct gpucr_error *err)
{
    uint64_t rescan_ns = t->scan_cost_ns * RESCAN_COST_FACTOR;
    uint64_t sleep_us = SLEEP_MIN_US;

    if (rescan_ns < RESCAN_MIN_NS)
        rescan_ns = RESCAN_MIN_NS;
    for (;;) {
        int rc = step(t, ret_settled, err);

        if (rc < 0 || *ret_settled)
            return rc;
        if (gpucr_deadline_passed(t->deadline))
            return deadline_passed(t, err);
        if (gpucr_now_ns() - t->scan_end_ns > rescan_ns)
            return 0;
        gpucr_sleep_us(sleep_us);
        sleep_us = sleep_us * 3 / 2 > SLEEP_MAX_US ? SLEEP_MAX_US : sleep_us * 3 / 2;
    }
}

static int stop_all(struct taking *t, struct gpucr_error *err)
{
    bool settled = false;
    size_t added;
    int rc = scan(t, &added, err);

    t->checked = true;
    while (rc == 0) {
        if (settled && added == 0) {
            rc = recheck(t, &settled, err);
            if (rc < 0 || settled)
                return rc;
        }
        rc = settle(t, &settled, err);
        if (rc == 0)
            rc = scan(t, &added, err);
        if (rc == 0 && added > 0 && gpucr_deadline_passed(t->deadline))
            rc = deadline_passed(t, err);
    }
    return rc;
}

/* Continue what was stopped here, and only that. */
static int take_back(struct taking *t, int rc, struct gpucr_error *err)
{
    struct gpucr_error undo = GPUCR_ERROR_INIT;

    for (size_t i = 0; i < t->hold->count; i++) {
        if (!t->members[i].ours)
            t->hold->items[i].was_stopped = true;
    }
    if (gpucr_hold_release(t->hold, &undo) < 0)
        (void)gpucr_error_wrap(err, rc, "not all processes could be continued (%s)", undo.text);
    return rc;
}

static void taking_done(struct taking *t)
{
    gpucr_cgroups_done(&t->cgroups);
    gpucr_hold_free(t->hold);
    free(t->members);
    free(t->positions);
}

/* A /proc of another pid namespace names other processes than the system calls do. */
static int refuse_foreign_proc(struct gpucr_error *err)
{
    char own[32];
    uint64_t pid;
    ssize_t n = readlink("/proc/self", own, sizeof(own) - 1);

    own[n > 0 ? n : 0] = '\0';
    if (gpucr_parse_u64(own, 10, &pid) && pid == (uint64_t)getpid())
        return 0;
    return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                           "/proc is not that of the pid namespace in which gpucr runs");
}

static int taking_init(struct taking *t, struct gpucr_error *err)
{
    struct stat st;
    int rc = refuse_foreign_proc(err);

    if (rc < 0)
        return rc;
    t->begin_ns = gpucr_now_ns();
    t->hold = calloc(1, sizeof(*t->hold));
    if (!t->hold)
        return gpucr_error_no_memory(err);
    if (stat("/proc/self/ns/pid", &st) == 0)
        t->own_pid_ns = (uint64_t)st.st_ino;
    return gpucr_cgroups_open(&t->cgroups, err);
}

int gpucr_hold_take(pid_t root, bool single, struct gpucr_deadline deadline,
                    struct gpucr_hold **ret, struct gpucr_error *err)
{
    struct taking t = {.deadline = deadline};
    int rc = taking_init(&t, err);

    if (rc == 0) {
        t.hold->root = root;
        t.hold->single = single;
        rc = refuse_self(&t, err);
    }
    if (rc == 0) {
        rc = stop_all(&t, err);
        if (rc == 0)
            rc = gpucr_fault("hold.taken", err);
        if (rc < 0)
            rc = take_back(&t, rc, err);
    }
    if (rc == 0)
        *ret = gpucr_steal_ptr(&t.hold);
    taking_done(&t);
    return rc;
}
