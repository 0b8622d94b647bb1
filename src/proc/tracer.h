/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file tracer.h
 * Lets only the driver's threads of a stopped process run.
 *
 * The kernel lets one thread trace a tracee: the one that attached. So one thread
 * of ours owns all ptrace calls and waits; the functions below hand work to it
 * and may be called from any thread. When gpucr dies, the kernel detaches and the
 * process is in state T, because the group stop is still in effect; only the signal
 * masks of the driver's threads stay as they were in the window.
 *
 * Children of the program are never reaped here. The program's own wait for "any
 * child" does no harm, but may return stops of the traced threads (kernel rule).
 */
#ifndef GPUCR_PROC_TRACER_H
#define GPUCR_PROC_TRACER_H

#include "base/clock.h"
#include "proc/procfs.h"

struct gpucr_tracer;

int gpucr_tracer_new(struct gpucr_tracer **ret, struct gpucr_error *err);

/** Closes what is still open. NULL is fine. Returns NULL. */
struct gpucr_tracer *gpucr_tracer_free(struct gpucr_tracer *tracer);

/**
 * "Window": the driver's threads of @p pid run with signals blocked (a process-directed
 * signal would stop them in the middle of a driver call), the threads they create run
 * too, everything else stays T. Not blocked are the signals that a thread's own fault
 * raises, as the kernel ends the process for a blocked one.
 * The process must be stopped (all T). Fails without a change: GPUCR_ERR_BUSY names
 * another tracer, GPUCR_ERR_PERMISSION the missing right, GPUCR_ERR_VERIFY a thread that
 * is not stopped, GPUCR_ERR_NOT_CUDA says that there is no driver thread.
 */
int gpucr_tracer_open_window(struct gpucr_tracer *tracer, pid_t pid, struct gpucr_error *err);

/**
 * Stop these threads again, put their signal masks back, detach: all T, no tracer.
 * GPUCR_ERR_VERIFY: a SIGCONT woke the process meanwhile; its threads ran for a moment
 * and it is all T again. GPUCR_ERR_TARGET_DIED: it ended. GPUCR_ERR_TIMEOUT: a thread
 * sits in the kernel uninterruptibly; the window is still open and may be closed again.
 */
int gpucr_tracer_close_window(struct gpucr_tracer *tracer, pid_t pid, struct gpucr_error *err);

/** Run @p fn on the tracer thread (for ptrace work of other files) and return its result. */
int gpucr_tracer_call(struct gpucr_tracer *tracer, int (*fn)(void *arg, struct gpucr_error *err),
                      void *arg, struct gpucr_error *err);

#endif
