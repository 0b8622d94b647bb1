/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file nvml.h
 * GPUs, their memory and who uses it, by NVML (dlopen). Optional everywhere:
 * without it the figures are 0 and the driver's own answers decide.
 */
#ifndef GPUCR_GPU_NVML_H
#define GPUCR_GPU_NVML_H

#include <gpucr/job.h>

#include "base/err.h"

struct gpucr_nvml;

int gpucr_nvml_open(const char *driver_root, struct gpucr_nvml **ret, struct gpucr_error *err);
struct gpucr_nvml *gpucr_nvml_close(struct gpucr_nvml *nvml);

int gpucr_nvml_driver_name(struct gpucr_nvml *nvml, char *ret, size_t size,
                           struct gpucr_error *err);

/** Fill count and array of GPUs (uuid, name, memory, free). */
int gpucr_nvml_gpus(struct gpucr_nvml *nvml, struct gpucr_gpu *ret, uint32_t max,
                    uint32_t *ret_count, struct gpucr_error *err);

/** One process on one GPU. */
struct gpucr_gpu_use {
    uint32_t gpu;
    int32_t pid;
    uint64_t bytes; /* 0 if NVML does not tell */
};

enum { GPUCR_GPU_USES_MAX = 8192 };

struct gpucr_gpu_uses {
    struct gpucr_gpu_use *items;
    size_t count;
};

int gpucr_nvml_uses(struct gpucr_nvml *nvml, struct gpucr_gpu_uses *ret, struct gpucr_error *err);
void gpucr_gpu_uses_done(struct gpucr_gpu_uses *uses);

/** Bytes of @p pid over all GPUs. */
uint64_t gpucr_gpu_uses_bytes(const struct gpucr_gpu_uses *uses, int32_t pid);

#endif
