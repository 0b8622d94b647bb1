/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file monitor.h
 * Phases of an operation: their time and bytes for the result, and progress
 * reports while they last.
 */
#ifndef GPUCR_JOB_MONITOR_H
#define GPUCR_JOB_MONITOR_H

#include <pthread.h>

#include <gpucr/job.h>

/** Bytes done so far in the current phase. Called from the monitor's thread. */
typedef uint64_t (*gpucr_sample_fn)(void *arg);

struct gpucr_monitor {
    struct gpucr_result *result;
    const struct gpucr_job_options *options;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool thread_runs;
    bool ending;
    bool in_phase;
    const char *phase;
    uint64_t phase_begin_ns;
    uint64_t total_bytes;
    uint64_t driver_ns;
    gpucr_sample_fn sample;
    void *sample_arg;
};

/** Nothing runs yet; a thread is started only when there is a progress callback. */
void gpucr_monitor_init(struct gpucr_monitor *monitor, const struct gpucr_job_options *options,
                        struct gpucr_result *result);
void gpucr_monitor_done(struct gpucr_monitor *monitor);

/** Begin a phase; one at a time. @p sample may be NULL (nothing to count). */
void gpucr_monitor_begin(struct gpucr_monitor *monitor, const char *phase, uint64_t total_bytes,
                         gpucr_sample_fn sample, void *arg);

/** Of the current phase, @p ns were spent inside the vendor's libraries. */
void gpucr_monitor_driver(struct gpucr_monitor *monitor, uint64_t ns);

/** End it and add it to the result. Without a phase nothing happens. */
void gpucr_monitor_end(struct gpucr_monitor *monitor, uint64_t bytes);

#endif
