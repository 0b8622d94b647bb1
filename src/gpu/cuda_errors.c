/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the driver's codes are called and what they mean for checkpointing. */
#include "base/cleanup.h"
#include "gpu/driver.h"

static const struct {
    int code;
    const char *name;
    const char *hint;
} codes[] = {
    {0, "CUDA_SUCCESS", "done"},
    {1, "CUDA_ERROR_INVALID_VALUE", "an argument, or the device map, does not fit"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "memory ran out"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "the process has no CUDA state"},
    {4, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down"},
    {34, "CUDA_ERROR_STUB_LIBRARY",
     "the library is the toolkit's stand-in for linking, not the driver's; take its folder out of "
     "LD_LIBRARY_PATH"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "a GPU is in exclusive use by another process or in a state in which it cannot be used"},
    {100, "CUDA_ERROR_NO_DEVICE", "the driver sees no GPU"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "there is no GPU of that number"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "the context is not valid"},
    {205, "CUDA_ERROR_MAP_FAILED", "memory could not be mapped"},
    {206, "CUDA_ERROR_UNMAP_FAILED", "memory could not be unmapped"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "a GPU has a memory error that cannot be corrected"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "these GPUs cannot reach each other's memory"},
    {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "an NVLink has an error that cannot be corrected"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "the driver could not reach the process"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "an object of the process is not valid"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the process is in another state than the call needs"},
    {500, "CUDA_ERROR_NOT_FOUND", "a symbol or object was not found"},
    {600, "CUDA_ERROR_NOT_READY", "work did not finish in time"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel of the process used an invalid address"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel of the process ran too long"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel of the process failed"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "the driver does not permit it in this state"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "the driver cannot do this with what the process uses"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY",
     "the system is still starting, or nvidia-fabricmanager does not run"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "the loaded kernel module and libcuda are of different versions: the driver was updated; "
     "reload the module or restart the machine"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "libcuda comes from a compatibility package that this GPU cannot be used with"},
    {805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "the MPS server cannot be reached"},
    {999, "CUDA_ERROR_UNKNOWN", "the driver gives no reason"},
};

const char *gpucr_cuda_error_name(int driver_code)
{
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(codes); i++) {
        if (codes[i].code == driver_code)
            return codes[i].name;
    }
    return "an error unknown to gpucr";
}

const char *gpucr_cuda_error_hint(int driver_code)
{
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(codes); i++) {
        if (codes[i].code == driver_code)
            return codes[i].hint;
    }
    return "the code is newer than this gpucr";
}
