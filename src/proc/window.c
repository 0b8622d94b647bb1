/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Facts of the kernel (3.4 and later) that this file rests on:
 *  - A seized thread of a stopped process may be continued; the group stop stays
 *    in effect for the process, and detaching or the tracer's death puts the
 *    thread back into it (__ptrace_unlink() sets the pending stop anew).
 *  - A trap of a seized thread (PTRACE_EVENT_STOP) carries the signal of the group
 *    stop, and SIGTRAP if none is in effect. SIGCONT makes every seized thread
 *    trap. So a SIGTRAP trap means: somebody woke the process.
 *  - SIGSTOP is taken before the next user instruction, also when it is sent to
 *    threads that are in a ptrace stop and then detached.
 *  - A thread created by a traced one begins with such a trap, and inherits the
 *    signal mask of its creator, which reports its number (PTRACE_EVENT_CLONE).
 */
#include "proc/window.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "proc/ptrace_op.h"

enum {
    CLOSE_MS = 20000, /* a thread in uninterruptible sleep takes as long as that lasts */
    VERIFY_STEP_MS = 10,
    SLEEP_US_MIN = 50,
    SLEEP_US_MAX = 500,
    RECOVER_EVERY = 20, /* idle rounds */
};

struct window_thread {
    pid_t tid;
    uint64_t saved_mask;  /* before the window; for a new thread its creator's */
    uint64_t window_mask; /* what it runs with */
    bool stopped;         /* in a ptrace stop that we keep */
    bool foreign;         /* a process made by clone(), attached by the way */
};

struct gpucr_window {
    struct gpucr_window *next;
    pid_t pid;
    struct window_thread *threads;
    size_t count, capacity;
    bool closing;
    bool woken; /* a SIGCONT ended the group stop while the window was open */
};

static uint64_t bit(int sig)
{
    return 1ull << (sig - 1);
}

/*
 * All signals, except those that a thread's own fault raises: while these are
 * blocked the kernel kills the process instead of calling its handler, so they
 * stay as the thread had them. SIGKILL and SIGSTOP cannot be blocked.
 */
static uint64_t blocking_mask(uint64_t saved)
{
    uint64_t faults =
        bit(SIGSEGV) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGSYS);

    return saved | ~(faults | bit(SIGKILL) | bit(SIGSTOP));
}

static struct gpucr_window *window_free(struct gpucr_window *window)
{
    if (window) {
        free(window->threads);
        free(window);
    }
    return NULL;
}

GPUCR_DEFINE_CLEANUP(struct gpucr_window, window, window_free)

static struct gpucr_window *find_window(const struct gpucr_windows *windows, pid_t pid)
{
    struct gpucr_window *window = windows->first;

    while (window && window->pid != pid)
        window = window->next;
    return window;
}

static void unlink_window(struct gpucr_windows *windows, struct gpucr_window *window)
{
    struct gpucr_window **slot = &windows->first;

    while (*slot != window)
        slot = &(*slot)->next;
    *slot = window->next;
    window->next = NULL;
}

static struct window_thread *find_thread(const struct gpucr_window *window, pid_t tid)
{
    for (size_t i = 0; i < window->count; i++) {
        if (window->threads[i].tid == tid)
            return &window->threads[i];
    }
    return NULL;
}

/* NULL when memory ran out. */
static struct window_thread *add_thread(struct gpucr_window *window, pid_t tid)
{
    if (window->count == window->capacity) {
        size_t capacity = window->capacity ? 2 * window->capacity : 16;
        struct window_thread *threads =
            reallocarray(window->threads, capacity, sizeof(window->threads[0]));
        if (!threads)
            return NULL;
        window->threads = threads;
        window->capacity = capacity;
    }
    window->threads[window->count] = (struct window_thread){.tid = tid};
    return &window->threads[window->count++];
}

static void forget_thread(struct gpucr_window *window, struct window_thread *thread)
{
    *thread = window->threads[--window->count];
}

