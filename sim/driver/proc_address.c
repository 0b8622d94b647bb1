/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "driver.h"

#include <string.h>

/* nvml has rows in the table of calls, but is another library. */
#define nvmlInit_v2             cuInit
#define nvmlDeviceGetMemoryInfo cuInit

static const struct {
    const char *base;
    const char *symbol;
    void *function;
} entries[] = {
#define SIM_CALL(id, rule, base, symbol) {#base, #symbol, (void *)symbol},
#define SIM_ALIAS(base, symbol)          {#base, #symbol, (void *)symbol},
#include "../common/sim_calls.def"
#undef SIM_ALIAS
#undef SIM_CALL
};

static void *find_entry(const char *name)
{
    if (strncmp(name, "nvml", 4) == 0)
        return NULL;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        if (strcmp(entries[i].base, name) == 0 || strcmp(entries[i].symbol, name) == 0)
            return entries[i].function;
    }
    return NULL;
}

SIM_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version,
                                        cuuint64_t flags, int *status)
{
    CUresult result = sim_enter_early(SIM_CALL_PROC_ADDRESS);

    (void)flags;
    if (result)
        return result;
    if (!name || !function)
        return sim_leave(SIM_CALL_PROC_ADDRESS, CUDA_ERROR_INVALID_VALUE);
    *function = find_entry(name);
    /* 1: no such symbol, 2: the version asked for is too old for it */
    if (*function && strncmp(name, "cuCheckpoint", 12) == 0 && version < 12080) {
        *function = NULL;
        if (status)
            *status = 2;
    } else if (status) {
        *status = *function ? 0 : 1;
    }
    return sim_leave(SIM_CALL_PROC_ADDRESS, *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

SIM_EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version,
                                     cuuint64_t flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
