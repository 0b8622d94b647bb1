/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The two halves that suspend, checkpoint, resume and restore share.
 *
 * Freeze: Lock (while everything runs, so that queued work drains), then SIGSTOP
 * of the whole tree, then Checkpoint with only the driver's threads running. In
 * any other order either the Lock cannot drain or an application thread touches
 * memory that the driver has taken away (driver 580 unmaps pinned host memory).
 */
#include <pthread.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/parallel.h"
#include "gpu/discover.h"
#include "job/job.h"

static uint64_t group_rss(void *arg)
{
    struct gpucr_job *job = arg;
    uint64_t sum = 0;

    for (size_t i = 0; i < job->group.count; i++) {
        struct gpucr_proc_stat stat;

        if (gpucr_proc_stat_read(job->group.members[i].pid, &stat, NULL) == 0)
            sum += stat.rss_bytes;
    }
    return sum;
}

/* While Checkpoint runs, the targets' resident memory grows by their device memory. */
static uint64_t checkpoint_progress(void *arg)
{
    struct gpucr_job *job = arg;
    uint64_t now = group_rss(job);
    uint64_t before = 0;

    for (size_t i = 0; i < job->result->process_count; i++) {
        if (job->result->processes[i].is_cuda)
            before += job->result->processes[i].host_bytes;
    }
    return now > before ? now - before : 0;
}

int gpucr_job_release(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = gpucr_hold_release(job->hold, err);

    job->held = rc < 0;
    return rc;
}

/*
 * A living process that could not be brought back to where it was, or NULL. The error
 * of a rollback does not tell: the first failure may be that of another one, that died.
 */
static const struct gpucr_member *find_astray(const struct gpucr_group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        const struct gpucr_member *member = &group->members[i];

        if (member->probed && !member->ended && member->state != member->before)
            return member;
    }
    return NULL;
}

/* The reverse of everything gpucr_job_freeze() does, from wherever it got to. */
static int undo_freeze(void *arg, struct gpucr_error *err)
{
    struct gpucr_job *job = arg;
    int rc = gpucr_group_rollback(&job->group, err);
    const struct gpucr_member *astray = find_astray(&job->group);

    if (rc < 0 && job->hold && (astray || rc != GPUCR_ERR_TARGET_DIED)) {
        gpucr_warn("the tree stays stopped: a process without its GPU state must not run; "
                   "`gpucr resume --pid %d` tries again to bring it back",
                   job->options->pid);
        return rc;
    }
    if (job->hold) {
        int released = gpucr_job_release(job, rc < 0 ? NULL : err);

        if (rc == 0)
            rc = released;
    }
    return rc;
}

/* End a phase in which driver calls ran, in parallel or one after another. */
static void end_driver_phase(struct gpucr_job *job, uint64_t bytes)
{
    uint64_t driver_ns = 0;

    for (size_t i = 0; i < job->group.count; i++) {
        uint64_t one = job->group.members[i].call_ns;

        if (job->group.sequential)
            driver_ns += one;
        else if (one > driver_ns)
            driver_ns = one;
    }
    gpucr_monitor_driver(&job->monitor, driver_ns);
    gpucr_monitor_end(&job->monitor, bytes);
}

static void begin_driver_phase(struct gpucr_job *job, const char *phase, uint64_t bytes,
                               gpucr_sample_fn sample)
{
    for (size_t i = 0; i < job->group.count; i++)
        job->group.members[i].call_ns = 0;
    gpucr_monitor_begin(&job->monitor, phase, bytes, sample, job);
}

/* cuInit runs beside the discovery; what is left of it is waited for here. */
static int wait_init(struct gpucr_job *job, enum gpucr_stage stage, struct gpucr_error *err)
{
    uint64_t begin_ns = gpucr_now_ns();
    int rc;

    gpucr_monitor_begin(&job->monitor, "driver-init", 0, NULL, NULL);
    rc = gpucr_driver_wait_init(job->driver, err);
    gpucr_monitor_driver(&job->monitor, gpucr_now_ns() - begin_ns);
    gpucr_monitor_end(&job->monitor, 0);
    return gpucr_error_stage(err, rc, stage);
}

static int lock_all(struct gpucr_job *job, struct gpucr_deadline deadline, struct gpucr_error *err)
{
    int rc;

    if (job->group.count == 0)
        return 0;
    rc = wait_init(job, GPUCR_STAGE_LOCK, err);
    if (rc < 0)
        return rc;
    begin_driver_phase(job, "lock", 0, NULL);
    rc = gpucr_fault("job.lock", err);
    if (rc == 0)
        rc = gpucr_group_lock(&job->group, deadline, err);
    end_driver_phase(job, 0);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_LOCK);
}

