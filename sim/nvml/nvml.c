/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "sim_nvml.h"

#include "../common/sim_fault.h"
#include "../common/sim_root.h"
#include "../common/sim_sys.h"
#include "../common/sim_vram.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORT     __attribute__((visibility("default")))
#define USERS_MAX  1024
#define RESULT_OOM 20

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static struct sim_config config;
static int node_fds[SIM_GPU_MAX + 1];

/* A handle is the number of a GPU plus one: it says the same after any restart. */
static nvmlDevice_t to_handle(unsigned index)
{
    return (nvmlDevice_t)(uintptr_t)(index + 1);
}

static nvmlReturn_t from_handle(nvmlDevice_t device, unsigned *index)
{
    uintptr_t number = (uintptr_t)device;

    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    if (number == 0 || number > config.gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = (unsigned)number - 1;
    return NVML_SUCCESS;
}

static nvmlReturn_t faulted(enum sim_call call)
{
    struct sim_fault_query query = {.call = call, .pid = getpid()};
    struct sim_fault faults[SIM_FAULT_MAX];
    unsigned count = sim_fault_match(&query, faults);

    for (unsigned i = 0; i < count; i++) {
        switch (faults[i].action) {
        case SIM_ACTION_HANG:
            while (!faults[i].value && sim_fault_standing(faults[i].rule))
                sim_sleep_ms(10);
            sim_sleep_ms(faults[i].value);
            break;
        case SIM_ACTION_LATENCY:
            sim_sleep_ms(faults[i].value);
            break;
        case SIM_ACTION_FAIL:
            return (nvmlReturn_t)faults[i].value;
        case SIM_ACTION_OOM:
            return RESULT_OOM;
        case SIM_ACTION_REFUSE:
            return NVML_ERROR_NOT_SUPPORTED;
        case SIM_ACTION_CRASH:
        case SIM_ACTION_POISON:
        case SIM_ACTION_STATE:
        case SIM_ACTION_COUNT:
            return NVML_ERROR_UNKNOWN;
        }
    }
    return NVML_SUCCESS;
}

/* O_DSYNC marks the descriptors of the driver's libraries; libcuda puts them away at Checkpoint. */
static void open_nodes(void)
{
    char path[SIM_PATH_MAX], tail[32];

    for (unsigned i = 0; i <= config.gpu_count; i++) {
        if (i == config.gpu_count)
            snprintf(tail, sizeof(tail), "dev/nvidiactl");
        else
            snprintf(tail, sizeof(tail), "dev/nvidia%u", i);
        node_fds[i] = -1;
        if (sim_root_path(path, sizeof(path), tail))
            node_fds[i] = open(path, O_RDWR | O_CLOEXEC | O_DSYNC);
    }
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    nvmlReturn_t result = faulted(SIM_CALL_NVML_INIT);

    if (result)
        return result;
    pthread_mutex_lock(&lock);
    if (!users) {
        if (sim_config_read(&config))
            open_nodes();
        else
            result = NVML_ERROR_DRIVER_NOT_LOADED;
    }
    if (!result)
        users++;
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;

    pthread_mutex_lock(&lock);
    if (users) {
        result = NVML_SUCCESS;
        if (--users == 0) {
            for (unsigned i = 0; i <= config.gpu_count; i++) {
                if (node_fds[i] >= 0)
                    close(node_fds[i]);
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    default:
        return "Unknown Error";
    }
}

static nvmlReturn_t put_text(char *to, unsigned length, const char *text)
{
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(to, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    return put_text(version, length, config.driver_version);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = config.gpu_count;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    if (!device || index >= config.gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = to_handle(index);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    uint8_t wanted[SIM_UUID_SIZE];

    if (!users)
        return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device || !sim_uuid_parse(uuid, wanted))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < config.gpu_count; i++) {
        if (memcmp(config.gpu[i].uuid, wanted, SIM_UUID_SIZE) == 0) {
            *device = to_handle(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    char text[48];
    unsigned index;
    nvmlReturn_t result = from_handle(device, &index);

    if (result)
        return result;
    sim_uuid_format(config.gpu[index].uuid, text, sizeof(text));
    return put_text(uuid, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    unsigned index;
    nvmlReturn_t result = from_handle(device, &index);

    return result ? result : put_text(name, length, config.gpu[index].name);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    unsigned index;
    nvmlReturn_t result = from_handle(device, &index);

    if (!result && !minor)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (!result)
        *minor = index;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    uint64_t used[SIM_GPU_MAX];
    struct sim_config now;
    unsigned index;
    nvmlReturn_t result = from_handle(device, &index);

    if (!result)
        result = memory ? faulted(SIM_CALL_NVML_QUERY) : NVML_ERROR_INVALID_ARGUMENT;
    if (result)
        return result;
    if (!sim_config_read(&now))
        return NVML_ERROR_UNKNOWN;
    sim_vram_used(used);
    memory->total = now.gpu[index].vram_bytes;
    memory->used = used[index] < memory->total ? used[index] : memory->total;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *infos)
{
    struct sim_vram_use found[USERS_MAX];
    unsigned index, have;
    nvmlReturn_t result = from_handle(device, &index);

    if (!result)
        result = count ? faulted(SIM_CALL_NVML_QUERY) : NVML_ERROR_INVALID_ARGUMENT;
    if (result)
        return result;
    have = sim_vram_users(index, found, USERS_MAX);
    if (have > *count || !infos) {
        *count = have;
        return have ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    }
    for (unsigned i = 0; i < have; i++)
        infos[i] = (nvmlProcessInfo_t){.pid = (unsigned)found[i].pid,
                                       .usedGpuMemory = found[i].bytes,
                                       .gpuInstanceId = 0xffffffffu,
                                       .computeInstanceId = 0xffffffffu};
    *count = have;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, int *mode)
{
    unsigned index;
    nvmlReturn_t result = from_handle(device, &index);

    if (!result && !mode)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (!result)
        *mode = config.persistence;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    unsigned index;
    nvmlReturn_t result = from_handle(device, &index);

    if (result)
        return result;
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!config.mig)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = 1;
    return NVML_SUCCESS;
}
