/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which process groups the kernel would orphan.
 *
 * A group is orphaned when no living member has its parent in another group of the
 * same session (kernel/exit.c, will_become_orphaned_pgrp). When the exit of a process
 * makes it so while a member is stopped, the kernel sends SIGHUP and SIGCONT to the
 * group. A process that is held cannot exit by itself, so only connections through
 * processes outside the tree count as breakable.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "proc/tree.h"

/* Fixed in the kernel (include/linux/proc_ns.h, PROC_PID_INIT_INO). */
static const ino_t initial_pid_ns_inode = 0xeffffffc;

/* The kernel does not count the machine's init as a connection, but a container's. */
static bool init_is_global(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == initial_pid_ns_inode;
}

static bool has_ended(const struct gpucr_proc_stat *p)
{
    /* A leader that exited before its threads still counts for the kernel. */
    return (p->state == 'Z' || p->state == 'X' || p->state == 'x') && p->thread_count <= 1;
}

static const struct gpucr_proc_stat *find(const struct gpucr_tree *all, pid_t pid)
{
    size_t low = 0;
    size_t high = all->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (all->items[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < all->count && all->items[low].pid == pid ? &all->items[low] : NULL;
}

enum connection {
    CONNECTION_NONE,      /* the parent does not keep the group from being orphaned */
    CONNECTION_FIRM,      /* it does, and cannot go away while the tree is held */
    CONNECTION_BREAKABLE, /* it does, as long as a process outside lives */
};

struct scene {
    const struct gpucr_tree *all;  /* ascending */
    const struct gpucr_tree *tree; /* what will be held */
    bool global_init;
};

static enum connection connection_of(const struct scene *scene,
                                     const struct gpucr_proc_stat *member)
{
    const struct gpucr_proc_stat *parent = find(scene->all, member->parent_pid);

    if (has_ended(member))
        return CONNECTION_NONE;
    if (member->parent_pid == 0) {
        /* From an outer pid namespace; session 0 means that the session is from there too. */
        return member->session == 0 && member->pid != 1 ? CONNECTION_BREAKABLE : CONNECTION_NONE;
    }
    if (!parent || (parent->pid == 1 && scene->global_init))
        return CONNECTION_NONE;
    if (parent->group == member->group || parent->session != member->session)
        return CONNECTION_NONE;
    if (parent->pid == 1) /* its end is the end of all in its namespace */
        return CONNECTION_FIRM;
    /* A member outside can exit too, and takes its connection along. */
    if (gpucr_tree_contains(scene->tree, parent->pid) &&
        gpucr_tree_contains(scene->tree, member->pid))
        return CONNECTION_FIRM;
    return CONNECTION_BREAKABLE;
}

/* 1 with the parent of the first connection if all connections of the group are breakable. */
static int group_orphanable(const struct scene *scene, pid_t group, pid_t *ret_link_pid)
{
    bool found = false;
    pid_t link_pid = 0;

    for (size_t i = 0; i < scene->all->count; i++) {
        const struct gpucr_proc_stat *member = &scene->all->items[i];
        enum connection c;

        if (member->group != group)
            continue;
        c = connection_of(scene, member);
        if (c == CONNECTION_FIRM)
            return 0;
        if (c == CONNECTION_BREAKABLE && !found) {
            found = true;
            link_pid = member->parent_pid;
        }
    }
    if (found)
        *ret_link_pid = link_pid;
    return found ? 1 : 0;
}

int gpucr_tree_orphanable(const struct gpucr_tree *tree, pid_t *ret_group, pid_t *ret_link_pid,
                          struct gpucr_error *err)
{
    struct gpucr_tree all;
    struct scene scene = {.all = &all, .tree = tree, .global_init = init_is_global()};
    struct gpucr_pids done = {0};
    int rc = gpucr_tree_read_all(&all, err);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < tree->count && rc == 0; i++) {
        const struct gpucr_proc_stat *p = &tree->items[i];

        if (has_ended(p) || gpucr_pids_contain(&done, p->group))
            continue;
        rc = group_orphanable(&scene, p->group, ret_link_pid);
        if (rc == 1)
            *ret_group = p->group;
        else
            rc = gpucr_pids_add(&done, p->group, err);
    }
    gpucr_pids_done(&done);
    gpucr_tree_done(&all);
    return rc;
}
