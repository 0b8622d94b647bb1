/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file engine_kill.h
 * Ending an engine (CRIU) that traces processes, without harm to these.
 *
 * CRIU's code in a thread ends with an int3. If CRIU dies after that trap and before
 * it has fetched the report of it, the kernel goes on to deliver the SIGTRAP, whose
 * default action ends the process; the same holds for any fault in CRIU's code. So
 * the engine is stopped first, made to detach its tracees with "no signal", and only
 * then killed.
 */
#ifndef GPUCR_PROC_ENGINE_KILL_H
#define GPUCR_PROC_ENGINE_KILL_H

#include "proc/tracer.h"

/**
 * SIGKILL to @p engine_pid, after it or the descendant of it that traces (criu below
 * a container runtime; it is killed too) has let go of the threads of @p targets. It
 * is killed in any case; an error says that it could not be made to let go first (it
 * sits in the kernel uninterruptibly, or somebody else traces it). Its exit is left
 * to its parent. The targets are to be repaired next (snapshot.h).
 */
int gpucr_engine_kill(struct gpucr_tracer *tracer, pid_t engine_pid,
                      const struct gpucr_pids *targets, struct gpucr_error *err);

#endif
