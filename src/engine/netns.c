/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

struct job {
    int namespace_fd;
    pid_t pid;
    int (*fn)(void *arg, struct gpucr_error *err);
    void *arg;
    struct gpucr_error *err;
    int result;
};

static void path_of(pid_t pid, char *ret, size_t size)
{
    (void)snprintf(ret, size, "/proc/%d/ns/net", (int)pid);
}

bool gpucr_netns_differs(pid_t pid)
{
    struct stat own, other;
    char path[64];

    path_of(pid, path, sizeof(path));
    return stat("/proc/thread-self/ns/net", &own) == 0 && stat(path, &other) == 0 &&
           (own.st_ino != other.st_ino || own.st_dev != other.st_dev);
}

/* setns() moves this thread only. */
static void *work(void *arg)
{
    struct job *job = arg;

    if (setns(job->namespace_fd, CLONE_NEWNET) == 0)
        job->result = job->fn(job->arg, job->err);
    else
        job->result = gpucr_error_errno(
            job->err, errno, "cannot enter the network namespace of process %d", (int)job->pid);
    return NULL;
}

int gpucr_netns_call(pid_t pid, int (*fn)(void *arg, struct gpucr_error *err), void *arg,
                     struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = -1;
    struct job job = {.pid = pid, .fn = fn, .arg = arg, .err = err};
    pthread_t thread;
    char path[64];
    int rc;

    if (!gpucr_netns_differs(pid))
        return fn(arg, err);
    path_of(pid, path, sizeof(path));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return gpucr_error_errno(err, errno, "cannot open the network namespace of process %d",
                                 (int)pid);
    job.namespace_fd = fd;
    rc = pthread_create(&thread, NULL, work, &job);
    if (rc != 0)
        return gpucr_error_errno(err, rc, "cannot start a thread");
    (void)pthread_join(thread, NULL);
    return job.result;
}
