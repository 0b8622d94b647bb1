/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "job/monitor.h"

#include <errno.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parallel.h"

enum { REPORT_INTERVAL_MS = 200 };

void gpucr_monitor_init(struct gpucr_monitor *monitor, const struct gpucr_job_options *options,
                        struct gpucr_result *result)
{
    pthread_condattr_t attr;

    *monitor = (struct gpucr_monitor){.result = result, .options = options};
    (void)pthread_mutex_init(&monitor->mutex, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&monitor->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
}

/* Holds the mutex. The sample may read /proc; it never blocks for long. */
static void report(struct gpucr_monitor *monitor)
{
    uint64_t done;

    if (!monitor->in_phase || !monitor->sample)
        return;
    done = monitor->sample(monitor->sample_arg);
    if (monitor->total_bytes && done > monitor->total_bytes)
        done = monitor->total_bytes;
    monitor->options->progress(monitor->options->progress_arg, monitor->phase, done,
                               monitor->total_bytes);
}

static void *monitor_main(void *arg)
{
    struct gpucr_monitor *monitor = arg;
    GPUCR_SCOPED_LOCK(lock, &monitor->mutex);

    while (!monitor->ending) {
        struct timespec until = {0};

        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += REPORT_INTERVAL_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        if (pthread_cond_timedwait(&monitor->wake, &monitor->mutex, &until) == ETIMEDOUT)
            report(monitor);
    }
    return NULL;
}

void gpucr_monitor_done(struct gpucr_monitor *monitor)
{
    if (monitor->thread_runs) {
        (void)pthread_mutex_lock(&monitor->mutex);
        monitor->ending = true;
        (void)pthread_cond_signal(&monitor->wake);
        (void)pthread_mutex_unlock(&monitor->mutex);
        (void)pthread_join(monitor->thread, NULL);
        monitor->thread_runs = false;
    }
    (void)pthread_cond_destroy(&monitor->wake);
    (void)pthread_mutex_destroy(&monitor->mutex);
}

void gpucr_monitor_begin(struct gpucr_monitor *monitor, const char *phase, uint64_t total_bytes,
                         gpucr_sample_fn sample, void *arg)
{
    gpucr_monitor_end(monitor, 0);
    if (monitor->options->progress && sample && !monitor->thread_runs)
        monitor->thread_runs = gpucr_thread_start(&monitor->thread, monitor_main, monitor) == 0;

    GPUCR_SCOPED_LOCK(lock, &monitor->mutex);
    monitor->phase = phase;
    monitor->phase_begin_ns = gpucr_now_ns();
    monitor->total_bytes = total_bytes;
    monitor->driver_ns = 0;
    monitor->sample = sample;
    monitor->sample_arg = arg;
    monitor->in_phase = true;
}

void gpucr_monitor_driver(struct gpucr_monitor *monitor, uint64_t ns)
{
    GPUCR_SCOPED_LOCK(lock, &monitor->mutex);

    monitor->driver_ns += ns;
}

void gpucr_monitor_end(struct gpucr_monitor *monitor, uint64_t bytes)
{
    struct gpucr_result *result = monitor->result;
    GPUCR_SCOPED_LOCK(lock, &monitor->mutex);

    if (!monitor->in_phase)
        return;
    monitor->in_phase = false;
    if (result->phase_count == GPUCR_PHASES_MAX)
        return;
    result->phases[result->phase_count++] = (struct gpucr_phase){
        .name = monitor->phase,
        .bytes = bytes,
        .ns = gpucr_now_ns() - monitor->phase_begin_ns,
        .driver_ns = monitor->driver_ns,
    };
}
