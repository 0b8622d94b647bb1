/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file remote.h
 * System calls run by a thread of another process.
 *
 * To be called on the thread that traces @p tid, with the thread in a trap
 * (PTRACE_EVENT_STOP: after PTRACE_INTERRUPT, or attached while stopped); it is in
 * such a trap again afterwards. The call uses a `syscall` instruction found in the
 * target's own code (the vDSO), so that no byte of it is written and its stack is
 * not used; signals are blocked meanwhile; the registers, orig_rax included, are
 * put back, so that an interrupted system call is restarted by the kernel.
 *
 * A seccomp filter of the target judges the call like any other, and may end the
 * process for it: attach with PTRACE_O_SUSPEND_SECCOMP where that matters.
 */
#ifndef GPUCR_PROC_REMOTE_H
#define GPUCR_PROC_REMOTE_H

#include "proc/procfs.h"

struct gpucr_remote_call {
    long number;
    uint64_t args[6];
    uint64_t address; /* of a `syscall` instruction; 0: find one */
};

/** Run the call; its raw result (negative errno in the kernel's way) goes to @p ret. */
int gpucr_remote_syscall(pid_t pid, pid_t tid, const struct gpucr_remote_call *call, int64_t *ret,
                         struct gpucr_error *err);

/**
 * For many calls in one process: an address that stays valid as long as it is stopped.
 * @p pid may be any live thread of it; a leader that has ended has no memory any more.
 */
int gpucr_remote_find(pid_t pid, uint64_t *ret_address, struct gpucr_error *err);

#endif
