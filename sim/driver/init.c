/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "../common/sim_sys.h"
#include "driver.h"

#include <pthread.h>

struct sim_driver sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

static void in_fork_child(void)
{
    atomic_store(&sim.forked, true);
    sim_server_forked();
}

static CUresult initialize(void)
{
    if (!sim_config_read(&sim.config) || !sim_devices_read() || sim.visible_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    sim_sleep_ms(sim.config.init_ms);
    if (!sim_device_open_process() || !sim_helpers_prepare())
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (pthread_atfork(NULL, NULL, in_fork_child) != 0 || !sim_server_start())
        return CUDA_ERROR_OPERATING_SYSTEM;
    atomic_store(&sim.initialized, true);
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuInit(unsigned flags)
{
    CUresult result;

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_enter_early(SIM_CALL_INIT);
    if (result)
        return result;
    pthread_mutex_lock(&init_lock);
    if (!atomic_load(&sim.initialized))
        result = initialize();
    pthread_mutex_unlock(&init_lock);
    return sim_leave(SIM_CALL_INIT, result);
}

SIM_EXPORT CUresult cuDriverGetVersion(int *version)
{
    CUresult result = sim_enter_early(SIM_CALL_DRIVER_VERSION);

    if (result)
        return result;
    if (!version)
        return sim_leave(SIM_CALL_DRIVER_VERSION, CUDA_ERROR_INVALID_VALUE);
    *version = 13000;
    return sim_leave(SIM_CALL_DRIVER_VERSION, CUDA_SUCCESS);
}

static const struct error_text {
    CUresult code;
    const char *name;
    const char *text;
} error_texts[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM",
     "OS call failed or operation not supported on this OS"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const struct error_text *find_error(CUresult error)
{
    for (size_t i = 0; i < sizeof(error_texts) / sizeof(error_texts[0]); i++) {
        if (error_texts[i].code == error)
            return &error_texts[i];
    }
    return NULL;
}

/* These two pass no gate: a thread may ask for a name while its process is locked. */
SIM_EXPORT CUresult cuGetErrorName(CUresult error, const char **text)
{
    const struct error_text *found = find_error(error);

    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = found ? found->name : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_EXPORT CUresult cuGetErrorString(CUresult error, const char **text)
{
    const struct error_text *found = find_error(error);

    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    *text = found ? found->text : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
