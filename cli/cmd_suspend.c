/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli.h"

int cli_cmd_suspend(struct cli_options *options)
{
    return cli_run_job(options, gpucr_suspend);
}
