/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The driver's interface as an application uses it, and the accounting of memory. */
#define _GNU_SOURCE
#include "support.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)

static CUcontext context;

#define CALL(name) ((__typeof__(&name))test_symbol(#name))

static uint64_t free_bytes(void)
{
    size_t free_now, total;

    CHECK_EQUAL(0, CALL(cuMemGetInfo_v2)(&free_now, &total));
    CHECK_EQUAL(1024 * MIB, total);
    return free_now;
}

static void check_before_init(void)
{
    CUdeviceptr pointer;
    int count;

    CHECK_EQUAL(CUDA_ERROR_NOT_INITIALIZED, CALL(cuDeviceGetCount)(&count));
    CHECK_EQUAL(CUDA_ERROR_NOT_INITIALIZED, CALL(cuMemAlloc_v2)(&pointer, 16));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, CALL(cuInit)(1));
    CHECK_EQUAL(0, CALL(cuInit)(0));
    CHECK_EQUAL(0, CALL(cuInit)(0));
    CHECK_EQUAL(CUDA_ERROR_INVALID_CONTEXT, CALL(cuMemAlloc_v2)(&pointer, 16));
}

static void check_device(void)
{
    int version, count, major, minor;
    char name[100], bus[32];
    const char *text;
    CUuuid uuid, other;
    CUdevice device;
    size_t bytes;

    CHECK_EQUAL(0, CALL(cuDriverGetVersion)(&version));
    CHECK_EQUAL(13000, version);
    CHECK_EQUAL(0, CALL(cuDeviceGetCount)(&count));
    CHECK_EQUAL(1, count);
    CHECK_EQUAL(CUDA_ERROR_INVALID_DEVICE, CALL(cuDeviceGet)(&device, 1));
    CHECK_EQUAL(0, CALL(cuDeviceGet)(&device, 0));
    CHECK_EQUAL(0, CALL(cuDeviceGetName)(name, sizeof(name), device));
    CHECK(strlen(name) > 0);
    CHECK_EQUAL(0, CALL(cuDeviceTotalMem_v2)(&bytes, device));
    CHECK_EQUAL(1024 * MIB, bytes);
    CHECK_EQUAL(0, CALL(cuDeviceGetUuid)(&uuid, device));
    CHECK_EQUAL(0, CALL(cuDeviceGetUuid_v2)(&other, device));
    CHECK_EQUAL(0, memcmp(&uuid, &other, sizeof(uuid)));
    CHECK_EQUAL(0, CALL(cuDeviceGetPCIBusId)(bus, sizeof(bus), device));
    CHECK_EQUAL(0, strcmp(bus, "0000:17:00.0"));
    CHECK_EQUAL(0, CALL(cuDeviceGetAttribute)(&major, CU_ATTRIBUTE_CC_MAJOR, device));
    CHECK_EQUAL(0, CALL(cuDeviceGetAttribute)(&minor, CU_ATTRIBUTE_CC_MINOR, device));
    CHECK_EQUAL(90, major * 10 + minor);
    CHECK_EQUAL(0, CALL(cuGetErrorName)(CUDA_ERROR_NOT_READY, &text));
    CHECK_EQUAL(0, strcmp(text, "CUDA_ERROR_NOT_READY"));
    CHECK_EQUAL(0, CALL(cuGetErrorString)(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK_EQUAL(0, strcmp(text, "out of memory"));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, CALL(cuGetErrorName)(12345, &text));
}

static void check_contexts(void)
{
    CUcontext first, second, got;
    CUdevice device = -1;

    CHECK_EQUAL(0, CALL(cuCtxCreate_v2)(&first, 0, 0));
    CHECK_EQUAL(0, CALL(cuDevicePrimaryCtxRetain)(&second, 0));
    CHECK_EQUAL(0, CALL(cuDevicePrimaryCtxRetain)(&got, 0));
    CHECK(first != second && got == second);
    CHECK_EQUAL(128 * MIB, test_vram_used(0));
    CHECK_EQUAL(0, CALL(cuCtxGetCurrent)(&got));
    CHECK(got == first);
    CHECK_EQUAL(0, CALL(cuCtxPushCurrent_v2)(second));
    CHECK_EQUAL(0, CALL(cuCtxGetDevice)(&device));
    CHECK_EQUAL(0, device);
    CHECK_EQUAL(0, CALL(cuCtxPopCurrent_v2)(&got));
    CHECK(got == second);
    CHECK_EQUAL(0, CALL(cuCtxDestroy_v2)(first));
    CHECK_EQUAL(CUDA_ERROR_INVALID_CONTEXT, CALL(cuCtxDestroy_v2)(first));
    CHECK_EQUAL(0, CALL(cuDevicePrimaryCtxRelease_v2)(0));
    CHECK_EQUAL(64 * MIB, test_vram_used(0));
    context = second;
    CHECK_EQUAL(0, CALL(cuCtxSetCurrent)(context));
}

static void check_plain(void)
{
    static uint8_t bytes[3 * 4096], back[3 * 4096];
    CUdeviceptr first, second;
    uint64_t before = free_bytes();

    CHECK_EQUAL(0, CALL(cuMemAlloc_v2)(&first, 5 * MIB));
    CHECK_EQUAL(0, CALL(cuMemAlloc_v2)(&second, 100));
    CHECK_EQUAL(before - 8 * MIB, free_bytes());
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7);
    CHECK_EQUAL(0, CALL(cuMemcpyHtoD_v2)(first + 1000, bytes, sizeof(bytes)));
    CHECK_EQUAL(0, CALL(cuMemcpyDtoD_v2)(second + 5, first + 1000, sizeof(bytes)));
    CHECK_EQUAL(0, CALL(cuMemsetD8_v2)(second + 5, 9, 2));
    CHECK_EQUAL(0, CALL(cuMemcpyDtoH_v2)(back, second + 5, sizeof(back)));
    CHECK(back[0] == 9 && back[1] == 9 && !memcmp(back + 2, bytes + 2, sizeof(back) - 2));
    CHECK_EQUAL(0, CALL(cuMemsetD32_v2)(first, 0x01020304, 3));
    CHECK_EQUAL(0, CALL(cuMemcpyDtoH_v2)(back, first, 16));
    CHECK(!memcmp(back, "\4\3\2\1\4\3\2\1\4\3\2\1\0\0\0\0", 16));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, CALL(cuMemcpyDtoH_v2)(back, second + 2 * MIB - 8, 16));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, CALL(cuMemFree_v2)(first + 1));
    CHECK_EQUAL(0, CALL(cuMemFree_v2)(first));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, CALL(cuMemFree_v2)(first));
    CHECK_EQUAL(0, CALL(cuMemFree_v2)(second));
    CHECK_EQUAL(before, free_bytes());
    /* Fresh memory is clean, also where there was something before. */
    CHECK_EQUAL(0, CALL(cuMemAlloc_v2)(&first, 5 * MIB));
    CHECK_EQUAL(0, CALL(cuMemcpyDtoH_v2)(back, first + 1000, sizeof(back)));
    CHECK(back[0] == 0 && !memcmp(back, back + 1, sizeof(back) - 1));
    CHECK_EQUAL(0, CALL(cuMemFree_v2)(first));
}

