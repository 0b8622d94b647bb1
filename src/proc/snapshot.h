/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file snapshot.h
 * What a stopped process looked like before CRIU touched it, and putting it back
 * so after CRIU had to be ended in the middle of its work.
 *
 * Recorded per thread: registers (general, floating point / xstate, shadow stack),
 * signal mask, restartable sequence; per process: list of mappings, list of
 * descriptors, file creation mask, and the bytes CRIU overwrites to inject system
 * calls (start of each executable private mapping).
 *
 * Repair: registers, mask and bytes are compared and put back; mappings and
 * descriptors that were not there before (CRIU's memfd, its sockets) are removed
 * and changed protections put back by system calls run in the target. Everything
 * is verified again at the end.
 *
 * Between the two nothing but CRIU may touch the process: take the snapshot right
 * before the dump, with the process stopped, and repair it before anything else.
 * A CRIU that still runs is ended with gpucr_engine_kill() (engine_kill.h).
 */
#ifndef GPUCR_PROC_SNAPSHOT_H
#define GPUCR_PROC_SNAPSHOT_H

#include "proc/tracer.h"

struct gpucr_snapshot;

/** The process must be all T and untraced, and is so afterwards. */
int gpucr_snapshot_take(struct gpucr_tracer *tracer, pid_t pid, struct gpucr_snapshot **ret,
                        struct gpucr_error *err);

/** NULL is fine. Returns NULL. */
struct gpucr_snapshot *gpucr_snapshot_free(struct gpucr_snapshot *snapshot);

struct gpucr_repair {
    uint32_t threads_repaired; /* registers or mask differed */
    uint32_t code_bytes_repaired;
    uint32_t mappings_removed;
    uint32_t protections_repaired; /* ranges */
    uint32_t descriptors_closed;
    uint32_t umasks_repaired;
    uint32_t faults_dropped; /* signals of faults in CRIU's code that waited for a thread */
};

/**
 * Bring the process back to the snapshot and verify it; @p ret tells what had to
 * be repaired. The process must be untraced (a tracer that is just dying is waited
 * for); it is all T afterwards. GPUCR_ERR_VERIFY names what cannot be put back: a
 * mapping, descriptor or thread that is gone.
 */
int gpucr_snapshot_repair(struct gpucr_tracer *tracer, const struct gpucr_snapshot *snapshot,
                          struct gpucr_repair *ret, struct gpucr_error *err);

#endif
