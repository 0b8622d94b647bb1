/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* gpucr: finds the command, reads its options, calls it, checks that all was written. */
#include <fcntl.h>
#include <locale.h>
#include <string.h>
#include <sys/resource.h>

#include "cli.h"
#include "out.h"

static int (*const commands[CLI_VERB_COUNT])(struct cli_options *options) = {
    [CLI_LIST] = cli_cmd_list,
    [CLI_CHECK] = cli_cmd_check,
    [CLI_SUSPEND] = cli_cmd_suspend,
    [CLI_RESUME] = cli_cmd_resume,
    [CLI_CHECKPOINT] = cli_cmd_checkpoint,
    [CLI_RESTORE] = cli_cmd_restore,
    [CLI_IMAGE_INSPECT] = cli_cmd_image_inspect,
    [CLI_IMAGE_VERIFY] = cli_cmd_image_verify,
    [CLI_HELP] = cli_cmd_help,
};

/*
 * With a standard descriptor closed, the next file opened would become it, and a
 * report could be written into an image. Read-only, so that output still fails.
 */
static void fill_standard_descriptors(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        (void)close(fd);
}

/* A command line that cannot be read may still have asked for JSON. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0)
            return true;
    }
    return false;
}

static int usage_failure(const struct cli_options *options, const struct gpucr_error *err)
{
    (void)cli_report_error(options, err, CLI_EXIT_USAGE);
    (void)fprintf(stderr, "Try \"gpucr %s%s--help\".\n", options->verb ? options->verb->name : "",
                  options->verb ? " " : "");
    return CLI_EXIT_USAGE;
}

static int run_command(int argc, char **argv, struct cli_options *options)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int status;

    if (cli_parse_command(argc, argv, options, &err) < 0)
        return usage_failure(options, &err);
    if (options->help) {
        cli_help_print(stdout, options->verb);
        return CLI_EXIT_DONE;
    }
    if (cli_log_start(options, &err) < 0)
        return cli_report_error(options, &err, CLI_EXIT_REFUSED);
    status = commands[cli_verb_id(options->verb)](options);
    cli_log_stop(status);
    return status;
}

static int run(int argc, char **argv, struct cli_options *options)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int index = argc, words = 0;

    if (cli_parse_global(argc, argv, options, &index, &err) < 0)
        return usage_failure(options, &err);
    if (options->version)
        return cli_version(options);
    if (options->help) {
        cli_help_print(stdout, NULL);
        return CLI_EXIT_DONE;
    }
    if (index >= argc) {
        (void)cli_error_set(&err, GPUCR_ERR_USAGE, "say what to do, for example \"gpucr list\"");
        return usage_failure(options, &err);
    }
    if (cli_parse_verb(argc - index, argv + index, &options->verb, &words, &err) < 0)
        return usage_failure(options, &err);
    return run_command(argc - index - words + 1, argv + index + words - 1, options);
}

/*
 * A held tree costs a descriptor per process, and a core of gpucr would hold the
 * memory of programs.
 */
static void set_limits(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (getrlimit(RLIMIT_CORE, &limit) == 0) {
        limit.rlim_cur = 0;
        (void)setrlimit(RLIMIT_CORE, &limit);
    }
}

int main(int argc, char **argv)
{
    struct cli_options options = {.json = wants_json(argc, argv)};

    fill_standard_descriptors();
    set_limits();
    (void)setlocale(LC_CTYPE, "");
    cli_signals_init();
    cli_log_remember(argc, argv);
    return cli_finish_output(run(argc, argv, &options));
}
