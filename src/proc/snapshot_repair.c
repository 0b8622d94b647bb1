/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "proc/map_diff.h"
#include "proc/ptrace_op.h"
#include "proc/remote.h"
#include "proc/snapshot_state.h"

enum {
    TRACER_MS = 5000, /* for a killed CRIU to be gone */
    STEP_MS = 200,
};

struct repair {
    const struct gpucr_snapshot *snapshot;
    struct gpucr_pids tids; /* seized */
    uint64_t syscall_address;
    struct gpucr_repair done;
};

static int cannot(const struct repair *repair, struct gpucr_error *err, const char *what,
                  uint64_t start, uint64_t end)
{
    int rc = gpucr_error_set(err, GPUCR_ERR_VERIFY,
                             "process %d cannot be brought back to its state: the mapping "
                             "%llx-%llx %s",
                             repair->snapshot->pid, (unsigned long long)start,
                             (unsigned long long)end, what);

    return gpucr_error_pid(err, rc, repair->snapshot->pid);
}

/* The leader may be a zombie, without memory and descriptors; all threads share them. */
static pid_t alive(const struct repair *repair)
{
    return repair->tids.ids[0];
}

/* A call in the target by a thread that has its own registers again by then. */
static int remote(struct repair *repair, const struct gpucr_remote_call *call, const char *what,
                  struct gpucr_error *err)
{
    pid_t pid = repair->snapshot->pid;
    struct gpucr_remote_call at = *call;
    int64_t result = 0;
    int rc = 0;

    if (!repair->syscall_address)
        rc = gpucr_remote_find(alive(repair), &repair->syscall_address, err);
    at.address = repair->syscall_address;
    if (!rc)
        rc = gpucr_remote_syscall(pid, alive(repair), &at, &result, err);
    if (!rc && result < 0 && result > -4096)
        rc = gpucr_error_errno(err, (int)-result, "%s in process %d failed", what, pid);
    return rc;
}

/* ---- code and threads ---- */

static int repair_code(struct repair *repair, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = -1;
    int rc = gpucr_snapshot_memory_open(alive(repair), &fd, err);

    for (size_t i = 0; !rc && i < repair->snapshot->code_count; i++) {
        const struct gpucr_snapshot_code *code = &repair->snapshot->codes[i];
        unsigned char now[GPUCR_SNAPSHOT_CODE_BYTES];
        off_t at = (off_t)code->address;
        if (pread(fd, now, code->size_bytes, at) != (ssize_t)code->size_bytes)
            return cannot(repair, err, "cannot be read any more", code->address,
                          code->address + code->size_bytes);
        if (!memcmp(now, code->bytes, code->size_bytes))
            continue;
        for (size_t j = 0; j < code->size_bytes; j++)
            repair->done.code_bytes_repaired += now[j] != code->bytes[j];
        if (pwrite(fd, code->bytes, code->size_bytes, at) != (ssize_t)code->size_bytes)
            rc = gpucr_error_errno(err, errno, "cannot put the code of process %d back",
                                   repair->snapshot->pid);
    }
    return rc;
}

/*
 * A fault raised in CRIU's code (its int3) that was not taken when CRIU died still
 * waits for the thread, and would end the process. Let it come and drop it: the
 * thread cannot get to user mode before it takes the signal, nor, with a trap asked
 * for, after.
 */
static int drop_faults(struct repair *repair, const struct gpucr_snapshot_thread *thread,
                       struct gpucr_error *err)
{
    pid_t pid = repair->snapshot->pid, tid = thread->tid;
    uint64_t pending = 0;
    int rc = gpucr_snapshot_faults_read(pid, tid, &pending, err);

    pending &= ~thread->faults_pending;
    while (!rc && pending) {
        int sig = __builtin_ctzll(pending) + 1, status = 0;
        /* Only this one can be taken. */
        rc = gpucr_ptrace_mask_set(tid, ~(1ull << (sig - 1)), err);
        if (!rc && ptrace(PTRACE_CONT, tid, NULL, NULL))
            rc = gpucr_error_errno(err, errno, "cannot continue thread %d", tid);
        if (!rc)
            rc = gpucr_ptrace_wait(pid, tid, gpucr_deadline_in_ms(TRACER_MS), &status, err);
        if (!rc && gpucr_ptrace_event(status) == PTRACE_EVENT_STOP)
            continue; /* the trap of a group stop came first */
        if (!rc &&
            (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) || ptrace(PTRACE_CONT, tid, NULL, NULL)))
            rc = gpucr_error_errno(err, errno, "cannot continue thread %d", tid);
        if (!rc)
            rc = gpucr_ptrace_wait(pid, tid, gpucr_deadline_in_ms(TRACER_MS), &status, err);
        if (!rc)
            rc = gpucr_snapshot_faults_read(pid, tid, &pending, err);
        pending &= ~thread->faults_pending;
        repair->done.faults_dropped++;
    }
    return rc;
}

