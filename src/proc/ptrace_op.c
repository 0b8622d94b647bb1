/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/ptrace_op.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"

/* glibc 2.36 has these only in <linux/ptrace.h>, which conflicts with <sys/ptrace.h>. */
#ifndef PTRACE_GETSIGMASK
#define PTRACE_GETSIGMASK 0x420a
#define PTRACE_SETSIGMASK 0x420b
#endif

enum { LOST_STOP_AFTER_NS = 5000000, SPIN_COUNT = 40, SLEEP_US_MAX = 500 };

bool gpucr_task_ended(pid_t pid, pid_t tid)
{
    struct gpucr_proc_stat stat;

    if (gpucr_task_stat_read(pid, tid, &stat, NULL))
        return true;
    return stat.state == 'Z' || stat.state == 'X';
}

/* The kernel's own number of a Yama level; -1 without Yama. */
static int yama_scope(void)
{
    char text[16];
    uint64_t level;
    const char *end;

    if (gpucr_file_read_small(AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text)) <
            0 ||
        !gpucr_scan_u64(text, 10, &level, &end))
        return -1;
    return (int)level;
}

static int explain_permission(pid_t pid, pid_t tid, struct gpucr_error *err)
{
    struct gpucr_proc_status status = {0};
    int scope = yama_scope();
    char yama[64] = "";

    if (gpucr_proc_status_read(tid, &status, NULL))
        return gpucr_error_set(err, GPUCR_ERR_NOT_FOUND, "thread %d of process %d ended", tid, pid);
    if (scope > 0)
        (void)snprintf(yama, sizeof(yama), "; kernel.yama.ptrace_scope is %d", scope);
    int code = gpucr_error_set(err, GPUCR_ERR_PERMISSION,
                               "tracing thread %d of process %d (uid %u) is not permitted to uid "
                               "%u: it takes the same uid and gid and a dumpable process, or "
                               "CAP_SYS_PTRACE%s",
                               tid, pid, (unsigned)status.uid[0], (unsigned)geteuid(), yama);
    return gpucr_error_pid(err, code, pid);
}

static int explain_tracer(pid_t pid, pid_t tid, pid_t tracer, struct gpucr_error *err)
{
    struct gpucr_proc_stat stat = {0};

    if (gpucr_proc_stat_read(tracer, &stat, NULL))
        stat.comm[0] = '\0';
    int code =
        gpucr_error_set(err, GPUCR_ERR_BUSY, "thread %d of process %d is traced by process %d (%s)",
                        tid, pid, tracer, stat.comm[0] ? stat.comm : "unknown");
    return gpucr_error_pid(err, code, pid);
}

int gpucr_ptrace_seize(pid_t pid, pid_t tid, unsigned options, struct gpucr_error *err)
{
    struct gpucr_proc_status status;

    if (!ptrace(PTRACE_SEIZE, tid, NULL, (void *)(uintptr_t)options))
        return 0;
    int saved = errno;
    if (saved == EPERM && gpucr_task_ended(pid, tid))
        saved = ESRCH;
    if (saved == EPERM && !gpucr_proc_status_read(tid, &status, NULL) && status.tracer_pid)
        return explain_tracer(pid, tid, status.tracer_pid, err);
    if (saved == EPERM || saved == EACCES)
        return explain_permission(pid, tid, err);
    return gpucr_error_errno(err, saved, "cannot trace thread %d of process %d", tid, pid);
}

/*
 * An ended leader is left for its real parent to reap: in our own child we would
 * otherwise take the exit status away from the program that uses this library (the
 * kernel lets tracer and parent share one report when they are threads of one
 * process).
 */
int gpucr_ptrace_poll(pid_t pid, pid_t tid, int *ret_status)
{
    siginfo_t info = {0};
    int status = 0;
    pid_t got;

    if (tid == pid) {
        if (waitid(P_PID, (id_t)tid, &info,
                   WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL | __WNOTHREAD))
            return GPUCR_ERR_NOT_FOUND;
        if (!info.si_pid)
            return 0;
        if (info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED)
            return GPUCR_ERR_NOT_FOUND;
    }
    got = waitpid(tid, &status, WNOHANG | __WALL | __WNOTHREAD);
    if (!got)
        return 0;
    if (got < 0 || !WIFSTOPPED(status))
        return GPUCR_ERR_NOT_FOUND;
    *ret_status = status;
    return 1;
}

bool gpucr_ptrace_lost_stop(pid_t tid, int *ret_status)
{
    siginfo_t info = {0};
    int status = 0;

    /* Succeeds only in a ptrace stop. If that stop is still to be reported, waitid() sees it. */
    if (ptrace(PTRACE_GETSIGINFO, tid, NULL, &info))
        return false;
    siginfo_t pending = {0};
    if (waitid(P_PID, (id_t)tid, &pending,
               WEXITED | WSTOPPED | WNOHANG | WNOWAIT | __WALL | __WNOTHREAD) ||
        pending.si_pid)
        return false;
    /* ptrace_do_notify() puts the exit code of event and syscall stops into si_code. */
    if (info.si_code > 0 && (info.si_code & 0x7f) == info.si_signo &&
        (info.si_code >> 8 || (info.si_code & 0x80)))
        status = (info.si_code << 8) | 0x7f;
    else
        status = (info.si_signo << 8) | 0x7f;
    *ret_status = status;
    return true;
}

