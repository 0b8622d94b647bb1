/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Device memory: allocation, copies, and the way from a device address to the bytes behind it. */
#define _GNU_SOURCE
#include "driver.h"

#include "../common/sim_vram.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * An arena is larger than the memory of its GPU, so that fragmentation never fails an allocation
 * that the accounting allows: the memfd is sparse, addresses cost nothing.
 */
#define ARENA_FACTOR 4

bool sim_arena_open(struct sim_gpu *gpu)
{
    void *map;
    int fd;

    if (gpu->arena)
        return true;
    /* After a move to another GPU the places of the old arena are still in use. */
    if (!gpu->arena_bytes)
        gpu->arena_bytes = gpu->vram_bytes * ARENA_FACTOR;
    fd = memfd_create("device-memory", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    if (ftruncate(fd, (off_t)gpu->arena_bytes) != 0) {
        close(fd);
        return false;
    }
    map = mmap(NULL, gpu->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (map == MAP_FAILED) {
        close(fd);
        return false;
    }
    gpu->arena = map;
    gpu->arena_fd = fd;
    return true;
}

void sim_arena_close(struct sim_gpu *gpu)
{
    if (!gpu->arena)
        return;
    munmap(gpu->arena, gpu->arena_bytes);
    close(gpu->arena_fd);
    gpu->arena = NULL;
    gpu->arena_fd = -1;
}

int sim_physical_new(unsigned gpu, uint64_t bytes)
{
    uint64_t claim[SIM_GPU_MAX] = {0};
    int index;

    claim[sim.gpu[gpu].physical] = bytes;
    if (!sim_arena_open(&sim.gpu[gpu]) || !sim_vram_claim(&sim.config, claim))
        return -1;
    index = sim_object_place(SIM_OBJECT_PHYSICAL, gpu, bytes, SIM_GRANULE_BYTES);
    if (index < 0)
        sim_vram_return(sim.gpu[gpu].physical, bytes);
    return index;
}

void sim_physical_drop(int index)
{
    const struct sim_object *object = &sim.object[index];
    const struct sim_gpu *gpu = &sim.gpu[object->gpu];

    sim_vram_return(gpu->physical, object->bytes);
    fallocate(gpu->arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)object->start,
              (off_t)object->bytes);
    sim_object_drop(index);
}

static void *translate_object(const struct sim_object *object, uint64_t at)
{
    const struct sim_object *physical;

    if (object->kind == SIM_OBJECT_PINNED || object->kind == SIM_OBJECT_MANAGED)
        return (void *)(uintptr_t)(object->start + at);
    physical = &sim.object[object->physical];
    return sim.gpu[physical->gpu].arena + physical->start + object->offset + at;
}

static bool has_memory(const struct sim_object *object)
{
    switch (object->kind) {
    case SIM_OBJECT_DEVICE:
    case SIM_OBJECT_PINNED:
    case SIM_OBJECT_MANAGED:
        return true;
    case SIM_OBJECT_MAPPED:
        return object->access != 0;
    case SIM_OBJECT_FREE:
    case SIM_OBJECT_PHYSICAL:
    case SIM_OBJECT_RESERVED:
        break;
    }
    return false;
}

void *sim_translate(CUdeviceptr pointer, uint64_t *bytes)
{
    void *found = NULL;

    pthread_mutex_lock(&sim.lock);
    for (uint32_t i = 0; i < sim.object_top && !found; i++) {
        const struct sim_object *object = &sim.object[i];

        if (!has_memory(object) || pointer < object->start ||
            pointer - object->start >= object->bytes)
            continue;
        *bytes = object->bytes - (pointer - object->start);
        found = translate_object(object, pointer - object->start);
    }
    pthread_mutex_unlock(&sim.lock);
    return found;
}

bool sim_each_piece(CUdeviceptr pointer, uint64_t bytes, sim_piece_visitor visit, void *arg)
{
    for (uint64_t at = 0; at < bytes;) {
        uint64_t piece = 0;
        void *memory = sim_translate(pointer + at, &piece);

        if (!memory)
            return false;
        if (piece > bytes - at)
            piece = bytes - at;
        visit(memory, piece, at, arg);
        at += piece;
    }
    return true;
}

static uint64_t round_granule(uint64_t bytes)
{
    return (bytes + SIM_GRANULE_BYTES - 1) & ~(SIM_GRANULE_BYTES - 1);
}

static CUresult allocate(CUdeviceptr *pointer, unsigned gpu, uint64_t bytes)
{
    int physical = sim_physical_new(gpu, bytes);
    int index;

    if (physical < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    index = sim_object_place(SIM_OBJECT_DEVICE, gpu, bytes, SIM_GRANULE_BYTES);
    if (index < 0) {
        sim_physical_drop(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim.object[index].physical = (uint32_t)physical;
    *pointer = sim.object[index].start;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    CUresult result = sim_enter(SIM_CALL_MEM_ALLOC);
    CUcontext context = sim_context_current();

    if (result)
        return result;
    if (!pointer || !bytes || bytes > UINT64_MAX / 2)
        return sim_leave(SIM_CALL_MEM_ALLOC, CUDA_ERROR_INVALID_VALUE);
    if (!context)
        return sim_leave(SIM_CALL_MEM_ALLOC, CUDA_ERROR_INVALID_CONTEXT);
    pthread_mutex_lock(&sim.lock);
    result = allocate(pointer, context->gpu, round_granule(bytes));
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_MEM_ALLOC, result);
}

SIM_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    CUresult result = sim_enter(SIM_CALL_MEM_FREE);
    CUcontext context = sim_context_current();
    int index;

    if (result)
        return result;
    if (context)
        sim_context_wait(context);
    pthread_mutex_lock(&sim.lock);
    index = sim_object_find(SIM_OBJECT_DEVICE, pointer);
    if (index >= 0) {
        sim_physical_drop((int)sim.object[index].physical);
        sim_object_drop(index);
    }
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_MEM_FREE,
                     index >= 0 || !pointer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

SIM_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    CUresult result = sim_enter(SIM_CALL_MEM_INFO);
    CUcontext context = sim_context_current();
    uint64_t used[SIM_GPU_MAX];
    const struct sim_gpu *gpu;

    if (result)
        return result;
    if (!context || !free_bytes || !total_bytes)
        return sim_leave(SIM_CALL_MEM_INFO,
                         context ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT);
    gpu = &sim.gpu[context->gpu];
    sim_vram_used(used);
    *total_bytes = gpu->vram_bytes;
    *free_bytes = used[gpu->physical] < gpu->vram_bytes ? gpu->vram_bytes - used[gpu->physical] : 0;
    return sim_leave(SIM_CALL_MEM_INFO, CUDA_SUCCESS);
}

/* Copies and fills come after the kernels that were launched before them. */
static CUresult enter_in_order(enum sim_call call)
{
    CUresult result = sim_enter(call);
    CUcontext context;

    if (result)
        return result;
    context = sim_context_current();
    if (!context) {
        sim_leave(call, CUDA_SUCCESS);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    sim_context_wait(context);
    return CUDA_SUCCESS;
}

static void copy_in(void *piece, uint64_t bytes, uint64_t at, void *arg)
{
    memcpy(piece, (const uint8_t *)arg + at, bytes);
}

static void copy_out(void *piece, uint64_t bytes, uint64_t at, void *arg)
{
    memcpy((uint8_t *)arg + at, piece, bytes);
}

SIM_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    CUresult result = enter_in_order(SIM_CALL_MEMCPY_HTOD);
    union {
        const void *from;
        void *arg;
    } source = {.from = from};

    if (result)
        return result;
    if (!sim_each_piece(to, bytes, copy_in, source.arg))
        result = CUDA_ERROR_INVALID_VALUE;
    return sim_leave(SIM_CALL_MEMCPY_HTOD, result);
}

SIM_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    CUresult result = enter_in_order(SIM_CALL_MEMCPY_DTOH);

    if (result)
        return result;
    if (!sim_each_piece(from, bytes, copy_out, to))
        result = CUDA_ERROR_INVALID_VALUE;
    return sim_leave(SIM_CALL_MEMCPY_DTOH, result);
}

struct device_copy {
    CUdeviceptr to;
    bool failed;
};

static void copy_across(void *piece, uint64_t bytes, uint64_t at, void *arg)
{
    struct device_copy *copy = arg;

    if (!sim_each_piece(copy->to + at, bytes, copy_in, piece))
        copy->failed = true;
}

SIM_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    CUresult result = enter_in_order(SIM_CALL_MEMCPY_DTOD);
    struct device_copy copy = {.to = to};

    if (result)
        return result;
    if (!sim_each_piece(from, bytes, copy_across, &copy) || copy.failed)
        result = CUDA_ERROR_INVALID_VALUE;
    return sim_leave(SIM_CALL_MEMCPY_DTOD, result);
}

static void fill_bytes(void *piece, uint64_t bytes, uint64_t at, void *arg)
{
    (void)at;
    memset(piece, *(const unsigned char *)arg, bytes);
}

SIM_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    CUresult result = enter_in_order(SIM_CALL_MEMSET_D8);

    if (result)
        return result;
    if (!sim_each_piece(to, count, fill_bytes, &value))
        result = CUDA_ERROR_INVALID_VALUE;
    return sim_leave(SIM_CALL_MEMSET_D8, result);
}

static void fill_words(void *piece, uint64_t bytes, uint64_t at, void *arg)
{
    uint32_t *words = piece;

    (void)at;
    for (uint64_t i = 0; i < bytes / sizeof(words[0]); i++)
        words[i] = *(const uint32_t *)arg;
}

SIM_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count)
{
    CUresult result = enter_in_order(SIM_CALL_MEMSET_D32);

    if (result)
        return result;
    if (to % sizeof(uint32_t) || count > UINT64_MAX / sizeof(uint32_t) ||
        !sim_each_piece(to, count * sizeof(uint32_t), fill_words, &value))
        result = CUDA_ERROR_INVALID_VALUE;
    return sim_leave(SIM_CALL_MEMSET_D32, result);
}
