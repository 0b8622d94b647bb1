/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gpu/nvml.h"

#include <dlfcn.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/driver_library.h"
#include "gpu/nvml_api.h"

struct gpucr_nvml {
    void *handle;
    bool initialised;
    struct gpucr_nvml_calls calls;
    char path[GPUCR_ERROR_PATH_BYTES];
};

static int fail(const struct gpucr_nvml *nvml, int code, const char *what, struct gpucr_error *err)
{
    const char *text = nvml->calls.error_text ? nvml->calls.error_text(code) : NULL;
    int result = GPUCR_ERR_DRIVER;

    if (code == GPUCR_NVML_DRIVER_NOT_LOADED)
        result = GPUCR_ERR_DRIVER_MISSING;
    else if (code == GPUCR_NVML_NO_PERMISSION)
        result = GPUCR_ERR_PERMISSION;
    gpucr_error_set(err, result, "NVML failed at %s: %s (%d)%s", what, text ? text : "unknown",
                    code,
                    code == GPUCR_NVML_LIBRARY_MISMATCH
                        ? "; the driver was updated: reload the kernel module or restart"
                        : "");
    if (err)
        err->driver_code = code;
    return result;
}

static int bind_calls(struct gpucr_nvml *nvml, struct gpucr_error *err)
{
    const char *missing = NULL;
    int rc;

#define BIND(field, symbol, args)                                                                  \
    *(void **)&nvml->calls.field = dlsym(nvml->handle, symbol);                                    \
    if (!nvml->calls.field && !missing)                                                            \
        missing = symbol;
    GPUCR_NVML_CALLS(BIND)
#undef BIND
    *(void **)&nvml->calls.error_text = dlsym(nvml->handle, "nvmlErrorString");
    if (!missing)
        return 0;
    rc = gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED, "%s has no %s: it is too old", nvml->path,
                         missing);
    return gpucr_error_path(err, rc, nvml->path);
}

struct gpucr_nvml *gpucr_nvml_close(struct gpucr_nvml *nvml)
{
    if (!nvml)
        return NULL;
    /* Unloading without the shutdown is known to leave a stale callback in the driver. */
    if (nvml->initialised)
        (void)nvml->calls.shutdown();
    if (nvml->handle)
        (void)dlclose(nvml->handle);
    free(nvml);
    return NULL;
}

GPUCR_DEFINE_CLEANUP(struct gpucr_nvml, nvml, (void)gpucr_nvml_close)

int gpucr_nvml_open(const char *driver_root, struct gpucr_nvml **ret, struct gpucr_error *err)
{
    struct gpucr_nvml *nvml GPUCR_CLEANUP(gpucr_cleanup_nvml) = calloc(1, sizeof(*nvml));
    int code;
    int rc;

    if (!nvml)
        return gpucr_error_no_memory(err);
    rc =
        gpucr_driver_library_load(driver_root, "libnvidia-ml.so.1", &nvml->handle, nvml->path, err);
    if (rc == 0)
        rc = bind_calls(nvml, err);
    if (rc < 0)
        return rc;
    code = nvml->calls.init();
    if (code != GPUCR_NVML_SUCCESS)
        return fail(nvml, code, "nvmlInit", err);
    nvml->initialised = true;
    *ret = gpucr_steal_ptr(&nvml);
    return 0;
}

int gpucr_nvml_driver_name(struct gpucr_nvml *nvml, char *ret, size_t size, struct gpucr_error *err)
{
    char text[96] = "";
    int code = nvml->calls.driver_version(text, sizeof(text));

    if (code != GPUCR_NVML_SUCCESS)
        return fail(nvml, code, "nvmlSystemGetDriverVersion", err);
    text[sizeof(text) - 1] = '\0';
    (void)gpucr_copy_text(ret, size, text);
    return 0;
}

static int count_gpus(struct gpucr_nvml *nvml, unsigned *ret, struct gpucr_error *err)
{
    unsigned count = 0;
    int code = nvml->calls.count(&count);

    if (code != GPUCR_NVML_SUCCESS)
        return fail(nvml, code, "nvmlDeviceGetCount", err);
    *ret = count;
    return 0;
}

/* A GPU that has fallen off the bus answers nothing: it keeps its place, empty. */
static void read_gpu(struct gpucr_nvml *nvml, unsigned index, struct gpucr_gpu *ret)
{
    struct gpucr_nvml_memory memory = {0};
    gpucr_nvml_device device = NULL;
    char text[96] = "";
    int code;

    *ret = (struct gpucr_gpu){0};
    code = nvml->calls.handle(index, &device);
    if (code == GPUCR_NVML_SUCCESS)
        code = nvml->calls.uuid(device, text, sizeof(text));
    if (code != GPUCR_NVML_SUCCESS) {
        gpucr_warn("GPU %u does not answer: NVML code %d", index, code);
        return;
    }
    text[sizeof(text) - 1] = '\0';
    (void)gpucr_copy_text(ret->uuid, sizeof(ret->uuid), text);
    if (nvml->calls.name(device, text, sizeof(text)) == GPUCR_NVML_SUCCESS) {
        text[sizeof(text) - 1] = '\0';
        (void)gpucr_copy_text(ret->name, sizeof(ret->name), text);
    }
    if (nvml->calls.memory(device, &memory) == GPUCR_NVML_SUCCESS) {
        ret->memory_bytes = memory.total_bytes;
        ret->free_bytes = memory.free_bytes;
    }
}

