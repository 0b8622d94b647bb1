/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parallel.h"
#include "gpu/discover.h"
#include "job/job.h"
#include "job/record.h"
#include "proc/cgroup.h"

/*
 * For machines with hundreds of processes: one stat and, for those with enough
 * threads, their names. Only processes that have the driver's thread and can answer
 * are asked.
 */

enum { LIST_THREADS_MAX = 4 };

struct candidate {
    struct gpucr_proc_stat stat;
    bool found;
    bool is_cuda;
    bool answered;
    enum gpucr_cuda_state state;
};

struct list {
    struct gpucr_job job;
    struct gpucr_pids pids;
    struct candidate *candidates;
    struct gpucr_cgroups cgroups;
};

/* A stopped or frozen process answers no driver call. */
static bool can_answer(const struct list *list, const struct gpucr_proc_stat *stat)
{
    char folder[GPUCR_CGROUP_PATH_BYTES];

    return stat->state != 'T' && stat->state != 't' &&
           gpucr_cgroup_frozen(&list->cgroups, stat->pid, folder) != 1;
}

static bool holds_device(const struct list *list, pid_t pid)
{
    struct gpucr_evidence evidence;

    return gpucr_evidence_read(pid, list->job.options->dev_root, &evidence, NULL) == 0 &&
           evidence.flags & (GPUCR_EVIDENCE_DESCRIPTOR | GPUCR_EVIDENCE_MAPPING);
}

static void look_at(void *arg, size_t i)
{
    struct list *list = arg;
    struct candidate *c = &list->candidates[i];
    struct gpucr_driver *driver = list->job.driver;

    /* gpucr itself has the driver's threads once it has called cuInit. */
    if (list->pids.ids[i] == getpid() ||
        gpucr_proc_stat_read(list->pids.ids[i], &c->stat, NULL) < 0)
        return;
    c->is_cuda = gpucr_evidence_quick(c->stat.pid, c->stat.thread_count) > 0;
    if (c->is_cuda && driver && can_answer(list, &c->stat)) {
        c->answered = driver->ops->get_state(driver, c->stat.pid, &c->state, NULL) == 0;
        c->is_cuda = c->answered;
    }
    c->found = c->is_cuda || (list->job.options->list_all && holds_device(list, c->stat.pid));
}

static enum gpucr_process_state state_of(const struct list *list, const struct candidate *c)
{
    if (!c->is_cuda)
        return c->stat.state == 'T' ? GPUCR_PROCESS_STOPPED : GPUCR_PROCESS_RUNNING;
    if (c->answered) {
        static const enum gpucr_process_state states[] = {
            [GPUCR_CUDA_RUNNING] = GPUCR_PROCESS_RUNNING,
            [GPUCR_CUDA_LOCKED] = GPUCR_PROCESS_LOCKED,
            [GPUCR_CUDA_CHECKPOINTED] = GPUCR_PROCESS_CHECKPOINTED,
            [GPUCR_CUDA_FAILED] = GPUCR_PROCESS_FAILED,
            [GPUCR_CUDA_CHECKPOINTING] = GPUCR_PROCESS_CHECKPOINTED,
            [GPUCR_CUDA_RESTORING] = GPUCR_PROCESS_CHECKPOINTED,
        };

        return (unsigned)c->state <= GPUCR_CUDA_RESTORING ? states[c->state]
                                                          : GPUCR_PROCESS_UNKNOWN;
    }
    /* Stopped: the driver's Checkpoint leaves no device file behind. */
    return holds_device(list, c->stat.pid) ? GPUCR_PROCESS_STOPPED : GPUCR_PROCESS_SUSPENDED;
}

static void apply_record(void *arg, const struct gpucr_record *record)
{
    struct gpucr_job *job = arg;

    for (size_t i = 0; i < record->count; i++) {
        const struct gpucr_record_process *r = &record->processes[i];
        struct gpucr_process_result *p = gpucr_job_process(job, r->pid);

        if (!p || p->start_ticks != r->start_ticks || p->after != GPUCR_PROCESS_SUSPENDED)
            continue;
        /* Device memory it will need again. */
        p->device_bytes = r->device_bytes;
        p->gpu_count = r->gpu_count;
        for (uint32_t k = 0; k < r->gpu_count; k++)
            p->gpus[k] = r->gpus[k];
    }
}

/* All processes, or those of one tree. */
static int list_pids(struct list *list, struct gpucr_error *err)
{
    struct gpucr_tree tree = {0};
    int rc;

    if (!list->job.options->pid)
        return gpucr_proc_list(&list->pids, err);
    rc = gpucr_tree_read(list->job.options->pid, &tree, err);
    for (size_t i = 0; rc == 0 && i < tree.count; i++)
        rc = gpucr_pids_add(&list->pids, tree.items[i].pid, err);
    gpucr_tree_done(&tree);
    return rc;
}

static int list_all(struct list *list, struct gpucr_error *err)
{
    size_t cpus = gpucr_cpu_count();
    int rc = list_pids(list, err);

    if (rc == 0)
        rc = gpucr_cgroups_open(&list->cgroups, err);
    if (rc < 0)
        return rc;
    list->candidates = calloc(list->pids.count ? list->pids.count : 1, sizeof(*list->candidates));
    if (!list->candidates)
        return gpucr_error_no_memory(err);
    gpucr_parallel_for(list->pids.count, cpus < LIST_THREADS_MAX ? cpus : LIST_THREADS_MAX, look_at,
                       list);
    for (size_t i = 0; rc == 0 && i < list->pids.count; i++) {
        const struct candidate *c = &list->candidates[i];
        struct gpucr_process_result *p;

        if (!c->found)
            continue;
        rc = gpucr_job_add_process(&list->job, &c->stat, err);
        if (rc < 0)
            break;
        p = gpucr_job_process(&list->job, c->stat.pid);
        p->is_cuda = c->is_cuda;
        p->holds_device = !c->is_cuda;
        p->before = p->after = state_of(list, c);
    }
    return rc;
}

int gpucr_list(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    struct list list = {.candidates = NULL};
    int rc = gpucr_job_open_to_look(&list.job, options, result);

    if (rc == 0)
        rc = list_all(&list, &result->error);
    if (rc == 0) {
        gpucr_job_read_uses(&list.job, false);
        (void)gpucr_record_walk(options, apply_record, &list.job, NULL);
    }
    free(list.candidates);
    gpucr_cgroups_done(&list.cgroups);
    gpucr_pids_done(&list.pids);
    gpucr_job_close_after_look(&list.job, rc);
    return rc;
}
