/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_helpers.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/criu_spawn.h"
#include "proc/tree.h"

enum { END_MS = 10000 };

void gpucr_criu_helpers_add(struct gpucr_criu_helpers *helpers, pid_t pid)
{
    int pidfd;

    for (size_t i = 0; i < helpers->count; i++) {
        if (helpers->items[i].pid == pid)
            return;
    }
    if (helpers->count == helpers->capacity) {
        size_t capacity = helpers->capacity ? helpers->capacity * 2 : 16;
        struct gpucr_criu_helper *items = realloc(helpers->items, capacity * sizeof(*items));

        if (!items)
            return;
        helpers->items = items;
        helpers->capacity = capacity;
    }
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0U);
    if (pidfd >= 0)
        helpers->items[helpers->count++] = (struct gpucr_criu_helper){.pid = pid, .pidfd = pidfd};
}

void gpucr_criu_helpers_collect(struct gpucr_criu_helpers *helpers, pid_t top)
{
    struct gpucr_tree tree = {0};

    if (top <= 0 || gpucr_tree_read(top, &tree, NULL) != 0)
        return;
    for (size_t i = 0; i < tree.count; i++) {
        if (tree.items[i].pid != top)
            gpucr_criu_helpers_add(helpers, tree.items[i].pid);
    }
    gpucr_tree_done(&tree);
}

void gpucr_criu_helpers_end(struct gpucr_criu_helpers *helpers)
{
    for (size_t i = 0; i < helpers->count; i++)
        (void)syscall(SYS_pidfd_send_signal, helpers->items[i].pidfd, SIGKILL, NULL, 0);
    for (size_t i = 0; i < helpers->count; i++)
        (void)gpucr_spawn_reap(helpers->items[i].pid, helpers->items[i].pidfd, END_MS, NULL);
}

void gpucr_criu_helpers_done(struct gpucr_criu_helpers *helpers)
{
    for (size_t i = 0; i < helpers->count; i++)
        (void)close(helpers->items[i].pidfd);
    free(helpers->items);
    *helpers = (struct gpucr_criu_helpers){0};
}
