/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file nvml_api.h
 * The part of NVML's binary interface that gpucr uses, declared here so that no
 * vendor header is needed to build.
 */
#ifndef GPUCR_GPU_NVML_API_H
#define GPUCR_GPU_NVML_API_H

#include <assert.h>
#include <stdint.h>

/** nvmlReturn_t values that gpucr decides by. */
enum {
    GPUCR_NVML_SUCCESS = 0,
    GPUCR_NVML_NOT_SUPPORTED = 3,
    GPUCR_NVML_NO_PERMISSION = 4,
    GPUCR_NVML_INSUFFICIENT_SIZE = 7,
    GPUCR_NVML_DRIVER_NOT_LOADED = 9,
    GPUCR_NVML_LIBRARY_MISMATCH = 18,
};

struct gpucr_nvml_memory {
    uint64_t total_bytes;
    uint64_t free_bytes;
    uint64_t used_bytes;
};

/** nvmlProcessInfo_v2_t, which _v3 of the call fills. */
struct gpucr_nvml_process {
    uint32_t pid;
    uint64_t used_bytes; /* UINT64_MAX where the driver does not tell */
    uint32_t gpu_instance;
    uint32_t compute_instance;
};

static_assert(sizeof(struct gpucr_nvml_memory) == 24, "nvmlMemory_t");
static_assert(sizeof(struct gpucr_nvml_process) == 24, "nvmlProcessInfo_v2_t");

typedef struct gpucr_nvml_device_handle *gpucr_nvml_device;

/** X(field, symbol, arguments); all return an nvmlReturn_t. */
#define GPUCR_NVML_CALLS(X)                                                                        \
    X(init, "nvmlInit_v2", (void))                                                                 \
    X(shutdown, "nvmlShutdown", (void))                                                            \
    X(driver_version, "nvmlSystemGetDriverVersion", (char *ret, unsigned size))                    \
    X(count, "nvmlDeviceGetCount_v2", (unsigned *ret))                                             \
    X(handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned index, gpucr_nvml_device *ret))           \
    X(uuid, "nvmlDeviceGetUUID", (gpucr_nvml_device device, char *ret, unsigned size))             \
    X(name, "nvmlDeviceGetName", (gpucr_nvml_device device, char *ret, unsigned size))             \
    X(memory, "nvmlDeviceGetMemoryInfo",                                                           \
      (gpucr_nvml_device device, struct gpucr_nvml_memory * ret))                                  \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3",                                        \
      (gpucr_nvml_device device, unsigned *count, struct gpucr_nvml_process *ret))

struct gpucr_nvml_calls {
#define GPUCR_NVML_FIELD(field, symbol, args) int(*field) args;
    GPUCR_NVML_CALLS(GPUCR_NVML_FIELD)
#undef GPUCR_NVML_FIELD
    const char *(*error_text)(int code); /* nvmlErrorString */
};

#endif
