/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What suspend, resume, checkpoint and restore have in common. */
#include <sys/wait.h>

#include "cli.h"
#include "out.h"

/* What happened to the program matters more than whose fault it was. */
int cli_exit_of_result(const struct gpucr_result *result, int rc)
{
    switch (result->outcome) {
    case GPUCR_OUTCOME_DONE:
        return rc < 0 || result->error.code ? CLI_EXIT_INTERNAL : CLI_EXIT_DONE;
    case GPUCR_OUTCOME_ROLLED_BACK:
        return CLI_EXIT_ROLLED_BACK;
    case GPUCR_OUTCOME_NOT_ROLLED_BACK:
        return CLI_EXIT_NOT_ROLLED_BACK;
    case GPUCR_OUTCOME_REFUSED:
        break;
    }
    if (result->error.code == GPUCR_ERR_USAGE)
        return CLI_EXIT_USAGE;
    if (result->error.code == GPUCR_ERR_INTERNAL || result->error.code == GPUCR_ERR_NO_MEMORY)
        return CLI_EXIT_INTERNAL;
    return CLI_EXIT_REFUSED;
}

int cli_exit_of_wait_status(int wait_status)
{
    if (WIFSIGNALED(wait_status))
        return CLI_EXIT_SIGNAL_BASE + WTERMSIG(wait_status);
    return WEXITSTATUS(wait_status);
}

/* The tree runs: progress would write into the program's own output. */
static void on_restored(void *arg, int32_t pid)
{
    (void)arg;
    cli_progress_stop();
    cli_signals_forward(pid);
}

int cli_run_job(struct cli_options *options, cli_job_fn job)
{
    CLI_AUTO_RESULT struct gpucr_result result = GPUCR_RESULT_INIT;
    int rc, status;

    cli_signals_catch();
    options->job.cancel = cli_signals_cancel();
    options->job.progress = cli_progress_update;
    if (options->job.foreground)
        options->job.restored = on_restored;
    cli_progress_start(options->quiet);
    rc = job(&options->job, &result);
    cli_progress_stop();
    cli_signals_done();

    status = cli_exit_of_result(&result, rc);
    if (status == CLI_EXIT_DONE && options->job.foreground)
        status = cli_exit_of_wait_status(result.exit_status);
    cli_report(options, &result, NULL, status);
    return status;
}