static int repair_thread(struct repair *repair, const struct gpucr_snapshot_thread *thread,
                         struct gpucr_error *err)
{
    struct gpucr_thread_regs now;
    int rc = drop_faults(repair, thread, err);

    if (!rc)
        rc = gpucr_thread_regs_get(thread->tid, &now, err);
    if (rc)
        return rc;
    bool equal = gpucr_thread_regs_equal(&now, &thread->regs);
    gpucr_thread_regs_done(&now);
    if (equal)
        return 0;
    repair->done.threads_repaired++;
    return gpucr_thread_regs_put(thread->tid, &thread->regs, err);
}

static int repair_threads(struct repair *repair, struct gpucr_error *err)
{
    const struct gpucr_snapshot *snapshot = repair->snapshot;
    int rc = 0;

    if (repair->tids.count != snapshot->thread_count) {
        rc = gpucr_error_set(err, GPUCR_ERR_VERIFY, "process %d had %zu threads and has %zu now",
                             snapshot->pid, snapshot->thread_count, repair->tids.count);
        return gpucr_error_pid(err, rc, snapshot->pid);
    }
    for (size_t i = 0; !rc && i < snapshot->thread_count; i++) {
        const struct gpucr_snapshot_thread *thread = &snapshot->threads[i];
        if (gpucr_pids_contain(&repair->tids, thread->tid)) {
            rc = repair_thread(repair, thread, err);
            continue;
        }
        rc = gpucr_error_set(err, GPUCR_ERR_VERIFY, "thread %d of process %d is gone", thread->tid,
                             snapshot->pid);
        rc = gpucr_error_pid(err, rc, snapshot->pid);
    }
    return rc;
}

/* ---- mappings ---- */

static int repair_map(void *arg, const struct gpucr_map_change *change, struct gpucr_error *err)
{
    struct repair *repair = arg;
    uint64_t size = change->end - change->start;
    struct gpucr_remote_call call = {.args = {change->start, size}};

    switch (change->kind) {
    case GPUCR_MAP_ADDED:
        call.number = SYS_munmap;
        repair->done.mappings_removed++;
        return remote(repair, &call, "munmap", err);
    case GPUCR_MAP_PROTECTION:
        call.number = SYS_mprotect;
        call.args[2] = (change->before->readable ? PROT_READ : 0u) |
                       (change->before->writable ? PROT_WRITE : 0u) |
                       (change->before->executable ? PROT_EXEC : 0u);
        repair->done.protections_repaired++;
        return remote(repair, &call, "mprotect", err);
    case GPUCR_MAP_REMOVED:
        return cannot(repair, err, "is gone", change->start, change->end);
    case GPUCR_MAP_REPLACED:
    default:
        return cannot(repair, err, "holds other memory now", change->start, change->end);
    }
}

static int repair_maps(struct repair *repair, struct gpucr_error *err)
{
    GPUCR_CLEANUP(gpucr_maps_done) struct gpucr_maps now = {0};
    int rc = gpucr_maps_read(alive(repair), &now, err);

    if (rc)
        return rc;
    return gpucr_map_diff(&repair->snapshot->maps, &now, repair_map, repair, err);
}

/* ---- descriptors and the rest ---- */

static int fd_lost(const struct repair *repair, const struct gpucr_snapshot_fd *fd, const char *now,
                   struct gpucr_error *err)
{
    pid_t pid = repair->snapshot->pid;
    int rc = gpucr_error_set(err, GPUCR_ERR_VERIFY,
                             "process %d cannot be brought back to its state: its descriptor %d "
                             "was %s and is %s now",
                             pid, fd->fd, fd->target, now);

    return gpucr_error_pid(err, rc, pid);
}

/* The name of a file may change by what others do to it; sockets and the like have no name. */
static bool same_target(const char *a, const char *b)
{
    return !strcmp(a, b) || (a[0] == '/' && b[0] == '/');
}

static int close_fd(struct repair *repair, const struct gpucr_snapshot_fd *fd,
                    struct gpucr_error *err)
{
    struct gpucr_remote_call call = {.number = SYS_close, .args = {(uint64_t)fd->fd}};

    gpucr_debug("closing descriptor %d (%s) of process %d", fd->fd, fd->target,
                repair->snapshot->pid);
    repair->done.descriptors_closed++;
    return remote(repair, &call, "close", err);
}

static int repair_fds(struct repair *repair, struct gpucr_error *err)
{
    GPUCR_CLEANUP(gpucr_snapshot_fds_done) struct gpucr_snapshot_fds now = {0};
    const struct gpucr_snapshot_fds *before = &repair->snapshot->fds;
    size_t i = 0, j = 0;
    int rc = gpucr_snapshot_fds_read(repair->snapshot->pid, alive(repair), &now, err);

    while (!rc && (i < before->count || j < now.count)) {
        const struct gpucr_snapshot_fd *a = i < before->count ? &before->items[i] : NULL;
        const struct gpucr_snapshot_fd *b = j < now.count ? &now.items[j] : NULL;
        if (b && (!a || b->fd < a->fd)) {
            rc = close_fd(repair, b, err);
            j++;
        } else if (a && (!b || a->fd < b->fd)) {
            rc = fd_lost(repair, a, "closed", err);
        } else if (a && b && !same_target(a->target, b->target)) {
            rc = fd_lost(repair, a, b->target, err);
        } else {
            i++;
            j++;
        }
    }
    return rc;
}