/* ---- what the traced threads report ---- */

static void resume(pid_t tid, int sig)
{
    /* ESRCH: it was killed; its exit is reported next. */
    (void)ptrace(PTRACE_CONT, tid, NULL, (void *)(intptr_t)sig);
}

/*
 * Somebody's SIGCONT: the application's threads run. Stop them again at once; the
 * close of the window reports it.
 */
static void stop_again(struct gpucr_window *window)
{
    if (!window->woken)
        gpucr_warn("process %d was woken by SIGCONT while suspended; stopping it again",
                   window->pid);
    window->woken = true;
    /* The pid cannot have been reused: a thread of the process is traced and alive. */
    (void)kill(window->pid, SIGSTOP);
}

static bool is_thread_of(pid_t pid, pid_t tid)
{
    struct gpucr_proc_stat stat;

    return !gpucr_task_stat_read(pid, tid, &stat, NULL);
}

static void on_clone(struct gpucr_window *window, struct window_thread *creator)
{
    struct window_thread known = *creator;
    unsigned long message = 0;

    if (ptrace(PTRACE_GETEVENTMSG, known.tid, NULL, &message))
        return;
    struct window_thread *thread = add_thread(window, (pid_t)message); /* may move the creator */
    if (thread) {
        thread->saved_mask = known.saved_mask;
        thread->window_mask = known.window_mask;
        /* clone() also makes processes; those are let go at their first stop. */
        thread->foreign = !is_thread_of(window->pid, thread->tid);
    }
    resume(known.tid, 0);
}

/*
 * A thread that was seized inside a signal handler gets its old mask back when the
 * handler returns, and takes the next signal of the process. The mask it has now is its
 * own; with ours in place again the kernel puts the signal back into the queue
 * (ptrace_signal(), since 2.6).
 */
static void block_again(struct window_thread *thread)
{
    uint64_t mask = 0;

    if (gpucr_ptrace_mask_get(thread->tid, &mask, NULL) || mask == thread->window_mask)
        return;
    thread->saved_mask = mask;
    thread->window_mask = blocking_mask(mask);
    (void)gpucr_ptrace_mask_set(thread->tid, thread->window_mask, NULL);
}

static void on_stop(struct gpucr_window *window, struct window_thread *thread, int status)
{
    int sig = WSTOPSIG(status);
    pid_t tid = thread->tid;

    if (thread->foreign) {
        gpucr_ptrace_detach(tid);
        forget_thread(window, thread);
        return;
    }
    switch (gpucr_ptrace_event(status)) {
    case PTRACE_EVENT_CLONE:
        on_clone(window, thread);
        break;
    case PTRACE_EVENT_STOP:
        if (sig == SIGTRAP)
            stop_again(window);
        if (window->closing)
            thread->stopped = true;
        else
            resume(tid, 0);
        break;
    case 0:
        /* A signal on its way to the thread (a fault of its own, or SIGSTOP). While closing, the
         * trap that was asked for still comes before its next user instruction. */
        if (blocking_mask(0) & bit(sig))
            block_again(thread);
        resume(tid, sig);
        break;
    default:
        resume(tid, 0);
        break;
    }
}

static unsigned pump_window(struct gpucr_window *window)
{
    unsigned count = 0;

    /* Backwards: a thread that ended is replaced by the last; new ones are met next time. */
    for (size_t i = window->count; i-- > 0;) {
        struct window_thread *thread = &window->threads[i];
        int status = 0;
        if (thread->stopped)
            continue;
        int got = gpucr_ptrace_poll(window->pid, thread->tid, &status);
        if (got > 0)
            on_stop(window, thread, status);
        else if (got < 0)
            forget_thread(window, thread);
        count += got != 0;
    }
    return count;
}

