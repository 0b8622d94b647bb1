/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gpu_work.h"

#include "cuda_api.h"
#include "output.h"
#include "ptx.h"

#include <stddef.h>

#define GRID_BLOCKS   1024
#define BLOCK_THREADS 256
#define SEED_STEP     0x100000000ull

struct gpu {
    int device;
    void *context;
    void *fill;
    void *check;
    void *increment;
    void *spin;
    cuda_pointer words;
    cuda_pointer counter;
    cuda_pointer bad;
    uint64_t count;
    uint64_t seed;
};

static struct gpu gpus[SAMPLE_GPU_MAX];
static int gpu_count;

int gpu_init(void)
{
    int count = 0;

    cuda_expect("cuInit", cuda_api()->init(0));
    cuda_expect("cuDeviceGetCount", cuda_api()->device_count(&count));
    return count;
}

int gpu_added(void)
{
    return gpu_count;
}

static void make_current(const struct gpu *gpu)
{
    cuda_expect("cuCtxSetCurrent", cuda_api()->set_current(gpu->context));
}

static void load_kernels(struct gpu *gpu)
{
    const struct cuda_api *cuda = cuda_api();
    void *module;

    cuda_expect("cuModuleLoadData", cuda->module_load(&module, sample_ptx));
    cuda_expect("cuModuleGetFunction", cuda->module_function(&gpu->fill, module, "gpucr_fill"));
    cuda_expect("cuModuleGetFunction", cuda->module_function(&gpu->check, module, "gpucr_check"));
    cuda_expect("cuModuleGetFunction",
                cuda->module_function(&gpu->increment, module, "gpucr_increment"));
    cuda_expect("cuModuleGetFunction", cuda->module_function(&gpu->spin, module, "gpucr_spin"));
}

static cuda_pointer allocate_vmm(int device, uint64_t bytes)
{
    const struct cuda_api *cuda = cuda_api();
    struct cuda_allocation_properties properties = {.type = 1, .location = {.type = 1}};
    struct cuda_access access = {.location = {.type = 1}, .flags = 3};
    unsigned long long handle;
    cuda_pointer pointer;
    size_t granule;

    properties.location.id = access.location.id = device;
    cuda_expect("cuMemGetAllocationGranularity", cuda->vmm_granularity(&granule, &properties, 0));
    bytes = (bytes + granule - 1) / granule * granule;
    cuda_expect("cuMemAddressReserve", cuda->vmm_reserve(&pointer, bytes, 0, 0, 0));
    cuda_expect("cuMemCreate", cuda->vmm_create(&handle, bytes, &properties, 0));
    cuda_expect("cuMemMap", cuda->vmm_map(pointer, bytes, 0, handle, 0));
    cuda_expect("cuMemSetAccess", cuda->vmm_access(pointer, bytes, &access, 1));
    return pointer;
}

static cuda_pointer allocate(int device, uint64_t bytes, enum gpu_memory memory)
{
    cuda_pointer pointer = 0;

    switch (memory) {
    case GPU_MEMORY_PLAIN:
        cuda_expect("cuMemAlloc", cuda_api()->mem_alloc(&pointer, bytes));
        break;
    case GPU_MEMORY_VMM:
        pointer = allocate_vmm(device, bytes);
        break;
    case GPU_MEMORY_MANAGED:
        cuda_expect("cuMemAllocManaged", cuda_api()->mem_managed(&pointer, bytes, 1));
        break;
    }
    return pointer;
}

static void launch(void *function, unsigned blocks, unsigned threads, void **parameters)
{
    cuda_expect("cuLaunchKernel", cuda_api()->launch(function, blocks, 1, 1, threads, 1, 1, 0, NULL,
                                                     parameters, NULL));
}

void gpu_add(int device, uint64_t bytes, enum gpu_memory memory)
{
    const struct cuda_api *cuda = cuda_api();
    struct gpu *gpu = &gpus[gpu_count++];
    void *parameters[] = {&gpu->words, &gpu->count, &gpu->seed};

    gpu->device = device;
    gpu->count = bytes / 8;
    gpu->seed = (uint64_t)(device + 1) * SEED_STEP;
    cuda_expect("cuDevicePrimaryCtxRetain", cuda->primary_retain(&gpu->context, device));
    make_current(gpu);
    load_kernels(gpu);
    cuda_expect("cuMemAlloc", cuda->mem_alloc(&gpu->counter, 16));
    gpu->bad = gpu->counter + 8;
    cuda_expect("cuMemsetD8", cuda->memset_bytes(gpu->counter, 0, 16));
    if (gpu->count) {
        gpu->words = allocate(device, bytes, memory);
        launch(gpu->fill, GRID_BLOCKS, BLOCK_THREADS, parameters);
    }
    cuda_expect("cuCtxSynchronize", cuda->synchronize());
}

void gpu_increment(void)
{
    for (int i = 0; i < gpu_count; i++) {
        void *parameters[] = {&gpus[i].counter};

        make_current(&gpus[i]);
        launch(gpus[i].increment, 1, 1, parameters);
    }
}

void gpu_spin(uint64_t ms)
{
    uint64_t ns = ms * 1000000ull;

    for (int i = 0; i < gpu_count; i++) {
        void *parameters[] = {&gpus[i].counter, &ns};

        make_current(&gpus[i]);
        launch(gpus[i].spin, 1, 1, parameters);
    }
}

void gpu_synchronize(void)
{
    make_current(&gpus[0]);
    cuda_expect("cuCtxSynchronize", cuda_api()->synchronize());
}

static uint64_t read_word(cuda_pointer from)
{
    uint64_t value = 0;

    cuda_expect("cuMemcpyDtoH", cuda_api()->copy_to_host(&value, from, sizeof(value)));
    return value;
}

uint64_t gpu_counter(void)
{
    uint64_t sum = 0;

    for (int i = 0; i < gpu_count; i++) {
        make_current(&gpus[i]);
        sum += read_word(gpus[i].counter);
    }
    return sum;
}

uint64_t gpu_bad(void)
{
    uint64_t sum = 0;

    for (int i = 0; i < gpu_count; i++) {
        struct gpu *gpu = &gpus[i];
        void *parameters[] = {&gpu->words, &gpu->count, &gpu->seed, &gpu->bad};

        if (!gpu->count)
            continue;
        make_current(gpu);
        cuda_expect("cuMemsetD8", cuda_api()->memset_bytes(gpu->bad, 0, 8));
        launch(gpu->check, GRID_BLOCKS, BLOCK_THREADS, parameters);
        sum += read_word(gpu->bad);
    }
    return sum;
}
