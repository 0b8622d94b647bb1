/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "driver.h"

#include "../common/sim_sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int find_visible(const char *word)
{
    uint64_t number;
    char uuid[48];

    if (sim_parse_u64(word, &number))
        return number < sim.gpu_count ? (int)number : -1;
    for (unsigned i = 0; i < sim.gpu_count; i++) {
        sim_uuid_format(sim.gpu[i].uuid, uuid, sizeof(uuid));
        if (strlen(word) > 4 && strncmp(uuid, word, strlen(word)) == 0)
            return (int)i;
    }
    return -1;
}

/* CUDA_VISIBLE_DEVICES: numbers or UUIDs; the first that is not valid ends the list. */
static void read_visible(void)
{
    const char *named = getenv("CUDA_VISIBLE_DEVICES");
    char text[1024];

    if (!named) {
        for (unsigned i = 0; i < sim.gpu_count; i++)
            sim.visible[sim.visible_count++] = i;
        return;
    }
    snprintf(text, sizeof(text), "%s", named);
    for (char *word = text, *next; *word && sim.visible_count < SIM_GPU_MAX; word = next) {
        size_t length = strcspn(word, ",");
        int index;

        next = word + length + (word[length] ? 1 : 0);
        word[length] = '\0';
        index = find_visible(word);
        if (index < 0)
            return;
        sim.visible[sim.visible_count++] = (unsigned)index;
    }
}

bool sim_devices_read(void)
{
    sim.gpu_count = sim.config.gpu_count;
    sim.visible_count = 0;
    for (unsigned i = 0; i < sim.gpu_count; i++) {
        const struct sim_config_gpu *from = &sim.config.gpu[i];
        struct sim_gpu *gpu = &sim.gpu[i];

        *gpu = (struct sim_gpu){.vram_bytes = from->vram_bytes, .physical = i, .arena_fd = -1};
        memcpy(gpu->uuid, from->uuid, SIM_UUID_SIZE);
        memcpy(gpu->name, from->name, SIM_NAME_MAX);
        sim_bus_id_format(i, gpu->bus_id, sizeof(gpu->bus_id));
    }
    read_visible();
    return sim.gpu_count > 0;
}

static struct sim_gpu *find_device(CUdevice device)
{
    if (device < 0 || (unsigned)device >= sim.visible_count)
        return NULL;
    return &sim.gpu[sim.visible[device]];
}

SIM_EXPORT CUresult cuDeviceGetCount(int *count)
{
    CUresult result = sim_enter(SIM_CALL_DEVICE_COUNT);

    if (result)
        return result;
    if (count)
        *count = (int)sim.visible_count;
    return sim_leave(SIM_CALL_DEVICE_COUNT, count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

SIM_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = sim_enter(SIM_CALL_DEVICE_GET);

    if (result)
        return result;
    if (!device)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!find_device(ordinal))
        result = CUDA_ERROR_INVALID_DEVICE;
    else
        *device = ordinal;
    return sim_leave(SIM_CALL_DEVICE_GET, result);
}

SIM_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CUresult result = sim_enter(SIM_CALL_DEVICE_NAME);
    const struct sim_gpu *gpu;

    if (result)
        return result;
    gpu = find_device(device);
    if (!name || length <= 0)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!gpu)
        result = CUDA_ERROR_INVALID_DEVICE;
    else
        snprintf(name, (size_t)length, "%s", gpu->name);
    return sim_leave(SIM_CALL_DEVICE_NAME, result);
}

SIM_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = sim_enter(SIM_CALL_DEVICE_MEM);
    const struct sim_gpu *gpu;

    if (result)
        return result;
    gpu = find_device(device);
    if (!bytes)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!gpu)
        result = CUDA_ERROR_INVALID_DEVICE;
    else
        *bytes = gpu->vram_bytes;
    return sim_leave(SIM_CALL_DEVICE_MEM, result);
}

SIM_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult result = sim_enter(SIM_CALL_DEVICE_UUID);
    const struct sim_gpu *gpu;

    if (result)
        return result;
    gpu = find_device(device);
    if (!uuid)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!gpu)
        result = CUDA_ERROR_INVALID_DEVICE;
    else
        memcpy(uuid->bytes, gpu->uuid, SIM_UUID_SIZE);
    return sim_leave(SIM_CALL_DEVICE_UUID, result);
}

SIM_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

SIM_EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    CUresult result = sim_enter(SIM_CALL_DEVICE_BUS);
    const struct sim_gpu *gpu;

    if (result)
        return result;
    gpu = find_device(device);
    if (!text || length <= 0)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!gpu)
        result = CUDA_ERROR_INVALID_DEVICE;
    else
        snprintf(text, (size_t)length, "%s", gpu->bus_id);
    return sim_leave(SIM_CALL_DEVICE_BUS, result);
}

static CUresult read_attribute(int *value, int attribute, const struct sim_gpu *gpu)
{
    unsigned bus = 0;

    switch (attribute) {
    case CU_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        break;
    case CU_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = 132;
        break;
    case CU_ATTRIBUTE_PCI_BUS_ID:
        sscanf(gpu->bus_id, "%*x:%x", &bus);
        *value = (int)bus;
        break;
    case CU_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_ATTRIBUTE_PCI_DOMAIN_ID:
        *value = 0;
        break;
    case CU_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_ATTRIBUTE_MANAGED_MEMORY:
    case CU_ATTRIBUTE_VMM_SUPPORTED:
        *value = 1;
        break;
    case CU_ATTRIBUTE_CC_MAJOR:
        *value = (int)sim.config.cc_major;
        break;
    case CU_ATTRIBUTE_CC_MINOR:
        *value = (int)sim.config.cc_minor;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    CUresult result = sim_enter(SIM_CALL_DEVICE_ATTR);
    const struct sim_gpu *gpu;

    if (result)
        return result;
    gpu = find_device(device);
    if (!value)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!gpu)
        result = CUDA_ERROR_INVALID_DEVICE;
    else
        result = read_attribute(value, attribute, gpu);
    return sim_leave(SIM_CALL_DEVICE_ATTR, result);
}
