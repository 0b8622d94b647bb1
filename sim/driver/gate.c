/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The gate that every call of the application passes. While it is closed, callers wait in a futex,
 * holding nothing: the restore thread may then use all tables without a lock.
 */
#include "../common/sim_sys.h"
#include "driver.h"

#include <unistd.h>

static _Atomic uint32_t gate_closed;
static _Atomic uint32_t inside;

static void step_out(void)
{
    if (atomic_fetch_sub(&inside, 1) == 1 && atomic_load(&gate_closed))
        sim_futex_wake(&inside);
}

static void step_in(void)
{
    for (;;) {
        atomic_fetch_add(&inside, 1);
        if (!atomic_load(&gate_closed))
            return;
        step_out();
        sim_futex_wait(&gate_closed, 1, 0);
    }
}

static CUresult pass(enum sim_call call)
{
    struct sim_fault_query query = {.call = call, .pid = getpid()};
    struct sim_outcome outcome;

    step_in();
    if (atomic_load(&sim.poisoned)) {
        step_out();
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    outcome = sim_fault_apply(&query);
    if (outcome.decided && outcome.result != CUDA_SUCCESS) {
        step_out();
        return outcome.result;
    }
    return CUDA_SUCCESS;
}

CUresult sim_enter_early(enum sim_call call)
{
    if (atomic_load(&sim.forked))
        return CUDA_ERROR_NOT_INITIALIZED;
    return pass(call);
}

CUresult sim_enter(enum sim_call call)
{
    if (atomic_load(&sim.forked) || !atomic_load(&sim.initialized))
        return CUDA_ERROR_NOT_INITIALIZED;
    return pass(call);
}

CUresult sim_leave(enum sim_call call, CUresult result)
{
    struct sim_fault_query query = {.call = call, .pid = getpid(), .late = true};
    struct sim_outcome outcome = sim_fault_apply(&query);

    step_out();
    return outcome.decided ? outcome.result : result;
}

void sim_gate_open(void)
{
    atomic_store(&gate_closed, 0);
    sim_futex_wake(&gate_closed);
}

static bool drained(void)
{
    return atomic_load(&inside) == 0 && sim_contexts_busy_until() <= sim_now_ns();
}

bool sim_gate_close(uint64_t timeout_ms)
{
    uint64_t deadline = sim_now_ns() + timeout_ms * SIM_NS_PER_MS;

    atomic_store(&gate_closed, 1);
    while (!drained()) {
        uint32_t count = atomic_load(&inside);

        if (timeout_ms && sim_now_ns() >= deadline) {
            sim_gate_open();
            return false;
        }
        /* In small steps: the end of a kernel wakes nobody. */
        if (count)
            sim_futex_wait(&inside, count, SIM_NS_PER_MS);
        else
            sim_sleep_until_ns(sim_now_ns() + SIM_NS_PER_MS / 2);
    }
    return true;
}
