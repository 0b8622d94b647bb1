/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/tree.h"

#include <sys/stat.h>

#include "base/cleanup.h"

enum { READINGS_MAX = 16 };

void gpucr_tree_done(struct gpucr_tree *tree)
{
    free(tree->items);
    *tree = (struct gpucr_tree){0};
}

bool gpucr_tree_contains(const struct gpucr_tree *tree, pid_t pid)
{
    for (size_t i = 0; i < tree->count; i++) {
        if (tree->items[i].pid == pid)
            return true;
    }
    return false;
}

static int read_stats(const struct gpucr_pids *pids, struct gpucr_tree *tree,
                      struct gpucr_error *err)
{
    for (size_t i = 0; i < pids->count; i++) {
        int rc = gpucr_proc_stat_read(pids->ids[i], &tree->items[tree->count], err);

        if (rc == 0)
            tree->count++;
        else if (rc != GPUCR_ERR_NOT_FOUND && rc != GPUCR_ERR_PERMISSION) /* gone, or hidden */
            return rc;
    }
    return 0;
}

int gpucr_tree_read_all(struct gpucr_tree *ret, struct gpucr_error *err)
{
    struct gpucr_tree all = {0};
    struct gpucr_pids pids;
    int rc = gpucr_proc_list(&pids, err);

    if (rc < 0)
        return rc;
    all.items = calloc(pids.count, sizeof(*all.items));
    rc = all.items ? read_stats(&pids, &all, err) : gpucr_error_no_memory(err);
    gpucr_pids_done(&pids);
    if (rc < 0) {
        gpucr_tree_done(&all);
        return rc;
    }
    *ret = all;
    return 0;
}

static int compare_parents(const void *a, const void *b)
{
    const struct gpucr_proc_stat *x = a;
    const struct gpucr_proc_stat *y = b;

    if (x->parent_pid != y->parent_pid)
        return x->parent_pid < y->parent_pid ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Index of the first process whose parent is @pid or comes after it. */
static size_t first_child(const struct gpucr_tree *all, pid_t pid)
{
    size_t low = 0;
    size_t high = all->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (all->items[middle].parent_pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * Breadth first. No process is met twice: each has one parent, and the root is left
 * out, because pids that change hands during the reading could make a circle of it.
 */
static int collect(const struct gpucr_tree *all, struct gpucr_tree *tree, struct gpucr_error *err)
{
    pid_t root = tree->items[0].pid;

    for (size_t at = 0; at < tree->count; at++) {
        pid_t pid = tree->items[at].pid;

        for (size_t i = first_child(all, pid);
             i < all->count && all->items[i].parent_pid == pid && pid != 0; i++) {
            if (all->items[i].pid == root)
                continue;
            if (tree->count >= GPUCR_TREE_MAX) {
                int rc = gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                                         "the tree of process %d has more than %d processes",
                                         (int)root, GPUCR_TREE_MAX);

                return gpucr_error_pid(err, rc, root);
            }
            tree->items[tree->count++] = all->items[i];
        }
    }
    return 0;
}

static int tree_of(struct gpucr_tree *all, pid_t root, struct gpucr_tree *ret,
                   struct gpucr_error *err)
{
    struct gpucr_tree tree = {0};
    size_t at = 0;
    int rc;

    while (at < all->count && all->items[at].pid != root)
        at++;
    if (at == all->count) {
        rc = gpucr_error_set(err, GPUCR_ERR_NOT_FOUND, "there is no process %d", (int)root);
        return gpucr_error_pid(err, rc, root);
    }
    tree.items = calloc(all->count, sizeof(*tree.items));
    if (!tree.items)
        return gpucr_error_no_memory(err);
    tree.items[tree.count++] = all->items[at];
    qsort(all->items, all->count, sizeof(*all->items), compare_parents);
    rc = collect(all, &tree, err);
    if (rc < 0) {
        gpucr_tree_done(&tree);
        return rc;
    }
    *ret = tree;
    return 0;
}

int gpucr_tree_scan(pid_t root, struct gpucr_tree *ret, struct gpucr_error *err)
{
    struct gpucr_tree all;
    int rc = gpucr_tree_read_all(&all, err);

    if (rc < 0)
        return rc;
    rc = tree_of(&all, root, ret, err);
    gpucr_tree_done(&all);
    return rc;
}

/* The number of links of /proc counts the processes. */
static size_t process_count(void)
{
    struct stat st;

    return stat("/proc", &st) == 0 ? (size_t)st.st_nlink : 0;
}

int gpucr_tree_read_once(pid_t root, struct gpucr_tree *ret, struct gpucr_error *err)
{
    int rc = gpucr_tree_descend(root, process_count() / 2, ret, err);

    return rc == 1 ? gpucr_tree_scan(root, ret, err) : rc;
}

static bool trees_agree(const struct gpucr_tree *a, const struct gpucr_tree *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        if (a->items[i].pid != b->items[i].pid ||
            a->items[i].start_ticks != b->items[i].start_ticks)
            return false;
    }
    return true;
}

int gpucr_tree_read(pid_t root, struct gpucr_tree *ret, struct gpucr_error *err)
{
    struct gpucr_tree last;
    int rc = gpucr_tree_read_once(root, &last, err);

    for (int i = 1; rc == 0 && i < READINGS_MAX; i++) {
        struct gpucr_tree next;
        bool agree;

        rc = gpucr_tree_read_once(root, &next, err);
        if (rc < 0) {
            gpucr_tree_done(&last);
            return rc;
        }
        agree = trees_agree(&last, &next);
        gpucr_tree_done(&last);
        last = next;
        if (agree)
            break;
    }
    if (rc == 0)
        *ret = last;
    return rc;
}
