/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file rest.h
 * How far the threads of a process have come on the way to a stop.
 */
#ifndef GPUCR_PROC_REST_H
#define GPUCR_PROC_REST_H

#include "proc/procfs.h"

enum gpucr_rest_kind {
    GPUCR_REST_ENDED,   /* no thread is left that could run */
    GPUCR_REST_STOPPED, /* every thread is T or t */
    GPUCR_REST_RUNNING, /* anything else */
};

struct gpucr_rest {
    enum gpucr_rest_kind kind;
    bool any_stopped; /* a thread is T: the process is in a group stop, or on its way there */
    pid_t traced_tid; /* a thread in state t, 0 if none was seen */
    pid_t vfork_tid;  /* a thread that waits for its vfork child, 0 if none was seen */
    pid_t tid;        /* RUNNING: a thread that is not stopped; one stuck in state D if there is */
    char state;       /* its state */
};

/**
 * Look at all threads of @p pid. STOPPED is exact: no thread was missed that appeared
 * meanwhile. A process that is gone is ENDED, not an error.
 */
int gpucr_rest_read(pid_t pid, struct gpucr_rest *ret, struct gpucr_error *err);

/**
 * The same, beginning with @p hint_tid (0: none) and no further than the first thread
 * that runs: cheap for many threads, but what else is said of a RUNNING one is not all.
 */
int gpucr_rest_read_quick(pid_t pid, pid_t hint_tid, struct gpucr_rest *ret,
                          struct gpucr_error *err);

/** Do both run in the same memory, as a vfork child does until it execs? 1, 0, -1 unknown. */
int gpucr_rest_shares_memory(pid_t a, pid_t b);

/** Do both run the same executable? True if that cannot be known. */
bool gpucr_rest_same_program(pid_t a, pid_t b);

/** Who traces the thread: 0 nobody, 1 a thread of this process, -1 somebody else (in @p
 * ret_tracer). */
int gpucr_rest_tracer(pid_t pid, pid_t tid, pid_t *ret_tracer);

#endif
