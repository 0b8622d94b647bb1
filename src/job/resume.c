/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "job/look.h"
#include "job/preflight.h"
#include "job/record.h"

/* The processes of the record are the tree: one that was suspended alone has children that run. */
static void drop_others(struct gpucr_result *result, const struct gpucr_record *record)
{
    size_t kept = 0;

    for (size_t i = 0; i < result->process_count; i++) {
        const struct gpucr_process_result *p = &result->processes[i];

        if (gpucr_record_process(record, p->pid, p->start_ticks))
            result->processes[kept++] = *p;
    }
    result->process_count = kept;
}

/* What the record knows and /proc cannot tell any more. */
static int apply_record(struct gpucr_job *job, const struct gpucr_record *record,
                        struct gpucr_error *err)
{
    drop_others(job->result, record);
    for (size_t i = 0; i < record->count; i++) {
        const struct gpucr_record_process *r = &record->processes[i];
        struct gpucr_process_result *p;
        struct gpucr_proc_stat stat;
        int rc;

        /* Its parent may have ended meanwhile: then it is in no tree any more. */
        if (gpucr_proc_stat_read(r->pid, &stat, NULL) < 0 || stat.start_ticks != r->start_ticks ||
            stat.state == 'Z')
            continue;
        rc = gpucr_job_add_process(job, &stat, err);
        if (rc < 0)
            return rc;
        p = gpucr_job_process(job, r->pid);
        p->is_cuda |= r->is_cuda;
        p->was_stopped = r->was_stopped;
        p->device_bytes = r->device_bytes;
        p->gpu_count = r->gpu_count;
        for (uint32_t k = 0; k < r->gpu_count; k++)
            p->gpus[k] = r->gpus[k];
    }
    return 0;
}

static bool is_alive(const struct gpucr_record_process *r)
{
    struct gpucr_proc_stat stat;

    return gpucr_proc_stat_read(r->pid, &stat, NULL) == 0 && stat.start_ticks == r->start_ticks &&
           stat.state != 'Z';
}

/* A tree comes back as it went away: a part of it cannot, while the rest stays stopped. */
static int check_whole(const struct gpucr_job *job, const struct gpucr_record *record,
                       struct gpucr_error *err)
{
    const struct gpucr_record_process *root = NULL;
    int32_t pid = job->options->pid;

    for (size_t i = 0; i < record->count && !root; i++) {
        if (record->processes[i].pid == record->root_pid)
            root = &record->processes[i];
    }
    if (record->root_pid != pid && root && is_alive(root))
        return gpucr_error_set(err, GPUCR_ERR_USAGE,
                               "process %d was suspended with the tree of process %d; resume that: "
                               "gpucr resume --pid %d",
                               pid, record->root_pid, record->root_pid);
    if (job->options->single_process && record->count > 1)
        return gpucr_error_set(err, GPUCR_ERR_USAGE,
                               "process %d was suspended with its descendants; resume it without "
                               "--single-process",
                               pid);
    return 0;
}

static int read_record(struct gpucr_job *job, struct gpucr_record *record, struct gpucr_error *err)
{
    const struct gpucr_process_result *root = gpucr_job_process(job, job->options->pid);
    int found = gpucr_record_find(job->options, root->pid, root->start_ticks, record, err);
    int rc;

    if (found < 0)
        return found;
    for (size_t i = 0; i < job->result->process_count; i++)
        job->result->processes[i].was_stopped = false;
    if (found == 0) {
        gpucr_info("no record of process %d in the state folder: going by its threads", root->pid);
        return 0;
    }
    rc = check_whole(job, record, err);
    return rc == 0 ? apply_record(job, record, err) : rc;
}

/* The frozen cgroup is thawed as a whole: all that is in it has to be at hand. */
static int check_cgroup(const struct gpucr_job *job, const struct gpucr_record *record,
                        struct gpucr_error *err)
{
    const char *name = job->hold->cgroup ? strstr(job->hold->cgroup, "/gpucr-") : NULL;
    struct gpucr_proc_stat stat;
    uint64_t root = 0;
    uint64_t start_ticks = 0;

