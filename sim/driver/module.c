/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Modules and kernels. A module is the text of a PTX program; its entries are found by name, and
 * those of the samples are known here and run on the CPU.
 */
#define _GNU_SOURCE
#include "driver.h"

#include "../common/sim_sys.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_NAME_MAX 64
#define ENTRY_MAX      64

struct CUfunc_st {
    char name[ENTRY_NAME_MAX];
    CUmodule module;
};

struct CUmod_st {
    bool used;
    unsigned entry_count;
    struct CUfunc_st entry[ENTRY_MAX];
};

static struct CUmod_st modules[SIM_MODULE_MAX];

static void read_entries(CUmodule module, const char *text)
{
    while ((text = strstr(text, ".entry")) && module->entry_count < ENTRY_MAX) {
        struct CUfunc_st *entry = &module->entry[module->entry_count];
        size_t length = 0;

        text += strlen(".entry");
        text += strspn(text, " \t\r\n");
        while (isalnum((unsigned char)text[length]) || text[length] == '_' || text[length] == '$')
            length++;
        if (!length || length >= ENTRY_NAME_MAX)
            continue;
        memcpy(entry->name, text, length);
        entry->name[length] = '\0';
        entry->module = module;
        module->entry_count++;
    }
}

SIM_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    CUresult result = sim_enter(SIM_CALL_MODULE_LOAD);

    if (result)
        return result;
    if (!module || !image)
        return sim_leave(SIM_CALL_MODULE_LOAD, CUDA_ERROR_INVALID_VALUE);
    if (!sim_context_current())
        return sim_leave(SIM_CALL_MODULE_LOAD, CUDA_ERROR_INVALID_CONTEXT);
    result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&sim.lock);
    for (int i = 0; i < SIM_MODULE_MAX && result; i++) {
        if (modules[i].used)
            continue;
        modules[i] = (struct CUmod_st){.used = true};
        read_entries(&modules[i], image);
        *module = &modules[i];
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_MODULE_LOAD, result);
}

static bool is_module(CUmodule module)
{
    return module >= modules && module < modules + SIM_MODULE_MAX && module->used;
}

SIM_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    CUresult result = sim_enter(SIM_CALL_MODULE_UNLOAD);

    if (result)
        return result;
    if (!is_module(module))
        return sim_leave(SIM_CALL_MODULE_UNLOAD, CUDA_ERROR_INVALID_HANDLE);
    module->used = false;
    return sim_leave(SIM_CALL_MODULE_UNLOAD, CUDA_SUCCESS);
}

SIM_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUresult result = sim_enter(SIM_CALL_MODULE_FUNCTION);

    if (result)
        return result;
    if (!function || !name || !is_module(module))
        return sim_leave(SIM_CALL_MODULE_FUNCTION, CUDA_ERROR_INVALID_VALUE);
    result = CUDA_ERROR_NOT_FOUND;
    for (unsigned i = 0; i < module->entry_count && result; i++) {
        if (strcmp(module->entry[i].name, name) != 0)
            continue;
        *function = &module->entry[i];
        result = CUDA_SUCCESS;
    }
    return sim_leave(SIM_CALL_MODULE_FUNCTION, result);
}

/* The pattern of the samples: what their gpucr_fill writes for a word. */
static uint64_t pattern_word(uint64_t value)
{
    value *= 0x9e3779b97f4a7c15ull;
    value ^= value >> 29;
    value *= 0xbf58476d1ce4e5b9ull;
    value ^= value >> 32;
    return value;
}

struct pattern {
    uint64_t seed;
    uint64_t bad;
};

static void fill_pattern(void *piece, uint64_t bytes, uint64_t at, void *arg)
{
    const struct pattern *pattern = arg;
    uint64_t *words = piece;

    for (uint64_t i = 0; i < bytes / 8; i++)
        words[i] = pattern_word(pattern->seed + at / 8 + i);
}

static void check_pattern(void *piece, uint64_t bytes, uint64_t at, void *arg)
{
    struct pattern *pattern = arg;
    const uint64_t *words = piece;

    for (uint64_t i = 0; i < bytes / 8; i++)
        pattern->bad += words[i] != pattern_word(pattern->seed + at / 8 + i);
}

static void add_to_word(void *piece, uint64_t bytes, uint64_t at, void *arg)
{
    (void)at;
    if (bytes >= 8)
        __atomic_fetch_add((uint64_t *)piece, *(const uint64_t *)arg, __ATOMIC_SEQ_CST);
}

static uint64_t parameter(void **parameters, int index)
{
    uint64_t value;

    memcpy(&value, parameters[index], sizeof(value));
    return value;
}

static bool add_at(CUdeviceptr pointer, uint64_t amount)
{
    return sim_each_piece(pointer, 8, add_to_word, &amount);
}

/* gpucr_fill(words, count, seed) */
static bool run_fill(void **parameters)
{
    struct pattern pattern = {.seed = parameter(parameters, 2)};

    return sim_each_piece(parameter(parameters, 0), parameter(parameters, 1) * 8, fill_pattern,
                          &pattern);
}

/* gpucr_check(words, count, seed, bad) */
static bool run_check(void **parameters)
{
    struct pattern pattern = {.seed = parameter(parameters, 2)};

    return sim_each_piece(parameter(parameters, 0), parameter(parameters, 1) * 8, check_pattern,
                          &pattern) &&
           add_at(parameter(parameters, 3), pattern.bad);
}

/* gpucr_increment(word) */
static bool run_increment(void **parameters)
{
    return add_at(parameter(parameters, 0), 1);
}

/* gpucr_spin(word, ns): the launch returns, the context is busy for that long. */
static bool run_spin(void **parameters)
{
    CUcontext context = sim_context_current();

    atomic_store(&context->busy_until_ns, sim_now_ns() + parameter(parameters, 1));
    return add_at(parameter(parameters, 0), 1);
}

static const struct {
    const char *name;
    bool (*run)(void **parameters);
} kernels[] = {
    {"gpucr_fill", run_fill},
    {"gpucr_check", run_check},
    {"gpucr_increment", run_increment},
    {"gpucr_spin", run_spin},
};

static CUresult run_kernel(const char *name, void **parameters)
{
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        if (strcmp(kernels[i].name, name) == 0)
            return kernels[i].run(parameters) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

static bool is_function(CUfunction function)
{
    for (int i = 0; i < SIM_MODULE_MAX; i++) {
        if (modules[i].used && function >= modules[i].entry &&
            function < modules[i].entry + modules[i].entry_count)
            return true;
    }
    return false;
}

SIM_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, CUstream stream,
                                   void **parameters, void **extra)
{
    CUresult result = sim_enter(SIM_CALL_LAUNCH);
    CUcontext context = sim_context_current();

    (void)shared_bytes;
    (void)stream;
    if (result)
        return result;
    if (!context)
        return sim_leave(SIM_CALL_LAUNCH, CUDA_ERROR_INVALID_CONTEXT);
    if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z || !parameters || extra ||
        block_x * block_y * block_z > 1024)
        return sim_leave(SIM_CALL_LAUNCH, CUDA_ERROR_INVALID_VALUE);
    if (!is_function(function))
        return sim_leave(SIM_CALL_LAUNCH, CUDA_ERROR_INVALID_HANDLE);
    sim_context_wait(context);
    return sim_leave(SIM_CALL_LAUNCH, run_kernel(function->name, parameters));
}
