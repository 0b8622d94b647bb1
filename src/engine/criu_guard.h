/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_guard.h
 * When criu dies in the middle of a dump, its code in the target must not notice.
 *
 * That code waits at a socket to criu. A dying process closes its files before it
 * lets go of the processes that it traces; so the code sees the end of file, returns
 * to the program's own code, and this runs for some milliseconds, in the middle of a
 * checkpoint, until the kernel stops it. The guard is a thread that traces criu:
 * - a signal that would end criu (a crash, SIGTERM) is held back, so that criu can be
 *   ended in good order (gpucr_engine_kill());
 * - when criu exits or is killed, its sockets are copied first, so that no end of file
 *   comes. (What remains is a SIGKILL from somebody else, the kernel's for lack of
 *   memory say, in the microseconds in which a trap of the target is on its way to criu:
 *   then the kernel gives the trap to the target, and that ends it.)
 */
#ifndef GPUCR_ENGINE_CRIU_GUARD_H
#define GPUCR_ENGINE_CRIU_GUARD_H

#include <sys/types.h>

#include "base/err.h"

struct gpucr_criu_guard;

/**
 * Begin to guard @p pid, a child of ours. Where that is not possible (a criu with
 * rights of its own) the dump goes on unguarded: NULL is returned and logged.
 * While it guards, nobody may wait for the process: stop it before.
 */
struct gpucr_criu_guard *gpucr_criu_guard_start(pid_t pid, int pidfd);

/** The signal that would have ended criu and that is held back; 0 if none. NULL is fine. */
int gpucr_criu_guard_crashed(const struct gpucr_criu_guard *guard);

/** Stop tracing; what was copied is kept. NULL is fine. */
void gpucr_criu_guard_stop(struct gpucr_criu_guard *guard);

/** Stop, and close what was copied: only after the targets were repaired. NULL is fine. */
void gpucr_criu_guard_free(struct gpucr_criu_guard *guard);

#endif
