/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Virtual memory management: addresses, memory and access as three separate things. */
#include "driver.h"

static bool is_granular(uint64_t bytes)
{
    return bytes && bytes % SIM_GRANULE_BYTES == 0;
}

SIM_EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes,
                                                  const CUmemAllocationProp *properties, int option)
{
    CUresult result = sim_enter(SIM_CALL_VMM_GRANULARITY);

    if (result)
        return result;
    if (!bytes || !properties || option < 0 || option > 1)
        return sim_leave(SIM_CALL_VMM_GRANULARITY, CUDA_ERROR_INVALID_VALUE);
    *bytes = SIM_GRANULE_BYTES;
    return sim_leave(SIM_CALL_VMM_GRANULARITY, CUDA_SUCCESS);
}

SIM_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                                        CUdeviceptr wish, unsigned long long flags)
{
    CUresult result = sim_enter(SIM_CALL_VMM_RESERVE);
    int index = -1;

    (void)wish; /* a wish is only that */
    if (result)
        return result;
    if (!pointer || !is_granular(bytes) || (alignment & (alignment - 1)) || flags)
        return sim_leave(SIM_CALL_VMM_RESERVE, CUDA_ERROR_INVALID_VALUE);
    if (alignment < SIM_GRANULE_BYTES)
        alignment = SIM_GRANULE_BYTES;
    pthread_mutex_lock(&sim.lock);
    if (sim_addresses_reserve())
        index = sim_object_place(SIM_OBJECT_RESERVED, SIM_GPU_MAX, bytes, alignment);
    if (index >= 0)
        *pointer = sim.object[index].start;
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_VMM_RESERVE, index >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* Whether a mapping touches the range. */
static bool any_mapped(uint64_t start, uint64_t bytes)
{
    for (uint32_t i = 0; i < sim.object_top; i++) {
        const struct sim_object *object = &sim.object[i];

        if (object->kind == SIM_OBJECT_MAPPED && start < object->start + object->bytes &&
            object->start < start + bytes)
            return true;
    }
    return false;
}

SIM_EXPORT CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    CUresult result = sim_enter(SIM_CALL_VMM_UNRESERVE);
    int index;

    if (result)
        return result;
    pthread_mutex_lock(&sim.lock);
    index = sim_object_find(SIM_OBJECT_RESERVED, pointer);
    if (index >= 0 && (sim.object[index].bytes != bytes || any_mapped(pointer, bytes)))
        index = -1;
    if (index >= 0)
        sim_object_drop(index);
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_VMM_UNRESERVE, index >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

SIM_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result = sim_enter(SIM_CALL_VMM_CREATE);
    int index;

    if (result)
        return result;
    if (!handle || !properties || !is_granular(bytes) || flags || properties->type != 1 ||
        properties->location.type != 1 || properties->location.id < 0 ||
        (unsigned)properties->location.id >= sim.visible_count)
        return sim_leave(SIM_CALL_VMM_CREATE, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&sim.lock);
    index = sim_physical_new(sim.visible[properties->location.id], bytes);
    if (index >= 0) {
        sim.object[index].references = 1;
        sim.object[index].handle_held = true;
        *handle = (CUmemGenericAllocationHandle)index + 1;
    }
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_VMM_CREATE, index >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

static struct sim_object *find_handle(CUmemGenericAllocationHandle handle)
{
    struct sim_object *object;

    if (handle == 0 || handle > SIM_OBJECT_MAX)
        return NULL;
    object = &sim.object[handle - 1];
    return object->kind == SIM_OBJECT_PHYSICAL && object->handle_held ? object : NULL;
}

/* The memory lives as long as its handle or a mapping of it. */
static void drop_reference(struct sim_object *physical)
{
    if (--physical->references == 0)
        sim_physical_drop((int)(physical - sim.object));
}

SIM_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = sim_enter(SIM_CALL_VMM_RELEASE);
    struct sim_object *physical;

    if (result)
        return result;
    pthread_mutex_lock(&sim.lock);
    physical = find_handle(handle);
    if (physical) {
        physical->handle_held = false;
        drop_reference(physical);
    }
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_VMM_RELEASE, physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static bool is_reserved(uint64_t start, uint64_t bytes)
{
    for (uint32_t i = 0; i < sim.object_top; i++) {
        const struct sim_object *object = &sim.object[i];

        if (object->kind == SIM_OBJECT_RESERVED && start >= object->start &&
            bytes <= object->bytes && start - object->start <= object->bytes - bytes)
            return true;
    }
    return false;
}

static CUresult map_memory(uint64_t start, uint64_t bytes, uint64_t offset,
                           CUmemGenericAllocationHandle handle)
{
    struct sim_object *physical = find_handle(handle);
    int index;

    if (!physical || offset > physical->bytes || bytes > physical->bytes - offset ||
        !is_reserved(start, bytes) || any_mapped(start, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    index = sim_object_new(SIM_OBJECT_MAPPED);
    if (index < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim.object[index].gpu = physical->gpu;
    sim.object[index].start = start;
    sim.object[index].bytes = bytes;
    sim.object[index].offset = offset;
    sim.object[index].physical = (uint32_t)(physical - sim.object);
    physical->references++;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = sim_enter(SIM_CALL_VMM_MAP);

    if (result)
        return result;
    if (!is_granular(bytes) || pointer % SIM_GRANULE_BYTES || offset % SIM_GRANULE_BYTES || flags)
        return sim_leave(SIM_CALL_VMM_MAP, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&sim.lock);
    result = map_memory(pointer, bytes, offset, handle);
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_VMM_MAP, result);
}

/* The mappings that lie in a range, each wholly; -1 when one lies across its edge. */
static int64_t mapped_bytes(uint64_t start, uint64_t bytes)
{
    int64_t total = 0;

    for (uint32_t i = 0; i < sim.object_top; i++) {
        const struct sim_object *object = &sim.object[i];

        if (object->kind != SIM_OBJECT_MAPPED || start >= object->start + object->bytes ||
            object->start >= start + bytes)
            continue;
        if (object->start < start || object->start + object->bytes > start + bytes)
            return -1;
        total += (int64_t)object->bytes;
    }
    return total;
}

static void unmap_range(uint64_t start, uint64_t bytes)
{
    for (uint32_t i = 0; i < sim.object_top; i++) {
        struct sim_object *object = &sim.object[i];
        uint32_t physical = object->physical;

        if (object->kind != SIM_OBJECT_MAPPED || object->start < start ||
            object->start >= start + bytes)
            continue;
        sim_object_drop((int)i);
        drop_reference(&sim.object[physical]);
    }
}

SIM_EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    CUresult result = sim_enter(SIM_CALL_VMM_UNMAP);

    if (result)
        return result;
    pthread_mutex_lock(&sim.lock);
    if (bytes && mapped_bytes(pointer, bytes) == (int64_t)bytes)
        unmap_range(pointer, bytes);
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_VMM_UNMAP, result);
}

SIM_EXPORT CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access,
                                   size_t count)
{
    CUresult result = sim_enter(SIM_CALL_VMM_ACCESS);

    if (result)
        return result;
    if (!access || count != 1 || access->location.type != 1)
        return sim_leave(SIM_CALL_VMM_ACCESS, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&sim.lock);
    if (bytes && mapped_bytes(pointer, bytes) == (int64_t)bytes) {
        for (uint32_t i = 0; i < sim.object_top; i++) {
            struct sim_object *object = &sim.object[i];

            if (object->kind == SIM_OBJECT_MAPPED && object->start >= pointer &&
                object->start < pointer + bytes)
                object->access = access->flags;
        }
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_VMM_ACCESS, result);
}
