/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A libnvidia-ml.so.1 with three GPUs: one with two processes, one with as many as
 * FAKE_NVML_PROCESSES says, one that has fallen off the bus.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/nvml_api.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

enum { GPU_IS_LOST = 15, INVALID_ARGUMENT = 2 };

FAKE_EXPORT int nvmlInit_v2(void);
FAKE_EXPORT int nvmlShutdown(void);
FAKE_EXPORT const char *nvmlErrorString(int code);
FAKE_EXPORT int nvmlSystemGetDriverVersion(char *ret, unsigned size);
FAKE_EXPORT int nvmlDeviceGetCount_v2(unsigned *ret);
FAKE_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpucr_nvml_device *ret);
FAKE_EXPORT int nvmlDeviceGetUUID(gpucr_nvml_device device, char *ret, unsigned size);
FAKE_EXPORT int nvmlDeviceGetName(gpucr_nvml_device device, char *ret, unsigned size);
FAKE_EXPORT int nvmlDeviceGetMemoryInfo(gpucr_nvml_device device, struct gpucr_nvml_memory *ret);
FAKE_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(gpucr_nvml_device device, unsigned *count,
                                                        struct gpucr_nvml_process *ret);

static char handles[3];

static unsigned index_of(gpucr_nvml_device device)
{
    return (unsigned)((char *)device - handles);
}

static unsigned number_of(const char *variable, unsigned otherwise)
{
    const char *text = getenv(variable);

    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

int nvmlInit_v2(void)
{
    return (int)number_of("FAKE_NVML_INIT", 0);
}

int nvmlShutdown(void)
{
    return 0;
}

const char *nvmlErrorString(int code)
{
    return code == GPUCR_NVML_DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Some Error";
}

int nvmlSystemGetDriverVersion(char *ret, unsigned size)
{
    (void)snprintf(ret, size, "580.0.1");
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *ret)
{
    *ret = 3;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpucr_nvml_device *ret)
{
    if (index > 2)
        return INVALID_ARGUMENT;
    if (index == 2)
        return GPU_IS_LOST;
    *ret = (gpucr_nvml_device)(void *)&handles[index];
    return 0;
}

int nvmlDeviceGetUUID(gpucr_nvml_device device, char *ret, unsigned size)
{
    (void)snprintf(ret, size, "GPU-00000000-0000-0000-0000-00000000000%u", index_of(device));
    return 0;
}

int nvmlDeviceGetName(gpucr_nvml_device device, char *ret, unsigned size)
{
    (void)snprintf(ret, size, "Fake %u", index_of(device));
    return 0;
}

int nvmlDeviceGetMemoryInfo(gpucr_nvml_device device, struct gpucr_nvml_memory *ret)
{
    uint64_t gib = (uint64_t)1 << 30;

    *ret = (struct gpucr_nvml_memory){
        .total_bytes = 80 * gib, .free_bytes = (70 + index_of(device)) * gib, .used_bytes = gib};
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(gpucr_nvml_device device, unsigned *count,
                                            struct gpucr_nvml_process *ret)
{
    unsigned there = index_of(device) == 0 ? 3 : number_of("FAKE_NVML_PROCESSES", 0);
    unsigned room = *count;

    *count = there;
    if (room < there)
        return GPUCR_NVML_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < there; i++) {
        ret[i] = (struct gpucr_nvml_process){.pid = 100 + i, .used_bytes = 1000};
        if (i == 1)
            ret[i].used_bytes = UINT64_MAX;
        if (i == 2)
            ret[i].pid = 0;
    }
    return 0;
}
