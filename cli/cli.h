/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file cli.h
 * What the files of the command share. The command uses the public headers of
 * the library only; these few macros are therefore its own.
 */
#ifndef GPUCR_CLI_CLI_H
#define GPUCR_CLI_CLI_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <gpucr/gpucr.h>

#include "opt.h"

/** Exit statuses; verbs.c documents them. */
enum cli_exit {
    CLI_EXIT_DONE = 0,
    CLI_EXIT_USAGE = 1,
    CLI_EXIT_REFUSED = 2,
    CLI_EXIT_ROLLED_BACK = 3,
    CLI_EXIT_NOT_ROLLED_BACK = 4,
    CLI_EXIT_INTERNAL = 5,
    CLI_EXIT_SIGNAL_BASE = 128, /**< foreground restore: 128 + signal, as a shell does */
};

static inline void cli_cleanup_free(void *p)
{
    free(*(void **)p);
}

static inline void cli_cleanup_image(struct gpucr_image **image)
{
    (void)gpucr_image_close(*image);
}

#define CLI_CLEANUP(fn) __attribute__((cleanup(fn)))
#define CLI_AUTO_FREE   CLI_CLEANUP(cli_cleanup_free)
#define CLI_AUTO_IMAGE  CLI_CLEANUP(cli_cleanup_image)
#define CLI_AUTO_RESULT CLI_CLEANUP(gpucr_result_done)

#define CLI_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/** Fill @p err and return @p code. */
__attribute__((format(printf, 3, 4))) int cli_error_set(struct gpucr_error *err, int code,
                                                        const char *format, ...);

/** Say so on stderr and leave with CLI_EXIT_INTERNAL. */
_Noreturn void cli_out_of_memory(void);

/* --- commands: each returns the exit status ------------------------------------------------- */

int cli_cmd_list(struct cli_options *options);
int cli_cmd_check(struct cli_options *options);
int cli_cmd_suspend(struct cli_options *options);
int cli_cmd_resume(struct cli_options *options);
int cli_cmd_checkpoint(struct cli_options *options);
int cli_cmd_restore(struct cli_options *options);
int cli_cmd_image_inspect(struct cli_options *options);
int cli_cmd_image_verify(struct cli_options *options);
int cli_cmd_help(struct cli_options *options);

/** Help of one command, or of the whole program where @p verb is NULL. */
void cli_help_print(FILE *out, const struct cli_verb *verb);

/** `gpucr --version`. */
int cli_version(struct cli_options *options);

/* --- run.c: operations that change a process tree ------------------------------------------- */

typedef int (*cli_job_fn)(const struct gpucr_job_options *options, struct gpucr_result *result);

/** Run @p job with progress and signals, report it, return the exit status. */
int cli_run_job(struct cli_options *options, cli_job_fn job);

/** Exit status for a finished operation; @p rc is what the call returned. */
int cli_exit_of_result(const struct gpucr_result *result, int rc);

/** Exit status for a wait status, as a shell reports it. */
int cli_exit_of_wait_status(int wait_status);

/* --- report.c: one way out for every result ------------------------------------------------- */

/** Print @p result as text or as one JSON document. @p machine may be NULL. */
void cli_report(const struct cli_options *options, const struct gpucr_result *result,
                const struct gpucr_machine *machine, int exit_status);

/** The same for a failure that has no result; returns @p exit_status. */
int cli_report_error(const struct cli_options *options, const struct gpucr_error *err,
                     int exit_status);

/** Flush stdout; a report that could not be written turns success into an error. */
int cli_finish_output(int exit_status);

#endif