unsigned gpucr_windows_pump(struct gpucr_windows *windows)
{
    unsigned count = 0;

    for (struct gpucr_window *window = windows->first; window; window = window->next)
        count += pump_window(window);
    return count;
}

unsigned gpucr_windows_recover(struct gpucr_windows *windows)
{
    unsigned count = 0;

    for (struct gpucr_window *window = windows->first; window; window = window->next) {
        for (size_t i = window->count; i-- > 0;) {
            struct window_thread *thread = &window->threads[i];
            int status = 0;
            if (thread->stopped)
                continue;
            if (gpucr_ptrace_lost_stop(thread->tid, &status)) {
                on_stop(window, thread, status);
                count++;
            } else if (gpucr_task_ended(window->pid, thread->tid)) {
                /* A traced thread stays a zombie until its tracer has waited for it. */
                (void)gpucr_ptrace_poll(window->pid, thread->tid, &status);
                forget_thread(window, thread);
                count++;
            }
        }
    }
    return count;
}

/* ---- open ---- */

/* Detach what is in a stop: the process is all T again. */
static void let_go(struct gpucr_window *window)
{
    for (size_t i = 0; i < window->count; i++) {
        struct window_thread *thread = &window->threads[i];
        (void)gpucr_ptrace_mask_set(thread->tid, thread->saved_mask, NULL);
        gpucr_ptrace_detach(thread->tid);
    }
    window->count = 0;
}

static int seize_thread(struct gpucr_window *window, pid_t tid, struct gpucr_error *err)
{
    struct window_thread *thread;
    int rc = gpucr_ptrace_seize_stopped(window->pid, tid, PTRACE_O_TRACECLONE, err);

    if (rc)
        return rc;
    uint64_t mask = 0;
    rc = gpucr_ptrace_mask_get(tid, &mask, err);
    thread = rc ? NULL : add_thread(window, tid);
    if (!thread) {
        gpucr_ptrace_detach(tid);
        return rc ? rc : gpucr_error_no_memory(err);
    }
    thread->stopped = true;
    thread->saved_mask = mask;
    thread->window_mask = blocking_mask(mask);
    return gpucr_ptrace_mask_set(tid, thread->window_mask, err);
}

/* One pass over the thread list; @p ret_found counts threads that were not known. */
static int seize_pass(struct gpucr_window *window, size_t *ret_found, struct gpucr_error *err)
{
    GPUCR_CLEANUP(gpucr_pids_done) struct gpucr_pids tids = {0};
    size_t found = 0;
    int rc = gpucr_task_list(window->pid, &tids, err);

    for (size_t i = 0; !rc && i < tids.count; i++) {
        struct gpucr_proc_stat stat;
        if (find_thread(window, tids.ids[i]) ||
            gpucr_task_stat_read(window->pid, tids.ids[i], &stat, NULL) ||
            !gpucr_comm_is_driver_thread(stat.comm))
            continue;
        rc = seize_thread(window, tids.ids[i], err);
        found += !rc;
        /* It ended on the way: a thread less is no failure, the death of all is seen later. */
        if (rc == GPUCR_ERR_NOT_FOUND)
            rc = 0;
    }
    if (!rc)
        *ret_found = found;
    return rc;
}

static int seize_all(struct gpucr_window *window, struct gpucr_error *err)
{
    size_t found = 1;
    int rc = 0;

    while (!rc && found)
        rc = seize_pass(window, &found, err);
    if (rc || window->count)
        return rc;
    rc = gpucr_error_set(err, GPUCR_ERR_NOT_CUDA,
                         "process %d has no thread of the CUDA driver (named cuda…)", window->pid);
    return gpucr_error_pid(err, rc, window->pid);
}

