/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tree from the top: each thread's /proc/PID/task/TID/children (Linux 4.2, with
 * CONFIG_PROC_CHILDREN). On machines with thousands of processes this is much cheaper
 * than reading the state of all. The list of a process that runs may miss a child when
 * others exit meanwhile; of a process that rests it is exact.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "proc/tree.h"

enum { FIRST_CAPACITY = 16, SHORT_BYTES = 4096, LONG_BYTES_MAX = 64 << 20 };

struct descent {
    struct gpucr_tree tree;
    size_t capacity;
    size_t budget; /* files that may still be read before the other way is cheaper */
};

static int add(struct descent *d, const struct gpucr_proc_stat *stat, struct gpucr_error *err)
{
    if (d->tree.count >= GPUCR_TREE_MAX) {
        pid_t root = d->tree.items[0].pid;
        int rc = gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                                 "the tree of process %d has more than %d processes", (int)root,
                                 GPUCR_TREE_MAX);

        return gpucr_error_pid(err, rc, root);
    }
    if (d->tree.count == d->capacity) {
        size_t capacity = d->capacity ? d->capacity * 2 : FIRST_CAPACITY;
        struct gpucr_proc_stat *items = reallocarray(d->tree.items, capacity, sizeof(*items));

        if (!items)
            return gpucr_error_no_memory(err);
        d->tree.items = items;
        d->capacity = capacity;
    }
    d->tree.items[d->tree.count++] = *stat;
    return 0;
}

/* A child is what says so itself: pids may have changed hands since the list was made. */
static int add_child(struct descent *d, pid_t parent, pid_t pid, struct gpucr_error *err)
{
    struct gpucr_proc_stat stat;

    if (gpucr_proc_stat_read(pid, &stat, NULL) < 0 || stat.parent_pid != parent ||
        gpucr_tree_contains(&d->tree, pid))
        return 0;
    return add(d, &stat, err);
}

static int add_children(struct descent *d, pid_t pid, pid_t tid, struct gpucr_error *err)
{
    GPUCR_AUTO_FREE char *long_text = NULL;
    char text[SHORT_BYTES];
    char path[64];
    const char *p = text;
    uint64_t child;
    int n;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)tid);
    n = gpucr_file_read_small(AT_FDCWD, path, text, sizeof(text));
    if (n < 0) /* gone */
        return 0;
    if (n == (int)sizeof(text) - 1) {
        int rc = gpucr_file_read(AT_FDCWD, path, LONG_BYTES_MAX, &long_text, err);

        if (rc < 0)
            return rc == GPUCR_ERR_NOT_FOUND ? 0 : rc;
        p = long_text;
    }
    for (; gpucr_scan_u64(p, 10, &child, &p); p += strspn(p, " ")) {
        int rc = add_child(d, pid, (pid_t)child, err);

        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Returns 1 when the budget is spent. */
static int add_below(struct descent *d, const struct gpucr_proc_stat *stat, struct gpucr_error *err)
{
    struct gpucr_pids tids = {0};
    pid_t pid = stat->pid;
    int rc;

    if (stat->thread_count > d->budget)
        return 1;
    d->budget -= stat->thread_count;
    if (stat->thread_count <= 1)
        return add_children(d, pid, pid, err);
    rc = gpucr_task_list(pid, &tids, NULL);
    if (rc < 0) /* gone */
        return 0;
    for (size_t i = 0; rc == 0 && i < tids.count; i++)
        rc = add_children(d, pid, tids.ids[i], err);
    gpucr_pids_done(&tids);
    return rc;
}

int gpucr_tree_descend(pid_t root, size_t file_max, struct gpucr_tree *ret, struct gpucr_error *err)
{
    struct descent d = {.budget = file_max};
    struct gpucr_proc_stat stat;
    int rc;

    if (access("/proc/thread-self/children", R_OK) < 0)
        return 1;
    rc = gpucr_proc_stat_read(root, &stat, err);
    if (rc == 0)
        rc = add(&d, &stat, err);
    for (size_t i = 0; rc == 0 && i < d.tree.count; i++) {
        stat = d.tree.items[i]; /* the list moves when it grows */
        rc = add_below(&d, &stat, err);
    }
    if (rc != 0) {
        gpucr_tree_done(&d.tree);
        return rc;
    }
    *ret = d.tree;
    return 0;
}
