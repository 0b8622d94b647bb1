/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_watch.h
 * Waiting for criu's next message while it makes progress.
 *
 * Progress is: its log says something new, its images grow, it or the processes it
 * makes read or write bytes (the log's own not counted), or their resident memory
 * changes. Processor time is none,
 * nor are the same lines again and again: a restore that met a truncated image spins
 * for ever and says so in an endless log.
 */
#ifndef GPUCR_ENGINE_CRIU_WATCH_H
#define GPUCR_ENGINE_CRIU_WATCH_H

#include "engine/criu_channel.h"
#include "engine/criu_guard.h"
#include "engine/engine.h"

enum { GPUCR_CRIU_WATCH_LINES = 1024 };

/** What one process had done when it was looked at. */
struct gpucr_criu_sample {
    pid_t pid;
    uint64_t io_bytes;
    uint64_t rss_bytes;
};

struct gpucr_criu_watch {
    struct gpucr_criu_channel *channel;
    pid_t top; /* with its descendants watched; 0: criu itself */
    int images_fd;
    int work_fd;
    const char *log_name; /* in the work folder */
    /** Processes that the engine makes, by pid, if they exist; may be NULL. */
    const struct gpucr_pids *pids;
    uint64_t idle_timeout_ms;
    const struct gpucr_criu_guard *guard; /* NULL, or it tells when criu crashed */
    const volatile int *cancel;           /* NULL, or non-zero ends the waiting */

    /* state */
    uint64_t last_change_ns;
    uint64_t images_bytes;
    struct gpucr_criu_sample *samples; /* of the processes, at the last look */
    size_t sample_count;
    uint64_t log_seen_bytes;                    /* its size before the last look */
    uint64_t log_read_bytes;                    /* up to there the log has been looked at */
    uint64_t log_lines[GPUCR_CRIU_WATCH_LINES]; /* hashes of lines that were seen */
};

/** Start counting idle time now. */
void gpucr_criu_watch_reset(struct gpucr_criu_watch *watch);

/** Release the samples. */
void gpucr_criu_watch_done(struct gpucr_criu_watch *watch);

/**
 * The next message. GPUCR_ERR_ENGINE when criu ended or crashed, GPUCR_ERR_ENGINE_HUNG when
 * nothing moved for the idle time, GPUCR_ERR_CANCELLED.
 */
int gpucr_criu_watch_receive(struct gpucr_criu_watch *watch, GpucrCriu__Response **ret,
                             struct gpucr_error *err);

#endif