static int repair_umask(struct repair *repair, struct gpucr_error *err)
{
    struct gpucr_remote_call call = {.number = SYS_umask, .args = {repair->snapshot->umask}};
    uint64_t now = 0;
    int rc = gpucr_snapshot_umask_read(alive(repair), &now, err);

    if (rc || now == repair->snapshot->umask)
        return rc;
    repair->done.umasks_repaired++;
    return remote(repair, &call, "umask", err);
}

/* ---- all of it ---- */

static int repair_pass(struct repair *repair, struct gpucr_error *err)
{
    int rc = repair_code(repair, err);

    if (!rc)
        rc = repair_threads(repair, err);
    if (!rc)
        rc = repair_maps(repair, err);
    if (!rc)
        rc = repair_fds(repair, err);
    if (!rc)
        rc = repair_umask(repair, err);
    return rc;
}

static bool is_zero(const struct gpucr_repair *done)
{
    static const struct gpucr_repair zero;

    return !memcmp(done, &zero, sizeof(zero));
}

/* Repair, and then the same again, which must find nothing left to do. */
static int repair_seized(struct repair *repair, struct gpucr_error *err)
{
    int rc = repair_pass(repair, err);
    struct gpucr_repair done = repair->done;

    if (rc)
        return rc;
    repair->done = (struct gpucr_repair){0};
    rc = repair_pass(repair, err);
    if (!rc && !is_zero(&repair->done)) {
        rc = gpucr_error_set(err, GPUCR_ERR_VERIFY,
                             "process %d does not keep the state it is brought back to (threads "
                             "%u, code bytes %u, mappings %u, protections %u, descriptors %u)",
                             repair->snapshot->pid, repair->done.threads_repaired,
                             repair->done.code_bytes_repaired, repair->done.mappings_removed,
                             repair->done.protections_repaired, repair->done.descriptors_closed);
        rc = gpucr_error_pid(err, rc, repair->snapshot->pid);
    }
    repair->done = done;
    return rc;
}

static int check_same_process(const struct gpucr_snapshot *snapshot, struct gpucr_error *err)
{
    struct gpucr_proc_stat stat;
    int rc = gpucr_proc_stat_read(snapshot->pid, &stat, NULL);

    if (!rc && stat.start_ticks == snapshot->start_ticks)
        return 0;
    rc = gpucr_error_set(err, GPUCR_ERR_TARGET_DIED, "process %d ended", snapshot->pid);
    return gpucr_error_pid(err, rc, snapshot->pid);
}

/*
 * Until a killed tracer is gone its tracees are not T yet. A process that still runs
 * then has lost its group stop: stop it.
 */
static int settle(pid_t pid, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(TRACER_MS);

    for (;;) {
        int rc = gpucr_stopped_wait(pid, gpucr_deadline_in_ms(STEP_MS), err);
        if ((rc != GPUCR_ERR_BUSY && rc != GPUCR_ERR_VERIFY) || gpucr_deadline_passed(deadline))
            return rc;
        if (rc == GPUCR_ERR_VERIFY)
            (void)kill(pid, SIGSTOP);
        else
            gpucr_sleep_us(1000);
    }
}

static int repair_call(void *arg, struct gpucr_error *err)
{
    struct repair *repair = arg;
    pid_t pid = repair->snapshot->pid;
    struct gpucr_error stopped = GPUCR_ERROR_INIT;
    int rc = check_same_process(repair->snapshot, err);

    if (!rc)
        rc = gpucr_fault("snapshot.repair", err);
    if (!rc)
        rc = settle(pid, err);
    if (!rc)
        rc = gpucr_ptrace_seize_all(pid, &repair->tids, err);
    if (rc)
        return rc;
    rc = repair_seized(repair, err);
    gpucr_ptrace_detach_all(&repair->tids);
    gpucr_pids_done(&repair->tids);
    int stopped_rc =
        gpucr_stopped_wait(pid, gpucr_deadline_in_ms(GPUCR_PTRACE_VERIFY_MS), &stopped);
    if (stopped_rc && (!rc || stopped_rc == GPUCR_ERR_TARGET_DIED)) {
        rc = stopped_rc;
        if (err)
            *err = stopped;
    }
    return rc;
}

int gpucr_snapshot_repair(struct gpucr_tracer *tracer, const struct gpucr_snapshot *snapshot,
                          struct gpucr_repair *ret, struct gpucr_error *err)
{
    struct repair repair = {.snapshot = snapshot};
    int rc = gpucr_tracer_call(tracer, repair_call, &repair, err);

    if (rc)
        return gpucr_error_wrap(err, rc, "cannot repair process %d", snapshot->pid);
    *ret = repair.done;
    return 0;
}
