/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "job/job.h"
#include "job/preflight.h"
#include "job/record.h"

/* What the record knows and /proc cannot tell any more. */
static void apply_record(struct gpucr_job *job, const struct gpucr_record *record)
{
    for (size_t i = 0; i < record->count; i++) {
        const struct gpucr_record_process *r = &record->processes[i];
        struct gpucr_process_result *p = gpucr_job_process(job, r->pid);

        if (!p || p->start_ticks != r->start_ticks)
            continue;
        p->was_stopped = r->was_stopped;
        p->device_bytes = r->device_bytes;
        p->gpu_count = r->gpu_count;
        for (uint32_t k = 0; k < r->gpu_count; k++)
            p->gpus[k] = r->gpus[k];
    }
}

static int read_record(struct gpucr_job *job, struct gpucr_record *record, struct gpucr_error *err)
{
    int found = gpucr_record_read(job->options, job->options->pid, record, err);

    if (found < 0)
        return found;
    for (size_t i = 0; i < job->result->process_count; i++)
        job->result->processes[i].was_stopped = false;
    if (found == 1)
        apply_record(job, record);
    else
        gpucr_info("no record of process %d in the state folder: going by its threads",
                   job->options->pid);
    return 0;
}

/* All of the tree must be stopped, or the GPU state cannot be away safely. */
static int adopt(struct gpucr_job *job, struct gpucr_error *err)
{
    size_t count = job->result->process_count;
    struct gpucr_pids pids = {0};
    bool *was_stopped = calloc(count, sizeof(bool));
    int rc = was_stopped ? 0 : gpucr_error_no_memory(err);

    for (size_t i = 0; rc == 0 && i < count; i++) {
        was_stopped[i] = job->result->processes[i].was_stopped;
        rc = gpucr_pids_add(&pids, job->result->processes[i].pid, err);
    }
    if (rc == 0)
        rc = gpucr_hold_adopt(&pids, was_stopped, &job->hold, err);
    job->held = rc == 0 && job->hold->cgroup;
    gpucr_pids_done(&pids);
    free(was_stopped);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_HOLD);
}

static int probe_stopped(struct gpucr_job *job, const struct gpucr_record *record,
                         struct gpucr_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < job->result->process_count; i++) {
        struct gpucr_process_result *p = &job->result->processes[i];

        if (p->is_cuda)
            rc = gpucr_group_add(&job->group, p->pid, true, err);
    }
    if (rc == 0 && job->group.count > 0 && !job->driver) {
        if (err)
            *err = job->driver_error;
        return job->driver_error.code;
    }
    if (rc == 0 && job->group.count > 0)
        rc = gpucr_group_probe(&job->group, err);
    for (size_t i = 0; rc == 0 && i < record->count; i++) {
        struct gpucr_member *member = gpucr_group_find(&job->group, record->processes[i].pid);

        if (member)
            member->goal = (enum gpucr_cuda_state)record->processes[i].cuda_state;
    }
    if (rc == 0 && job->group.count == 0)
        rc = gpucr_error_set(err, GPUCR_ERR_NOT_CUDA,
                             "no process of the tree below %d has CUDA state", job->options->pid);
    return rc;
}

static int undo_thaw(void *arg, struct gpucr_error *err)
{
    struct gpucr_job *job = arg;
    int rc = gpucr_hold_freeze(job->hold, err);

    return rc < 0 ? rc : 0;
}

/* Those that came back go away again, so that the tree is as it was: suspended. */
static int undo_restore(void *arg, struct gpucr_error *err)
{
    struct gpucr_job *job = arg;

    return gpucr_group_checkpoint(&job->group, err);
}

