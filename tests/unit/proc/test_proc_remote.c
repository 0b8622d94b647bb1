/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * System calls run in threads that wait in all the ways a thread can wait: the calls
 * work, and none of the threads notices.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "proc/ptrace_op.h"
#include "proc/remote.h"
#include "proc/tracer.h"

enum { ROUNDS_STOPPED = 13, ROUNDS_RUNNING = 3 }; /* 160 calls each */

/* What one waiting thread has seen. */
struct watch {
    _Atomic pid_t tid;
    _Atomic uint64_t rounds;
    _Atomic uint64_t wrong;  /* results that may not be */
    _Atomic int last_result; /* the last of these */
};

struct board {
    struct watch watches[32];
    _Atomic uint32_t futex_words[32];
    _Atomic int ready, handled;
};

static struct board *board;

static void note(struct watch *watch, bool right, int result)
{
    watch->rounds++;
    if (right)
        return;
    watch->wrong++;
    watch->last_result = result;
}

static void begin(struct watch *watch)
{
    watch->tid = gettid();
    board->ready++;
}

static uint64_t elapsed_us(uint64_t since_ns)
{
    return (gpucr_now_ns() - since_ns) / 1000;
}

/* ---- ways to wait; each knows what it may be told ---- */

/* For ever, on a word that changes only with a wake. */
static void *wait_futex(void *arg)
{
    struct watch *watch = arg;
    _Atomic uint32_t *word = &board->futex_words[watch - board->watches];

    begin(watch);
    for (;;) {
        uint32_t value = *word;
        long rc = syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
        note(watch, (!rc && *word != value) || (rc < 0 && errno == EAGAIN), rc ? errno : 0);
    }
    return NULL;
}

/* With a timeout: restarted by the kernel through its restart block. */
static void *wait_futex_timed(void *arg)
{
    struct watch *watch = arg;
    uint32_t word = 0;

    begin(watch);
    for (;;) {
        struct timespec t = {.tv_nsec = 3000000};
        uint64_t start = gpucr_now_ns();
        long rc = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0);
        note(watch, rc < 0 && errno == ETIMEDOUT && elapsed_us(start) >= 3000, rc ? errno : 0);
    }
    return NULL;
}

static void *wait_nanosleep(void *arg)
{
    struct watch *watch = arg;

    begin(watch);
    for (;;) {
        struct timespec t = {.tv_nsec = 3000000};
        uint64_t start = gpucr_now_ns();
        int rc = nanosleep(&t, NULL);
        note(watch, !rc && elapsed_us(start) >= 3000, errno);
    }
    return NULL;
}

static void *wait_read(void *arg)
{
    struct watch *watch = arg;
    int fds[2];
    char byte;

    if (pipe(fds))
        abort();
    begin(watch);
    for (;;) {
        ssize_t rc = read(fds[0], &byte, 1); /* nobody writes */
        note(watch, false, rc < 0 ? errno : 0);
    }
    return NULL;
}

static void *wait_pause(void *arg)
{
    struct watch *watch = arg;

    begin(watch);
    for (;;) {
        (void)pause();
        note(watch, false, errno);
    }
    return NULL;
}

static void *wait_sigsuspend(void *arg)
{
    struct watch *watch = arg;
    sigset_t set, now;

    (void)pthread_sigmask(SIG_BLOCK, NULL, &now);
    (void)sigfillset(&set);
    (void)sigdelset(&set, SIGUSR1); /* as the only one; nobody else takes it */
    begin(watch);
    for (;;) {
        int before = board->handled;
        (void)sigsuspend(&set);
        note(watch, board->handled > before, errno);
    }
    return NULL;
}

static void *wait_ppoll(void *arg)
{
    struct watch *watch = arg;
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    begin(watch);
    for (;;) {
        struct timespec t = {.tv_nsec = 3000000};
        uint64_t start = gpucr_now_ns();
        int rc = ppoll(NULL, 0, &t, &set);
        note(watch, !rc && elapsed_us(start) >= 3000, errno);
    }
    return NULL;
}

static void *wait_poll_for_ever(void *arg)
{
    struct watch *watch = arg;
    int fds[2];

    if (pipe(fds))
        abort();
    struct pollfd poll_fd = {.fd = fds[0], .events = POLLIN};
    begin(watch);
    for (;;) {
        int rc = poll(&poll_fd, 1, -1);
        note(watch, false, rc < 0 ? errno : rc);
    }
    return NULL;
}

