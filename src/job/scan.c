/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/discover.h"
#include "job/job.h"

struct gpucr_process_result *gpucr_job_process(struct gpucr_job *job, pid_t pid)
{
    for (size_t i = 0; i < job->result->process_count; i++) {
        if (job->result->processes[i].pid == pid)
            return &job->result->processes[i];
    }
    return NULL;
}

int gpucr_job_add_process(struct gpucr_job *job, const struct gpucr_proc_stat *stat,
                          struct gpucr_error *err)
{
    struct gpucr_result *result = job->result;
    struct gpucr_proc_status status;
    struct gpucr_process_result *grown;
    struct gpucr_process_result *p;

    if (gpucr_job_process(job, stat->pid))
        return 0;
    grown = reallocarray(result->processes, result->process_count + 1, sizeof(*grown));
    if (!grown)
        return gpucr_error_no_memory(err);
    result->processes = grown;
    p = &grown[result->process_count++];
    *p = (struct gpucr_process_result){
        .pid = stat->pid,
        .parent_pid = stat->parent_pid,
        .namespace_pid = stat->pid,
        .start_ticks = stat->start_ticks,
        .was_stopped = stat->state == 'T',
        .host_bytes = stat->rss_bytes,
        .error = GPUCR_ERROR_INIT,
    };
    (void)gpucr_copy_text(p->name, sizeof(p->name), stat->comm);
    if (gpucr_proc_status_read(stat->pid, &status, NULL) == 0 && status.ns_level_count > 0)
        p->namespace_pid = status.ns_pids[status.ns_level_count - 1];
    return 0;
}

/*
 * Device files without a thread of the driver are leftovers of fork() or of NVML
 * alone: such a process has no CUDA state. The thread's name is what NVIDIA's own
 * tools go by below driver 555; the driver's answer decides in gpucr_job_probe().
 */
static int note_evidence(struct gpucr_job *job, struct gpucr_process_result *p,
                         struct gpucr_error *err)
{
    struct gpucr_evidence evidence;
    int rc = gpucr_evidence_read(p->pid, job->options->dev_root, &evidence, err);

    if (rc == GPUCR_ERR_NOT_FOUND)
        return 0;
    if (rc < 0)
        return rc;
    p->is_cuda = evidence.flags & GPUCR_EVIDENCE_RESTORE_THREAD;
    p->holds_device =
        evidence.flags & (GPUCR_EVIDENCE_DESCRIPTOR | GPUCR_EVIDENCE_MAPPING) && !p->is_cuda;
    if (p->holds_device)
        gpucr_info("process %d (%s) has %s open or mapped but no CUDA state", p->pid, p->name,
                   evidence.example_path);
    return 0;
}

static int read_tree(struct gpucr_job *job, struct gpucr_error *err)
{
    const struct gpucr_job_options *options = job->options;
    int rc;

    gpucr_tree_done(&job->tree);
    if (options->pid <= 0)
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "%d is not the pid of a process",
                               options->pid);
    rc = gpucr_tree_read(options->pid, &job->tree, err);
    if (rc == GPUCR_ERR_NOT_FOUND) {
        rc = gpucr_error_set(err, rc, "there is no process %d", options->pid);
        return gpucr_error_pid(err, rc, options->pid);
    }
    if (rc == 0 && options->single_process && job->tree.count > 1)
        job->tree.count = 1;
    return rc;
}

int gpucr_job_scan(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = read_tree(job, err);

    for (size_t i = 0; rc == 0 && i < job->tree.count; i++) {
        const struct gpucr_proc_stat *stat = &job->tree.items[i];
        struct gpucr_process_result *p;

        if (stat->state == 'Z' && stat->pid != job->options->pid)
            continue;
        if (stat->state == 'Z')
            return gpucr_error_pid(
                err,
                gpucr_error_set(err, GPUCR_ERR_NOT_FOUND,
                                "process %d (%s) has ended; its parent %d has not reaped it",
                                stat->pid, stat->comm, stat->parent_pid),
                stat->pid);
        rc = gpucr_job_add_process(job, stat, err);
        p = rc == 0 ? gpucr_job_process(job, stat->pid) : NULL;
        if (p && p->before == GPUCR_PROCESS_UNKNOWN) {
            p->before = p->was_stopped ? GPUCR_PROCESS_STOPPED : GPUCR_PROCESS_RUNNING;
            rc = note_evidence(job, p, err);
        }
    }
    return rc;
}

