/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/ident.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

/* glibc has wrappers since 2.36 only. */
static int open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* A pidfd becomes readable when the last thread of the process has exited. */
static bool pidfd_ended(int pidfd, int timeout_ms)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    return poll(&p, 1, timeout_ms) > 0;
}

static int not_there(pid_t pid, struct gpucr_error *err)
{
    int rc = gpucr_error_set(err, GPUCR_ERR_NOT_FOUND, "there is no process %d", (int)pid);

    return gpucr_error_pid(err, rc, pid);
}

static int has_ended(pid_t pid, struct gpucr_error *err)
{
    int rc = gpucr_error_set(err, GPUCR_ERR_NOT_FOUND, "process %d has ended", (int)pid);

    return gpucr_error_pid(err, rc, pid);
}

static int open_failed(int os_errno, pid_t pid, struct gpucr_error *err)
{
    int rc;

    if (os_errno == ESRCH || pid <= 0)
        return not_there(pid, err);
    /* A thread that leads no process: EINVAL up to Linux 6.8, ENOENT since. */
    if (os_errno == EINVAL || os_errno == ENOENT)
        rc = gpucr_error_set(err, GPUCR_ERR_NOT_FOUND, "%d is a thread, not a process", (int)pid);
    else if (os_errno == ENOSYS)
        rc = gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                             "this kernel has no pidfd_open; Linux 5.3 is the oldest that does");
    else
        rc = gpucr_error_errno(err, os_errno, "cannot open process %d", (int)pid);
    return gpucr_error_pid(err, rc, pid);
}

/* The inode is the identity of a namespace. Following the link takes ptrace rights. */
static uint64_t pid_namespace_of(pid_t pid)
{
    struct stat st;
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

int gpucr_ident_open(pid_t pid, struct gpucr_ident *ret, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int pidfd = open_pidfd(pid);
    struct gpucr_proc_stat stat;
    struct gpucr_ident ident = {.pid = pid};
    int rc;

    if (pidfd < 0)
        return open_failed(errno, pid, err);
    rc = gpucr_proc_stat_read(pid, &stat, err);
    if (rc < 0)
        return rc;
    ident.start_ticks = stat.start_ticks;
    ident.pid_ns_inode = pid_namespace_of(pid);
    /* Still alive after reading: the pid cannot have changed hands in between. */
    if (pidfd_ended(pidfd, 0))
        return has_ended(pid, err);
    ident.pidfd = gpucr_steal_fd(&pidfd);
    *ret = ident;
    return 0;
}

void gpucr_ident_done(struct gpucr_ident *ident)
{
    gpucr_cleanup_fd(&ident->pidfd);
    ident->pidfd = -1;
}

bool gpucr_ident_ended(const struct gpucr_ident *ident)
{
    return ident->pidfd < 0 || pidfd_ended(ident->pidfd, 0);
}

int gpucr_ident_signal(const struct gpucr_ident *ident, int sig, struct gpucr_error *err)
{
    int rc;

    if (ident->pidfd < 0)
        return has_ended(ident->pid, err);
    if (syscall(SYS_pidfd_send_signal, ident->pidfd, sig, NULL, 0) == 0)
        return 0;
    if (errno == ESRCH)
        return has_ended(ident->pid, err);
    rc = gpucr_error_errno(err, errno, "cannot send signal %d to process %d", sig, (int)ident->pid);
    return gpucr_error_pid(err, rc, ident->pid);
}

int gpucr_ident_wait_end(const struct gpucr_ident *ident, uint64_t timeout_ms,
                         struct gpucr_error *err)
{
    struct gpucr_deadline deadline = {UINT64_MAX};
    int rc;

    if (timeout_ms != UINT64_MAX)
        deadline = gpucr_deadline_in_ms(timeout_ms);
    do {
        if (ident->pidfd < 0 || pidfd_ended(ident->pidfd, gpucr_deadline_left_ms(deadline)))
            return 0;
    } while (!gpucr_deadline_passed(deadline)); /* poll() was interrupted */
    rc = gpucr_error_set(err, GPUCR_ERR_TIMEOUT, "process %d has not ended within %llu ms",
                         (int)ident->pid, (unsigned long long)timeout_ms);
    return gpucr_error_pid(err, rc, ident->pid);
}