/* epoll_wait() returns EINTR after any stop, by itself (signal(7)), so also here. */
static void *wait_epoll(void *arg)
{
    struct watch *watch = arg;
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;

    begin(watch);
    for (;;) {
        int rc = epoll_wait(epoll_fd, &event, 1, 3);
        note(watch, !rc || (rc < 0 && errno == EINTR), rc < 0 ? errno : rc);
    }
    return NULL;
}

/* In user code: a computation whose registers and floating point state must hold. */
static void *wait_spinning(void *arg)
{
    struct watch *watch = arg;

    begin(watch);
    for (;;) {
        double sum = 0;
        uint64_t hash = 1;
        for (int i = 1; i <= 20000; i++) {
            sum += 1.0 / (double)i;
            hash = hash * 6364136223846793005ull + (uint64_t)i;
        }
        static _Atomic uint64_t expected_hash;
        static _Atomic double expected_sum;
        if (!expected_hash) {
            expected_sum = sum;
            expected_hash = hash;
        }
        note(watch, hash == expected_hash && sum == expected_sum, 0);
    }
    return NULL;
}

/* The stack below the stack pointer belongs to the program too (128 bytes, x86-64 ABI). */
static void *wait_red_zone(void *arg)
{
    struct watch *watch = arg;

    begin(watch);
    for (;;) {
        uint64_t got = 0;
        __asm__ volatile("movq $0x1234567, -8(%%rsp)\n"
                         "movq $0x89abcde, -120(%%rsp)\n"
                         "movl $20000, %%ecx\n"
                         "1: decl %%ecx\n"
                         "jnz 1b\n"
                         "movq -8(%%rsp), %0\n"
                         "addq -120(%%rsp), %0\n"
                         : "=&r"(got)
                         :
                         : "rcx", "memory", "cc");
        note(watch, got == 0x1234567ull + 0x89abcdeull, 0);
    }
    return NULL;
}

static void on_usr1(int sig)
{
    (void)sig;
    board->handled++;
}

/* Inside of a signal handler, sleeping there. */
static void on_usr2(int sig)
{
    struct watch *watch = NULL;

    (void)sig;
    for (int i = 0; i < 32; i++)
        watch = board->watches[i].tid == gettid() ? &board->watches[i] : watch;
    for (int i = 0; i < 10; i++) {
        struct timespec t = {.tv_nsec = 1000000};
        int rc = nanosleep(&t, NULL);
        note(watch, !rc, errno);
    }
}

static void *wait_handler(void *arg)
{
    begin(arg);
    for (;;)
        (void)raise(SIGUSR2);
    return NULL;
}

typedef void *(*way)(void *);

static const way ways[] = {
    wait_futex,         wait_futex_timed, wait_nanosleep, wait_read,        wait_pause,
    wait_sigsuspend,    wait_ppoll,       wait_epoll,     wait_spinning,    wait_handler,
    wait_poll_for_ever, wait_red_zone,    wait_futex,     wait_nanosleep,   wait_read,
    wait_ppoll,         wait_handler,     wait_spinning,  wait_futex_timed,
};

enum { WAY_COUNT = sizeof(ways) / sizeof(ways[0]) };

static _Noreturn void target_main(pid_t parent)
{
    struct sigaction action = {.sa_handler = on_usr1};
    pthread_t thread;
    sigset_t set;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void)sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = on_usr2;
    (void)sigaction(SIGUSR2, &action, NULL);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < WAY_COUNT; i++)
        (void)pthread_create(&thread, NULL, ways[i], &board->watches[i]);
    for (;;)
        (void)pause(); /* the leader itself */
}

static pid_t start_target(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(board, MAP_FAILED);
    pid_t parent = getpid(), pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        target_main(parent);
    while (board->ready < WAY_COUNT)
        gpucr_sleep_us(500);
    return pid;
}

static void end_target(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static size_t map_count(pid_t pid)
{
    struct gpucr_maps maps = {0};

    if (gpucr_maps_read(pid, &maps, NULL))
        return 0;
    size_t count = maps.count;
    gpucr_maps_done(&maps);
    return count;
}

static void stop(pid_t pid)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    assert_int_equal(kill(pid, SIGSTOP), 0);
    if (gpucr_stopped_wait(pid, gpucr_deadline_in_ms(5000), &err))
        fail_msg("%s", err.text);
}

