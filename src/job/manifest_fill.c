/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "job/manifest_fill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <gpucr/version.h>

#include "base/text.h"
#include "proc/procfs.h"

static void fill_machine(struct gpucr_manifest *m)
{
    struct utsname uts = {0};
    time_t now = time(NULL);
    struct tm utc = {0};

    (void)uname(&uts);
    (void)gpucr_copy_text(m->host, sizeof(m->host), uts.nodename);
    (void)snprintf(m->kernel, sizeof(m->kernel), "%.100s %.100s %.20s", uts.sysname, uts.release,
                   uts.machine);
    (void)gmtime_r(&now, &utc);
    (void)strftime(m->created, sizeof(m->created), "%Y-%m-%dT%H:%M:%SZ", &utc);
    (void)gpucr_copy_text(m->gpucr_version, sizeof(m->gpucr_version), GPUCR_VERSION);
    (void)gpucr_boot_id_read(m->boot_id, NULL);
}

static void fill_gpus(struct gpucr_job *job, struct gpucr_manifest *m)
{
    struct gpucr_gpu gpus[GPUCR_GPUS_PER_PROCESS_MAX];
    uint32_t count = 0;

    if (job->driver)
        m->cuda_version = job->driver->cuda_version;
    if (!gpucr_job_nvml(job))
        return;
    (void)gpucr_nvml_driver_name(job->nvml, m->driver_name, sizeof(m->driver_name), NULL);
    if (gpucr_nvml_gpus(job->nvml, gpus, GPUCR_GPUS_PER_PROCESS_MAX, &count, NULL) < 0)
        return;
    for (uint32_t i = 0; i < count && m->gpu_count < GPUCR_MANIFEST_GPUS_MAX; i++) {
        struct gpucr_manifest_gpu *gpu = &m->gpus[m->gpu_count++];

        gpu->index = i;
        gpu->memory_bytes = gpus[i].memory_bytes;
        (void)gpucr_copy_text(gpu->uuid, sizeof(gpu->uuid), gpus[i].uuid);
        (void)gpucr_copy_text(gpu->name, sizeof(gpu->name), gpus[i].name);
    }
}

static int fill_ids(struct gpucr_manifest_process *p, struct gpucr_error *err)
{
    struct gpucr_proc_status status;
    struct gpucr_proc_stat stat;
    struct gpucr_pids threads = {0};
    int rc = gpucr_proc_stat_read(p->pid, &stat, err);

    if (rc == 0)
        rc = gpucr_proc_status_read(p->pid, &status, err);
    if (rc == 0)
        rc = gpucr_task_list(p->pid, &threads, err);
    if (rc != 0)
        return rc;
    p->group = stat.group;
    p->session = stat.session;
    p->uid = status.uid[0];
    p->gid = status.gid[0];
    p->threads = threads.ids;
    p->thread_count = threads.count;
    return 0;
}

static int fill_process(const struct gpucr_job *job, const struct gpucr_process_result *from,
                        struct gpucr_manifest_process *p, struct gpucr_error *err)
{
    struct gpucr_member *member = gpucr_group_find((struct gpucr_group *)&job->group, from->pid);

    *p = (struct gpucr_manifest_process){
        .pid = from->pid,
        .ns_pid = from->namespace_pid,
        .parent_pid = from->parent_pid,
        .start_ticks = from->start_ticks,
        .was_stopped = from->was_stopped,
        .is_cuda = from->is_cuda,
        .cuda_state = member ? (uint32_t)member->before : 0,
        .device_bytes = from->device_bytes,
        .host_bytes = from->host_bytes,
        .gpu_count = from->gpu_count,
    };
    (void)gpucr_copy_text(p->name, sizeof(p->name), from->name);
    for (uint32_t i = 0; i < from->gpu_count; i++)
        p->gpus[i] = from->gpus[i];
    return fill_ids(p, err);
}

static int fill_processes(const struct gpucr_job *job, struct gpucr_manifest *m,
                          struct gpucr_error *err)
{
    m->root_pid = job->options->pid;
    m->processes = calloc(job->hold->count, sizeof(*m->processes));
    if (!m->processes)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; i < job->hold->count; i++) {
        const struct gpucr_held *held = &job->hold->items[i];
        const struct gpucr_process_result *p =
            gpucr_job_process((struct gpucr_job *)job, held->ident.pid);
        int rc;

        if (held->ended || !p)
            continue;
        rc = fill_process(job, p, &m->processes[m->process_count], err);
        if (rc < 0)
            return rc;
        m->process_count++;
    }
    return 0;
}

int gpucr_manifest_fill_options(const struct gpucr_job_options *o, struct gpucr_manifest *m,
                                struct gpucr_error *err)
{
    const struct {
        const char *name;
        bool set;
    } flags[] = {
        {"leave-running", o->leave_running},     {"shell-job", o->shell_job},
        {"tcp-established", o->tcp_established}, {"file-locks", o->file_locks},
        {"link-remap", o->link_remap},           {"ext-unix-sk", o->ext_unix_sk},
        {"sequential", o->sequential},
    };
    char text[32];
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (flags[i].set)
            rc = gpucr_manifest_add_option(m, flags[i].name, "true", err);
    }
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)o->ghost_limit_bytes);
    if (rc == 0 && o->ghost_limit_bytes)
        rc = gpucr_manifest_add_option(m, "ghost-limit", text, err);
    for (size_t i = 0; rc == 0 && i < o->criu_option_count; i++) {
        char name[GPUCR_MANIFEST_TEXT_BYTES];

        /* One that is too long for the manifest is an error there, never cut. */
        (void)snprintf(name, sizeof(name), "criu:%s", o->criu_options[i].name);
        rc = gpucr_manifest_add_option(
            m, name, o->criu_options[i].value ? o->criu_options[i].value : "", err);
    }
    for (size_t i = 0; rc == 0 && i < o->forced_count; i++)
        rc = gpucr_manifest_add_option(m, "force", o->forced[i], err);
    return rc;
}

int gpucr_manifest_fill(struct gpucr_job *job, const struct gpucr_engine *engine,
                        struct gpucr_manifest *ret, struct gpucr_error *err)
{
    int rc;

    fill_machine(ret);
    fill_gpus(job, ret);
    (void)gpucr_copy_text(ret->engine, sizeof(ret->engine), engine->ops->name);
    ret->engine_version = engine->version;
    rc = fill_processes(job, ret, err);
    return rc == 0 ? gpucr_manifest_check_facts(ret, err) : rc;
}

void gpucr_manifest_fill_phases(const struct gpucr_result *result, struct gpucr_manifest *manifest)
{
    manifest->phase_count = 0;
    for (size_t i = 0; i < result->phase_count && i < GPUCR_MANIFEST_PHASES_MAX; i++) {
        struct gpucr_manifest_phase *phase = &manifest->phases[manifest->phase_count++];

        (void)gpucr_copy_text(phase->name, sizeof(phase->name), result->phases[i].name);
        phase->bytes = result->phases[i].bytes;
        phase->ns = result->phases[i].ns;
    }
}
