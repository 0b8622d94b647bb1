/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "cuda_api.h"

#include "output.h"

#include <dlfcn.h>
#include <string.h>

static struct cuda_api api;

static const struct {
    const char *symbol;
    size_t offset;
} bindings[] = {
    {"cuInit", offsetof(struct cuda_api, init)},
    {"cuGetErrorName", offsetof(struct cuda_api, error_name)},
    {"cuDeviceGetCount", offsetof(struct cuda_api, device_count)},
    {"cuDevicePrimaryCtxRetain", offsetof(struct cuda_api, primary_retain)},
    {"cuCtxSetCurrent", offsetof(struct cuda_api, set_current)},
    {"cuCtxSynchronize", offsetof(struct cuda_api, synchronize)},
    {"cuMemAlloc_v2", offsetof(struct cuda_api, mem_alloc)},
    {"cuMemAllocManaged", offsetof(struct cuda_api, mem_managed)},
    {"cuMemHostAlloc", offsetof(struct cuda_api, host_alloc)},
    {"cuMemsetD8_v2", offsetof(struct cuda_api, memset_bytes)},
    {"cuMemcpyDtoH_v2", offsetof(struct cuda_api, copy_to_host)},
    {"cuModuleLoadData", offsetof(struct cuda_api, module_load)},
    {"cuModuleGetFunction", offsetof(struct cuda_api, module_function)},
    {"cuLaunchKernel", offsetof(struct cuda_api, launch)},
    {"cuMemGetAllocationGranularity", offsetof(struct cuda_api, vmm_granularity)},
    {"cuMemAddressReserve", offsetof(struct cuda_api, vmm_reserve)},
    {"cuMemCreate", offsetof(struct cuda_api, vmm_create)},
    {"cuMemMap", offsetof(struct cuda_api, vmm_map)},
    {"cuMemSetAccess", offsetof(struct cuda_api, vmm_access)},
};

const struct cuda_api *cuda_api(void)
{
    void *library;

    if (api.init)
        return &api;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        sample_die("call=dlopen text=\"%s\"", dlerror());
    for (size_t i = 0; i < sizeof(bindings) / sizeof(bindings[0]); i++) {
        void *found = dlsym(library, bindings[i].symbol);

        if (!found)
            sample_die("call=dlsym symbol=%s", bindings[i].symbol);
        memcpy((char *)&api + bindings[i].offset, &found, sizeof(found));
    }
    return &api;
}

void cuda_expect(const char *call, int code)
{
    const char *name = "?";

    if (!code)
        return;
    api.error_name(code, &name);
    sample_die("call=%s code=%d name=%s", call, code, name ? name : "?");
}