static void check_full(void)
{
    CUdeviceptr pointer, all[40];
    unsigned count = 0;

    CHECK_EQUAL(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuMemAlloc_v2)(&pointer, 2048 * MIB));
    while (count < 40 && CALL(cuMemAlloc_v2)(&all[count], 64 * MIB) == 0)
        count++;
    CHECK_EQUAL(15, count);
    CHECK_EQUAL(0, free_bytes());
    CHECK_EQUAL(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuMemAlloc_v2)(&pointer, 1));
    while (count)
        CHECK_EQUAL(0, CALL(cuMemFree_v2)(all[--count]));
}

static void check_vmm(void)
{
    CUmemAllocationProp properties = {.type = 1, .location = {.type = 1, .id = 0}};
    CUmemAccessDesc access = {.location = {.type = 1, .id = 0}, .flags = 3};
    CUmemGenericAllocationHandle one, two;
    CUdeviceptr pointer;
    size_t granule;
    uint64_t word = 0, before = free_bytes();

    CHECK_EQUAL(0, CALL(cuMemGetAllocationGranularity)(&granule, &properties, 0));
    CHECK_EQUAL(2 * MIB, granule);
    CHECK_EQUAL(0, CALL(cuMemAddressReserve)(&pointer, 8 * MIB, 0, 0, 0));
    CHECK_EQUAL(before, free_bytes());
    CHECK_EQUAL(0, CALL(cuMemCreate)(&one, 2 * MIB, &properties, 0));
    CHECK_EQUAL(0, CALL(cuMemCreate)(&two, 4 * MIB, &properties, 0));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, CALL(cuMemCreate)(&two, 5, &properties, 0));
    CHECK_EQUAL(before - 6 * MIB, free_bytes());
    CHECK_EQUAL(0, CALL(cuMemMap)(pointer, 2 * MIB, 0, one, 0));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, CALL(cuMemMap)(pointer, 2 * MIB, 0, two, 0));
    CHECK_EQUAL(0, CALL(cuMemMap)(pointer + 2 * MIB, 4 * MIB, 0, two, 0));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, CALL(cuMemcpyDtoH_v2)(&word, pointer, 8));
    CHECK_EQUAL(0, CALL(cuMemSetAccess)(pointer, 6 * MIB, &access, 1));
    CHECK_EQUAL(0, CALL(cuMemRelease)(one));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, CALL(cuMemRelease)(one));
    /* A copy that goes across the two. */
    word = 0x1122334455667788ull;
    CHECK_EQUAL(0, CALL(cuMemcpyHtoD_v2)(pointer + 2 * MIB - 4, &word, 8));
    word = 0;
    CHECK_EQUAL(0, CALL(cuMemcpyDtoH_v2)(&word, pointer + 2 * MIB - 4, 8));
    CHECK(word == 0x1122334455667788ull);
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, CALL(cuMemAddressFree)(pointer, 8 * MIB));
    CHECK_EQUAL(0, CALL(cuMemUnmap)(pointer, 6 * MIB));
    CHECK_EQUAL(before - 4 * MIB, free_bytes());
    /* The handle still has what was written through the mapping. */
    CHECK_EQUAL(0, CALL(cuMemMap)(pointer + 4 * MIB, 2 * MIB, 0, two, 0));
    CHECK_EQUAL(0, CALL(cuMemSetAccess)(pointer + 4 * MIB, 2 * MIB, &access, 1));
    CHECK_EQUAL(0, CALL(cuMemcpyDtoH_v2)(&word, pointer + 4 * MIB, 4));
    CHECK((uint32_t)word == 0x11223344);
    CHECK_EQUAL(0, CALL(cuMemUnmap)(pointer + 4 * MIB, 2 * MIB));
    CHECK_EQUAL(0, CALL(cuMemRelease)(two));
    CHECK_EQUAL(0, CALL(cuMemAddressFree)(pointer, 8 * MIB));
    CHECK_EQUAL(before, free_bytes());
}

