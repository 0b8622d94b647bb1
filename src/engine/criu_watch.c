/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "proc/procfs.h"
#include "proc/tree.h"

enum {
    POLL_MS = 200,
    IO_BYTES = 512,
    FILES_MAX = 1 << 20,
    LOG_CHUNK_BYTES = 64 << 10, /* of what was added to the log: the newest so much is looked at */
};

/* A log of this size has long stopped to be one. */
static const uint64_t log_bytes_max = UINT64_C(2) << 30;

static uint64_t file_size(int dir_fd, const char *name)
{
    struct stat st;

    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
}

/* Sizes and number of the files of a folder. */
static uint64_t folder_size(int dir_fd)
{
    GPUCR_AUTO_FD int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    GPUCR_AUTO_DIR DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    uint64_t sum = 0;

    if (!dir)
        return 0;
    (void)gpucr_steal_fd(&fd); /* belongs to the stream now */
    for (size_t i = 0; i < FILES_MAX && (entry = readdir(dir)); i++)
        sum += 1 + file_size(dir_fd, entry->d_name);
    return sum;
}

/* Bytes read and written, and resident memory, of one process. The number of calls
 * does not count: reading nothing from a truncated image for ever is no progress. */
static struct gpucr_criu_sample take_sample(pid_t pid)
{
    struct gpucr_criu_sample sample = {.pid = pid};
    char path[64];
    char text[IO_BYTES];
    struct gpucr_proc_stat stat;
    const char *line = text;

    (void)snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
    if (gpucr_file_read_small(AT_FDCWD, path, text, sizeof(text)) > 0) {
        for (; line; line = strchr(line, '\n')) {
            uint64_t value;
            const char *end;

            line += *line == '\n';
            if ((gpucr_starts_with(line, "rchar: ") || gpucr_starts_with(line, "wchar: ")) &&
                gpucr_scan_u64(line + 7, 10, &value, &end))
                sample.io_bytes += value;
        }
    }
    if (gpucr_proc_stat_read(pid, &stat, NULL) == 0)
        sample.rss_bytes = stat.rss_bytes;
    return sample;
}

/* @p hint: where it stands when no process came or went. */
static const struct gpucr_criu_sample *find_sample(const struct gpucr_criu_watch *watch, pid_t pid,
                                                   size_t hint)
{
    if (hint < watch->sample_count && watch->samples[hint].pid == pid)
        return &watch->samples[hint];
    for (size_t i = 0; i < watch->sample_count; i++) {
        if (watch->samples[i].pid == pid)
            return &watch->samples[i];
    }
    return NULL;
}

/* The new samples with what has been moved since the old ones. */
struct look {
    struct gpucr_criu_sample *samples;
    size_t count;
    size_t capacity;
    uint64_t moved_bytes;
    bool memory_changed;
};

static void look_at(const struct gpucr_criu_watch *watch, struct look *look, pid_t pid)
{
    const struct gpucr_criu_sample *before = find_sample(watch, pid, look->count);
    struct gpucr_criu_sample now;

    if (look->count == look->capacity)
        return;
    now = take_sample(pid);
    if (now.rss_bytes == 0 && now.io_bytes == 0)
        return; /* there is no such process (yet) */
    look->moved_bytes +=
        now.io_bytes - (before && before->io_bytes <= now.io_bytes ? before->io_bytes : 0);
    look->memory_changed = look->memory_changed || !before || before->rss_bytes != now.rss_bytes;
    look->samples[look->count++] = now;
}

/* Did the processes move bytes other than those of the log, or change in memory? */
static bool processes_moved(struct gpucr_criu_watch *watch)
{
    pid_t top = watch->top > 0 ? watch->top : watch->channel->pid;
    uint64_t log_begin = watch->log_seen_bytes;
    uint64_t log_bytes;
    size_t wanted = watch->pids ? watch->pids->count : 0;
    struct gpucr_tree tree = {0};
    struct look look = {0};

    watch->log_seen_bytes = file_size(watch->work_fd, watch->log_name);
    if (gpucr_tree_read(top, &tree, NULL) != 0)
        tree.count = 0;
    look.capacity = tree.count + wanted;
    look.samples = calloc(look.capacity + 1, sizeof(*look.samples));
    if (!look.samples)
        look.capacity = 0;
    for (size_t i = 0; i < tree.count; i++)
        look_at(watch, &look, tree.items[i].pid);
    for (size_t i = 0; i < wanted; i++)
        look_at(watch, &look, watch->pids->ids[i]);
    gpucr_tree_done(&tree);
    free(watch->samples);
    watch->samples = look.samples;
    watch->sample_count = look.count;
    /* From before the last look to after this one: what went to the log between the
     * looks is surely in it. */
    log_bytes = file_size(watch->work_fd, watch->log_name) - log_begin;
    return look.memory_changed || look.moved_bytes > log_bytes;
}