int gpucr_windows_open(struct gpucr_windows *windows, pid_t pid, struct gpucr_error *err)
{
    GPUCR_CLEANUP(gpucr_cleanup_window) struct gpucr_window *window = NULL;

    if (find_window(windows, pid))
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "process %d is traced by gpucr already", pid);
    window = calloc(1, sizeof(*window));
    if (!window)
        return gpucr_error_no_memory(err);
    window->pid = pid;
    /* A caller that stopped the process saw all T; anything else is the end of that. */
    int rc = gpucr_stopped_wait(pid, gpucr_deadline_in_ms(0), err);
    if (!rc)
        rc = seize_all(window, err);
    if (rc) {
        let_go(window);
        return rc;
    }
    for (size_t i = 0; i < window->count; i++) {
        window->threads[i].stopped = false;
        resume(window->threads[i].tid, 0);
    }
    window->next = windows->first;
    windows->first = gpucr_steal_ptr(&window);
    return 0;
}

/* ---- close ---- */

static bool all_stopped(const struct gpucr_window *window)
{
    for (size_t i = 0; i < window->count; i++) {
        if (!window->threads[i].stopped)
            return false;
    }
    return true;
}

static int not_stopping(const struct gpucr_window *window, struct gpucr_error *err)
{
    struct gpucr_proc_stat stat = {.state = '?'};
    char wchan[64] = "";
    pid_t tid = 0;

    for (size_t i = 0; i < window->count && !tid; i++)
        tid = window->threads[i].stopped ? 0 : window->threads[i].tid;
    (void)gpucr_task_stat_read(window->pid, tid, &stat, NULL);
    gpucr_wchan_read(window->pid, tid, wchan, sizeof(wchan));
    int code = gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                               "thread %d (%s) of process %d did not stop within %d s: its state "
                               "is %c%s%s",
                               tid, stat.comm, window->pid, CLOSE_MS / 1000, stat.state,
                               wchan[0] ? ", waiting in the kernel's " : "", wchan);
    return gpucr_error_pid(err, code, window->pid);
}

/* Interrupt the window's threads and wait for their stops; other windows are served meanwhile. */
static int stop_threads(struct gpucr_windows *windows, struct gpucr_window *window,
                        struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(CLOSE_MS);
    uint64_t sleep_us = SLEEP_US_MIN;

    window->closing = true;
    for (size_t i = 0; i < window->count; i++) {
        if (!window->threads[i].stopped)
            (void)ptrace(PTRACE_INTERRUPT, window->threads[i].tid, NULL, NULL);
    }
    for (unsigned idle = 0; !all_stopped(window);) {
        if (gpucr_windows_pump(windows)) {
            sleep_us = SLEEP_US_MIN;
            continue;
        }
        if (++idle % RECOVER_EVERY == 0)
            (void)gpucr_windows_recover(windows);
        if (gpucr_deadline_passed(deadline))
            return not_stopping(window, err);
        gpucr_sleep_us(sleep_us);
        sleep_us = sleep_us * 3 / 2 > SLEEP_US_MAX ? SLEEP_US_MAX : sleep_us * 3 / 2;
    }
    return 0;
}

/*
 * The mask a thread should go on with. Bits that the thread changed itself in the
 * window are its own; the rest goes back to what it was. A mask with every bit set,
 * faults included, was asked for as a whole (sigfillset) and is left alone; without
 * libc's two internal signals it is the same thing.
 */
static uint64_t mask_to_leave(const struct window_thread *thread, uint64_t now)
{
    uint64_t all = ~(bit(SIGKILL) | bit(SIGSTOP) | bit(32) | bit(33));
    uint64_t own = now ^ thread->window_mask;

    if (own && (now & all) == all)
        return now;
    return (thread->saved_mask & ~own) | (now & own);
}

static int put_masks_back(struct gpucr_window *window, struct gpucr_error *err)
{
    int first = 0;

    for (size_t i = 0; i < window->count; i++) {
        const struct window_thread *thread = &window->threads[i];
        uint64_t now = 0;
        int rc = gpucr_ptrace_mask_get(thread->tid, &now, first ? NULL : err);
        if (!rc)
            rc = gpucr_ptrace_mask_set(thread->tid, mask_to_leave(thread, now), first ? NULL : err);
        if (rc && rc != GPUCR_ERR_NOT_FOUND && !first)
            first = rc;
    }
    return first;
}

