/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Small system helpers. Nothing here allocates or takes a lock of the C library: the restore thread
 * uses them while every other thread of its process may be stopped in the middle of malloc().
 */
#ifndef SIM_SYS_H
#define SIM_SYS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_NS_PER_MS 1000000ull

uint64_t sim_now_ns(void);

/* Sleeps through signals. */
void sim_sleep_until_ns(uint64_t when_ns);
void sim_sleep_ms(uint64_t ms);

/* One wait: returns on wake-up, changed value, signal or time-out (0: none). */
void sim_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns);
void sim_futex_wake(_Atomic uint32_t *word);

/* Reads a whole small file and ends it with NUL. Returns the length or -1. */
ssize_t sim_read_file(const char *path, char *buffer, size_t capacity);

/* Opens a file that all users of a root share, and makes it if need be. Returns a descriptor or -1.
 */
int sim_open_shared(const char *path);

/*
 * The start time of a process (0: of the caller) in clock ticks, 0 when it is not there or a
 * zombie. Counted by the
 * clock of the machine: CRIU restores into a time namespace, where /proc shows other numbers.
 */
uint64_t sim_start_time(int pid);
bool sim_same_start(uint64_t left, uint64_t right);

/* The last (innermost) number on the NSpid line of a status file, -1 when there is none. */
int sim_inner_pid(const char *status_path);

/* Calls visit for each entry of a directory until it returns non-zero; returns that, or -1. */
int sim_each_entry(const char *path, int (*visit)(const char *name, void *arg), void *arg);

/* Parses a whole decimal word. */
bool sim_parse_u64(const char *text, uint64_t *value);

#endif
