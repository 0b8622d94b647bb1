/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file ptrace_op.h
 * Single steps of tracing, for the tracer thread only: attach, wait for a stop,
 * signal masks, and the check that a process is stopped and free of tracers.
 *
 * A thread that has ended meanwhile is GPUCR_ERR_NOT_FOUND everywhere.
 */
#ifndef GPUCR_PROC_PTRACE_OP_H
#define GPUCR_PROC_PTRACE_OP_H

#include <sys/ptrace.h>

#include "base/clock.h"
#include "proc/procfs.h"

/* How long a thread may take to report the stop that an attach or an interrupt asks for. */
enum { GPUCR_PTRACE_STOP_MS = 5000, GPUCR_PTRACE_VERIFY_MS = 2000 };

/** What an event number in a wait status means: `status >> 16`. */
static inline int gpucr_ptrace_event(int status)
{
    return (int)((unsigned)status >> 16);
}

/** Attach without stopping; refused because of a tracer or of rights: the reason in full. */
int gpucr_ptrace_seize(pid_t pid, pid_t tid, unsigned options, struct gpucr_error *err);

/**
 * What a traced thread reports, if anything: 1 with a stop, 0 if nothing is new, or
 * GPUCR_ERR_NOT_FOUND when it ended. Asks for this thread alone, so that no child of
 * the program is ever reaped here.
 */
int gpucr_ptrace_poll(pid_t pid, pid_t tid, int *ret_status);

/** Next wait status of one traced thread. */
int gpucr_ptrace_wait(pid_t pid, pid_t tid, struct gpucr_deadline deadline, int *ret_status,
                      struct gpucr_error *err);

/**
 * Attach to a thread of a stopped process and wait until it reports that stop.
 * On failure it is not attached.
 */
int gpucr_ptrace_seize_stopped(pid_t pid, pid_t tid, unsigned options, struct gpucr_error *err);

/** Let a thread in a ptrace stop go; in a stopped process it is T then. */
void gpucr_ptrace_detach(pid_t tid);

/**
 * The same for all threads of a process, zombies left out: all or none. The target's
 * seccomp filters do not judge the system calls that are run in it from then on,
 * where the caller may ask the kernel for that (CAP_SYS_ADMIN).
 */
int gpucr_ptrace_seize_all(pid_t pid, struct gpucr_pids *ret, struct gpucr_error *err);
void gpucr_ptrace_detach_all(const struct gpucr_pids *tids);

/**
 * The wait status of a stop that was reported to somebody else: any other thread
 * of this program that waits for "any child" takes our reports too (kernel rule,
 * see wait(2) on __WNOTHREAD). False while the thread runs or the report is still
 * to be fetched.
 */
bool gpucr_ptrace_lost_stop(pid_t tid, int *ret_status);

/** Has the thread ended, or is it a zombie? */
bool gpucr_task_ended(pid_t pid, pid_t tid);

int gpucr_ptrace_mask_get(pid_t tid, uint64_t *ret, struct gpucr_error *err);
int gpucr_ptrace_mask_set(pid_t tid, uint64_t mask, struct gpucr_error *err);

/**
 * Wait until every thread of @p pid is T and untraced. GPUCR_ERR_VERIFY names the
 * thread that is not, GPUCR_ERR_BUSY the tracer, GPUCR_ERR_TARGET_DIED when no
 * thread is left.
 */
int gpucr_stopped_wait(pid_t pid, struct gpucr_deadline deadline, struct gpucr_error *err);

#endif
