/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "job/preflight.h"
#include "job/record.h"
#include "proc/cgroup.h"

static int check_traced(struct gpucr_job *job, const struct gpucr_process_result *p,
                        const struct gpucr_proc_status *status, struct gpucr_error *err)
{
    struct gpucr_proc_stat tracer;
    bool known;

    if (status->tracer_pid == 0 || status->tracer_pid == getpid())
        return 0;
    known = gpucr_proc_stat_read(status->tracer_pid, &tracer, NULL) == 0;
    return gpucr_preflight_add(job, GPUCR_FINDING_TRACED, p->pid, err,
                               "process %d (%s) is traced by process %d (%s)", p->pid, p->name,
                               status->tracer_pid, known ? tracer.comm : "unknown");
}

/* The kernel protects the first process of a pid namespace from SIGSTOP sent from inside it. */
static int check_namespace_init(struct gpucr_job *job, const struct gpucr_process_result *p,
                                struct gpucr_error *err)
{
    char path[64];
    struct stat ours;
    struct stat theirs;

    (void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", p->pid);
    if (p->namespace_pid != 1 || stat("/proc/self/ns/pid", &ours) < 0 || stat(path, &theirs) < 0 ||
        ours.st_ino != theirs.st_ino)
        return 0;
    return gpucr_preflight_add(job, GPUCR_FINDING_NAMESPACE_INIT, p->pid, err,
                               "process %d (%s) is the first process of this pid namespace: the "
                               "kernel lets nobody inside stop it",
                               p->pid, p->name);
}

static int check_rights(struct gpucr_job *job, const struct gpucr_process_result *p,
                        const struct gpucr_proc_status *status, struct gpucr_error *err)
{
    uid_t me = geteuid();

    if (me == 0 || (status->uid[0] == me && status->uid[1] == me && status->uid[2] == me))
        return 0;
    return gpucr_preflight_add(job, GPUCR_FINDING_PERMISSION, p->pid, err,
                               "process %d (%s) belongs to user %u, gpucr runs as user %u", p->pid,
                               p->name, (unsigned)status->uid[0], (unsigned)me);
}

static int check_process(struct gpucr_job *job, const struct gpucr_process_result *p,
                         struct gpucr_error *err)
{
    struct gpucr_proc_status status;
    int rc = gpucr_proc_status_read(p->pid, &status, err);

