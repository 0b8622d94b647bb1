/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "proc/procfs.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum { POLL_US = 2000, DETACH_MS = 2000, COPIES_MAX = 65536 };

struct gpucr_criu_guard {
    pid_t pid;
    int pidfd;
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
    atomic_int crashed; /* signal that is held back */
    int *copies;
    size_t count;
    size_t capacity;
};

static int copy_socket(void *arg, int fd, const char *target)
{
    struct gpucr_criu_guard *guard = arg;
    int copy;

    if (!gpucr_starts_with(target, "socket:"))
        return 0;
    if (guard->count == guard->capacity) {
        size_t capacity = guard->capacity ? guard->capacity * 2 : 16;
        int *copies;

        if (capacity > COPIES_MAX)
            return 1;
        copies = realloc(guard->copies, capacity * sizeof(*copies));
        if (!copies)
            return 1;
        guard->copies = copies;
        guard->capacity = capacity;
    }
    copy = (int)syscall(SYS_pidfd_getfd, guard->pidfd, fd, 0U);
    if (copy >= 0)
        guard->copies[guard->count++] = copy;
    return 0;
}

/* Would the signal end criu? What it handles itself (SIGALRM) goes on to it. */
static bool is_fatal(const struct gpucr_criu_guard *guard, int sig)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL,  SIGFPE,  SIGABRT, SIGSYS, SIGTRAP,
                                SIGTERM, SIGINT, SIGQUIT, SIGXCPU, SIGXFSZ, SIGHUP};
    struct gpucr_proc_status status;

    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(fatal); i++) {
        if (fatal[i] == sig)
            return gpucr_proc_status_read(guard->pid, &status, NULL) != 0 ||
                   (status.signals_caught >> (sig - 1) & 1) == 0;
    }
    return false;
}

/* criu's stop as waitid() tells it: an event in the second byte, a signal in the first. */
static void handle_stop(struct gpucr_criu_guard *guard, int status)
{
    int event = status >> 8;
    int sig = status & 0xff;
    bool is_job_stop = sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU;

    switch (event) {
    case PTRACE_EVENT_EXIT:
        (void)gpucr_fds_walk(guard->pid, guard->pid, copy_socket, guard, NULL);
        gpucr_debug("criu exits: %zu of its sockets are kept open meanwhile", guard->count);
        (void)ptrace(PTRACE_CONT, guard->pid, NULL, NULL);
        break;
    case PTRACE_EVENT_STOP: /* somebody stopped criu: it stays stopped */
        (void)ptrace(is_job_stop ? PTRACE_LISTEN : PTRACE_CONT, guard->pid, NULL, NULL);
        break;
    default: /* a signal on its way to criu */
        if (is_fatal(guard, sig)) {
            atomic_store(&guard->crashed, sig);
            break; /* it stands still until it is let go */
        }
        (void)ptrace(PTRACE_CONT, guard->pid, NULL, (void *)(long)sig);
        break;
    }
}

/* The next stop of criu; 0 when there is none, -1 when it has gone. */
static int next_stop(const struct gpucr_criu_guard *guard)
{
    siginfo_t info = {0};

    if (waitid(P_PID, (id_t)guard->pid, &info, WSTOPPED | WNOHANG | __WALL) != 0)
        return errno == EINTR ? 0 : -1;
    return info.si_pid == guard->pid ? info.si_status : 0;
}

/* A tracee can be let go only while it stands still. */
static void let_go(struct gpucr_criu_guard *guard)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(DETACH_MS);

    if (atomic_load(&guard->crashed) != 0) { /* it stops instead of ending */
        (void)ptrace(PTRACE_DETACH, guard->pid, NULL, (void *)(long)SIGSTOP);
        return;
    }
    if (ptrace(PTRACE_INTERRUPT, guard->pid, NULL, NULL) != 0)
        return; /* it has gone */
    while (!gpucr_deadline_passed(deadline)) {
        int status = next_stop(guard);

        if (status < 0)
            return;
        if (status >> 8 == PTRACE_EVENT_STOP) {
            (void)ptrace(PTRACE_DETACH, guard->pid, NULL, NULL);
            return;
        }
        if (status != 0)
            handle_stop(guard, status);
        else
            gpucr_sleep_us(POLL_US);
    }
}

static void *watch(void *arg)
{
    struct gpucr_criu_guard *guard = arg;

    if (ptrace(PTRACE_SEIZE, guard->pid, NULL, (void *)PTRACE_O_TRACEEXIT) != 0) {
        gpucr_debug("criu is not guarded: %s", strerror(errno));
        return NULL;
    }
    while (!atomic_load(&guard->stop)) {
        int status = next_stop(guard);

        if (status < 0)
            return NULL;
        if (status != 0)
            handle_stop(guard, status);
        else
            gpucr_sleep_us(POLL_US);
        /* Held back: nothing more comes until somebody decides. */
    }
    let_go(guard);
    return NULL;
}

struct gpucr_criu_guard *gpucr_criu_guard_start(pid_t pid, int pidfd)
{
    struct gpucr_criu_guard *guard = calloc(1, sizeof(*guard));
    int rc;

    if (!guard)
        return NULL;
    guard->pid = pid;
    guard->pidfd = pidfd;
    rc = pthread_create(&guard->thread, NULL, watch, guard);
    if (rc != 0) {
        gpucr_debug("criu is not guarded: %s", strerror(rc));
        free(guard);
        return NULL;
    }
    guard->has_thread = true;
    return guard;
}

int gpucr_criu_guard_crashed(const struct gpucr_criu_guard *guard)
{
    return guard ? atomic_load(&guard->crashed) : 0;
}

void gpucr_criu_guard_stop(struct gpucr_criu_guard *guard)
{
    if (!guard || !guard->has_thread)
        return;
    atomic_store(&guard->stop, true);
    (void)pthread_join(guard->thread, NULL);
    guard->has_thread = false;
}

void gpucr_criu_guard_free(struct gpucr_criu_guard *guard)
{
    if (!guard)
        return;
    gpucr_criu_guard_stop(guard);
    for (size_t i = 0; i < guard->count; i++)
        (void)close(guard->copies[i]);
    free(guard->copies);
    free(guard);
}
