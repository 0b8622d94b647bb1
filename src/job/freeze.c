/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The two halves that suspend, checkpoint, resume and restore share.
 *
 * Freeze: Lock (while everything runs, so that queued work drains), then SIGSTOP
 * of the whole tree, then Checkpoint with only the driver's threads running. In
 * any other order either the Lock cannot drain or an application thread touches
 * memory that the driver has taken away (driver 580 unmaps pinned host memory).
 */
#include "base/fault.h"
#include "base/log.h"
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

/* The reverse of everything gpucr_job_freeze() does, from wherever it got to. */
static int undo_freeze(void *arg, struct gpucr_error *err)
{
    struct gpucr_job *job = arg;
    int rc = gpucr_group_rollback(&job->group, err);

    if (rc < 0 && rc != GPUCR_ERR_TARGET_DIED) {
        gpucr_warn("the tree stays stopped: a process without its GPU state must not run");
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
    struct gpucr_result *result = job->result;
    uint64_t driver_ns = 0;

    gpucr_monitor_end(&job->monitor, bytes);
    for (size_t i = 0; i < job->group.count; i++) {
        uint64_t one = job->group.members[i].call_ns;

        if (job->group.sequential)
            driver_ns += one;
        else if (one > driver_ns)
            driver_ns = one;
    }
    if (result->phase_count > 0)
        result->phases[result->phase_count - 1].driver_ns = driver_ns;
}

/* cuInit runs beside the discovery; what is left of it is waited for here. */
static int wait_init(struct gpucr_job *job, enum gpucr_stage stage, struct gpucr_error *err)
{
    int rc;

    gpucr_monitor_begin(&job->monitor, "driver-init", 0, NULL, NULL);
    rc = gpucr_driver_wait_init(job->driver, err);
    gpucr_monitor_end(&job->monitor, 0);
    return gpucr_error_stage(err, rc, stage);
}

static int lock_all(struct gpucr_job *job, struct gpucr_deadline deadline, struct gpucr_error *err)
{
    int rc;

    if (job->group.count == 0)
        return 0;
    gpucr_monitor_begin(&job->monitor, "lock", 0, NULL, NULL);
    rc = gpucr_fault("job.lock", err);
    if (rc == 0)
        rc = gpucr_group_lock(&job->group, deadline, err);
    end_driver_phase(job, 0);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_LOCK);
}

/*
 * A process that started CUDA, or was forked, between the scan and the hold is
 * stopped now; it is asked, and locked, through a window.
 */
static int take_in_late(struct gpucr_job *job, struct gpucr_deadline deadline,
                        struct gpucr_error *err)
{
    struct gpucr_group late = job->group;
    int rc = 0;

    late.members = NULL;
    late.count = late.capacity = 0;
    for (size_t i = 0; rc == 0 && i < job->hold->count; i++) {
        struct gpucr_held *held = &job->hold->items[i];
        struct gpucr_process_result *p;
        struct gpucr_proc_stat stat;

        if (held->ended || gpucr_group_find(&job->group, held->ident.pid) ||
            gpucr_proc_stat_read(held->ident.pid, &stat, NULL) < 0)
            continue;
        rc = gpucr_job_add_process(job, &stat, err);
        p = rc == 0 ? gpucr_job_process(job, stat.pid) : NULL;
        if (!p)
            continue;
        if (p->before == GPUCR_PROCESS_UNKNOWN) {
            p->was_stopped = held->was_stopped;
            p->before = p->was_stopped ? GPUCR_PROCESS_STOPPED : GPUCR_PROCESS_RUNNING;
        }
        if (gpucr_evidence_quick(stat.pid, stat.thread_count) > 0)
            rc = gpucr_group_add(&late, stat.pid, true, err);
    }
    if (rc == 0 && late.count > 0)
        rc = gpucr_group_probe(&late, err);
    if (rc == 0 && late.count > 0)
        rc = gpucr_group_lock(&late, deadline, err);
    for (size_t i = 0; i < late.count; i++) {
        struct gpucr_process_result *p = gpucr_job_process(job, late.members[i].pid);
        int added = gpucr_group_add(&job->group, late.members[i].pid, p->was_stopped, err);

        if (added < 0) {
            rc = added;
            break;
        }
        *gpucr_group_find(&job->group, p->pid) = late.members[i];
        p->is_cuda = true;
        gpucr_info("process %d (%s) started CUDA meanwhile and was taken in", p->pid, p->name);
    }
    gpucr_group_done(&late);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_DISCOVER);
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

static int checkpoint_all(struct gpucr_job *job, struct gpucr_error *err)
{
    uint64_t bytes = gpucr_job_device_bytes(job);
    int rc;

    if (job->group.count == 0)
        return 0;
    rc = wait_init(job, GPUCR_STAGE_CHECKPOINT, err);
    if (rc < 0)
        return rc;
    gpucr_monitor_begin(&job->monitor, "gpu-checkpoint", bytes, checkpoint_progress, job);
    rc = gpucr_fault("job.checkpoint", err);
    if (rc == 0)
        rc = gpucr_group_checkpoint(&job->group, err);
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

int gpucr_job_unfreeze(struct gpucr_job *job, struct gpucr_error *err)
{
    uint64_t bytes = gpucr_job_device_bytes(job);
    int rc = 0;

    if (job->group.count > 0) {
        rc = wait_init(job, GPUCR_STAGE_RESTORE, err);
        if (rc < 0)
            return rc;
        gpucr_monitor_begin(&job->monitor, "gpu-restore", bytes ? bytes : group_rss(job),
                            restore_progress, job);
        rc = gpucr_fault("job.restore", err);
        if (rc == 0)
            rc = gpucr_group_resume(&job->group, NULL, 0, err);
        end_driver_phase(job, bytes);
        rc = gpucr_error_stage(err, rc, GPUCR_STAGE_RESTORE);
    }
    if (rc < 0)
        return rc;
    gpucr_monitor_begin(&job->monitor, "release", 0, NULL, NULL);
    rc = gpucr_job_release(job, err);
    gpucr_monitor_end(&job->monitor, 0);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_RELEASE);
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

static int verify_one(struct gpucr_job *job, const struct gpucr_process_result *p,
                      struct gpucr_error *err)
{
    const struct gpucr_member *member = gpucr_group_find(&job->group, p->pid);
    enum gpucr_cuda_state state;
    int rc;

    if (!member || member->ended || p->was_stopped)
        return 0;
    rc = job->driver->ops->get_state(job->driver, p->pid, &state, err);
    if (rc < 0)
        return rc;
    if (state != member->goal)
        return gpucr_error_set(err, GPUCR_ERR_VERIFY, "the driver says that process %d (%s) is %s",
                               p->pid, p->name, gpucr_cuda_state_name(state));
    return 0;
}

int gpucr_job_verify_running(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < job->result->process_count; i++)
        rc = verify_one(job, &job->result->processes[i], err);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_READBACK);
}
