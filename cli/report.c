/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One way out for every result and error, as text or as one JSON document. */
#include <stdarg.h>
#include <string.h>

#include "cli.h"
#include "out.h"

int cli_error_set(struct gpucr_error *err, int code, const char *format, ...)
{
    va_list args;

    *err = (struct gpucr_error){.code = code, .device = -1};
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    return code;
}

void cli_out_of_memory(void)
{
    (void)fprintf(stderr, "gpucr: out of memory for the report\n");
    _exit(CLI_EXIT_INTERNAL);
}

void cli_report(const struct cli_options *options, const struct gpucr_result *result,
                const struct gpucr_machine *machine, int exit_status)
{
    CLI_AUTO_FREE char *json = NULL;

    if (!options->json) {
        cli_text_report(options, result, machine);
        return;
    }
    json = cli_json_report(options, result, machine, exit_status);
    (void)fprintf(stdout, "%s\n", json);
    /* a person reading the log of a script should not have to parse for the cause */
    if (result->error.code)
        cli_text_error(stderr, "gpucr", &result->error);
}

int cli_report_error(const struct cli_options *options, const struct gpucr_error *err,
                     int exit_status)
{
    struct gpucr_result result = GPUCR_RESULT_INIT;

    if (options->json) {
        result.outcome = GPUCR_OUTCOME_REFUSED;
        result.error = *err;
        cli_report(options, &result, NULL, exit_status);
    } else {
        cli_text_error(stderr, "gpucr", err);
    }
    return exit_status;
}

int cli_finish_output(int exit_status)
{
    bool failed = ferror(stdout);

    /* a full disk may show only when the file is closed */
    if (fflush(stdout) != 0 || (failed && errno == 0) || close(STDOUT_FILENO) != 0)
        failed = true;
    if (!failed)
        return exit_status;
    (void)fprintf(stderr, "gpucr: the report could not be written to standard output: %s\n",
                  strerror(errno));
    return exit_status == CLI_EXIT_DONE ? CLI_EXIT_INTERNAL : exit_status;
}
