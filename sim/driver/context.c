/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contexts and streams. A stream is a name only: work runs in order in its context. */
#include "driver.h"

#include "../common/sim_sys.h"
#include "../common/sim_vram.h"

#define STACK_MAX 16

static SIM_THREAD CUcontext stack[STACK_MAX];
static SIM_THREAD int stack_top;

struct CUstream_st {
    bool used;
    CUcontext context;
};
static struct CUstream_st streams[SIM_STREAM_MAX];

static bool is_context(CUcontext context)
{
    return context >= sim.context && context < sim.context + SIM_CONTEXT_MAX && context->used;
}

CUcontext sim_context_current(void)
{
    CUcontext context = stack_top ? stack[stack_top - 1] : NULL;

    return is_context(context) ? context : NULL;
}

void sim_context_wait(CUcontext context)
{
    uint64_t until = atomic_load(&context->busy_until_ns);

    if (until > sim_now_ns())
        sim_sleep_until_ns(until);
}

uint64_t sim_contexts_busy_until(void)
{
    uint64_t latest = 0;

    for (int i = 0; i < SIM_CONTEXT_MAX; i++) {
        uint64_t until = atomic_load(&sim.context[i].busy_until_ns);

        if (sim.context[i].used && until > latest)
            latest = until;
    }
    return latest;
}

bool sim_contexts_on(unsigned gpu)
{
    for (int i = 0; i < SIM_CONTEXT_MAX; i++) {
        if (sim.context[i].used && sim.context[i].gpu == gpu)
            return true;
    }
    return false;
}

static CUresult open_gpu(unsigned gpu)
{
    uint64_t bytes[SIM_GPU_MAX] = {0};

    if (!sim_addresses_reserve() || !sim_arena_open(&sim.gpu[gpu]))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!sim.gpu[gpu].opened && !sim_device_open_gpu(gpu))
        return CUDA_ERROR_OPERATING_SYSTEM;
    sim.gpu[gpu].opened = true;
    bytes[sim.gpu[gpu].physical] = sim.config.context_bytes;
    return sim_vram_claim(&sim.config, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult new_context(CUcontext *context, unsigned gpu, bool primary)
{
    CUresult result;

    for (int i = 0; i < SIM_CONTEXT_MAX; i++) {
        struct CUctx_st *slot = &sim.context[i];

        if (slot->used)
            continue;
        result = open_gpu(gpu);
        if (result)
            return result;
        slot->gpu = gpu;
        slot->primary = primary;
        slot->references = 1;
        atomic_store(&slot->busy_until_ns, 0);
        slot->used = true;
        *context = slot;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The memory of a GPU goes with its last context. */
static void end_context(CUcontext context)
{
    unsigned gpu = context->gpu;

    context->used = false;
    sim_vram_return(sim.gpu[gpu].physical, sim.config.context_bytes);
    if (sim_contexts_on(gpu))
        return;
    for (uint32_t i = 0; i < sim.object_top; i++) {
        struct sim_object *object = &sim.object[i];

        if (object->gpu != gpu)
            continue;
        if (object->kind == SIM_OBJECT_PHYSICAL)
            sim_physical_drop((int)i);
        else if (object->kind == SIM_OBJECT_DEVICE || object->kind == SIM_OBJECT_MAPPED)
            sim_object_drop((int)i);
    }
}

SIM_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    CUresult result = sim_enter(SIM_CALL_CTX_CREATE);

    (void)flags;
    if (result)
        return result;
    if (!context || device < 0 || (unsigned)device >= sim.visible_count || stack_top == STACK_MAX)
        return sim_leave(SIM_CALL_CTX_CREATE,
                         context ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&sim.lock);
    result = new_context(context, sim.visible[device], false);
    pthread_mutex_unlock(&sim.lock);
    if (!result)
        stack[stack_top++] = *context;
    return sim_leave(SIM_CALL_CTX_CREATE, result);
}

SIM_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    CUresult result = sim_enter(SIM_CALL_CTX_DESTROY);

    if (result)
        return result;
    if (!is_context(context) || context->primary)
        return sim_leave(SIM_CALL_CTX_DESTROY, CUDA_ERROR_INVALID_CONTEXT);
    sim_context_wait(context);
    pthread_mutex_lock(&sim.lock);
    end_context(context);
    pthread_mutex_unlock(&sim.lock);
    if (stack_top && stack[stack_top - 1] == context)
        stack_top--;
    return sim_leave(SIM_CALL_CTX_DESTROY, CUDA_SUCCESS);
}

SIM_EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = sim_enter(SIM_CALL_CTX_SET);

    if (result)
        return result;
    if (context && !is_context(context)) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (!context) {
        if (stack_top)
            stack_top--;
    } else {
        if (!stack_top)
            stack_top = 1;
        stack[stack_top - 1] = context;
    }
    return sim_leave(SIM_CALL_CTX_SET, result);
}

