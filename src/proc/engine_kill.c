/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/engine_kill.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "proc/ptrace_op.h"
#include "proc/remote.h"

enum {
    STOP_MS = 2000,   /* for the engine to stop */
    LET_GO_MS = 2000, /* for a tracee of the engine to stop */
    DEPTH_MAX = 64,
};

struct engine {
    pid_t pid;
    const struct gpucr_pids *targets;
    pid_t owner;      /* it or its descendant (criu below a container runtime) that traces */
    pid_t tracer_tid; /* the thread of that one, when it is known and seized */
    uint64_t syscall_address;
};

/* A thread's id as the engine sees it, which may be at work inside a pid namespace. */
static pid_t id_for_engine(const struct engine *engine, pid_t tid)
{
    struct gpucr_proc_status own, thread;

    if (gpucr_proc_status_read(engine->owner, &own, NULL) ||
        gpucr_proc_status_read(tid, &thread, NULL) || own.ns_level_count == 0 ||
        own.ns_level_count > thread.ns_level_count)
        return tid;
    return thread.ns_pids[own.ns_level_count - 1];
}

/* ptrace(request, tid, 0, 0), made by the engine; the result in the kernel's way. */
static int engine_ptrace(const struct engine *engine, enum __ptrace_request request, pid_t tid,
                         int64_t *ret, struct gpucr_error *err)
{
    struct gpucr_remote_call call = {
        .number = SYS_ptrace, .args = {(uint64_t)request, (uint64_t)id_for_engine(engine, tid)}};

    call.address = engine->syscall_address;
    return gpucr_remote_syscall(engine->owner, engine->tracer_tid, &call, ret, err);
}

/* The process of a tracer thread, if it is the engine or one of its descendants; else 0. */
static pid_t owner_of(pid_t engine_pid, pid_t tracer_tid)
{
    struct gpucr_proc_stat stat;
    pid_t at = tracer_tid;

    if (!gpucr_task_stat_read(engine_pid, tracer_tid, &stat, NULL))
        return engine_pid;
    for (int depth = 0; depth < DEPTH_MAX && at > 1; depth++) {
        if (gpucr_proc_stat_read(at, &stat, NULL))
            return 0;
        at = stat.parent_pid;
        if (at == engine_pid)
            return tracer_tid;
    }
    return 0;
}

static int stop_engine(struct engine *engine, pid_t tracer_tid, struct gpucr_error *err)
{
    int status = 0;

    if (ptrace(PTRACE_INTERRUPT, tracer_tid, NULL, NULL))
        return gpucr_error_errno(err, errno, "cannot interrupt thread %d", tracer_tid);
    for (;;) {
        int rc = gpucr_ptrace_wait(engine->owner, tracer_tid, gpucr_deadline_in_ms(STOP_MS),
                                   &status, err);
        if (rc || gpucr_ptrace_event(status) == PTRACE_EVENT_STOP)
            return rc;
        /* A signal on its way to the engine: it is about to be killed and needs none. */
        (void)ptrace(PTRACE_CONT, tracer_tid, NULL, NULL);
    }
}

static int seize_engine(struct engine *engine, pid_t tracer_tid, struct gpucr_error *err)
{
    engine->owner = owner_of(engine->pid, tracer_tid);
    if (!engine->owner)
        return gpucr_error_set(err, GPUCR_ERR_BUSY, "process %d, not the engine, is the tracer",
                               tracer_tid);
    int rc = gpucr_ptrace_seize(engine->owner, tracer_tid, 0, err);
    if (!rc)
        rc = stop_engine(engine, tracer_tid, err);
    if (!rc)
        rc = gpucr_remote_find(engine->owner, &engine->syscall_address, err);
    if (!rc)
        engine->tracer_tid = tracer_tid;
    return rc;
}

/*
 * PTRACE_DETACH sets the signal that a stopped tracee goes on with, here none. It
 * fails with ESRCH for a tracee that runs; that one is interrupted first.
 */
static int let_go(const struct engine *engine, pid_t pid, pid_t tid, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(LET_GO_MS);
    bool interrupted = false;

    for (;;) {
        int64_t result = 0;
        int rc = engine_ptrace(engine, PTRACE_DETACH, tid, &result, err);
        if (rc || !result || gpucr_task_ended(pid, tid))
            return rc;
        if (!interrupted)
            rc = engine_ptrace(engine, PTRACE_INTERRUPT, tid, &result, err);
        interrupted = true;
        if (!rc && gpucr_deadline_passed(deadline))
            rc = gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                                 "thread %d of process %d does not stop for the engine", tid, pid);
        if (rc)
            return rc;
        gpucr_sleep_us(100);
    }
}

static int let_go_of_process(struct engine *engine, pid_t pid, struct gpucr_error *err)
{
    GPUCR_CLEANUP(gpucr_pids_done) struct gpucr_pids tids = {0};
    struct gpucr_proc_status status;
    int rc = gpucr_task_list(pid, &tids, err);

    if (rc == GPUCR_ERR_NOT_FOUND)
        return 0;
    for (size_t i = 0; !rc && i < tids.count; i++) {
        if (gpucr_proc_status_read(tids.ids[i], &status, NULL) || !status.tracer_pid)
            continue;
        if (!engine->tracer_tid)
            rc = seize_engine(engine, status.tracer_pid, err);
        /* Once more: it may have let go by itself before it was stopped. */
        if (!rc && !gpucr_proc_status_read(tids.ids[i], &status, NULL) &&
            status.tracer_pid == engine->tracer_tid)
            rc = let_go(engine, pid, tids.ids[i], err);
    }
    return rc;
}

static int engine_call(void *arg, struct gpucr_error *err)
{
    struct engine *engine = arg;
    int rc = 0;

    for (size_t i = 0; !rc && i < engine->targets->count; i++)
        rc = let_go_of_process(engine, engine->targets->ids[i], err);
    /*
     * It must do nothing between our trap and its end, and must not die while we trace
     * it: its exit would be reported to us. SIGSTOP is taken before the next instruction.
     */
    if (engine->tracer_tid) {
        (void)kill(engine->owner, SIGSTOP);
        gpucr_ptrace_detach(engine->tracer_tid);
    }
    if (engine->owner && engine->owner != engine->pid)
        (void)kill(engine->owner, SIGKILL);
    if (kill(engine->pid, SIGKILL) && !rc && errno != ESRCH)
        rc = gpucr_error_errno(err, errno, "cannot end process %d", engine->pid);
    return rc;
}

int gpucr_engine_kill(struct gpucr_tracer *tracer, pid_t engine_pid,
                      const struct gpucr_pids *targets, struct gpucr_error *err)
{
    struct engine engine = {.pid = engine_pid, .targets = targets};
    int rc = gpucr_tracer_call(tracer, engine_call, &engine, err);

    if (rc)
        return gpucr_error_wrap(err, rc, "the engine was ended by force");
    return 0;
}
