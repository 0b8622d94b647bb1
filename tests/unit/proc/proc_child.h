/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Children for the tests of src/proc, and the memory they share with the test. */
#ifndef GPUCR_TESTS_PROC_CHILD_H
#define GPUCR_TESTS_PROC_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CHILD_COUNTERS = 256 };

struct child_shared {
    volatile uint64_t counters[CHILD_COUNTERS]; /* each is moved on by one child */
    volatile pid_t pids[CHILD_COUNTERS];        /* who children say they are */
    volatile int flags[16];
};

/* Shared with all children started later; zeroed by child_reset(). */
extern struct child_shared *child_shared;

int child_group_setup(void **state);
int child_reset(void **state);    /* per test */
int child_teardown(void **state); /* per test: nothing started by it lives on */

/* Start fn in a child that dies with its parent. */
pid_t child_start(void (*fn)(int arg), int arg);

/* In a child: as child_start(), for grandchildren. */
pid_t child_fork(void);

void child_count(int counter); /* for ever, with short sleeps */
void *child_count_thread(void *counter);
void child_count_fast(int counter);  /* for ever, without sleeps */
void child_threads(int first_count); /* flags[0] threads that count, and the caller too */

void child_kill(pid_t pid); /* and reap */

/* Wait (at most 10 s) until a flag or a counter has at least that value. */
void child_await_flag(int flag, int value);
void child_await_count(int counter, uint64_t value);

/* Is the counter at rest? Looks for some milliseconds. */
bool child_rests(int counter);

/* Does it move on within 10 s? */
bool child_moves(int counter);

char child_state(pid_t pid);
bool child_await_state(pid_t pid, char state);
bool child_await_gone(pid_t pid);

#endif