/*
 * Its owner may have stopped or continued a process since the scan. What the hold found
 * is what holds: it decides whether the process runs in the end.
 */
static void note_owner_stop(struct gpucr_process_result *p, const struct gpucr_held *held)
{
    p->was_stopped = held->was_stopped;
    if (p->before == GPUCR_PROCESS_UNKNOWN || p->before == GPUCR_PROCESS_RUNNING ||
        p->before == GPUCR_PROCESS_STOPPED)
        p->before = p->was_stopped ? GPUCR_PROCESS_STOPPED : GPUCR_PROCESS_RUNNING;
}

/* Bring the entries of the result in line with the hold; @p late: who has CUDA since. */
static int find_late(struct gpucr_job *job, struct gpucr_group *late, struct gpucr_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < job->hold->count; i++) {
        struct gpucr_held *held = &job->hold->items[i];
        struct gpucr_proc_stat stat;

        if (held->ended || gpucr_proc_stat_read(held->ident.pid, &stat, NULL) < 0)
            continue;
        rc = gpucr_job_add_process(job, &stat, err);
        if (rc < 0)
            break;
        note_owner_stop(gpucr_job_process(job, stat.pid), held);
        if (!gpucr_group_find(&job->group, stat.pid) &&
            gpucr_evidence_quick(stat.pid, stat.thread_count) > 0)
            rc = gpucr_group_add(late, stat.pid, true, err);
    }
    return rc;
}

/* Also after a failure: what was locked here has to be known to the rollback. */
static int join_late(struct gpucr_job *job, const struct gpucr_group *late, struct gpucr_error *err)
{
    for (size_t i = 0; i < late->count; i++) {
        struct gpucr_process_result *p = gpucr_job_process(job, late->members[i].pid);
        struct gpucr_member *member;
        int rc = gpucr_group_add(&job->group, late->members[i].pid, p->was_stopped, err);

        if (rc < 0)
            return rc;
        member = gpucr_group_find(&job->group, p->pid);
        *member = late->members[i];
        member->was_stopped = p->was_stopped;
        member->goal = member->before;
        p->is_cuda = true;
        gpucr_info("process %d (%s) started CUDA meanwhile and was taken in", p->pid, p->name);
    }
    return 0;
}

/*
 * A process that started CUDA, or was forked, between the scan and the hold is
 * stopped now; it is asked, and locked, through a window.
 */
static int take_in_late(struct gpucr_job *job, struct gpucr_deadline deadline,
                        struct gpucr_error *err)
{
    struct gpucr_group late = job->group;
    int joined;
    int rc;

    late.members = NULL;
    late.count = late.capacity = 0;
    rc = find_late(job, &late, err);
    if (rc == 0 && late.count > 0 && !job->driver) {
        gpucr_group_done(&late);
        if (err)
            *err = job->driver_error;
        return gpucr_error_stage(err, job->driver_error.code, GPUCR_STAGE_DISCOVER);
    }
    if (rc == 0 && late.count > 0)
        rc = gpucr_group_probe(&late, err);
    if (rc == 0 && late.count > 0)
        rc = gpucr_group_lock(&late, deadline, err);
    joined = join_late(job, &late, rc < 0 ? NULL : err);
    gpucr_group_done(&late);
    return gpucr_error_stage(err, rc < 0 ? rc : joined, GPUCR_STAGE_DISCOVER);
}

static int hold_all(struct gpucr_job *job, struct gpucr_deadline deadline, struct gpucr_error *err)
{
    int rc;

    gpucr_monitor_begin(&job->monitor, "hold", 0, NULL, NULL);
    rc = gpucr_fault("job.hold", err);
    if (rc == 0)
        rc = gpucr_hold_take(job->options->pid, job->options->single_process, deadline, &job->hold,
                             err);
    job->held = rc == 0;
    if (rc == 0)
        rc = take_in_late(job, deadline, err);
    gpucr_monitor_end(&job->monitor, 0);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_HOLD);
}

static void *enter_cgroup(void *arg)
{
    struct gpucr_job *job = arg;

    job->entered = gpucr_hold_enter(job->hold, NULL);
    return NULL;
}

/* The move to a cgroup of ours takes the kernel 10 ms and more: beside the Checkpoint. */
static int checkpoint_group(struct gpucr_job *job, struct gpucr_error *err)
{
    pthread_t thread;
    bool beside = job->operation == GPUCR_OPERATION_SUSPEND &&
                  gpucr_thread_start(&thread, enter_cgroup, job) == 0;
    int rc = gpucr_group_checkpoint(&job->group, err);

    if (beside)
        (void)pthread_join(thread, NULL);
    /* Nothing is lost by a failure: the freeze tries again, and tells why it cannot. */
    if (beside && job->entered < 0)
        (void)gpucr_hold_thaw(job->hold, NULL);
    return rc;
}

