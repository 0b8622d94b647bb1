/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_explain.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "engine/criu_known.h"
#include "engine/criu_resolve.h"

enum {
    LINE_BYTES = 2048,
    ERRORS_MAX = GPUCR_LOG_LINES_MAX,
    TEXT_BYTES = 480, /* of a message; facts are added up to GPUCR_LOG_LINE_BYTES */
};

/* One "Error (file:line): message" of the log. */
struct complaint {
    pid_t pid; /* who says it (restore); 0: criu itself */
    char text[TEXT_BYTES];
};

struct digest {
    struct complaint complaints[ERRORS_MAX];
    size_t count;
    size_t cause; /* index of the first that is one */
    char last[TEXT_BYTES];
};

/* Behind the time and, in a restore, who speaks: "(00.001234)  4711: ", "(00.2) pie: 4711: ". */
static const char *skip_prefix(const char *line, pid_t *ret_pid)
{
    const char *at = line;
    const char *end;
    uint64_t pid;

    *ret_pid = 0;
    if (*at == '(' && (end = strchr(at, ')')))
        at = end + 1;
    at += strspn(at, " ");
    if (gpucr_starts_with(at, "pie: "))
        at += strlen("pie: ");
    if (gpucr_scan_u64(at, 10, &pid, &end) && *end == ':' && pid <= INT32_MAX) {
        *ret_pid = (pid_t)pid;
        at = end + 1;
        at += strspn(at, " ");
    }
    return at;
}

static void take_line(struct digest *digest, char *line)
{
    pid_t pid;
    const char *message;

    line[strcspn(line, "\n")] = '\0';
    message = skip_prefix(line, &pid);
    if (*message == '\0')
        return;
    (void)gpucr_copy_text(digest->last, sizeof(digest->last), message);
    if (!gpucr_starts_with(message, "Error (") || digest->count == ERRORS_MAX)
        return;
    digest->complaints[digest->count].pid = pid;
    (void)gpucr_copy_text(digest->complaints[digest->count].text, TEXT_BYTES,
                          message + strlen("Error "));
    digest->count++;
}

/* A log of any size is read line by line; long lines are cut. */
static void read_log(int work_fd, const char *name, struct digest *digest)
{
    GPUCR_AUTO_FD int fd = openat(work_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    GPUCR_AUTO_FILE FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    bool continued = false;
    char line[LINE_BYTES];

    if (!file)
        return;
    (void)gpucr_steal_fd(&fd); /* belongs to the stream now */
    while (fgets(line, sizeof(line), file)) {
        bool whole = strchr(line, '\n') != NULL;

        if (!continued)
            take_line(digest, line);
        continued = !whole;
    }
}

/* The first complaint that is neither harmless nor a summary; else the first at all. */
static void choose_cause(struct digest *digest)
{
    for (size_t i = 0; i < digest->count; i++) {
        const char *text = digest->complaints[i].text;

        if (!gpucr_criu_known_harmless(text) && !gpucr_criu_known_summary(text)) {
            digest->cause = i;
            return;
        }
    }
    for (size_t i = 0; i < digest->count; i++) {
        if (!gpucr_criu_known_harmless(digest->complaints[i].text)) {
            digest->cause = i;
            return;
        }
    }
    digest->cause = digest->count;
}

/* In a dump criu names the process only in the summaries that follow. */
static pid_t process_of(const struct digest *digest, size_t index)
{
    if (digest->complaints[index].pid > 0)
        return digest->complaints[index].pid;
    for (size_t i = index; i < digest->count; i++) {
        const char *at = strstr(digest->complaints[i].text, "(pid: ");
        const char *end;
        uint64_t pid;

        if (at && gpucr_scan_u64(at + 6, 10, &pid, &end) && pid <= INT32_MAX)
            return (pid_t)pid;
    }
    return 0;
}

static void resolve(const struct gpucr_criu_explain *explain, const struct digest *digest,
                    size_t index, char *ret)
{
    gpucr_criu_resolve(digest->complaints[index].text, process_of(digest, index),
                       explain->images_fd, ret, GPUCR_LOG_LINE_BYTES);
}

static void add_line(const struct gpucr_criu_explain *explain, const struct digest *digest,
                     size_t index, struct gpucr_engine_log *log)
{
    if (log->count == GPUCR_LOG_LINES_MAX)
        return;
    resolve(explain, digest, index, log->lines[log->count].text);
    log->lines[log->count].is_cause = index == digest->cause;
    log->count++;
}

static void fill_log(const struct gpucr_criu_explain *explain, const struct digest *digest,
                     struct gpucr_engine_log *log)
{
    if (!log)
        return;
    if (digest->cause < digest->count)
        add_line(explain, digest, digest->cause, log);
    for (size_t i = 0; i < digest->count; i++) {
        if (i != digest->cause && !gpucr_criu_known_harmless(digest->complaints[i].text))
            add_line(explain, digest, i, log);
    }
}

/* "(criu/file.c:123): message" without the place in criu's source. */
static const char *without_place(const char *text)
{
    const char *end = *text == '(' ? strstr(text, "): ") : NULL;

    return end ? end + 3 : text;
}

/* The sentence for a cause: criu's own words, their meaning, and what helps. */
static void tell_cause(const char *cause, struct gpucr_error *err)
{
    const struct gpucr_criu_known *meaning = gpucr_criu_known_find(cause);
    size_t used = strlen(err->text);
    char *at = err->text + used;
    size_t size = sizeof(err->text) - used;

    if (meaning)
        (void)snprintf(at, size, ": %s%s%s (criu says: %s)", meaning->meaning,
                       meaning->remedy ? "; " : "", meaning->remedy ? meaning->remedy : "",
                       without_place(cause));
    else
        (void)snprintf(at, size, ": %s", without_place(cause));
}

int gpucr_criu_explain_answer(const GpucrCriu__Response *response,
                              const struct gpucr_criu_channel *channel, const char *verb,
                              struct gpucr_error *err)
{
    char said[256];

    /* What it prints itself is about options that it does not know. */
    gpucr_criu_channel_output(channel, said, sizeof(said));
    (void)response;
    return gpucr_error_set(err, GPUCR_ERR_ENGINE, "criu refused the %s%s%s", verb,
                           said[0] ? ": " : "", said);
}

int gpucr_criu_explain(const struct gpucr_criu_explain *explain, int code,
                       struct gpucr_engine_log *log, struct gpucr_error *err)
{
    GPUCR_AUTO_FREE struct digest *digest = calloc(1, sizeof(*digest));
    char cause[GPUCR_LOG_LINE_BYTES];
    size_t used = strlen(err->text);

    if (!digest)
        return code;
    read_log(explain->work_fd, explain->log_name, digest);
    choose_cause(digest);
    if (code != GPUCR_ERR_ENGINE && code != GPUCR_ERR_ENGINE_HUNG)
        return code;
    fill_log(explain, digest, log);
    if (digest->cause < digest->count) {
        resolve(explain, digest, digest->cause, cause);
        tell_cause(cause, err);
    } else if (digest->last[0]) {
        (void)snprintf(err->text + used, sizeof(err->text) - used, "; the last line of its log: %s",
                       digest->last);
    }
    return code;
}

int gpucr_criu_explain_unverified(struct gpucr_error *err, const struct gpucr_error *undo)
{
    struct gpucr_error first = *err;

    (void)gpucr_error_set(err, GPUCR_ERR_VERIFY,
                          "%.480s; and then not everything could be put "
                          "back: %.480s",
                          first.text, undo->text);
    err->pid = undo->pid;
    err->os_errno = undo->os_errno;
    return err->code;
}