    /* gpucr-PID-START of the root, as gpucr_hold_freeze() names it. */
    if (record->count > 0 || !name || !gpucr_scan_u64(name + strlen("/gpucr-"), 10, &root, &name) ||
        *name != '-' || !gpucr_scan_u64(name + 1, 10, &start_ticks, &name) || root > INT32_MAX ||
        (int32_t)root == job->options->pid || gpucr_proc_stat_read((pid_t)root, &stat, NULL) < 0 ||
        stat.start_ticks != start_ticks)
        return 0;
    return gpucr_error_set(err, GPUCR_ERR_USAGE,
                           "process %d was suspended with the tree of process %d; resume that: "
                           "gpucr resume --pid %d",
                           job->options->pid, stat.pid, stat.pid);
}

static int adopt(struct gpucr_job *job, const struct gpucr_record *record, struct gpucr_error *err)
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
    if (rc == 0)
        rc = check_cgroup(job, record, err);
    gpucr_pids_done(&pids);
    free(was_stopped);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_HOLD);
}

/* What the record says; anything else than these two ends in RUNNING. */
static enum gpucr_cuda_state goal_of(const struct gpucr_record *record,
                                     const struct gpucr_process_result *p)
{
    const struct gpucr_record_process *r = gpucr_record_process(record, p->pid, p->start_ticks);

    if (r && (r->cuda_state == GPUCR_CUDA_LOCKED || r->cuda_state == GPUCR_CUDA_CHECKPOINTED))
        return (enum gpucr_cuda_state)r->cuda_state;
    return GPUCR_CUDA_RUNNING;
}

static int probe(struct gpucr_job *job, const struct gpucr_record *record, struct gpucr_error *err)
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
    for (size_t i = 0; i < job->group.count; i++) {
        struct gpucr_member *member = &job->group.members[i];

        member->goal = goal_of(record, gpucr_job_process(job, member->pid));
    }
    gpucr_job_note_bytes(job);
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
static int undo_bring_back(void *arg, struct gpucr_error *err)
{
    struct gpucr_job *job = arg;

    return gpucr_group_rollback(&job->group, err);
}

static size_t count_away(const struct gpucr_group *group)
{
    size_t away = 0;

    for (size_t i = 0; i < group->count; i++)
        away += group->members[i].before == GPUCR_CUDA_CHECKPOINTED;
    return away;
}

/*
 * With a record the tree is let go even when all of its GPU state is in place: an
 * earlier resume was ended before it got to that.
 */
static int check_states(struct gpucr_job *job, const struct gpucr_record *record,
                        struct gpucr_error *err)
{
    for (size_t i = 0; i < job->group.count; i++) {
        const struct gpucr_member *member = &job->group.members[i];
        struct gpucr_process_result *p = gpucr_job_process(job, member->pid);

        if (member->before == GPUCR_CUDA_FAILED)
            return gpucr_error_pid(
                err,
                gpucr_error_set(err, GPUCR_ERR_POISONED,
                                "the driver has lost process %d (%s); it cannot be brought back. "
                                "End it to resume the others (kill -KILL %d)",
                                p->pid, p->name, p->pid),
                p->pid);
        p->before = member->before == GPUCR_CUDA_CHECKPOINTED ? GPUCR_PROCESS_SUSPENDED
                    : member->before == GPUCR_CUDA_LOCKED     ? GPUCR_PROCESS_LOCKED
                                                              : GPUCR_PROCESS_STOPPED;
    }
    if (count_away(&job->group) == 0 && record->count == 0)
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

