/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_spawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

/* Missing in the headers of glibc 2.31. */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif

enum {
    STACK_BYTES = 256 << 10, /* the sanitizers' interceptors want more than the child does */
    HIGH_FD = 64,            /* where descriptors are parked while 0, 1, 2, … are filled */
    SHARE_FLAGS =
#ifdef __SANITIZE_THREAD__
        CLONE_VFORK, /* the thread sanitizer takes a child in our memory for a fork of threads */
#else
        CLONE_VM | CLONE_VFORK,
#endif
    SIGNAL_MAX = 64,
    END_MS = 10000,
    POLL_US = 500,
};

/* What the child needs, prepared by the parent; the child reports its errno in it. It lies
 * in memory that is shared even where the rest is not. */
struct child {
    const struct gpucr_spawn *spawn;
    int null_fd;
    int error;
};

static void reset_signals(void)
{
    struct sigaction fresh = {.sa_handler = SIG_DFL};

    /* Ignored signals would stay ignored across execve(). 32 and 33 are refused by
     * glibc, which keeps them for itself. */
    for (int sig = 1; sig <= SIGNAL_MAX; sig++)
        (void)sigaction(sig, &fresh, NULL);
}

/* Put the wanted descriptors in place, in two steps so that none is overwritten. */
static int place_fds(const struct child *child)
{
    const struct gpucr_spawn *spawn = child->spawn;
    int parked[GPUCR_SPAWN_FDS_MAX + 1];
    size_t count = spawn->fd_count + (spawn->path ? 0 : 1);

    for (size_t i = 0; i < count; i++) {
        int fd = i < spawn->fd_count ? spawn->fds[i] : spawn->exec_fd;

        parked[i] = fcntl(fd < 0 ? child->null_fd : fd, F_DUPFD, HIGH_FD);
        if (parked[i] < 0)
            return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (dup3(parked[i], (int)i, i < spawn->fd_count ? 0 : O_CLOEXEC) < 0)
            return -1;
    }
    /* Linux 5.9; the oldest supported kernel is newer. */
    return syscall(SYS_close_range, (unsigned)count, ~0U, 0U) == 0 ? 0 : -1;
}

/* Runs in the child, on a stack of its own, in the memory of the parent. */
static int child_main(void *arg)
{
    struct child *child = arg;
    const struct gpucr_spawn *spawn = child->spawn;
    char *const *argv = (char *const *)spawn->argv;
    char *const *envp = (char *const *)spawn->envp;
    sigset_t mask;

    reset_signals();
    if (place_fds(child) != 0 || chdir("/") != 0)
        goto fail;
    if (spawn->own_group && setpgid(0, 0) != 0)
        goto fail;
    (void)sigemptyset(&mask);
    if (spawn->block_sigchld)
        (void)sigaddset(&mask, SIGCHLD);
    (void)sigprocmask(SIG_SETMASK, &mask, NULL);
    if (spawn->path)
        (void)execve(spawn->path, argv, envp);
    else
        (void)syscall(SYS_execveat, (int)spawn->fd_count, "", argv, envp, AT_EMPTY_PATH);
fail:
    child->error = errno ? errno : EINVAL;
    _exit(127);
}

static int clone_child(struct child *child, void *stack_end, pid_t *ret_pid, int *ret_pidfd)
{
    int flags = SHARE_FLAGS | CLONE_PIDFD | child->spawn->namespaces | SIGCHLD;
    sigset_t all, saved;
    int pidfd = -1;
    int error;
    pid_t pid;

    /* No handler of the program may run in the child while it shares its memory. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &saved);
    pid = clone(child_main, stack_end, flags, child, &pidfd);
    error = errno;
    (void)pthread_sigmask(SIG_SETMASK, &saved, NULL);
    if (pid < 0)
        return -error;
    *ret_pid = pid;
    *ret_pidfd = pidfd;
    return 0;
}

/* The child's own errno when it could not run the program, else 0. */
static int run_child(const struct gpucr_spawn *spawn, int null_fd, pid_t *ret_pid, int *ret_pidfd)
{
    char *memory = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    struct child *child = (struct child *)memory; /* below the end of its stack */
    int rc;

    if (memory == MAP_FAILED)
        return -errno;
    *child = (struct child){.spawn = spawn, .null_fd = null_fd};
    rc = clone_child(child, memory + STACK_BYTES, ret_pid, ret_pidfd);
    if (rc == 0)
        rc = child->error;
    (void)munmap(memory, STACK_BYTES);
    return rc;
}

int gpucr_spawn(const struct gpucr_spawn *spawn, pid_t *ret_pid, int *ret_pidfd,
                struct gpucr_error *err)
{
    const char *name = spawn->path ? spawn->path : spawn->argv[0];
    GPUCR_AUTO_FD int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    GPUCR_AUTO_FD int pidfd = -1;
    pid_t pid = 0;
    int rc;

    assert(spawn->fd_count <= GPUCR_SPAWN_FDS_MAX);
    if (null_fd < 0)
        return gpucr_error_errno(err, errno, "cannot open /dev/null");
    rc = run_child(spawn, null_fd, &pid, &pidfd);
    if (rc < 0)
        return gpucr_error_errno(err, -rc, "cannot start a process for %s", name);
    if (rc > 0) {
        (void)waitpid(pid, NULL, 0);
        return gpucr_error_errno(err, rc, "cannot run %s", name);
    }
    *ret_pid = pid;
    *ret_pidfd = gpucr_steal_fd(&pidfd);
    return 0;
}

bool gpucr_spawn_reap(pid_t pid, int pidfd, int timeout_ms, int *ret_status)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms((uint64_t)timeout_ms);
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    int status = 0;
    pid_t rc;

    while (poll(&ended, 1, gpucr_deadline_left_ms(deadline)) < 0 && errno == EINTR)
        ;
    for (;;) {
        rc = waitpid(pid, &status, WNOHANG);
        if (rc == pid && (WIFEXITED(status) || WIFSIGNALED(status)))
            break;
        /* ECHILD: not our child, or the program lets its children be reaped by nobody. */
        if (rc < 0 && errno == ECHILD)
            return ended.revents != 0;
        /* A process that was traced until now may be let go of a moment later. */
        if (gpucr_deadline_passed(deadline))
            return false;
        gpucr_sleep_us(POLL_US);
    }
    if (ret_status)
        *ret_status = status;
    return true;
}

void gpucr_spawn_end(pid_t pid, int pidfd)
{
    /* By its descriptor: a program that ignores SIGCHLD has no zombie to keep the pid. */
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    (void)gpucr_spawn_reap(pid, pidfd, END_MS, NULL);
}