static void note_use(struct gpucr_process_result *p, const struct gpucr_gpu_use *use, bool after)
{
    if (after) {
        p->device_bytes_after += use->bytes;
        return;
    }
    p->device_bytes += use->bytes;
    for (uint32_t i = 0; i < p->gpu_count; i++) {
        if (p->gpus[i] == use->gpu)
            return;
    }
    if (p->gpu_count < GPUCR_GPUS_PER_PROCESS_MAX)
        p->gpus[p->gpu_count++] = use->gpu;
}

void gpucr_job_read_uses(struct gpucr_job *job, bool after)
{
    struct gpucr_gpu_uses uses = {0};
    struct gpucr_error ignored = GPUCR_ERROR_INIT;
    struct gpucr_nvml *nvml = gpucr_job_nvml(job);
    uint64_t begin_ns = gpucr_now_ns();
    int rc;

    if (!nvml)
        return;
    rc = gpucr_nvml_uses(nvml, &uses, &ignored);
    gpucr_monitor_driver(&job->monitor, gpucr_now_ns() - begin_ns);
    if (rc < 0) {
        gpucr_info("the driver does not list its processes: %s", ignored.text);
        return;
    }
    for (size_t i = 0; i < job->result->process_count; i++) {
        if (after)
            job->result->processes[i].device_bytes_after = 0;
        else
            job->result->processes[i].device_bytes = 0;
    }
    for (size_t i = 0; i < uses.count; i++) {
        struct gpucr_process_result *p = gpucr_job_process(job, uses.items[i].pid);

        if (!p)
            continue;
        note_use(p, &uses.items[i], after);
        if (!after)
            job->uses_known = true;
    }
    gpucr_gpu_uses_done(&uses);
}

static enum gpucr_process_state state_of(const struct gpucr_member *member)
{
    switch (member->before) {
    case GPUCR_CUDA_LOCKED:
        return GPUCR_PROCESS_LOCKED;
    case GPUCR_CUDA_CHECKPOINTED:
    case GPUCR_CUDA_CHECKPOINTING:
    case GPUCR_CUDA_RESTORING:
        return member->was_stopped ? GPUCR_PROCESS_SUSPENDED : GPUCR_PROCESS_CHECKPOINTED;
    case GPUCR_CUDA_FAILED:
        return GPUCR_PROCESS_FAILED;
    case GPUCR_CUDA_RUNNING:
    default:
        return member->was_stopped ? GPUCR_PROCESS_STOPPED : GPUCR_PROCESS_RUNNING;
    }
}

static int form_group(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < job->result->process_count; i++) {
        const struct gpucr_process_result *p = &job->result->processes[i];

        if (p->is_cuda)
            rc = gpucr_group_add(&job->group, p->pid, p->was_stopped, err);
    }
    return rc;
}

int gpucr_job_probe(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = form_group(job, err);

    if (rc < 0 || job->group.count == 0)
        return rc;
    if (!job->driver) {
        if (err)
            *err = job->driver_error;
        return gpucr_error_wrap(
            err, job->driver_error.code, "process %d (%s) looks like a CUDA process, but",
            job->group.members[0].pid, gpucr_job_process(job, job->group.members[0].pid)->name);
    }
    rc = gpucr_group_probe(&job->group, err);
    for (size_t i = 0; i < job->result->process_count; i++) {
        struct gpucr_process_result *p = &job->result->processes[i];
        struct gpucr_member *member = gpucr_group_find(&job->group, p->pid);

        if (rc == 0 && p->is_cuda && !member)
            gpucr_info("process %d (%s) has no CUDA state, says the driver", p->pid, p->name);
        p->is_cuda = member != NULL;
        if (!member)
            continue;
        p->error = member->error;
        if (rc == 0)
            p->before = state_of(member);
        /* Who was locked or checkpointed by its owner before is so afterwards. */
        member->goal = member->before;
    }
    return rc;
}

void gpucr_job_note_bytes(struct gpucr_job *job)
{
    for (size_t i = 0; i < job->group.count; i++) {
        struct gpucr_member *member = &job->group.members[i];
        const struct gpucr_process_result *p = gpucr_job_process(job, member->pid);

        if (p)
            member->device_bytes = p->device_bytes;
    }
}

uint64_t gpucr_job_device_bytes(const struct gpucr_job *job)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < job->result->process_count; i++)
        sum += job->result->processes[i].device_bytes;
    return sum;
}

uint64_t gpucr_job_host_bytes(const struct gpucr_job *job)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < job->result->process_count; i++)
        sum += job->result->processes[i].host_bytes;
    return sum;
}

int gpucr_job_pids(const struct gpucr_job *job, struct gpucr_pids *ret, struct gpucr_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < job->hold->count; i++) {
        if (!job->hold->items[i].ended)
            rc = gpucr_pids_add(ret, job->hold->items[i].ident.pid, err);
    }
    return rc;
}
