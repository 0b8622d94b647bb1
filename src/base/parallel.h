/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file parallel.h
 * The same work on many items, by a bounded number of threads.
 */
#ifndef GPUCR_BASE_PARALLEL_H
#define GPUCR_BASE_PARALLEL_H

#include <pthread.h>
#include <stddef.h>

/** Work on item @p index. Called from several threads. */
typedef void (*gpucr_parallel_fn)(void *arg, size_t index);

/**
 * Call @p fn for 0 … count-1, at most @p thread_max at a time, and return when
 * all are done. When no thread can be started, the caller does the work itself.
 * Items are taken in order.
 */
void gpucr_parallel_for(size_t count, size_t thread_max, gpucr_parallel_fn fn, void *arg);

/** Start a thread that takes none of the program's signals. 0 or an errno. */
int gpucr_thread_start(pthread_t *ret, void *(*fn)(void *arg), void *arg);

/** Number of CPUs this process may use, at least 1. */
size_t gpucr_cpu_count(void);

#endif