    if (!gpucr_job_nvml(job) ||
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

/*
 * Not all of the tree is stopped: somebody's SIGCONT has woken it, or its GPU state was
 * taken away without stopping it (NVIDIA's cuda-checkpoint). What runs answers the driver.
 */
static int stop_woken(struct gpucr_job *job, const struct gpucr_record *record,
                      struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(gpucr_job_timeout_ms(job->options));
    bool single = job->options->single_process || record->count == 1;
    struct gpucr_hold *hold = NULL;
    int rc = probe(job, record, err);

    if (rc == 0 && count_away(&job->group) == 0) {
        gpucr_record_remove(job->options, job->options->pid);
        rc = gpucr_error_set(err, GPUCR_ERR_USAGE, "no process of the tree below %d is suspended",
                             job->options->pid);
    }
    if (rc == 0)
        rc = gpucr_hold_take(job->options->pid, single, deadline, &hold, err);
    if (rc < 0)
        return rc;
    gpucr_warn("the tree of process %d ran without its GPU state and was stopped again",
               job->options->pid);
    job->changed = true;
    gpucr_hold_free(job->hold);
    job->hold = hold;
    for (size_t i = 0; rc == 0 && i < hold->count; i++) {
        const struct gpucr_process_result *p = gpucr_job_process(job, hold->items[i].ident.pid);
        struct gpucr_proc_stat stat;

        hold->items[i].was_stopped = p && p->was_stopped;
        if (!p && gpucr_proc_stat_read(hold->items[i].ident.pid, &stat, NULL) == 0)
            rc = gpucr_job_add_process(job, &stat, err);
    }
    return rc;
}

/* All of the tree must be stopped, or the GPU state cannot be away safely. */
static int check_stopped(struct gpucr_job *job, const struct gpucr_record *record,
                         struct gpucr_error *err)
{
    struct gpucr_error why = GPUCR_ERROR_INIT;
    int rc = gpucr_hold_check(job->hold, &why);

    if (rc == GPUCR_ERR_VERIFY && !job->hold->cgroup)
        rc = stop_woken(job, record, err);
    else if (rc < 0 && err)
        *err = why;
    if (rc < 0)
        return rc;
    job->held = true;
    for (size_t i = 0; i < job->result->process_count; i++) {
        struct gpucr_process_result *p = &job->result->processes[i];

        p->before = p->is_cuda ? GPUCR_PROCESS_SUSPENDED : GPUCR_PROCESS_STOPPED;
    }
    return 0;
}

static int look(struct gpucr_job *job, struct gpucr_record *record, struct gpucr_error *err)
{
    int rc;

    gpucr_monitor_begin(&job->monitor, "preflight", 0, NULL, NULL);
    rc = gpucr_job_lock(job, job->options->pid, err);
    if (rc == 0)
        rc = gpucr_job_scan(job, err);
    if (rc == 0)
        rc = read_record(job, record, err);
    if (rc == 0)
        rc = gpucr_preflight_processes(job, err);
    if (rc == 0)
        rc = gpucr_preflight_verdict(job, err);
    if (rc == 0)
        rc = adopt(job, record, err);
    if (rc == 0)
        rc = check_stopped(job, record, err);
    if (rc == 0)
        rc = check_device_memory(job, err);
    if (rc == 0)
        rc = gpucr_preflight_verdict(job, err);
    gpucr_monitor_end(&job->monitor, 0);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
}

/* The GPU state is in place: from here on there is no way back, only on. */
static int let_run(struct gpucr_job *job, const struct gpucr_record *record,
                   struct gpucr_error *err)
{
    int rc;

    gpucr_undo_clear(&job->undo);
    rc = gpucr_job_let_run(job, err);
    if (rc < 0)
        return rc;
    gpucr_record_remove(job->options, record->count ? record->root_pid : job->options->pid);
    return gpucr_job_verify_running(job, err);
}

static int resume(struct gpucr_job *job, struct gpucr_record *record, struct gpucr_error *err)
{
    int rc = look(job, record, err);

    if (rc == 0)
        rc = gpucr_job_check_cancel(job, err);
    if (rc == 0 && job->hold->cgroup) {
        gpucr_undo_push(&job->undo, "cgroup frozen again", undo_thaw, job);
        gpucr_monitor_begin(&job->monitor, "thaw", 0, NULL, NULL);
        rc = gpucr_hold_thaw(job->hold, err);
        if (rc == 0)
            rc = gpucr_hold_check(job->hold, err);
        gpucr_monitor_end(&job->monitor, 0);
    }
    if (rc == 0)
        rc = probe(job, record, err);
    if (rc == 0)
        rc = check_states(job, record, err);
    if (rc < 0)
        return rc;
    job->changed = true;
    gpucr_undo_push(&job->undo, "GPU state away again", undo_bring_back, job);
    rc = gpucr_job_bring_back(job, err);
    return rc == 0 ? let_run(job, record, err) : rc;
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
