/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/cleanup.h"

enum { LOG_LINE_BYTES = 1536 };

static pthread_mutex_t sink_mutex = PTHREAD_MUTEX_INITIALIZER;
static gpucr_log_fn sink_fn;
static void *sink_arg;
static atomic_int sink_level = -1;

void gpucr_log_set(gpucr_log_fn fn, void *arg, enum gpucr_log_level level)
{
    GPUCR_SCOPED_LOCK(lock, &sink_mutex);

    sink_fn = fn;
    sink_arg = arg;
    atomic_store(&sink_level, fn ? (int)level : -1);
}

bool gpucr_log_wants(enum gpucr_log_level level)
{
    return (int)level <= atomic_load_explicit(&sink_level, memory_order_relaxed);
}

void gpucr_log_write(enum gpucr_log_level level, const char *format, ...)
{
    char line[LOG_LINE_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line, sizeof(line), format, args);
    va_end(args);

    GPUCR_SCOPED_LOCK(lock, &sink_mutex);
    if (sink_fn)
        sink_fn(sink_arg, level, line);
}