/* ---- the calls ---- */

struct work {
    pid_t pid;
    bool stopped; /* attach to a stopped process, or interrupt running threads */
    uint64_t call_count;
    uint64_t wrong;
};

static int make_call(struct work *work, pid_t tid, struct gpucr_remote_call call, int64_t *result,
                     struct gpucr_error *err)
{
    work->call_count++;
    return gpucr_remote_syscall(work->pid, tid, &call, result, err);
}

static int make_calls(struct work *work, pid_t tid, struct gpucr_error *err)
{
    struct gpucr_remote_call call = {
        .number = SYS_mmap,
        .args = {0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0}};
    uint64_t address = 0;
    int rc = gpucr_remote_find(work->pid, &address, err);

    for (int i = 0; !rc && i < 2; i++) {
        int64_t pid = 0, map = 0, unmap = 1, close_result = 0;
        rc = make_call(work, tid, (struct gpucr_remote_call){.number = SYS_getpid}, &pid, err);
        call.address = address;
        if (!rc)
            rc = make_call(work, tid, call, &map, err);
        if (!rc)
            rc = make_call(work, tid,
                           (struct gpucr_remote_call){SYS_munmap, {(uint64_t)map, 8192}, address},
                           &unmap, err);
        if (!rc)
            rc = make_call(work, tid, (struct gpucr_remote_call){SYS_close, {12345}, address},
                           &close_result, err);
        work->wrong += pid != work->pid || map <= 0 || unmap || close_result != -EBADF;
    }
    return rc;
}

static int attach(const struct work *work, pid_t tid, struct gpucr_error *err)
{
    int status = 0;

    if (work->stopped)
        return gpucr_ptrace_seize_stopped(work->pid, tid, 0, err);
    int rc = gpucr_ptrace_seize(work->pid, tid, 0, err);
    if (!rc && ptrace(PTRACE_INTERRUPT, tid, NULL, NULL))
        return gpucr_error_errno(err, errno, "interrupt");
    for (;;) {
        if (!rc)
            rc = gpucr_ptrace_wait(work->pid, tid, gpucr_deadline_in_ms(5000), &status, err);
        if (rc || gpucr_ptrace_event(status) == PTRACE_EVENT_STOP)
            return rc;
        (void)ptrace(PTRACE_CONT, tid, NULL, (void *)(intptr_t)WSTOPSIG(status));
    }
}

static int work_round(void *arg, struct gpucr_error *err)
{
    struct work *work = arg;
    GPUCR_CLEANUP(gpucr_pids_done) struct gpucr_pids tids = {0};
    int rc = gpucr_task_list(work->pid, &tids, err);

    for (size_t i = 0; !rc && i < tids.count; i++) {
        rc = attach(work, tids.ids[i], err);
        if (!rc)
            rc = make_calls(work, tids.ids[i], err);
        gpucr_ptrace_detach(tids.ids[i]);
    }
    return rc;
}

static void feed(pid_t pid)
{
    for (int i = 0; i < WAY_COUNT; i++) {
        if (ways[i] == wait_futex) {
            board->futex_words[i]++;
            (void)syscall(SYS_futex, &board->futex_words[i], FUTEX_WAKE, 1, NULL, NULL, 0);
        }
        if (ways[i] == wait_sigsuspend)
            (void)syscall(SYS_tgkill, pid, board->watches[i].tid, SIGUSR1);
    }
}

static void check_threads(void)
{
    for (int i = 0; i < WAY_COUNT; i++) {
        struct watch *watch = &board->watches[i];
        bool for_ever =
            ways[i] == wait_read || ways[i] == wait_pause || ways[i] == wait_poll_for_ever;
        if (watch->wrong)
            fail_msg("thread %d was told %s (%d) in %lu of %lu rounds", i,
                     strerror(watch->last_result), watch->last_result, (unsigned long)watch->wrong,
                     (unsigned long)watch->rounds);
        if (!for_ever)
            assert_true(watch->rounds > 0);
    }
}