/* Does some thread outside the window run? Those inside are in ptrace stops. */
static bool others_run(const struct gpucr_window *window)
{
    GPUCR_CLEANUP(gpucr_pids_done) struct gpucr_pids tids = {0};

    if (gpucr_task_list(window->pid, &tids, NULL))
        return false;
    for (size_t i = 0; i < tids.count; i++) {
        struct gpucr_proc_stat stat;
        if (find_thread(window, tids.ids[i]) ||
            gpucr_task_stat_read(window->pid, tids.ids[i], &stat, NULL) || stat.state == 'Z' ||
            stat.state == 'X')
            continue;
        if (stat.state != 'T')
            return true;
    }
    return false;
}

static int report_woken(pid_t pid, struct gpucr_error *err)
{
    int code = gpucr_error_set(err, GPUCR_ERR_VERIFY,
                               "process %d was woken by SIGCONT while suspended: its threads ran "
                               "for a moment; it is stopped again",
                               pid);
    return gpucr_error_pid(err, code, pid);
}

/*
 * After the detach: all T. A thread outside the window was T all the time, so one
 * that runs now was woken by a SIGCONT between the last check and the detach: one
 * more SIGSTOP. Those of the window may need a moment to get there.
 */
static int verify_closed(const struct gpucr_window *window, bool *woken, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(GPUCR_PTRACE_VERIFY_MS);
    int rc;

    do {
        rc = gpucr_stopped_wait(window->pid, gpucr_deadline_in_ms(VERIFY_STEP_MS), err);
        if (rc == GPUCR_ERR_VERIFY && others_run(window)) {
            *woken = true;
            (void)kill(window->pid, SIGSTOP);
        }
    } while (rc == GPUCR_ERR_VERIFY && !gpucr_deadline_passed(deadline));
    if (rc != GPUCR_ERR_VERIFY)
        return rc;
    *woken = true;
    (void)kill(window->pid, SIGSTOP);
    return gpucr_stopped_wait(window->pid, gpucr_deadline_in_ms(GPUCR_PTRACE_VERIFY_MS), err);
}

int gpucr_windows_close(struct gpucr_windows *windows, pid_t pid, struct gpucr_error *err)
{
    GPUCR_CLEANUP(gpucr_cleanup_window) struct gpucr_window *closed = NULL;
    struct gpucr_window *window = find_window(windows, pid);

    if (!window)
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "process %d is not traced by gpucr", pid);
    (void)gpucr_windows_pump(windows);
    int rc = stop_threads(windows, window, err);
    if (rc)
        return rc; /* the window stays, so that the close can be tried again */
    unlink_window(windows, window);
    closed = window;
    if (window->count && (window->woken || others_run(window)))
        stop_again(window);
    int mask_rc = put_masks_back(window, err);
    for (size_t i = 0; i < window->count; i++)
        gpucr_ptrace_detach(window->threads[i].tid);
    bool woken = window->woken;
    rc = verify_closed(window, &woken, mask_rc ? NULL : err);
    if (mask_rc)
        return mask_rc;
    if (rc)
        return rc;
    return woken ? report_woken(pid, err) : 0;
}

void gpucr_windows_close_all(struct gpucr_windows *windows)
{
    while (windows->first) {
        struct gpucr_error err = GPUCR_ERROR_INIT;
        struct gpucr_window *window = windows->first;
        if (!gpucr_windows_close(windows, window->pid, &err))
            continue;
        gpucr_warn("%s", err.text);
        if (windows->first != window)
            continue;
        /* It did not stop. The end of the tracer thread lets the kernel detach it. */
        unlink_window(windows, window);
        (void)window_free(window);
    }
}
