/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads that use no GPU: spinning, waiting on a futex, sleeping, reading a pipe. */
#ifndef SAMPLE_CPU_THREADS_H
#define SAMPLE_CPU_THREADS_H

#include <stdint.h>

/*
 * Starts count threads of all kinds in turn. tick_file (or NULL) is a file whose first 8 bytes show
 * the progress of one more thread, mapped shared: somebody outside sees whether the process runs.
 */
void cpu_threads_start(uint64_t count, const char *tick_file);
/* The sum of all their counts. */
uint64_t cpu_threads_progress(void);
/* Threads whose two counts (on the stack and in memory) do not agree. */
uint64_t cpu_threads_bad(void);

#endif
