/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file hold.h
 * Keeping a process tree from running: SIGSTOP to every process, until every
 * thread of every process is in state T and a rescan finds nothing new.
 *
 * SIGSTOP is a hold that survives the death of gpucr. It is weak against one
 * thing: anybody's SIGCONT, among them the kernel's own to an orphaned process
 * group, which comes with a SIGHUP. gpucr_hold_freeze() closes that gap with a cgroup
 * v2 freezer of our own below the target's cgroup, where cgroups can be written.
 */
#ifndef GPUCR_PROC_HOLD_H
#define GPUCR_PROC_HOLD_H

#include "base/clock.h"
#include "proc/ident.h"
#include "proc/tree.h"

struct gpucr_held {
    struct gpucr_ident ident;
    pid_t parent_pid;
    bool was_stopped; /* its owner had stopped it: it stays stopped at release */
    bool ended;       /* exited while it was being stopped */
};

struct gpucr_hold {
    struct gpucr_held *items; /* parents before children */
    size_t count;
    pid_t root;
    bool single;   /* only the root, not its descendants */
    bool released; /* gpucr_hold_release() has let it run again */
    bool entered;  /* moved to the cgroups, not frozen yet */
    char *cgroup;  /* path of our frozen cgroup (the first one), or NULL */
    char **cgroups;
    size_t cgroup_count; /* one below each cgroup in which held processes live */
};

/**
 * Stop the tree below @p root (or only @p root with @p single). Succeeds when all
 * threads are T, descendants that appeared meanwhile included; a process that
 * ends meanwhile stays in the list, marked, and is logged. A vfork parent waits in
 * state D until its child execs: that child is let run until it has. On failure
 * everything that was stopped here has been continued again, and err names the
 * thread that did not stop, its state and what it waits for in the kernel.
 *
 * Refused before anything is stopped: gpucr itself in the tree (USAGE), a process
 * traced by somebody else or in a frozen cgroup (BUSY), the init of our own pid
 * namespace, which cannot be stopped from inside (UNSUPPORTED), a process that the
 * caller may not signal (PERMISSION). A tracer of a single thread other than the
 * leader shows only when that thread stops; then BUSY too.
 *
 * A process that is stopped already gets no signal and stays stopped at release,
 * unless somebody continues it meanwhile: then it is stopped like the others.
 */
int gpucr_hold_take(pid_t root, bool single, struct gpucr_deadline deadline,
                    struct gpucr_hold **ret, struct gpucr_error *err);

/**
 * A hold over processes that are stopped already (after a CRIU restore, or on resume);
 * the first one is the root. @p was_stopped tells for each whether its owner had
 * stopped it; NULL: none. Those that have ended are marked. Processes that sit in a
 * frozen cgroup of ours, left over by a gpucr that died too, are known as such:
 * gpucr_hold_thaw() brings them back.
 */
int gpucr_hold_adopt(const struct gpucr_pids *pids, const bool *was_stopped,
                     struct gpucr_hold **ret, struct gpucr_error *err);

/**
 * Are all threads of all held processes T (or t, traced by us), or frozen by us? Names
 * the first that is not: VERIFY if it runs, TARGET_DIED if it has ended, BUSY if
 * somebody else traces it.
 */
int gpucr_hold_check(const struct gpucr_hold *hold, struct gpucr_error *err);

/**
 * SIGCONT to each process that its owner had not stopped, children first, so that no
 * parent sees a stopped child; waits until each has left T (at most 5 s). Thaws first
 * if need be. One that cannot be continued does not keep the others stopped. A second
 * call does nothing.
 */
int gpucr_hold_release(struct gpucr_hold *hold, struct gpucr_error *err);

/** Forget without signalling: the processes stay as they are. NULL is fine. */
void gpucr_hold_free(struct gpucr_hold *hold);

/**
 * Move the held processes into a frozen cgroup of ours, gpucr-PID-START (of the root),
 * below their own cgroup, so that no SIGCONT wakes them. Returns 1 when frozen, 0 when
 * this machine or caller cannot (no cgroup v2, not writable): @p err says why, nothing
 * was changed. Frozen processes are not T but in the freezer (state S), because the
 * kernel and shells send SIGHUP to stopped processes; those their owner had stopped
 * stay T.
 */
int gpucr_hold_freeze(struct gpucr_hold *hold, struct gpucr_error *err);

/**
 * The first half of gpucr_hold_freeze(), the move alone: it makes the kernel wait for
 * all CPUs (some 10 ms), so it may run on a thread of its own beside the driver's
 * Checkpoint. After a failure call gpucr_hold_thaw(), which takes back what was moved.
 */
int gpucr_hold_enter(struct gpucr_hold *hold, struct gpucr_error *err);

/**
 * Undo gpucr_hold_freeze(): SIGSTOP first (a SIGCONT may have come: the stop
 * takes effect at thaw before any instruction runs), thaw, wait until all threads
 * are T, back to the old cgroup, remove ours. Nothing to do is fine. A process that
 * its owner had stopped and somebody continued meanwhile is continued at release.
 */
int gpucr_hold_thaw(struct gpucr_hold *hold, struct gpucr_error *err);

/** The cgroup v2 path in which gpucr_hold_freeze() works could be used? 1 or 0, reason in err. */
int gpucr_hold_can_freeze(pid_t root, struct gpucr_error *err);

#endif
