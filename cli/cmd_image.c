/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <time.h>

#include "cli.h"
#include "out.h"

/* Nothing is ever changed by a look at an image. */
static int image_failure(const struct cli_options *options, const struct gpucr_error *err)
{
    struct gpucr_result result = {.outcome = GPUCR_OUTCOME_REFUSED, .error = *err};

    return cli_report_error(options, err, cli_exit_of_result(&result, err->code));
}

int cli_cmd_image_inspect(struct cli_options *options)
{
    CLI_AUTO_IMAGE struct gpucr_image *image = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_image_open(options->job.image_dir, &image, &err) < 0)
        return image_failure(options, &err);
    if (options->json) {
        /* the file as it is, its newline included */
        (void)fputs(gpucr_image_manifest_json(image), stdout);
        return CLI_EXIT_DONE;
    }
    if (cli_image_report(stdout, gpucr_image_manifest_json(image), gpucr_image_size_bytes(image),
                         &err) < 0)
        return image_failure(options, &err);
    return CLI_EXIT_DONE;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

int cli_cmd_image_verify(struct cli_options *options)
{
    struct gpucr_result result = {.phase_count = 1};
    CLI_AUTO_IMAGE struct gpucr_image *image = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    uint64_t began_ns = now_ns();
    int rc;

    if (gpucr_image_open(options->job.image_dir, &image, &err) < 0)
        return image_failure(options, &err);
    result.image_bytes = gpucr_image_size_bytes(image);
    cli_progress_start(options->quiet);
    rc = gpucr_image_verify(image, cli_progress_verify, NULL, &err);
    cli_progress_stop();
    if (rc < 0)
        return image_failure(options, &err);
    result.total_ns = now_ns() - began_ns;
    result.phases[0] = (struct gpucr_phase){"verify", result.image_bytes, result.total_ns, 0};
    cli_report(options, &result, NULL, CLI_EXIT_DONE);
    return CLI_EXIT_DONE;
}
