/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The descriptors of a thread. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "proc/procfs.h"

static int walk_failed(int os_errno, pid_t pid, struct gpucr_error *err)
{
    int rc = gpucr_error_errno(err, os_errno == ENOENT ? ESRCH : os_errno,
                               "cannot list the descriptors of process %d", (int)pid);

    return gpucr_error_pid(err, rc, pid);
}

static int too_many(pid_t pid, struct gpucr_error *err)
{
    int rc = gpucr_error_set(err, GPUCR_ERR_SYSTEM, "process %d has more than %d open descriptors",
                             (int)pid, GPUCR_PROC_FDS_MAX);

    return gpucr_error_pid(err, rc, pid);
}

int gpucr_fds_walk(pid_t pid, pid_t tid, gpucr_fd_fn fn, void *arg, struct gpucr_error *err)
{
    GPUCR_AUTO_DIR DIR *dir = NULL;
    char target[PATH_MAX];
    char path[64];
    size_t count = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/fd", (int)pid, (int)tid);
    dir = opendir(path);
    if (!dir)
        return walk_failed(errno, pid, err);
    for (;;) {
        const struct dirent *entry;
        uint64_t fd;
        ssize_t n;
        int rc;

        errno = 0;
        entry = readdir(dir);
        if (!entry)
            return errno == 0 ? 0 : walk_failed(errno, pid, err);
        if (!gpucr_parse_u64(entry->d_name, 10, &fd) || fd > INT_MAX)
            continue;
        if (++count > GPUCR_PROC_FDS_MAX)
            return too_many(pid, err);
        n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
        if (n < 0 && (errno == ENOENT || errno == ESRCH))
            continue; /* closed meanwhile */
        if (n < 0)
            return walk_failed(errno, pid, err);
        target[n] = '\0';
        rc = fn(arg, (int)fd, target);
        if (rc != 0)
            return rc;
    }
}