static int wait_failed(pid_t pid, pid_t tid, struct gpucr_error *err)
{
    struct gpucr_proc_stat stat = {.state = '?'};
    char wchan[64] = "";

    (void)gpucr_task_stat_read(pid, tid, &stat, NULL);
    gpucr_wchan_read(pid, tid, wchan, sizeof(wchan));
    int code = gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                               "thread %d (%s) of process %d did not stop for the tracer: its "
                               "state is %c%s%s",
                               tid, stat.comm, pid, stat.state,
                               wchan[0] ? ", waiting in the kernel's " : "", wchan);
    return gpucr_error_pid(err, code, pid);
}

static int wait_ended(pid_t pid, pid_t tid, struct gpucr_error *err)
{
    int code = gpucr_error_set(err, GPUCR_ERR_NOT_FOUND, "thread %d of process %d ended", tid, pid);
    return gpucr_error_pid(err, code, pid);
}

int gpucr_ptrace_wait(pid_t pid, pid_t tid, struct gpucr_deadline deadline, int *ret_status,
                      struct gpucr_error *err)
{
    uint64_t start_ns = gpucr_now_ns();
    uint64_t sleep_us = 20;

    for (unsigned i = 0;; i++) {
        int got = gpucr_ptrace_poll(pid, tid, ret_status);
        if (got > 0)
            return 0;
        if (got < 0)
            return wait_ended(pid, tid, err);
        if (i < SPIN_COUNT) {
            (void)sched_yield();
            continue;
        }
        if (gpucr_now_ns() - start_ns > LOST_STOP_AFTER_NS) {
            if (gpucr_ptrace_lost_stop(tid, ret_status))
                return 0;
            if (gpucr_task_ended(pid, tid)) {
                (void)gpucr_ptrace_poll(pid, tid, ret_status);
                return wait_ended(pid, tid, err);
            }
        }
        if (gpucr_deadline_passed(deadline))
            return wait_failed(pid, tid, err);
        gpucr_sleep_us(sleep_us);
        sleep_us = sleep_us * 3 / 2 > SLEEP_US_MAX ? SLEEP_US_MAX : sleep_us * 3 / 2;
    }
}

void gpucr_ptrace_detach(pid_t tid)
{
    /* Fails only for a thread that was killed: nothing to let go. */
    (void)ptrace(PTRACE_DETACH, tid, NULL, NULL);
}

/*
 * Attaching to a stopped thread makes it trap anew; the trap reports the signal
 * of the group stop, or SIGTRAP if there is none (do_jobctl_trap(), since 3.4).
 */
int gpucr_ptrace_seize_stopped(pid_t pid, pid_t tid, unsigned options, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(GPUCR_PTRACE_STOP_MS);
    int status = 0;
    int rc = gpucr_ptrace_seize(pid, tid, options, err);

    if (rc)
        return rc;
    rc = gpucr_ptrace_wait(pid, tid, deadline, &status, err);
    if (rc) {
        /* Not in a stop, so it cannot be detached; an interrupt may still get it there. */
        if (rc == GPUCR_ERR_TIMEOUT && !ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) &&
            !gpucr_ptrace_wait(pid, tid, gpucr_deadline_in_ms(100), &status, NULL))
            gpucr_ptrace_detach(tid);
        return rc;
    }
    if (gpucr_ptrace_event(status) != PTRACE_EVENT_STOP || WSTOPSIG(status) == SIGTRAP) {
        gpucr_ptrace_detach(tid);
        rc = gpucr_error_set(err, GPUCR_ERR_VERIFY, "process %d is not stopped: thread %d runs",
                             pid, tid);
        return gpucr_error_pid(err, rc, pid);
    }
    return 0;
}

static int seize_new(pid_t pid, unsigned options, struct gpucr_pids *seized, size_t *ret_found,
                     struct gpucr_error *err)
{
    GPUCR_CLEANUP(gpucr_pids_done) struct gpucr_pids tids = {0};
    size_t found = 0;
    int rc = gpucr_task_list(pid, &tids, err);

    for (size_t i = 0; !rc && i < tids.count; i++) {
        if (gpucr_pids_contain(seized, tids.ids[i]) || gpucr_task_ended(pid, tids.ids[i]))
            continue;
        rc = gpucr_pids_add(seized, tids.ids[i], err);
        if (rc)
            break;
        rc = gpucr_ptrace_seize_stopped(pid, tids.ids[i], options, err);
        if (rc)
            seized->count--;
        else
            found++;
        if (rc == GPUCR_ERR_NOT_FOUND)
            rc = 0;
    }
    *ret_found = found;
    return rc;
}

