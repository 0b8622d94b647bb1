/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file tree.h
 * A process and its descendants.
 *
 * The links are those of the kernel: when a process ends, its children go to a
 * reaper, mostly outside the tree, and are not part of the tree any more. A
 * daemon that detached itself by a double fork is therefore not found below the
 * process that started it.
 */
#ifndef GPUCR_PROC_TREE_H
#define GPUCR_PROC_TREE_H

#include "proc/procfs.h"

enum { GPUCR_TREE_MAX = 32768 };

struct gpucr_tree {
    struct gpucr_proc_stat *items; /* parents before children; zombies included */
    size_t count;
};

/**
 * Read the tree below and including @p root, until two readings agree. A tree that
 * forks faster than it can be read is returned as last seen: only a hold makes it final.
 */
int gpucr_tree_read(pid_t root, struct gpucr_tree *ret, struct gpucr_error *err);

/**
 * One reading, by the cheaper of the two ways below: complete if the processes of the
 * tree do not run meanwhile.
 */
int gpucr_tree_read_once(pid_t root, struct gpucr_tree *ret, struct gpucr_error *err);

/** From all processes of this /proc. */
int gpucr_tree_scan(pid_t root, struct gpucr_tree *ret, struct gpucr_error *err);

/**
 * From the top, by the lists of children. Returns 1 without a tree when more than
 * @p file_max lists would have to be read, or the kernel has none.
 */
int gpucr_tree_descend(pid_t root, size_t file_max, struct gpucr_tree *ret,
                       struct gpucr_error *err);

/** All processes of this /proc in one reading, ascending. */
int gpucr_tree_read_all(struct gpucr_tree *ret, struct gpucr_error *err);

void gpucr_tree_done(struct gpucr_tree *tree);
bool gpucr_tree_contains(const struct gpucr_tree *tree, pid_t pid);

/**
 * A process group of the tree that would become orphaned, and so be woken and
 * sent SIGHUP by the kernel while it is stopped, when @p ret_link_pid (a process
 * outside the tree) exits. Returns 1 if there is one, 0 if not. The pid is 0 when the
 * process outside lies in an outer pid namespace.
 */
int gpucr_tree_orphanable(const struct gpucr_tree *tree, pid_t *ret_group, pid_t *ret_link_pid,
                          struct gpucr_error *err);

#endif
