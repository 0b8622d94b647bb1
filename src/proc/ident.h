/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file ident.h
 * A process that cannot be confused with a later one of the same pid.
 */
#ifndef GPUCR_PROC_IDENT_H
#define GPUCR_PROC_IDENT_H

#include <signal.h>

#include "proc/procfs.h"

struct gpucr_ident {
    pid_t pid;
    uint64_t start_ticks;
    uint64_t pid_ns_inode; /* of its pid namespace; 0 if the caller may not see it */
    int pidfd;             /* -1 after gpucr_ident_done() */
};

/**
 * Open @p pid: pidfd first, then the facts, so that they belong together. A process
 * that has ended, a zombie too, and a thread that is not a process are NOT_FOUND.
 */
int gpucr_ident_open(pid_t pid, struct gpucr_ident *ret, struct gpucr_error *err);
void gpucr_ident_done(struct gpucr_ident *ident);

/** Has it ended (a zombie has, unless threads of it live on)? */
bool gpucr_ident_ended(const struct gpucr_ident *ident);

/** Signal it through the pidfd. */
int gpucr_ident_signal(const struct gpucr_ident *ident, int sig, struct gpucr_error *err);

/** Wait until it has ended (zombie counts); GPUCR_ERR_TIMEOUT otherwise. UINT64_MAX: no limit. */
int gpucr_ident_wait_end(const struct gpucr_ident *ident, uint64_t timeout_ms,
                         struct gpucr_error *err);

#endif