static void check_host(void)
{
    uint64_t *pinned, word = 0;
    CUdeviceptr device, managed;

    CHECK_EQUAL(0, CALL(cuMemHostAlloc)((void **)&pinned, 3 * MIB, 0));
    pinned[100] = 77;
    CHECK_EQUAL(0, CALL(cuMemHostGetDevicePointer_v2)(&device, pinned, 0));
    CHECK_EQUAL(0, CALL(cuMemcpyDtoH_v2)(&word, device + 800, 8));
    CHECK_EQUAL(77, word);
    CHECK_EQUAL(0, CALL(cuMemFreeHost)(pinned));
    CHECK_EQUAL(CUDA_ERROR_INVALID_VALUE, CALL(cuMemFreeHost)(pinned));
    CHECK_EQUAL(0, CALL(cuMemAllocHost_v2)((void **)&pinned, 100));
    CHECK_EQUAL(0, CALL(cuMemFreeHost)(pinned));
    CHECK_EQUAL(0, CALL(cuMemAllocManaged)(&managed, MIB, 1));
    *(volatile uint64_t *)(uintptr_t)managed = 5;
    CHECK_EQUAL(0, CALL(cuMemcpyDtoH_v2)(&word, managed, 8));
    CHECK_EQUAL(5, word);
}

/* Every function of the table is found by its name, as a symbol and through the driver. */
static void check_names(void)
{
    static const char *const names[][2] = {
#define SIM_CALL(id, rule, base, symbol) {#base, #symbol},
#define SIM_ALIAS(base, symbol)          {#base, #symbol},
#include "../../sim/common/sim_calls.def"
#undef SIM_ALIAS
#undef SIM_CALL
    };
    void *found;
    int status;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        bool nvml = !strncmp(names[i][0], "nvml", 4);

        CHECK(nvml || test_symbol(names[i][1]));
        CHECK_EQUAL(nvml ? CUDA_ERROR_NOT_FOUND : 0,
                    CALL(cuGetProcAddress_v2)(names[i][0], &found, 13000, 0, &status));
        CHECK_EQUAL(nvml, status);
        CHECK(nvml || found);
    }
    CHECK_EQUAL(CUDA_ERROR_NOT_FOUND, CALL(cuGetProcAddress)("cuNoSuchCall", &found, 13000, 0));
    CHECK_EQUAL(CUDA_ERROR_NOT_FOUND,
                CALL(cuGetProcAddress)("cuCheckpointProcessLock", &found, 12000, 0));
}

static void check_fork(void)
{
    pid_t child = fork();
    int status;

    CHECK(child >= 0);
    if (child == 0) {
        CUdeviceptr pointer;

        _exit(CALL(cuMemAlloc_v2)(&pointer, 16) != CUDA_ERROR_NOT_INITIALIZED ||
              CALL(cuInit)(0) != CUDA_ERROR_NOT_INITIALIZED);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(0, status);
}

int main(void)
{
    test_root_create(1, "1GiB");
    check_before_init();
    check_device();
    check_contexts();
    check_plain();
    check_full();
    check_vmm();
    check_host();
    check_names();
    check_fork();
    return 0;
}