    if (rc == GPUCR_ERR_NOT_FOUND)
        return 0;
    if (rc == 0)
        rc = check_traced(job, p, &status, err);
    if (rc == 0)
        rc = check_namespace_init(job, p, err);
    if (rc == 0)
        rc = check_rights(job, p, &status, err);
    if (rc == 0 && p->holds_device && job->operation == GPUCR_OPERATION_CHECKPOINT)
        rc = gpucr_preflight_add(job, GPUCR_FINDING_INHERITED_DEVICE, p->pid, err,
                                 "process %d (%s) has no CUDA state but holds files or mappings "
                                 "of the GPU, inherited by fork() or opened by NVML alone; the "
                                 "driver does not take them away and CRIU cannot dump them",
                                 p->pid, p->name);
    return rc;
}

/*
 * When the last link of a process group to another group of its session exits, the
 * kernel sends SIGHUP and SIGCONT to the group if a member is stopped
 * (kernel/exit.c). Only a frozen cgroup withstands that.
 */
int gpucr_preflight_weak_hold(struct gpucr_job *job, const char *why, struct gpucr_error *err)
{
    pid_t group = 0;
    pid_t link = 0;
    struct gpucr_proc_stat stat;
    int rc;

    if (gpucr_preflight_has(job, GPUCR_FINDING_WEAK_HOLD) ||
        gpucr_preflight_has(job, GPUCR_FINDING_ORPHANABLE_GROUP))
        return 0;
    rc = gpucr_tree_orphanable(&job->tree, &group, &link, err);
    if (rc < 0)
        return rc;
    if (rc == 1)
        return gpucr_preflight_add(
            job, GPUCR_FINDING_ORPHANABLE_GROUP, job->options->pid, err,
            "when process %d (%s) exits, the kernel sends SIGHUP and wakes the suspended process "
            "group %d; its cgroup cannot be frozen here: %s",
            link, gpucr_proc_stat_read(link, &stat, NULL) == 0 ? stat.comm : "gone", group, why);
    return gpucr_preflight_add(job, GPUCR_FINDING_WEAK_HOLD, 0, err,
                               "a SIGCONT from anybody would wake the suspended processes without "
                               "their GPU; their cgroup cannot be frozen here: %s",
                               why);
}

static int check_hold(struct gpucr_job *job, struct gpucr_error *err)
{
    struct gpucr_error why = GPUCR_ERROR_INIT;

    if (job->operation != GPUCR_OPERATION_SUSPEND ||
        gpucr_hold_can_freeze(job->options->pid, &why) == 1)
        return 0;
    return gpucr_preflight_weak_hold(job, why.text, err);
}

static int check_cuda(struct gpucr_job *job, struct gpucr_error *err)
{
    size_t cuda = job->group.count;

    for (size_t i = 0; i < job->group.count; i++) {
        const struct gpucr_member *member = &job->group.members[i];
        const struct gpucr_process_result *p = gpucr_job_process(job, member->pid);
        int rc;

        if (member->before != GPUCR_CUDA_FAILED)
            continue;
        rc = gpucr_preflight_add(job, GPUCR_FINDING_STATE_FAILED, p->pid, err,
                                 "the driver has lost process %d (%s)", p->pid, p->name);
        if (rc < 0)
            return rc;
    }
    if (cuda > 0)
        return 0;
    if (job->operation == GPUCR_OPERATION_SUSPEND)
        return gpucr_preflight_add(job, GPUCR_FINDING_NOT_CUDA, job->options->pid, err,
                                   "no process of the tree below %d has CUDA state",
                                   job->options->pid);
    return gpucr_preflight_add(job, GPUCR_FINDING_CPU_ONLY, job->options->pid, err,
                               "no process of the tree below %d has CUDA state: it is "
                               "checkpointed as an ordinary process",
                               job->options->pid);
}

static int check_memory(struct gpucr_job *job, struct gpucr_error *err)
{
    uint64_t need = gpucr_job_device_bytes(job);
    char text[4096];
    const char *at;
    const char *end;
    uint64_t available_kib;

    if (gpucr_file_read_small(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) < 0)
        return 0;
    at = strstr(text, "MemAvailable:");
    if (!at)
        return 0;
    at += strlen("MemAvailable:");
    at += strspn(at, " \t");
    if (!gpucr_scan_u64(at, 10, &available_kib, &end) || available_kib << 10 >= need)
        return 0;
    /* A virtual machine's memory may grow as it is used, so this cannot refuse. */
    return gpucr_preflight_add(job, GPUCR_FINDING_HOST_MEMORY, 0, err,
                               "%llu MiB of device memory move to host memory, of which %llu MiB "
                               "are available now",
                               (unsigned long long)(need >> 20),
                               (unsigned long long)(available_kib >> 10));
}

/* Stopped or frozen: a record of a process that runs is left over and says nothing. */
static bool is_held(const struct gpucr_process_result *p)
{
    char folder[GPUCR_CGROUP_PATH_BYTES];
    struct gpucr_cgroups cgroups = {0};
    bool frozen;

    if (p->was_stopped)
        return true;
    frozen = gpucr_cgroups_open(&cgroups, NULL) == 0 &&
             gpucr_cgroup_frozen(&cgroups, p->pid, folder) == 1;
    gpucr_cgroups_done(&cgroups);
    return frozen;
}

static void mark_suspended(struct gpucr_job *job, const struct gpucr_record *record)
{
    for (size_t i = 0; i < job->result->process_count; i++) {
        struct gpucr_process_result *p = &job->result->processes[i];
        const struct gpucr_record_process *r = gpucr_record_process(record, p->pid, p->start_ticks);

        if (r)
            p->before = r->is_cuda ? GPUCR_PROCESS_SUSPENDED : GPUCR_PROCESS_STOPPED;
    }
}

static int check_record(struct gpucr_job *job, struct gpucr_error *err)
{
    const struct gpucr_process_result *root = gpucr_job_process(job, job->options->pid);
    struct gpucr_record record = {0};
    int found = gpucr_record_find(job->options, job->options->pid, root->start_ticks, &record, err);
    int32_t record_root = record.root_pid;

    if (found == 1 && is_held(root))
        mark_suspended(job, &record);
    else if (found == 1)
        found = 0;
    gpucr_record_done(&record);
    if (found != 1)
        return found;
    if (record_root != root->pid)
        return gpucr_preflight_add(job, GPUCR_FINDING_ALREADY_SUSPENDED, root->pid, err,
                                   "process %d (%s) is suspended already, with the tree of "
                                   "process %d",
                                   root->pid, root->name, record_root);
    return gpucr_preflight_add(job, GPUCR_FINDING_ALREADY_SUSPENDED, root->pid, err,
                               "process %d (%s) and its tree are suspended already", root->pid,
                               root->name);
}

/* A frozen process answers no driver call and takes no stop before it is thawed. */
static int check_frozen(struct gpucr_job *job, struct gpucr_error *err)
{
    char folder[GPUCR_CGROUP_PATH_BYTES];
    struct gpucr_cgroups cgroups = {0};
    int rc = gpucr_cgroups_open(&cgroups, err);

    for (size_t i = 0; rc == 0 && i < job->result->process_count; i++) {
        const struct gpucr_process_result *p = &job->result->processes[i];

        if (gpucr_cgroup_frozen(&cgroups, p->pid, folder) != 1)
            continue;
        rc = gpucr_preflight_add(job, GPUCR_FINDING_FROZEN, p->pid, err,
                                 "process %d (%s) is in the frozen cgroup %.400s", p->pid, p->name,
                                 folder);
    }
    gpucr_cgroups_done(&cgroups);
    return rc;
}

int gpucr_preflight_processes(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = 0;

    if (job->operation != GPUCR_OPERATION_RESUME) {
        rc = check_record(job, err);
        /* The frozen cgroup of a suspended tree is ours: said once is enough. */
        if (rc == 0 && job->result->finding_count == 0)
            rc = check_frozen(job, err);
    }
    for (size_t i = 0; rc == 0 && i < job->result->process_count; i++)
        rc = check_process(job, &job->result->processes[i], err);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
}

int gpucr_preflight_tree(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = check_cuda(job, err);

    if (rc == 0)
        rc = check_hold(job, err);
    if (rc == 0)
        rc = check_memory(job, err);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
}