static int checkpoint_all(struct gpucr_job *job, struct gpucr_error *err)
{
    uint64_t bytes = gpucr_job_device_bytes(job);
    int rc;

    if (job->group.count == 0)
        return 0;
    begin_driver_phase(job, "gpu-checkpoint", bytes, checkpoint_progress);
    rc = gpucr_fault("job.checkpoint", err);
    if (rc == 0)
        rc = checkpoint_group(job, err);
    end_driver_phase(job, bytes);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_CHECKPOINT);
}

int gpucr_job_freeze(struct gpucr_job *job, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(gpucr_job_timeout_ms(job->options));
    int rc;

    gpucr_undo_push(&job->undo, "GPU state back and the tree running", undo_freeze, job);
    job->changed = true;
    rc = lock_all(job, deadline, err);
    if (rc == 0)
        rc = gpucr_job_check_cancel(job, err);
    if (rc == 0)
        rc = hold_all(job, deadline, err);
    if (rc == 0)
        rc = gpucr_job_check_cancel(job, err);
    if (rc == 0)
        rc = checkpoint_all(job, err);
    if (rc == 0)
        rc = gpucr_job_check_cancel(job, err);
    if (rc == 0)
        rc = gpucr_job_verify_gpu_free(job, err);
    if (rc == 0)
        rc = gpucr_hold_check(job->hold, err);
    return rc;
}

/* The staging memory shrinks while Restore copies it back. */
static uint64_t restore_progress(void *arg)
{
    struct gpucr_job *job = arg;
    uint64_t total = job->monitor.total_bytes;
    uint64_t left = group_rss(job);

    return left < total ? total - left : 0;
}

int gpucr_job_bring_back(struct gpucr_job *job, struct gpucr_error *err)
{
    uint64_t bytes = gpucr_job_device_bytes(job);
    int rc;

    if (job->group.count == 0)
        return 0;
    rc = wait_init(job, GPUCR_STAGE_RESTORE, err);
    if (rc < 0)
        return rc;
    begin_driver_phase(job, "gpu-restore", bytes ? bytes : group_rss(job), restore_progress);
    rc = gpucr_fault("job.restore", err);
    if (rc == 0)
        rc = gpucr_group_resume(&job->group, NULL, 0, err);
    end_driver_phase(job, bytes);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_RESTORE);
}

int gpucr_job_let_run(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc;

    gpucr_monitor_begin(&job->monitor, "release", 0, NULL, NULL);
    rc = gpucr_fault("job.release", err);
    if (rc == 0)
        rc = gpucr_job_release(job, err);
    gpucr_monitor_end(&job->monitor, 0);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_RELEASE);
}

int gpucr_job_unfreeze(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = gpucr_job_bring_back(job, err);

    return rc == 0 ? gpucr_job_let_run(job, err) : rc;
}

int gpucr_job_verify_gpu_free(struct gpucr_job *job, struct gpucr_error *err)
{
    if (!job->uses_known)
        return 0;
    gpucr_job_read_uses(job, true);
    for (size_t i = 0; i < job->group.count; i++) {
        struct gpucr_process_result *p = gpucr_job_process(job, job->group.members[i].pid);

        if (p->device_bytes_after > 0)
            return gpucr_error_stage(
                err,
                gpucr_error_set(err, GPUCR_ERR_VERIFY,
                                "process %d (%s) still has %llu MiB of device memory after the "
                                "driver's Checkpoint",
                                p->pid, p->name, (unsigned long long)(p->device_bytes_after >> 20)),
                GPUCR_STAGE_READBACK);
    }
    return 0;
}

/*
 * By the driver's last answer, which it gave in the window after Unlock, and by the hold,
 * which saw every process leave its stop. The driver is not asked again: a process may
 * stop by itself as soon as it runs (a background job that reads its terminal), and the
 * question would wait for as long as that lasts.
 */
int gpucr_job_verify_running(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = job->held ? GPUCR_ERR_VERIFY : 0;

    if (rc < 0)
        rc =
            gpucr_error_set(err, rc, "the tree of process %d is still held", job->result->root_pid);
    for (size_t i = 0; rc == 0 && i < job->group.count; i++) {
        const struct gpucr_member *member = &job->group.members[i];

        if (member->ended || member->state == member->goal)
            continue;
        rc = gpucr_error_set(err, GPUCR_ERR_VERIFY, "the driver says that process %d is %s",
                             member->pid, gpucr_cuda_state_name(member->state));
        rc = gpucr_error_pid(err, rc, member->pid);
    }
    return gpucr_error_stage(err, rc, GPUCR_STAGE_READBACK);
}