SIM_EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = sim_enter(SIM_CALL_CTX_GET);

    if (result)
        return result;
    if (context)
        *context = sim_context_current();
    return sim_leave(SIM_CALL_CTX_GET, context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

SIM_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = sim_enter(SIM_CALL_CTX_PUSH);

    if (result)
        return result;
    if (!is_context(context) || stack_top == STACK_MAX)
        return sim_leave(SIM_CALL_CTX_PUSH, CUDA_ERROR_INVALID_CONTEXT);
    stack[stack_top++] = context;
    return sim_leave(SIM_CALL_CTX_PUSH, CUDA_SUCCESS);
}

SIM_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult result = sim_enter(SIM_CALL_CTX_POP);

    if (result)
        return result;
    if (!stack_top)
        return sim_leave(SIM_CALL_CTX_POP, CUDA_ERROR_INVALID_CONTEXT);
    stack_top--;
    if (context)
        *context = stack[stack_top];
    return sim_leave(SIM_CALL_CTX_POP, CUDA_SUCCESS);
}

SIM_EXPORT CUresult cuCtxSynchronize(void)
{
    CUresult result = sim_enter(SIM_CALL_CTX_SYNC);
    CUcontext context;

    if (result)
        return result;
    context = sim_context_current();
    if (context)
        sim_context_wait(context);
    return sim_leave(SIM_CALL_CTX_SYNC, context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

SIM_EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    CUresult result = sim_enter(SIM_CALL_CTX_DEVICE);
    CUcontext context;

    if (result)
        return result;
    context = sim_context_current();
    if (!context || !device)
        return sim_leave(SIM_CALL_CTX_DEVICE,
                         device ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < sim.visible_count; i++) {
        if (sim.visible[i] == context->gpu)
            *device = (CUdevice)i;
    }
    return sim_leave(SIM_CALL_CTX_DEVICE, CUDA_SUCCESS);
}

static CUcontext find_primary(unsigned gpu)
{
    for (int i = 0; i < SIM_CONTEXT_MAX; i++) {
        if (sim.context[i].used && sim.context[i].primary && sim.context[i].gpu == gpu)
            return &sim.context[i];
    }
    return NULL;
}

SIM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = sim_enter(SIM_CALL_PRIMARY_RETAIN);
    CUcontext found;

    if (result)
        return result;
    if (!context || device < 0 || (unsigned)device >= sim.visible_count)
        return sim_leave(SIM_CALL_PRIMARY_RETAIN,
                         context ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&sim.lock);
    found = find_primary(sim.visible[device]);
    if (found) {
        found->references++;
        *context = found;
    } else {
        result = new_context(context, sim.visible[device], true);
    }
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_PRIMARY_RETAIN, result);
}

SIM_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result = sim_enter(SIM_CALL_PRIMARY_RELEASE);
    CUcontext found = NULL;

    if (result)
        return result;
    pthread_mutex_lock(&sim.lock);
    if (device >= 0 && (unsigned)device < sim.visible_count)
        found = find_primary(sim.visible[device]);
    if (found && --found->references == 0)
        end_context(found);
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_PRIMARY_RELEASE, found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

SIM_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    CUresult result = sim_enter(SIM_CALL_STREAM_CREATE);
    CUcontext context = sim_context_current();

    (void)flags;
    if (result)
        return result;
    if (!stream || !context)
        return sim_leave(SIM_CALL_STREAM_CREATE,
                         stream ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE);
    result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&sim.lock);
    for (int i = 0; i < SIM_STREAM_MAX && result; i++) {
        if (streams[i].used)
            continue;
        streams[i] = (struct CUstream_st){.used = true, .context = context};
        *stream = &streams[i];
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return sim_leave(SIM_CALL_STREAM_CREATE, result);
}

static bool is_stream(CUstream stream)
{
    return stream >= streams && stream < streams + SIM_STREAM_MAX && stream->used;
}

SIM_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    CUresult result = sim_enter(SIM_CALL_STREAM_DESTROY);

    if (result)
        return result;
    if (!is_stream(stream))
        return sim_leave(SIM_CALL_STREAM_DESTROY, CUDA_ERROR_INVALID_HANDLE);
    stream->used = false;
    return sim_leave(SIM_CALL_STREAM_DESTROY, CUDA_SUCCESS);
}

SIM_EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    CUresult result = sim_enter(SIM_CALL_STREAM_SYNC);
    CUcontext context;

    if (result)
        return result;
    context = is_stream(stream) ? stream->context : sim_context_current();
    /* 0, 1 and 2 are the default streams. */
    if ((uintptr_t)stream > 2 && !is_stream(stream))
        return sim_leave(SIM_CALL_STREAM_SYNC, CUDA_ERROR_INVALID_HANDLE);
    if (context)
        sim_context_wait(context);
    return sim_leave(SIM_CALL_STREAM_SYNC, context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}