static int check_states(struct gpucr_job *job, struct gpucr_error *err)
{
    size_t away = 0;

    for (size_t i = 0; i < job->group.count; i++) {
        struct gpucr_member *member = &job->group.members[i];
        struct gpucr_process_result *p = gpucr_job_process(job, member->pid);

        if (member->before == GPUCR_CUDA_CHECKPOINTED) {
            away++;
            p->before = GPUCR_PROCESS_SUSPENDED;
        }
        if (member->before == GPUCR_CUDA_FAILED)
            return gpucr_error_pid(
                err,
                gpucr_error_set(err, GPUCR_ERR_POISONED,
                                "the driver has lost process %d (%s); it cannot be brought back",
                                p->pid, p->name),
                p->pid);
    }
    if (away == 0)
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "no process of the tree below %d is suspended",
                               job->options->pid);
    return 0;
}

static int check_device_memory(struct gpucr_job *job, struct gpucr_error *err)
{
    struct gpucr_gpu gpus[GPUCR_GPUS_PER_PROCESS_MAX];
    uint64_t need[GPUCR_GPUS_PER_PROCESS_MAX] = {0};
    uint32_t count = 0;
    int rc = 0;

    if (!job->nvml ||
        gpucr_nvml_gpus(job->nvml, gpus, GPUCR_GPUS_PER_PROCESS_MAX, &count, NULL) < 0)
        return 0;
    for (size_t i = 0; i < job->result->process_count; i++) {
        const struct gpucr_process_result *p = &job->result->processes[i];

        /* NVML gave the sum per process: on several GPUs only an even share is known. */
        for (uint32_t k = 0; k < p->gpu_count; k++) {
            if (p->gpus[k] < count)
                need[p->gpus[k]] += p->device_bytes / p->gpu_count;
        }
    }
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        if (need[i] > gpus[i].free_bytes)
            rc =
                gpucr_preflight_add(job, GPUCR_FINDING_DEVICE_MEMORY, 0, err,
                                    "GPU %u (%s) has %llu MiB of free memory and the suspended "
                                    "processes need %llu MiB there",
                                    i, gpus[i].name, (unsigned long long)(gpus[i].free_bytes >> 20),
                                    (unsigned long long)(need[i] >> 20));
    }
    return rc;
}

static int look(struct gpucr_job *job, struct gpucr_record *record, struct gpucr_error *err)
{
    int rc;

    gpucr_monitor_begin(&job->monitor, "preflight", 0, NULL, NULL);
    rc = gpucr_job_scan(job, err);
    if (rc == 0)
        rc = gpucr_preflight_processes(job, err);
    if (rc == 0)
        rc = read_record(job, record, err);
    if (rc == 0)
        rc = check_device_memory(job, err);
    if (rc == 0)
        rc = gpucr_preflight_verdict(job, err);
    if (rc == 0)
        rc = gpucr_record_lock(job->options, job->options->pid, &job->lock_fd, err);
    if (rc == 0)
        rc = adopt(job, err);
    gpucr_monitor_end(&job->monitor, 0);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
}

static int resume(struct gpucr_job *job, struct gpucr_record *record, struct gpucr_error *err)
{
    int rc = look(job, record, err);

    if (rc == 0 && job->hold->cgroup) {
        gpucr_undo_push(&job->undo, "cgroup frozen again", undo_thaw, job);
        rc = gpucr_hold_thaw(job->hold, err);
    }
    if (rc == 0)
        rc = gpucr_hold_check(job->hold, err);
    job->held |= rc == 0;
    if (rc == 0)
        rc = probe_stopped(job, record, err);
    if (rc == 0)
        rc = check_states(job, err);
    if (rc < 0)
        return rc;
    job->changed = true;
    gpucr_undo_push(&job->undo, "GPU state away again", undo_restore, job);
    rc = gpucr_job_unfreeze(job, err);
    if (rc < 0)
        return rc;
    gpucr_undo_clear(&job->undo);
    gpucr_record_remove(job->options, job->options->pid);
    return gpucr_job_verify_running(job, err);
}

int gpucr_resume(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    struct gpucr_record record = {0};
    struct gpucr_job job;
    int rc = gpucr_job_open(&job, GPUCR_OPERATION_RESUME, options, result);

    if (rc == 0)
        rc = resume(&job, &record, &result->error);
    gpucr_record_done(&record);
    return gpucr_job_finish(&job, rc);
}