int gpucr_nvml_gpus(struct gpucr_nvml *nvml, struct gpucr_gpu *ret, uint32_t max,
                    uint32_t *ret_count, struct gpucr_error *err)
{
    unsigned count = 0;
    int rc = count_gpus(nvml, &count, err);

    if (rc < 0)
        return rc;
    if (count > max)
        return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                               "this machine has %u GPUs; gpucr handles at most %u", count, max);
    for (unsigned i = 0; i < count; i++)
        read_gpu(nvml, i, &ret[i]);
    *ret_count = count;
    return 0;
}

/* The list of one GPU; it may grow between two calls, so room is added until it fits. */
static int read_processes(struct gpucr_nvml *nvml, gpucr_nvml_device device,
                          struct gpucr_nvml_process **ret, unsigned *ret_count)
{
    unsigned room = 64;

    while (room <= GPUCR_GPU_USES_MAX) {
        struct gpucr_nvml_process *list = calloc(room, sizeof(*list));
        unsigned count = room;
        int code;

        if (!list)
            return GPUCR_NVML_INSUFFICIENT_SIZE;
        code = nvml->calls.processes(device, &count, list);
        if (code == GPUCR_NVML_SUCCESS && count <= room) {
            *ret = list;
            *ret_count = count;
            return code;
        }
        free(list);
        if (code != GPUCR_NVML_SUCCESS && code != GPUCR_NVML_INSUFFICIENT_SIZE)
            return code;
        /* Some drivers do not say how much is needed. */
        room = count > room ? count + 32 : room * 2;
    }
    return GPUCR_NVML_INSUFFICIENT_SIZE;
}

static int add_uses(struct gpucr_gpu_uses *uses, uint32_t gpu,
                    const struct gpucr_nvml_process *list, unsigned count, struct gpucr_error *err)
{
    struct gpucr_gpu_use *grown;

    if (uses->count + count > GPUCR_GPU_USES_MAX)
        return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                               "more than %d processes use this machine's GPUs",
                               GPUCR_GPU_USES_MAX);
    if (count == 0)
        return 0;
    grown = reallocarray(uses->items, uses->count + count, sizeof(*grown));
    if (!grown)
        return gpucr_error_no_memory(err);
    uses->items = grown;
    for (unsigned i = 0; i < count; i++) {
        /* pid 0: a process outside of this pid namespace */
        if (list[i].pid == 0 || list[i].pid > INT32_MAX)
            continue;
        uses->items[uses->count++] = (struct gpucr_gpu_use){
            .gpu = gpu,
            .pid = (int32_t)list[i].pid,
            .bytes = list[i].used_bytes == UINT64_MAX ? 0 : list[i].used_bytes,
        };
    }
    return 0;
}

static int uses_of_gpu(struct gpucr_nvml *nvml, unsigned gpu, struct gpucr_gpu_uses *uses,
                       struct gpucr_error *err)
{
    GPUCR_AUTO_FREE struct gpucr_nvml_process *list = NULL;
    gpucr_nvml_device device = NULL;
    unsigned count = 0;
    int code = nvml->calls.handle(gpu, &device);

    if (code == GPUCR_NVML_SUCCESS)
        code = read_processes(nvml, device, &list, &count);
    if (code != GPUCR_NVML_SUCCESS) {
        /* Virtual GPUs and lost ones give no list: their figures stay 0. */
        gpucr_debug("GPU %u: no list of processes: NVML code %d", gpu, code);
        return code == GPUCR_NVML_INSUFFICIENT_SIZE
                   ? fail(nvml, code, "nvmlDeviceGetComputeRunningProcesses", err)
                   : 0;
    }
    return add_uses(uses, gpu, list, count, err);
}

int gpucr_nvml_uses(struct gpucr_nvml *nvml, struct gpucr_gpu_uses *ret, struct gpucr_error *err)
{
    struct gpucr_gpu_uses uses = {0};
    unsigned count = 0;
    int rc = count_gpus(nvml, &count, err);

    for (unsigned i = 0; rc == 0 && i < count; i++)
        rc = uses_of_gpu(nvml, i, &uses, err);
    if (rc < 0) {
        gpucr_gpu_uses_done(&uses);
        return rc;
    }
    *ret = uses;
    return 0;
}

void gpucr_gpu_uses_done(struct gpucr_gpu_uses *uses)
{
    free(uses->items);
    *uses = (struct gpucr_gpu_uses){0};
}

uint64_t gpucr_gpu_uses_bytes(const struct gpucr_gpu_uses *uses, int32_t pid)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < uses->count; i++) {
        if (uses->items[i].pid == pid && __builtin_add_overflow(sum, uses->items[i].bytes, &sum))
            return UINT64_MAX;
    }
    return sum;
}
