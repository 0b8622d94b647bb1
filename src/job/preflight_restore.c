/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "job/preflight.h"

static size_t count_cuda(const struct gpucr_manifest *manifest)
{
    size_t count = 0;

    for (size_t i = 0; i < manifest->process_count; i++)
        count += manifest->processes[i].is_cuda;
    return count;
}

static int check_driver(struct gpucr_job *job, const struct gpucr_manifest *manifest,
                        struct gpucr_error *err)
{
    char name[32] = "";

    if (!job->driver)
        return gpucr_preflight_add(job, GPUCR_FINDING_DRIVER_MISSING, 0, err,
                                   "the image holds CUDA processes and this machine has no "
                                   "driver: %s",
                                   job->driver_error.text);
    if (gpucr_job_nvml(job))
        (void)gpucr_nvml_driver_name(job->nvml, name, sizeof(name), NULL);
    if (manifest->driver_name[0] && name[0] && strcmp(manifest->driver_name, name) != 0)
        return gpucr_preflight_add(job, GPUCR_FINDING_DRIVER_DIFFERS, 0, err,
                                   "the image was taken with driver %s and this machine has %s",
                                   manifest->driver_name, name);
    return 0;
}

/* Device memory that the image needs on the GPU that was @p index at the checkpoint. */
static uint64_t need_on(const struct gpucr_manifest *manifest, uint32_t index)
{
    uint64_t need = 0;

    for (size_t i = 0; i < manifest->process_count; i++) {
        const struct gpucr_manifest_process *p = &manifest->processes[i];

        for (uint32_t k = 0; k < p->gpu_count; k++) {
            if (p->gpus[k] == index)
                need += p->device_bytes / p->gpu_count;
        }
    }
    return need;
}

static const struct gpucr_gpu *find_gpu(const struct gpucr_gpu *gpus, uint32_t count,
                                        const char *uuid)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(gpus[i].uuid, uuid) == 0)
            return &gpus[i];
    }
    return NULL;
}

static int check_gpus(struct gpucr_job *job, const struct gpucr_manifest *manifest,
                      struct gpucr_error *err)
{
    struct gpucr_gpu gpus[GPUCR_GPUS_PER_PROCESS_MAX];
    uint32_t count = 0;
    int rc = 0;

    if (!gpucr_job_nvml(job) ||
        gpucr_nvml_gpus(job->nvml, gpus, GPUCR_GPUS_PER_PROCESS_MAX, &count, NULL) < 0)
        return 0;
    for (size_t i = 0; rc == 0 && i < manifest->gpu_count; i++) {
        const struct gpucr_manifest_gpu *want = &manifest->gpus[i];
        const struct gpucr_gpu *have = find_gpu(gpus, count, want->uuid);
        uint64_t need = need_on(manifest, want->index);

        if (!have)
            rc = gpucr_preflight_add(job, GPUCR_FINDING_GPU_MISSING, 0, err,
                                     "GPU %s (%s) of the image is not in this machine", want->uuid,
                                     want->name);
        else if (need > have->free_bytes)
            rc = gpucr_preflight_add(job, GPUCR_FINDING_DEVICE_MEMORY, 0, err,
                                     "GPU %s (%s) has %llu MiB of free memory and the image needs "
                                     "%llu MiB there",
                                     want->uuid, want->name,
                                     (unsigned long long)(have->free_bytes >> 20),
                                     (unsigned long long)(need >> 20));
    }
    return rc;
}

static int check_kernel(struct gpucr_job *job, const struct gpucr_manifest *manifest,
                        struct gpucr_error *err)
{
    struct utsname uts = {0};

    if (uname(&uts) < 0 || strstr(manifest->kernel, uts.release))
        return 0;
    return gpucr_preflight_add(job, GPUCR_FINDING_KERNEL_DIFFERS, 0, err,
                               "the image was taken on %s and this machine runs %s %s",
                               manifest->kernel, uts.sysname, uts.release);
}

static int check_users(struct gpucr_job *job, const struct gpucr_manifest *manifest,
                       struct gpucr_error *err)
{
    uid_t me = geteuid();
    int rc = 0;

    for (size_t i = 0; me != 0 && rc == 0 && i < manifest->process_count; i++) {
        const struct gpucr_manifest_process *p = &manifest->processes[i];

        if (p->uid != me)
            rc = gpucr_preflight_add(job, GPUCR_FINDING_FOREIGN_UID, p->pid, err,
                                     "process %d (%s) of the image runs as user %u and gpucr as "
                                     "user %u",
                                     p->pid, p->name, p->uid, (unsigned)me);
    }
    return rc;
}

int gpucr_preflight_restore(struct gpucr_job *job, const struct gpucr_manifest *manifest,
                            struct gpucr_error *err)
{
    int rc = check_users(job, manifest, err);

    if (rc == 0)
        rc = check_kernel(job, manifest, err);
    if (rc == 0 && count_cuda(manifest) == 0)
        rc = gpucr_preflight_add(job, GPUCR_FINDING_CPU_ONLY, 0, err,
                                 "the image holds no CUDA process");
    else if (rc == 0) {
        rc = check_driver(job, manifest, err);
        if (rc == 0)
            rc = check_gpus(job, manifest, err);
    }
    return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
}
