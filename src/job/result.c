/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>

#include <gpucr/result.h>
#include <gpucr/version.h>

#include "base/cleanup.h"

const char *gpucr_version(void)
{
    return GPUCR_VERSION;
}

void gpucr_result_done(struct gpucr_result *result)
{
    if (!result)
        return;
    free(result->processes);
    free(result->findings);
    *result = (struct gpucr_result)GPUCR_RESULT_INIT;
}

static const char *name_of(const char *const *names, size_t count, unsigned value)
{
    return value < count && names[value] ? names[value] : "unknown";
}

const char *gpucr_outcome_name(enum gpucr_outcome outcome)
{
    static const char *const names[] = {
        [GPUCR_OUTCOME_DONE] = "done",
        [GPUCR_OUTCOME_REFUSED] = "refused",
        [GPUCR_OUTCOME_ROLLED_BACK] = "rolled-back",
        [GPUCR_OUTCOME_NOT_ROLLED_BACK] = "not-rolled-back",
    };

    return name_of(names, GPUCR_ARRAY_SIZE(names), outcome);
}

const char *gpucr_process_state_name(enum gpucr_process_state state)
{
    static const char *const names[] = {
        [GPUCR_PROCESS_UNKNOWN] = "unknown",     [GPUCR_PROCESS_RUNNING] = "running",
        [GPUCR_PROCESS_STOPPED] = "stopped",     [GPUCR_PROCESS_LOCKED] = "locked",
        [GPUCR_PROCESS_SUSPENDED] = "suspended", [GPUCR_PROCESS_CHECKPOINTED] = "checkpointed",
        [GPUCR_PROCESS_FAILED] = "failed",       [GPUCR_PROCESS_GONE] = "gone",
    };

    return name_of(names, GPUCR_ARRAY_SIZE(names), state);
}

const char *gpucr_severity_name(enum gpucr_severity severity)
{
    static const char *const names[] = {
        [GPUCR_SEVERITY_NOTE] = "note",
        [GPUCR_SEVERITY_WARN] = "warn",
        [GPUCR_SEVERITY_REFUSE] = "refuse",
    };

    return name_of(names, GPUCR_ARRAY_SIZE(names), severity);
}
