/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The state machine of checkpointing. Everything here runs on the restore thread. */
#define _GNU_SOURCE
#include "driver.h"

#include "../common/sim_sys.h"
#include "../common/sim_vram.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REFUSE_MS 300

static bool in_state(int state)
{
    return atomic_load(&sim.state) == state;
}

CUresult sim_transition_lock(uint64_t timeout_ms)
{
    if (atomic_load(&sim.poisoned))
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (!in_state(CU_PROCESS_STATE_RUNNING))
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!sim_gate_close(timeout_ms))
        return CUDA_ERROR_NOT_READY;
    atomic_store(&sim.state, CU_PROCESS_STATE_LOCKED);
    return CUDA_SUCCESS;
}

static bool has_managed(void)
{
    for (uint32_t i = 0; i < sim.object_top; i++) {
        if (sim.object[i].kind == SIM_OBJECT_MANAGED)
            return true;
    }
    return false;
}

CUresult sim_transition_checkpoint(void)
{
    CUresult result;

    if (atomic_load(&sim.poisoned))
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (!in_state(CU_PROCESS_STATE_LOCKED))
        return CUDA_ERROR_ILLEGAL_STATE;
    sim_config_read(&sim.config);
    if (sim.config.mig)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (has_managed()) {
        sim_sleep_ms(REFUSE_MS);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    result = sim_staging_out();
    if (result)
        return result;
    sim_vram_return_all();
    atomic_store(&sim.state, CU_PROCESS_STATE_CHECKPOINTED);
    return CUDA_SUCCESS;
}

static int find_uuid(const struct sim_config *config, const uint8_t *uuid)
{
    for (unsigned i = 0; i < config->gpu_count; i++) {
        if (memcmp(config->gpu[i].uuid, uuid, SIM_UUID_SIZE) == 0)
            return (int)i;
    }
    return -1;
}

static bool is_used(unsigned gpu)
{
    return sim.gpu[gpu].arena_bytes || sim_contexts_on(gpu);
}

static const CUuuid *find_pair(const CUcheckpointGpuPair *pairs, unsigned count, unsigned gpu)
{
    const CUuuid *found = NULL;

    for (unsigned i = 0; i < count; i++) {
        if (memcmp(pairs[i].oldUuid.bytes, sim.gpu[gpu].uuid, SIM_UUID_SIZE) != 0)
            continue;
        if (found)
            return NULL;
        found = &pairs[i].newUuid;
    }
    return found;
}

/* Which GPU of this machine each GPU of the process becomes. */
static bool plan_gpus(const struct sim_config *config, const CUcheckpointGpuPair *pairs,
                      unsigned count, int plan[SIM_GPU_MAX])
{
    if (count && count != sim.gpu_count)
        return false;
    for (unsigned i = 0; i < sim.gpu_count; i++) {
        const CUuuid *wish = count ? find_pair(pairs, count, i) : NULL;

        if (count && !wish)
            return false;
        plan[i] = find_uuid(config, wish ? (const uint8_t *)wish->bytes : sim.gpu[i].uuid);
        if (plan[i] < 0 && (count || is_used(i)))
            return false;
        for (unsigned j = 0; j < i; j++) {
            if (plan[i] >= 0 && plan[j] == plan[i])
                return false;
        }
        if (is_used(i) && strcmp(config->gpu[plan[i]].name, sim.gpu[i].name) != 0)
            return false;
    }
    return true;
}

static bool nodes_present(const int plan[SIM_GPU_MAX])
{
    char path[SIM_PATH_MAX], tail[32];

    if (!sim_root_path(path, sizeof(path), "dev/nvidiactl") || access(path, R_OK | W_OK) != 0)
        return false;
    for (unsigned i = 0; i < sim.gpu_count; i++) {
        snprintf(tail, sizeof(tail), "dev/nvidia%d", plan[i]);
        if (is_used(i) &&
            (!sim_root_path(path, sizeof(path), tail) || access(path, R_OK | W_OK) != 0))
            return false;
    }
    return true;
}

static bool claim_memory(const struct sim_config *config, const int plan[SIM_GPU_MAX])
{
    uint64_t bytes[SIM_GPU_MAX] = {0};

    for (uint32_t i = 0; i < sim.object_top; i++) {
        if (sim.object[i].kind == SIM_OBJECT_PHYSICAL)
            bytes[plan[sim.object[i].gpu]] += sim.object[i].bytes;
    }
    for (int i = 0; i < SIM_CONTEXT_MAX; i++) {
        if (sim.context[i].used)
            bytes[plan[sim.context[i].gpu]] += sim.config.context_bytes;
    }
    return sim_vram_claim(config, bytes);
}

static void adopt_gpus(const struct sim_config *config, const int plan[SIM_GPU_MAX])
{
    uint64_t context_bytes = sim.config.context_bytes;

    for (unsigned i = 0; i < sim.gpu_count; i++) {
        if (plan[i] < 0)
            continue;
        sim.gpu[i].physical = (unsigned)plan[i];
        sim.gpu[i].vram_bytes = config->gpu[plan[i]].vram_bytes;
        memcpy(sim.gpu[i].uuid, config->gpu[plan[i]].uuid, SIM_UUID_SIZE);
    }
    sim.config = *config;
    /* What a context costs is returned as it was claimed. */
    sim.config.context_bytes = context_bytes;
}

static CUresult poison(CUresult result)
{
    atomic_store(&sim.poisoned, true);
    return result;
}

CUresult sim_transition_restore(const CUcheckpointGpuPair *pairs, unsigned count)
{
    struct sim_config config;
    int plan[SIM_GPU_MAX] = {0};

    if (atomic_load(&sim.poisoned))
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (!in_state(CU_PROCESS_STATE_CHECKPOINTED))
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!sim_config_read(&config))
        return CUDA_ERROR_NO_DEVICE;
    if (!plan_gpus(&config, pairs, count, plan))
        return CUDA_ERROR_INVALID_VALUE;
    if (!nodes_present(plan))
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (!sim_staging_valid())
        return poison(CUDA_ERROR_UNKNOWN);
    if (!claim_memory(&config, plan))
        return poison(CUDA_ERROR_OUT_OF_MEMORY);
    adopt_gpus(&config, plan);
    if (!sim_staging_in()) {
        sim_vram_return_all();
        return poison(CUDA_ERROR_OPERATING_SYSTEM);
    }
    sim_sleep_ms(config.restore_floor_ms);
    atomic_store(&sim.state, CU_PROCESS_STATE_LOCKED);
    return CUDA_SUCCESS;
}

CUresult sim_transition_unlock(void)
{
    if (atomic_load(&sim.poisoned) || !in_state(CU_PROCESS_STATE_LOCKED))
        return CUDA_ERROR_ILLEGAL_STATE;
    atomic_store(&sim.state, CU_PROCESS_STATE_RUNNING);
    sim_gate_open();
    return CUDA_SUCCESS;
}
