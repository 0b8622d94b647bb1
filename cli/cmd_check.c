/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli.h"

static bool has_refusal(const struct gpucr_result *result)
{
    for (size_t i = 0; i < result->finding_count; i++) {
        const struct gpucr_finding *finding = &result->findings[i];

        if (finding->severity == GPUCR_SEVERITY_REFUSE && !finding->forced)
            return true;
    }
    return false;
}

int cli_cmd_check(struct cli_options *options)
{
    CLI_AUTO_RESULT struct gpucr_result result = GPUCR_RESULT_INIT;
    struct gpucr_machine machine = {0};
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int rc, status;

    if (gpucr_machine_probe(&options->job, &machine, &err) < 0)
        return cli_report_error(options, &err, CLI_EXIT_INTERNAL);
    rc = gpucr_check(&options->job, &result);
    status = cli_exit_of_result(&result, rc);
    if (status == CLI_EXIT_DONE && has_refusal(&result))
        status = CLI_EXIT_REFUSED;
    cli_report(options, &result, &machine, status);
    return status;
}
