/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/breakpoint.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    FIRE_MS = 200,
    START_MS = 2000,
    POLL_US = 500,
    STATUS_REACHED = 77, /* exit status of a child that ran over the breakpoint unseen */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool fire;

__attribute__((noinline)) static void target(void)
{
    __asm__ volatile("" ::: "memory");
}

/* The next stop or end of the child; -1 when none comes in time. */
static int wait_for(pid_t pid, uint64_t timeout_ms)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(timeout_ms);
    int status = 0;

    for (;;) {
        pid_t rc = waitpid(pid, &status, WNOHANG | __WALL);

        if (rc == pid)
            return status;
        if ((rc < 0 && errno != EINTR) || gpucr_deadline_passed(deadline))
            return -1;
        gpucr_sleep_us(POLL_US);
    }
}

/* An execution breakpoint: address in DR0, local enable bit 0 in DR7, length and type 0. */
static bool arm(pid_t pid)
{
    size_t base = offsetof(struct user, u_debugreg);

    return ptrace(PTRACE_POKEUSER, pid, base, (uintptr_t)target) == 0 &&
           ptrace(PTRACE_POKEUSER, pid, base + 7 * sizeof(long), 1L) == 0 &&
           ptrace(PTRACE_CONT, pid, NULL, NULL) == 0;
}

static void child_main(void)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 ||
        syscall(SYS_kill, (pid_t)syscall(SYS_getpid), SIGSTOP) != 0)
        _exit(1);
    target();
    _exit(STATUS_REACHED);
}

static void try_once(void)
{
    /* Not fork(): handlers of pthread_atfork, of the driver's library say, must not run. */
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
    int status;

    if (pid == 0)
        child_main();
    if (pid < 0)
        return;
    status = wait_for(pid, START_MS);
    if (status >= 0 && WIFSTOPPED(status) && arm(pid)) {
        status = wait_for(pid, FIRE_MS);
        fire = status >= 0 && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
    }
    if (status >= 0 && !WIFSTOPPED(status))
        return; /* ended and reaped */
    (void)kill(pid, SIGKILL);
    (void)wait_for(pid, START_MS);
}

bool gpucr_breakpoints_fire(void)
{
    (void)pthread_once(&once, try_once);
    return fire;
}
