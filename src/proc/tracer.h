/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file tracer.h
 * Lets only the driver's threads of a stopped process run.
 *
 * The kernel lets one thread trace a tracee: the one that attached. So one thread
 * of ours owns all ptrace calls and waits; the functions below hand work to it
 * and may be called from any thread. When gpucr dies, the kernel detaches and the
 * process is in state T, because the group stop is still in effect.
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
 * "Window": the driver's threads of @p pid run with all signals blocked (a
 * process-directed signal would stop them in the middle of a driver call), the
 * threads they create run too, everything else stays T. The process must be
 * stopped (all T). Fails without a change if it is traced by somebody else.
 */
int gpucr_tracer_open_window(struct gpucr_tracer *tracer, pid_t pid, struct gpucr_error *err);

/** Stop these threads again, put their signal masks back, detach: all T, no tracer. */
int gpucr_tracer_close_window(struct gpucr_tracer *tracer, pid_t pid, struct gpucr_error *err);

/** Run @p fn on the tracer thread (for ptrace work of other files) and return its result. */
int gpucr_tracer_call(struct gpucr_tracer *tracer, int (*fn)(void *arg, struct gpucr_error *err),
                      void *arg, struct gpucr_error *err);

#endif