void gpucr_criu_watch_done(struct gpucr_criu_watch *watch)
{
    free(watch->samples);
    watch->samples = NULL;
    watch->sample_count = 0;
}

/* A line without the time at its start. */
static uint64_t hash_line(const char *line, size_t length)
{
    const char *end = memchr(line, ')', length);
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    if (end && *line == '(') {
        length -= (size_t)(end - line);
        line = end;
    }
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)line[i]) * UINT64_C(0x100000001b3);
    return hash | 1; /* 0 is an empty slot */
}

/* Has the text a line that was not seen lately? */
static bool says_new(struct gpucr_criu_watch *watch, const char *text, size_t length)
{
    bool found = false;

    while (length > 0) {
        const char *end = memchr(text, '\n', length);
        size_t size = end ? (size_t)(end - text) : length;
        uint64_t hash = hash_line(text, size);
        uint64_t *slot = &watch->log_lines[(hash >> 8) % GPUCR_CRIU_WATCH_LINES];

        found = found || *slot != hash;
        *slot = hash;
        size += end ? 1 : 0;
        text += size;
        length -= size;
    }
    return found;
}

static bool log_has_news(struct gpucr_criu_watch *watch)
{
    uint64_t size = file_size(watch->work_fd, watch->log_name);
    GPUCR_AUTO_FREE char *text = NULL;
    GPUCR_AUTO_FD int fd = -1;
    uint64_t from = watch->log_read_bytes;
    ssize_t got;

    if (size <= from)
        return false;
    if (size - from > LOG_CHUNK_BYTES)
        from = size - LOG_CHUNK_BYTES;
    watch->log_read_bytes = size;
    fd = openat(watch->work_fd, watch->log_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    text = malloc(LOG_CHUNK_BYTES);
    if (fd < 0 || !text)
        return false;
    got = pread(fd, text, LOG_CHUNK_BYTES, (off_t)from);
    return got > 0 && says_new(watch, text, (size_t)got);
}

/* Everything is looked at each time, so that the next look compares with this one. */
static bool gets_on(struct gpucr_criu_watch *watch)
{
    uint64_t images_bytes = folder_size(watch->images_fd);
    bool news = log_has_news(watch);
    bool moved = processes_moved(watch);
    bool grown = images_bytes != watch->images_bytes;

    watch->images_bytes = images_bytes;
    return news || moved || grown;
}

void gpucr_criu_watch_reset(struct gpucr_criu_watch *watch)
{
    watch->last_change_ns = gpucr_now_ns();
}

static int check_progress(struct gpucr_criu_watch *watch, struct gpucr_error *err)
{
    uint64_t idle_ms;
    int crashed = gpucr_criu_guard_crashed(watch->guard);

    if (crashed != 0)
        return gpucr_error_set(err, GPUCR_ERR_ENGINE, "criu was ended by signal %d (%s)", crashed,
                               strsignal(crashed));
    if (watch->cancel && *watch->cancel)
        return gpucr_error_set(err, GPUCR_ERR_CANCELLED, "cancelled while criu was at work");
    if (watch->log_read_bytes > log_bytes_max)
        return gpucr_error_set(err, GPUCR_ERR_ENGINE_HUNG,
                               "criu writes one log line after the other and gets nowhere");
    if (gets_on(watch)) {
        gpucr_criu_watch_reset(watch);
        return 0;
    }
    idle_ms = (gpucr_now_ns() - watch->last_change_ns) / 1000000;
    if (idle_ms < watch->idle_timeout_ms)
        return 0;
    return gpucr_error_set(err, GPUCR_ERR_ENGINE_HUNG, "criu made no progress for %.1f seconds",
                           (double)idle_ms / 1000);
}

int gpucr_criu_watch_receive(struct gpucr_criu_watch *watch, GpucrCriu__Response **ret,
                             struct gpucr_error *err)
{
    for (;;) {
        int rc = gpucr_criu_channel_receive(watch->channel, POLL_MS, ret, err);

        if (rc == 0)
            rc = check_progress(watch, err);
        else if (rc == 1)
            return 0;
        if (rc != 0)
            return rc;
    }
}