static void run_rounds(bool stopped)
{
    struct gpucr_tracer *tracer = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct work work = {.pid = start_target(), .stopped = stopped};
    size_t maps = map_count(work.pid);

    assert_int_equal(gpucr_tracer_new(&tracer, NULL), 0);
    for (int i = 0; i < (stopped ? ROUNDS_STOPPED : ROUNDS_RUNNING); i++) {
        uint64_t before[WAY_COUNT];
        for (int j = 0; j < WAY_COUNT; j++)
            before[j] = board->watches[j].rounds;
        if (stopped)
            stop(work.pid);
        if (gpucr_tracer_call(tracer, work_round, &work, &err))
            fail_msg("%s", err.text);
        if (stopped) {
            assert_int_equal(gpucr_stopped_wait(work.pid, gpucr_deadline_in_ms(2000), &err), 0);
            assert_int_equal(map_count(work.pid), maps);
            assert_int_equal(kill(work.pid, SIGCONT), 0);
        }
        feed(work.pid);
        /* Each thread that can must come out of its wait. */
        for (int j = 0; j < WAY_COUNT; j++) {
            bool can = ways[j] != wait_read && ways[j] != wait_pause &&
                       ways[j] != wait_poll_for_ever && ways[j] != wait_spinning &&
                       ways[j] != wait_red_zone;
            for (int k = 0; can && k < 5000 && board->watches[j].rounds == before[j]; k++)
                gpucr_sleep_us(1000);
            assert_true(!can || board->watches[j].rounds != before[j]);
        }
    }
    gpucr_sleep_us(50000);
    check_threads();
    assert_true(work.call_count >= (stopped ? 2000 : 480));
    assert_int_equal(work.wrong, 0);
    assert_null(gpucr_tracer_free(tracer));
    end_target(work.pid);
}

static void test_in_a_stopped_process(void **state)
{
    (void)state;
    run_rounds(true);
}

static void test_in_a_running_process(void **state)
{
    (void)state;
    run_rounds(false);
}

/* ---- a signal that arrives meanwhile ---- */

static int one_thread(void *arg, struct gpucr_error *err)
{
    struct work *work = arg;
    int rc = attach(work, work->pid, err);

    if (!rc)
        (void)kill(work->pid, SIGUSR1);
    if (!rc)
        rc = make_calls(work, work->pid, err);
    if (!rc)
        work->stopped = board->handled == 0; /* not before it goes on */
    gpucr_ptrace_detach(work->pid);
    return rc;
}

static void test_signals_wait(void **state)
{
    struct gpucr_tracer *tracer = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct sigaction action = {.sa_handler = on_usr1};

    (void)state;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(board, MAP_FAILED);
    pid_t pid = fork();
    if (!pid) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)sigaction(SIGUSR1, &action, NULL);
        board->ready++;
        for (;;)
            (void)pause();
    }
    while (!board->ready)
        gpucr_sleep_us(500);
    struct work work = {.pid = pid};
    assert_int_equal(gpucr_tracer_new(&tracer, NULL), 0);
    if (gpucr_tracer_call(tracer, one_thread, &work, &err))
        fail_msg("%s", err.text);
    assert_true(work.stopped);
    assert_int_equal(work.wrong, 0);
    for (int i = 0; i < 2000 && !board->handled; i++)
        gpucr_sleep_us(500);
    assert_int_equal(board->handled, 1);
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

/* A thread killed in the middle is reported, and nothing hangs. */
static int kill_and_call(void *arg, struct gpucr_error *err)
{
    struct work *work = arg;
    int rc = attach(work, work->pid, err);

    (void)kill(work->pid, SIGKILL);
    if (!rc)
        rc = make_calls(work, work->pid, err);
    return rc;
}

static void test_target_dies(void **state)
{
    struct gpucr_tracer *tracer = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int status = 0;
    pid_t pid = fork();

    (void)state;
    if (!pid) {
        for (;;)
            (void)pause();
    }
    struct work work = {.pid = pid};
    assert_int_equal(gpucr_tracer_new(&tracer, NULL), 0);
    assert_true(gpucr_tracer_call(tracer, kill_and_call, &work, &err) < 0);
    assert_true(strlen(err.text) > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    (void)gpucr_tracer_free(tracer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_a_stopped_process),
        cmocka_unit_test(test_in_a_running_process),
        cmocka_unit_test(test_signals_wait),
        cmocka_unit_test(test_target_dies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
