/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pinned host memory and managed memory. Both lie in the reservation that device pointers come
 * from, so that taking pinned memory away leaves addresses that nothing else can be given.
 */
#define _GNU_SOURCE
#include "driver.h"

#include "../common/sim_vram.h"

#include <sys/mman.h>

bool sim_pinned_map(const struct sim_object *object)
{
    return mmap((void *)(uintptr_t)object->start, object->bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

void sim_pinned_unmap(const struct sim_object *object)
{
    mmap((void *)(uintptr_t)object->start, object->bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static uint64_t round_page(uint64_t bytes)
{
    return (bytes + SIM_PAGE_BYTES - 1) & ~(SIM_PAGE_BYTES - 1);
}

static int host_object(enum sim_object_kind kind, unsigned gpu, uint64_t bytes)
{
    int index = sim_object_place(kind, gpu, round_page(bytes), SIM_GRANULE_BYTES);

    if (index >= 0 && !sim_pinned_map(&sim.object[index])) {
        sim_object_drop(index);
        return -1;
    }
    return index;
}

static CUresult pinned_alloc(void **pointer, size_t bytes)
{
    CUcontext context = sim_context_current();
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    int index;

    if (!pointer || !bytes || bytes > UINT64_MAX / 2)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&sim.lock);
    index = host_object(SIM_OBJECT_PINNED, context->gpu, bytes);
    if (index >= 0) {
        *pointer = (void *)(uintptr_t)sim.object[index].start;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

SIM_EXPORT CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    CUresult result = sim_enter(SIM_CALL_HOST_ALLOC);

    (void)flags;
    if (result)
        return result;
    return sim_leave(SIM_CALL_HOST_ALLOC, pinned_alloc(pointer, bytes));
}

SIM_EXPORT CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    CUresult result = sim_enter(SIM_CALL_ALLOC_HOST);

    if (result)
        return result;
    return sim_leave(SIM_CALL_ALLOC_HOST, pinned_alloc(pointer, bytes));
}

SIM_EXPORT CUresult cuMemFreeHost(void *pointer)
{
    CUresult result = sim_enter(SIM_CALL_HOST_FREE);
    int index;

    if (result)
        return result;
    pthread_mutex_lock(&sim.lock);
    index = sim_object_find(SIM_OBJECT_PINNED, (uintptr_t)pointer);
    if (index >= 0) {
        sim_pinned_unmap(&sim.object[index]);
        sim_object_drop(index);
    }
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_HOST_FREE, index >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

SIM_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags)
{
    CUresult result = sim_enter(SIM_CALL_HOST_POINTER);
    uint64_t bytes;

    (void)flags;
    if (result)
        return result;
    /* One address space: the pointer is the same on both sides. */
    if (!device || sim_translate((uintptr_t)host, &bytes) != host)
        return sim_leave(SIM_CALL_HOST_POINTER, CUDA_ERROR_INVALID_VALUE);
    *device = (uintptr_t)host;
    return sim_leave(SIM_CALL_HOST_POINTER, CUDA_SUCCESS);
}

SIM_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    CUresult result = sim_enter(SIM_CALL_MANAGED);
    CUcontext context = sim_context_current();
    uint64_t claim[SIM_GPU_MAX] = {0};
    int index = -1;

    if (result)
        return result;
    if (!pointer || !bytes || bytes > UINT64_MAX / 2 || (flags != 1 && flags != 2))
        return sim_leave(SIM_CALL_MANAGED, CUDA_ERROR_INVALID_VALUE);
    if (!context)
        return sim_leave(SIM_CALL_MANAGED, CUDA_ERROR_INVALID_CONTEXT);
    pthread_mutex_lock(&sim.lock);
    claim[sim.gpu[context->gpu].physical] = round_page(bytes);
    if (sim_vram_claim(&sim.config, claim)) {
        index = host_object(SIM_OBJECT_MANAGED, context->gpu, bytes);
        if (index >= 0)
            *pointer = sim.object[index].start;
        else
            sim_vram_return(sim.gpu[context->gpu].physical, round_page(bytes));
    }
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_MANAGED, index >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}
