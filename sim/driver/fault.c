/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "../common/sim_sys.h"
#include "driver.h"

#define REFUSE_MS 300

static void hang(const struct sim_fault *fault)
{
    if (fault->value) {
        sim_sleep_ms(fault->value);
        return;
    }
    while (sim_fault_standing(fault->rule))
        sim_sleep_ms(10);
}

/* A real fault rather than a sent signal: it kills through a blocked mask, as a bug would. */
__attribute__((no_sanitize("address", "undefined"))) static void crash(void)
{
    int *volatile nowhere = (int *)8;

    *(volatile int *)nowhere = 0;
}

static struct sim_outcome decide(CUresult result)
{
    return (struct sim_outcome){.decided = true, .result = result, .state = -1};
}

static struct sim_outcome apply_one(enum sim_call call, const struct sim_fault *fault)
{
    switch (fault->action) {
    case SIM_ACTION_FAIL:
        return decide((CUresult)fault->value);
    case SIM_ACTION_HANG:
        hang(fault);
        break;
    case SIM_ACTION_CRASH:
        crash();
        break;
    case SIM_ACTION_POISON:
        atomic_store(&sim.poisoned, true);
        return decide(call == SIM_CALL_UNLOCK ? CUDA_ERROR_ILLEGAL_STATE
                                              : CUDA_ERROR_OPERATING_SYSTEM);
    case SIM_ACTION_OOM:
        if (call == SIM_CALL_RESTORE)
            atomic_store(&sim.poisoned, true);
        return decide(CUDA_ERROR_OUT_OF_MEMORY);
    case SIM_ACTION_REFUSE:
        sim_sleep_ms(REFUSE_MS);
        return decide(CUDA_ERROR_NOT_SUPPORTED);
    case SIM_ACTION_LATENCY:
        sim_sleep_ms(fault->value);
        break;
    case SIM_ACTION_STATE:
        return (struct sim_outcome){
            .decided = true, .result = CUDA_SUCCESS, .state = (int)fault->value};
    case SIM_ACTION_COUNT:
        break;
    }
    return (struct sim_outcome){.state = -1};
}

struct sim_outcome sim_fault_apply(const struct sim_fault_query *query)
{
    struct sim_fault faults[SIM_FAULT_MAX];
    unsigned count = sim_fault_match(query, faults);

    for (unsigned i = 0; i < count; i++) {
        struct sim_outcome outcome = apply_one(query->call, &faults[i]);

        if (outcome.decided)
            return outcome;
    }
    return (struct sim_outcome){.state = -1};
}
