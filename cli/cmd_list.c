/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli.h"

int cli_cmd_list(struct cli_options *options)
{
    CLI_AUTO_RESULT struct gpucr_result result = GPUCR_RESULT_INIT;
    int rc = gpucr_list(&options->job, &result);
    int status = cli_exit_of_result(&result, rc);

    cli_report(options, &result, NULL, status);
    return status;
}
