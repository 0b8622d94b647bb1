/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_spawn.h
 * Starting a program from a library: whatever threads, descriptors, signal
 * dispositions and environment the calling process has, the program sees none of them.
 *
 * The child shares the memory of the caller until it has executed the program
 * (as vfork does), so a caller of any size starts it in no time and no handler of
 * pthread_atfork runs.
 */
#ifndef GPUCR_ENGINE_CRIU_SPAWN_H
#define GPUCR_ENGINE_CRIU_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

enum { GPUCR_SPAWN_FDS_MAX = 10 };

struct gpucr_spawn {
    const char *path;  /* the program, or NULL with exec_fd */
    int exec_fd;       /* the program as a descriptor, used when path is NULL */
    const char **argv; /* terminated by NULL */
    const char **envp; /* the whole environment */
    /** They become 0, 1, 2, …; -1 stands for /dev/null. Everything else is closed. */
    int fds[GPUCR_SPAWN_FDS_MAX];
    size_t fd_count;
    int namespaces;     /* CLONE_NEW… flags */
    bool block_sigchld; /* start with SIGCHLD blocked */
    bool own_group;     /* a process group of its own, out of reach of the terminal's signals */
};

/**
 * Start it in "/" with default signal dispositions and no signal blocked. The
 * child of the caller and a descriptor of it (O_CLOEXEC) are returned.
 */
int gpucr_spawn(const struct gpucr_spawn *spawn, pid_t *ret_pid, int *ret_pidfd,
                struct gpucr_error *err);

/** Wait for a child of ours at most @p timeout_ms. Returns true when it was reaped. */
bool gpucr_spawn_reap(pid_t pid, int pidfd, int timeout_ms, int *ret_status);

/** End a child of ours (SIGKILL) and reap it. */
void gpucr_spawn_end(pid_t pid, int pidfd);

#endif
