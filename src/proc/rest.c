/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/rest.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { WCHAN_BYTES = 64 };

/* In the order in which they explain why a process does not rest. */
enum thread_kind {
    THREAD_GONE,
    THREAD_STOPPED,
    THREAD_TRACED,
    THREAD_RUNS,
    THREAD_VFORK,
    THREAD_STUCK,
    THREAD_KINDS,
};

/*
 * A thread in vfork sleeps uninterruptibly (D) in wait_for_vfork_done(), which
 * compilers fold into its caller kernel_clone(), called _do_fork() before 5.10.
 * Without permission or kallsyms there is no name; kcmp decides then.
 */
static bool waits_in_vfork(pid_t pid, pid_t tid)
{
    char wchan[WCHAN_BYTES];

    gpucr_wchan_read(pid, tid, wchan, sizeof(wchan));
    return wchan[0] == '\0' || strstr(wchan, "vfork") || strstr(wchan, "kernel_clone") ||
           strstr(wchan, "do_fork");
}

static enum thread_kind kind_of(pid_t pid, pid_t tid, char state)
{
    switch (state) {
    case 'Z':
    case 'X':
    case 'x':
        return THREAD_GONE;
    case 'T':
        return THREAD_STOPPED;
    case 't':
        return THREAD_TRACED;
    case 'D':
        return waits_in_vfork(pid, tid) ? THREAD_VFORK : THREAD_STUCK;
    default:
        return THREAD_RUNS;
    }
}

struct look {
    struct gpucr_rest rest;
    enum thread_kind worst;
    size_t stopped_count;
    bool quick; /* end at the first that runs */
};

/* Returns 1 when the rest of the threads need not be looked at. */
static int look_at(struct look *look, pid_t pid, const struct gpucr_proc_stat *thread)
{
    enum thread_kind kind = kind_of(pid, thread->pid, thread->state);

    if (kind == THREAD_STOPPED)
        look->rest.any_stopped = true;
    if (kind == THREAD_TRACED && look->rest.traced_tid == 0)
        look->rest.traced_tid = thread->pid;
    if (kind == THREAD_VFORK)
        look->rest.vfork_tid = thread->pid;
    if (kind == THREAD_STOPPED || kind == THREAD_TRACED)
        look->stopped_count++;
    if (kind >= THREAD_RUNS && kind > look->worst) {
        look->worst = kind;
        look->rest.tid = thread->pid;
        look->rest.state = thread->state;
    }
    return look->quick && kind >= THREAD_RUNS;
}

/* Returns 1 as above, 0 when all were looked at. */
static int look_at_threads(struct look *look, pid_t pid, const struct gpucr_pids *tids,
                           struct gpucr_error *err)
{
    for (size_t i = 0; i < tids->count; i++) {
        struct gpucr_proc_stat thread;
        int rc;

        if (tids->ids[i] == pid) /* the leader comes last */
            continue;
        rc = gpucr_task_stat_read(pid, tids->ids[i], &thread, err);
        if (rc == GPUCR_ERR_NOT_FOUND)
            continue;
        if (rc == 0)
            rc = look_at(look, pid, &thread);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/*
 * The leader is read last, with the number of threads: when all that were listed are
 * stopped and there are not more than these, no thread was created behind our back.
 */
static int look_at_process(struct look *look, pid_t pid, const struct gpucr_pids *tids,
                           struct gpucr_error *err)
{
    struct gpucr_proc_stat leader;
    int rc = look_at_threads(look, pid, tids, err);

    if (rc != 0)
        return rc;
    rc = gpucr_proc_stat_read(pid, &leader, err);
    if (rc != 0)
        return rc;
    rc = look_at(look, pid, &leader);
    if (rc == 0 && leader.thread_count > tids->count && look->worst < THREAD_RUNS) {
        look->worst = THREAD_RUNS;
        look->rest.tid = pid;
        look->rest.state = leader.state;
    }
    return rc;
}

static enum gpucr_rest_kind kind_of_process(const struct look *look)
{
    if (look->worst >= THREAD_RUNS)
        return GPUCR_REST_RUNNING;
    return look->stopped_count > 0 ? GPUCR_REST_STOPPED : GPUCR_REST_ENDED;
}

static int rest_read(pid_t pid, bool quick, struct gpucr_rest *ret, struct gpucr_error *err)
{
    struct look look = {.quick = quick};
    struct gpucr_error lost = GPUCR_ERROR_INIT;
    struct gpucr_pids tids;
    int rc = gpucr_task_list(pid, &tids, &lost);

    if (rc == 0) {
        rc = look_at_process(&look, pid, &tids, &lost);
        gpucr_pids_done(&tids);
    }
    if (rc == GPUCR_ERR_NOT_FOUND) {
        look = (struct look){0};
    } else if (rc < 0) {
        if (err)
            *err = lost;
        return rc;
    }
    look.rest.kind = kind_of_process(&look);
    *ret = look.rest;
    return 0;
}

int gpucr_rest_read(pid_t pid, struct gpucr_rest *ret, struct gpucr_error *err)
{
    return rest_read(pid, false, ret, err);
}

int gpucr_rest_read_quick(pid_t pid, pid_t hint_tid, struct gpucr_rest *ret,
                          struct gpucr_error *err)
{
    struct gpucr_proc_stat thread;
    struct look look = {.quick = true};

    if (hint_tid > 0 && gpucr_task_stat_read(pid, hint_tid, &thread, NULL) == 0 &&
        look_at(&look, pid, &thread) == 1) {
        look.rest.kind = GPUCR_REST_RUNNING;
        *ret = look.rest;
        return 0;
    }
    return rest_read(pid, true, ret, err);
}

int gpucr_rest_shares_memory(pid_t a, pid_t b)
{
    long order = syscall(SYS_kcmp, a, b, KCMP_VM, 0, 0);

    if (order < 0) /* no permission, or a kernel without it */
        return -1;
    return order == 0;
}

bool gpucr_rest_same_program(pid_t a, pid_t b)
{
    struct stat x;
    struct stat y;
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)a);
    if (stat(path, &x) < 0)
        return true;
    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)b);
    if (stat(path, &y) < 0)
        return true;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool is_own_thread(pid_t tid)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d", (int)tid);
    return access(path, F_OK) == 0;
}

int gpucr_rest_tracer(pid_t pid, pid_t tid, pid_t *ret_tracer)
{
    struct gpucr_proc_status status;

    if (gpucr_task_status_read(pid, tid, &status, NULL) < 0 || status.tracer_pid == 0)
        return 0;
    if (is_own_thread(status.tracer_pid))
        return 1;
    *ret_tracer = status.tracer_pid;
    return -1;
}