/* Kernels without CONFIG_CHECKPOINT_RESTORE and callers without CAP_SYS_ADMIN get an error. */
static unsigned seccomp_option(pid_t pid)
{
    struct gpucr_proc_status status;

    if (gpucr_proc_status_read(pid, &status, NULL) || !status.seccomp)
        return 0;
    return PTRACE_O_SUSPEND_SECCOMP;
}

int gpucr_ptrace_seize_all(pid_t pid, struct gpucr_pids *ret, struct gpucr_error *err)
{
    struct gpucr_pids seized = {0};
    unsigned options = seccomp_option(pid);
    size_t found = 1;
    int rc = 0;

    while (!rc && found) {
        rc = seize_new(pid, options, &seized, &found, options ? NULL : err);
        if (rc && options && !seized.count) {
            options = 0;
            rc = 0;
            found = 1;
        }
    }
    if (!rc && !seized.count) {
        rc = gpucr_error_set(err, GPUCR_ERR_TARGET_DIED, "process %d ended", pid);
        rc = gpucr_error_pid(err, rc, pid);
    }
    if (rc) {
        gpucr_ptrace_detach_all(&seized);
        gpucr_pids_done(&seized);
        return rc;
    }
    *ret = seized;
    return 0;
}

void gpucr_ptrace_detach_all(const struct gpucr_pids *tids)
{
    for (size_t i = 0; i < tids->count; i++)
        gpucr_ptrace_detach(tids->ids[i]);
}

int gpucr_ptrace_mask_get(pid_t tid, uint64_t *ret, struct gpucr_error *err)
{
    uint64_t mask = 0;

    if (ptrace((enum __ptrace_request)PTRACE_GETSIGMASK, tid, (void *)sizeof(mask), &mask))
        return gpucr_error_errno(err, errno, "cannot read the signal mask of thread %d", tid);
    *ret = mask;
    return 0;
}

int gpucr_ptrace_mask_set(pid_t tid, uint64_t mask, struct gpucr_error *err)
{
    if (ptrace((enum __ptrace_request)PTRACE_SETSIGMASK, tid, (void *)sizeof(mask), &mask))
        return gpucr_error_errno(err, errno, "cannot set the signal mask of thread %d", tid);
    return 0;
}

/* The kernel names the thread that traces, not its process. */
static bool is_ours(pid_t tracer)
{
    struct gpucr_proc_stat stat;

    return !gpucr_task_stat_read(getpid(), tracer, &stat, NULL);
}

/* 0 when all are T, 1 when one is not (in @p ret_stat), or an error. */
static int stopped_scan(pid_t pid, struct gpucr_proc_stat *ret_stat, struct gpucr_error *err)
{
    GPUCR_CLEANUP(gpucr_pids_done) struct gpucr_pids tids = {0};
    struct gpucr_proc_status status;
    size_t alive = 0;
    int rc = gpucr_task_list(pid, &tids, err);

    for (size_t i = 0; !rc && i < tids.count; i++) {
        struct gpucr_proc_stat stat;
        if (gpucr_task_stat_read(pid, tids.ids[i], &stat, NULL) || stat.state == 'Z' ||
            stat.state == 'X')
            continue;
        alive++;
        if (stat.state == 'T')
            continue;
        *ret_stat = stat;
        if (!gpucr_proc_status_read(tids.ids[i], &status, NULL) && status.tracer_pid &&
            !is_ours(status.tracer_pid))
            return explain_tracer(pid, tids.ids[i], status.tracer_pid, err);
        return 1;
    }
    if (rc == GPUCR_ERR_NOT_FOUND || (!rc && !alive)) {
        rc = gpucr_error_set(err, GPUCR_ERR_TARGET_DIED, "process %d ended", pid);
        return gpucr_error_pid(err, rc, pid);
    }
    return rc;
}

int gpucr_stopped_wait(pid_t pid, struct gpucr_deadline deadline, struct gpucr_error *err)
{
    struct gpucr_proc_stat stat = {0};
    uint64_t sleep_us = 20;
    char wchan[64] = "";

    for (;;) {
        int rc = stopped_scan(pid, &stat, err);
        if (rc <= 0)
            return rc;
        if (gpucr_deadline_passed(deadline))
            break;
        gpucr_sleep_us(sleep_us);
        sleep_us = sleep_us * 3 / 2 > SLEEP_US_MAX ? SLEEP_US_MAX : sleep_us * 3 / 2;
    }
    gpucr_wchan_read(pid, stat.pid, wchan, sizeof(wchan));
    int code = gpucr_error_set(
        err, GPUCR_ERR_VERIFY, "process %d is not stopped: thread %d (%s) is in state %c%s%s", pid,
        stat.pid, stat.comm, stat.state, wchan[0] ? ", waiting in the kernel's " : "", wchan);
    return gpucr_error_pid(err, code, pid);
}
