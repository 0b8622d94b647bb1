/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where the library's log goes: by -v and -q to stderr, with --log to a file. */
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "out.h"

static struct {
    int fd; /* of --log, -1 without */
    int failed_errno;
    int stderr_level;
    char command_line[1600];
} state = {.fd = -1};

static const char *const level_names[] = {
    [GPUCR_LOG_ERROR] = "error", [GPUCR_LOG_WARN] = "warning", [GPUCR_LOG_INFO] = "info",
    [GPUCR_LOG_DEBUG] = "debug", [GPUCR_LOG_TRACE] = "trace",
};

struct message {
    enum gpucr_log_level level;
    const char *text;
};

static void write_stderr(void *arg)
{
    const struct message *message = arg;

    if (message->level <= GPUCR_LOG_WARN)
        (void)fprintf(stderr, "gpucr: %s: %s\n", level_names[message->level], message->text);
    else
        (void)fprintf(stderr, "gpucr: %s\n", message->text);
}

/* One write per line: with O_APPEND the lines of several gpucr stay whole. */
static void write_file(const char *level, const char *text)
{
    char line[2048];
    struct timespec now;
    struct tm utc;
    size_t used;
    int n;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    used = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
    n = snprintf(line + used, sizeof(line) - used, ".%03ldZ %d %-7s ", now.tv_nsec / 1000000,
                 (int)getpid(), level);
    used += (size_t)n;
    (void)cli_clean_text(line + used, sizeof(line) - used - 1, text, true);
    used = strlen(line);
    line[used++] = '\n';
    if (write(state.fd, line, used) != (ssize_t)used && !state.failed_errno)
        state.failed_errno = errno ? errno : EIO;
}

static void sink(void *arg, enum gpucr_log_level level, const char *text)
{
    char clean[1600];
    struct message message = {level, clean};

    (void)arg;
    if (state.fd >= 0)
        write_file(level_names[level], text);
    /* errors are in the report as well; -v shows them in their place among the steps */
    if ((int)level > state.stderr_level ||
        (level == GPUCR_LOG_ERROR && state.stderr_level < GPUCR_LOG_INFO))
        return;
    (void)cli_clean_text(clean, sizeof(clean), text, true);
    cli_progress_interrupt(write_stderr, &message);
}

static int open_file(const char *path, struct gpucr_error *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);

    if (fd < 0) {
        int saved = errno;

        (void)cli_error_set(err, GPUCR_ERR_SYSTEM, "cannot open the log file %.400s: %s", path,
                            strerror(saved));
        err->os_errno = saved;
        return err->code;
    }
    state.fd = fd;
    return 0;
}

void cli_log_remember(int argc, char **argv)
{
    size_t size = sizeof(state.command_line);
    int used = snprintf(state.command_line, size, "gpucr %s:", gpucr_version());

    for (int i = 1; i < argc && (size_t)used < size; i++)
        used += snprintf(state.command_line + used, size - (size_t)used, " %s", argv[i]);
}

int cli_log_start(const struct cli_options *options, struct gpucr_error *err)
{
    int level = options->quiet ? GPUCR_LOG_ERROR : GPUCR_LOG_WARN + (int)options->verbosity;

    state.stderr_level = level > GPUCR_LOG_TRACE ? GPUCR_LOG_TRACE : level;
    level = state.stderr_level;
    if (options->log_file) {
        int rc = open_file(options->log_file, err);

        if (rc < 0)
            return rc;
        write_file("info", state.command_line);
        if (level < GPUCR_LOG_DEBUG)
            level = GPUCR_LOG_DEBUG;
    }
    gpucr_log_set(sink, NULL, (enum gpucr_log_level)level);
    return 0;
}

void cli_log_stop(int exit_status)
{
    char line[64];

    gpucr_log_set(NULL, NULL, GPUCR_LOG_ERROR);
    if (state.fd < 0)
        return;
    (void)snprintf(line, sizeof(line), "exit status %d", exit_status);
    write_file("info", line);
    if (close(state.fd) != 0 && !state.failed_errno)
        state.failed_errno = errno;
    state.fd = -1;
    if (state.failed_errno)
        (void)fprintf(stderr, "gpucr: warning: the log file is incomplete: %s\n",
                      strerror(state.failed_errno));
}
