/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file regs.h
 * Everything of one thread that foreign code run in it changes: general and
 * extended registers, shadow stack pointer, signal mask, and the pointer to a
 * restartable sequence. The thread must be in a ptrace trap of the caller.
 */
#ifndef GPUCR_PROC_REGS_H
#define GPUCR_PROC_REGS_H

#include <sys/user.h>

#include "proc/procfs.h"

enum {
    GPUCR_XSTATE_BYTES_MAX = 65536, /* 2.7 KiB with AVX-512, 11 KiB with AMX tiles */
};

/**
 * A restartable sequence (rseq(2)) of the thread in progress. The kernel aborts it
 * when the thread was interrupted within it, and forgets it when it sees the thread
 * outside of it, as when it runs somebody else's code: then it would be carried on
 * halfway. So the pointer has to be put back together with the registers.
 */
struct gpucr_rseq {
    uint64_t address; /* of the pointer in the target; 0: none registered */
    uint64_t value;
};

struct gpucr_thread_regs {
    struct user_regs_struct general;
    size_t general_bytes; /* shorter for 32-bit code */
    void *extended;
    size_t extended_bytes;
    uint64_t shadow_stack;
    bool has_shadow_stack;
    uint64_t mask;
    struct gpucr_rseq rseq;
};

void gpucr_rseq_get(pid_t tid, struct gpucr_rseq *ret);
void gpucr_rseq_put(pid_t tid, const struct gpucr_rseq *rseq);

int gpucr_thread_regs_get(pid_t tid, struct gpucr_thread_regs *ret, struct gpucr_error *err);
int gpucr_thread_regs_put(pid_t tid, const struct gpucr_thread_regs *regs, struct gpucr_error *err);
void gpucr_thread_regs_done(struct gpucr_thread_regs *regs);

bool gpucr_thread_regs_equal(const struct gpucr_thread_regs *a, const struct gpucr_thread_regs *b);

#endif
