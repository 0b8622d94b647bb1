/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Windows in which only the driver's threads run: what runs, what does not, and
 * what is left behind after every way a window can end.
 */
#include <fcntl.h>
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
#include <unistd.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "proc/tracer.h"

/* ---- the program that is stopped ---- */

enum { APP_THREADS = 4, NEW_THREADS_MAX = 16 };

enum order { ORDER_NONE, ORDER_THREAD, ORDER_FAULT, ORDER_EXIT, ORDER_VFORK, ORDER_MASK };

struct board {
    _Atomic uint64_t app[APP_THREADS];
    _Atomic uint64_t driver, events;
    _Atomic uint64_t fresh[NEW_THREADS_MAX];
    _Atomic int fresh_count;
    _Atomic int order;
    _Atomic int faults, usr1;
    _Atomic int ready;
    _Atomic pid_t driver_tid, events_tid, fresh_tid;
};

static struct board *board;
static sigjmp_buf fault_jump;

static void on_fault(int sig)
{
    (void)sig;
    board->faults++;
    siglongjmp(fault_jump, 1);
}

static void on_usr1(int sig)
{
    (void)sig;
    board->usr1++;
}

static void *app_main(void *arg)
{
    _Atomic uint64_t *counter = arg;

    board->ready++;
    for (;;)
        (*counter)++;
    return NULL;
}

static void *fresh_main(void *arg)
{
    _Atomic uint64_t *counter = arg;

    board->fresh_tid = gettid();
    for (;;) {
        (*counter)++;
        usleep(100);
    }
    return NULL;
}

/* A real fault, not a signal sent to itself: it cannot be blocked. */
static int raise_fault(void)
{
    const volatile int *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return *nowhere;
}

static void obey(int order)
{
    pthread_t thread;
    sigset_t set;

    switch (order) {
    case ORDER_THREAD:
        (void)pthread_create(&thread, NULL, fresh_main,
                             (void *)&board->fresh[board->fresh_count % NEW_THREADS_MAX]);
        board->fresh_count++;
        break;
    case ORDER_FAULT:
        if (!sigsetjmp(fault_jump, 1))
            (void)raise_fault();
        break;
    case ORDER_VFORK:
        if (!vfork()) {
            (void)usleep(300000);
            _exit(0);
        }
        break;
    case ORDER_MASK:
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
        break;
    default:
        break;
    }
}

static void *driver_main(void *arg)
{
    (void)arg;
    (void)pthread_setname_np(pthread_self(), "cuda0123456789a");
    board->driver_tid = gettid();
    board->ready++;
    for (;;) {
        int order = board->order;
        board->driver++;
        if (order == ORDER_EXIT) {
            board->order = ORDER_NONE;
            return NULL;
        }
        if (order) {
            obey(order);
            board->order = ORDER_NONE;
        }
        (void)usleep(100);
    }
}

static void *events_main(void *arg)
{
    (void)arg;
    (void)pthread_setname_np(pthread_self(), "cuda-EvtHandlr");
    board->events_tid = gettid();
    board->ready++;
    for (;;) {
        board->events++;
        (void)usleep(500);
    }
    return NULL;
}

static _Noreturn void target_main(pid_t parent)
{
    pthread_t thread;
    sigset_t set;
    struct sigaction action = {.sa_handler = on_fault};

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void)sigaction(SIGSEGV, &action, NULL);
    action.sa_handler = on_usr1;
    (void)sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < APP_THREADS; i++)
        (void)pthread_create(&thread, NULL, app_main, (void *)&board->app[i]);
    /* The driver's threads have a mask of their own, to be found again afterwards. */
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGWINCH);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)pthread_create(&thread, NULL, driver_main, NULL);
    (void)pthread_create(&thread, NULL, events_main, NULL);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (;;)
        (void)pause();
}

/* ---- looking at it ---- */

/* The line of /proc/PID/task/TID/status that begins so, as a number in that base. */
static uint64_t status_field(pid_t pid, pid_t tid, const char *name, int base)
{
    char path[64], line[256];
    uint64_t value = UINT64_MAX;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        if (!strncmp(line, name, strlen(name)))
            value = strtoull(line + strlen(name), NULL, base);
    }
    if (f)
        (void)fclose(f);
    return value;
}

static uint64_t blocked(pid_t pid, pid_t tid)
{
    return status_field(pid, tid, "SigBlk:", 16);
}

/* Are all threads in that state, and untraced? */
static bool all_are(pid_t pid, char state)
{
    struct gpucr_pids tids = {0};
    bool ok = !gpucr_task_list(pid, &tids, NULL);

    for (size_t i = 0; ok && i < tids.count; i++) {
        struct gpucr_proc_stat stat;
        if (gpucr_task_stat_read(pid, tids.ids[i], &stat, NULL) || stat.state == 'Z')
            continue;
        ok = stat.state == state && !status_field(pid, tids.ids[i], "TracerPid:", 10);
    }
    gpucr_pids_done(&tids);
    return ok;
}

static void await_stopped(pid_t pid)
{
    for (int i = 0; i < 5000 && !all_are(pid, 'T'); i++)
        gpucr_sleep_us(500);
    assert_true(all_are(pid, 'T'));
}

static void stop(pid_t pid)
{
    assert_int_equal(kill(pid, SIGSTOP), 0);
    await_stopped(pid);
}

static pid_t start_target(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(board, MAP_FAILED);
    pid_t parent = getpid();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        target_main(parent);
    while (board->ready < APP_THREADS + 2)
        gpucr_sleep_us(500);
    return pid;
}

static void end_target(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static uint64_t app_sum(void)
{
    uint64_t sum = 0;

    for (int i = 0; i < APP_THREADS; i++)
        sum += board->app[i];
    return sum;
}

static void wait_for_change(_Atomic uint64_t *counter)
{
    uint64_t before = *counter;

    for (int i = 0; i < 10000 && *counter == before; i++)
        gpucr_sleep_us(500);
    assert_true(*counter != before);
}

/* Nothing moves for a while. */
static void assert_still(void)
{
    uint64_t app = app_sum(), driver = board->driver, events = board->events;

    gpucr_sleep_us(20000);
    assert_int_equal(app, app_sum());
    assert_int_equal(driver, board->driver);
    assert_int_equal(events, board->events);
}

static void give_order(enum order order)
{
    board->order = order;
    for (int i = 0; i < 10000 && board->order; i++)
        gpucr_sleep_us(500);
    assert_int_equal(board->order, ORDER_NONE);
}

/* Only after the target was forked: a program with threads must not fork one that makes threads. */
static struct gpucr_tracer *new_tracer(void)
{
    struct gpucr_tracer *tracer = NULL;

    assert_int_equal(gpucr_tracer_new(&tracer, NULL), 0);
    return tracer;
}

static void open_window(struct gpucr_tracer *tracer, pid_t pid)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_tracer_open_window(tracer, pid, &err))
        fail_msg("%s", err.text);
}

static void close_window(struct gpucr_tracer *tracer, pid_t pid)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_tracer_close_window(tracer, pid, &err))
        fail_msg("%s", err.text);
    assert_true(all_are(pid, 'T'));
}

static void assert_runs_again(pid_t pid)
{
    assert_int_equal(kill(pid, SIGCONT), 0);
    for (int i = 0; i < APP_THREADS; i++)
        wait_for_change(&board->app[i]);
    wait_for_change(&board->driver);
    wait_for_change(&board->events);
}

/* ---- tests ---- */

static void test_only_the_driver_runs(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();
    uint64_t mask = blocked(pid, board->driver_tid), events_mask = blocked(pid, board->events_tid);

    (void)state;
    assert_true(mask & (1u << (SIGUSR2 - 1)));
    for (int i = 0; i < 20; i++) {
        stop(pid);
        uint64_t app = app_sum();
        assert_still();
        open_window(tracer, pid);
        wait_for_change(&board->driver);
        wait_for_change(&board->events);
        assert_int_equal(app, app_sum());
        assert_true(blocked(pid, board->driver_tid) & (1u << (SIGTERM - 1)));
        assert_true(blocked(pid, board->driver_tid) & (1ull << (SIGRTMAX - 1)));
        close_window(tracer, pid);
        assert_still();
        assert_int_equal(app, app_sum());
        assert_int_equal(blocked(pid, board->driver_tid), mask);
        assert_int_equal(blocked(pid, board->events_tid), events_mask);
        assert_runs_again(pid);
    }
    assert_null(gpucr_tracer_free(tracer));
    end_target(pid);
}

static void test_new_threads_run_and_get_their_creators_mask(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();
    uint64_t mask = blocked(pid, board->driver_tid);

    (void)state;
    stop(pid);
    open_window(tracer, pid);
    for (int i = 0; i < 5; i++) {
        give_order(ORDER_THREAD);
        wait_for_change(&board->fresh[i]);
    }
    close_window(tracer, pid);
    uint64_t before = board->fresh[4];
    assert_still();
    assert_int_equal(before, board->fresh[4]);
    assert_int_equal(blocked(pid, board->fresh_tid), mask);
    assert_runs_again(pid);
    wait_for_change(&board->fresh[4]);
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

static void test_threads_end_in_the_window(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();

    (void)state;
    stop(pid);
    open_window(tracer, pid);
    give_order(ORDER_EXIT);
    gpucr_sleep_us(20000);
    wait_for_change(&board->events);
    close_window(tracer, pid);
    assert_still();
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

static void test_signals_wait_for_the_end(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();

    (void)state;
    stop(pid);
    open_window(tracer, pid);
    assert_int_equal(kill(pid, SIGUSR1), 0);
    assert_int_equal(kill(pid, SIGSTOP), 0); /* once more: changes nothing */
    for (int i = 0; i < 5; i++)
        wait_for_change(&board->driver);
    assert_int_equal(board->usr1, 0);
    close_window(tracer, pid);
    assert_int_equal(board->usr1, 0);
    assert_runs_again(pid);
    for (int i = 0; i < 1000 && !board->usr1; i++)
        gpucr_sleep_us(500);
    assert_int_equal(board->usr1, 1);
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

static void test_faults_reach_the_programs_handler(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();

    (void)state;
    stop(pid);
    open_window(tracer, pid);
    give_order(ORDER_FAULT);
    assert_int_equal(board->faults, 1);
    close_window(tracer, pid);
    assert_runs_again(pid);
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

static void test_own_change_of_the_mask_stays(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();
    uint64_t mask = blocked(pid, board->driver_tid);

    (void)state;
    stop(pid);
    open_window(tracer, pid);
    give_order(ORDER_MASK);
    close_window(tracer, pid);
    assert_int_equal(blocked(pid, board->driver_tid), mask & ~(1ull << (SIGUSR2 - 1)));
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

static void test_uninterruptible_thread_is_waited_for(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();

    (void)state;
    stop(pid);
    open_window(tracer, pid);
    board->order = ORDER_VFORK;
    for (int i = 0; i < 1000 && status_field(pid, board->driver_tid, "State:\tD", 10); i++)
        gpucr_sleep_us(200);
    close_window(tracer, pid);
    assert_runs_again(pid);
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

static void test_sigcont_is_noticed(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    stop(pid);
    open_window(tracer, pid);
    assert_int_equal(kill(pid, SIGCONT), 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t app = app_sum();
        gpucr_sleep_us(5000);
        if (app == app_sum())
            break;
    }
    /* Stopped again while the window is still open, and the driver goes on. */
    wait_for_change(&board->driver);
    assert_int_equal(gpucr_tracer_close_window(tracer, pid, &err), GPUCR_ERR_VERIFY);
    assert_non_null(strstr(err.text, "SIGCONT"));
    assert_int_equal(err.pid, pid);
    assert_true(all_are(pid, 'T'));
    assert_still();
    assert_runs_again(pid);
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

static _Atomic int sender_ends;

static void *sigcont_sender(void *arg)
{
    pid_t pid = *(pid_t *)arg;
    unsigned seed = 7;

    while (!sender_ends) {
        (void)kill(pid, SIGCONT);
        gpucr_sleep_us((uint64_t)rand_r(&seed) % 4000);
    }
    return NULL;
}

/* Whenever it comes, the end is a stopped process or the report that it was woken. */
static void test_sigcont_at_any_time(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();
    pthread_t sender;
    int woken = 0, quiet = 0;

    (void)state;
    sender_ends = 0;
    assert_int_equal(pthread_create(&sender, NULL, sigcont_sender, &pid), 0);
    struct gpucr_deadline end = gpucr_deadline_in_ms(3000);
    for (int i = 0; !gpucr_deadline_passed(end) || !woken || !quiet; i++) {
        struct gpucr_error err = GPUCR_ERROR_INIT;
        (void)kill(pid, SIGSTOP);
        gpucr_sleep_us(300);
        int rc = gpucr_tracer_open_window(tracer, pid, &err);
        if (rc) {
            assert_int_equal(rc, GPUCR_ERR_VERIFY);
            continue;
        }
        gpucr_sleep_us((uint64_t)i % 7 * 300);
        rc = gpucr_tracer_close_window(tracer, pid, &err);
        if (rc)
            assert_int_equal(rc, GPUCR_ERR_VERIFY);
        woken += rc != 0;
        quiet += rc == 0;
    }
    sender_ends = 1;
    assert_int_equal(pthread_join(sender, NULL), 0);
    assert_true(woken > 0);
    assert_true(quiet > 0);
    stop(pid);
    open_window(tracer, pid);
    wait_for_change(&board->driver);
    close_window(tracer, pid);
    assert_runs_again(pid);
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

static void test_refusals_change_nothing(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_int_equal(gpucr_tracer_close_window(tracer, pid, &err), GPUCR_ERR_USAGE);
    assert_int_equal(gpucr_tracer_open_window(tracer, pid, &err), GPUCR_ERR_VERIFY);
    assert_runs_again(pid);
    stop(pid);
    open_window(tracer, pid);
    assert_int_equal(gpucr_tracer_open_window(tracer, pid, &err), GPUCR_ERR_USAGE);
    close_window(tracer, pid);

    pid_t plain = fork();
    if (!plain) {
        for (;;)
            (void)pause();
    }
    stop(plain);
    assert_int_equal(gpucr_tracer_open_window(tracer, plain, &err), GPUCR_ERR_NOT_CUDA);
    assert_true(all_are(plain, 'T'));
    end_target(plain);
    assert_int_equal(gpucr_tracer_open_window(tracer, plain, &err), GPUCR_ERR_TARGET_DIED);
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

static void test_other_tracer_is_named(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();
    struct gpucr_error err = GPUCR_ERROR_INIT;
    pid_t driver = board->driver_tid;
    char expected[64];

    (void)state;
    stop(pid);
    pid_t other = fork();
    if (!other) {
        (void)prctl(PR_SET_NAME, "some-debugger");
        (void)ptrace(PTRACE_SEIZE, driver, NULL, NULL);
        for (;;)
            (void)pause();
    }
    while (!status_field(pid, driver, "TracerPid:", 10))
        gpucr_sleep_us(500);
    assert_int_equal(gpucr_tracer_open_window(tracer, pid, &err), GPUCR_ERR_BUSY);
    (void)snprintf(expected, sizeof(expected), "process %d (some-debugger)", other);
    assert_non_null(strstr(err.text, expected));
    assert_int_equal(status_field(pid, driver, "TracerPid:", 10), other);
    assert_still();
    end_target(other);
    await_stopped(pid);
    open_window(tracer, pid);
    close_window(tracer, pid);
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

static void test_missing_rights_are_named(void **state)
{
    pid_t pid = start_target();
    int status = 0;

    (void)state;
    if (geteuid()) {
        end_target(pid);
        skip();
    }
    stop(pid);
    pid_t other = fork();
    if (!other) {
        struct gpucr_error err = GPUCR_ERROR_INIT;
        struct gpucr_tracer *tracer = NULL;
        if (setgid(65534) || setuid(65534) || gpucr_tracer_new(&tracer, &err))
            _exit(2);
        int rc = gpucr_tracer_open_window(tracer, pid, &err);
        bool named = strstr(err.text, "uid 0") && strstr(err.text, "65534") &&
                     strstr(err.text, "CAP_SYS_PTRACE");
        _exit(rc == GPUCR_ERR_PERMISSION && named ? 0 : 1);
    }
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
    assert_true(all_are(pid, 'T'));
    assert_runs_again(pid);
    end_target(pid);
}

static void test_target_dies(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int status = 0;

    (void)state;
    stop(pid);
    open_window(tracer, pid);
    wait_for_change(&board->driver);
    assert_int_equal(kill(pid, SIGKILL), 0);
    /* The exit status is for the parent, though the tracer saw the threads end. */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(gpucr_tracer_close_window(tracer, pid, &err), GPUCR_ERR_TARGET_DIED);
    assert_int_equal(gpucr_tracer_close_window(tracer, pid, &err), GPUCR_ERR_USAGE);
    (void)gpucr_tracer_free(tracer);
}

static void test_tracer_dies(void **state)
{
    pid_t pid = start_target();

    (void)state;
    for (int i = 0; i < 10; i++) {
        stop(pid);
        int pipe_fds[2];
        char byte;
        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        pid_t other = fork();
        if (!other) {
            struct gpucr_tracer *tracer = NULL;
            if (!gpucr_tracer_new(&tracer, NULL) && !gpucr_tracer_open_window(tracer, pid, NULL))
                (void)!write(pipe_fds[1], "o", 1);
            for (;;)
                (void)pause();
        }
        (void)close(pipe_fds[1]);
        assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
        (void)close(pipe_fds[0]);
        uint64_t app = app_sum();
        wait_for_change(&board->driver);
        gpucr_sleep_us((uint64_t)i * 300);
        end_target(other);
        await_stopped(pid);
        assert_still();
        assert_int_equal(app, app_sum());
        assert_runs_again(pid);
    }
    end_target(pid);
}

static void *steal_main(void *arg)
{
    (void)arg;
    while (!sender_ends) {
        (void)waitpid(-1, NULL, __WALL | WNOHANG);
        gpucr_sleep_us(20);
    }
    return NULL;
}

/* The program's own children stay its own, and its waits for "any child" do no harm. */
static void test_program_with_children(void **state)
{
    pid_t pid = start_target();
    struct gpucr_tracer *tracer = new_tracer();
    pthread_t thief;
    int status = 0;

    (void)state;
    stop(pid);
    open_window(tracer, pid);
    pid_t child = fork();
    if (!child)
        _exit(7);
    gpucr_sleep_us(30000);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 7);
    close_window(tracer, pid);

    sender_ends = 0;
    assert_int_equal(pthread_create(&thief, NULL, steal_main, NULL), 0);
    for (int i = 0; i < 20; i++) {
        open_window(tracer, pid);
        give_order(ORDER_THREAD);
        wait_for_change(&board->fresh[(board->fresh_count - 1) % NEW_THREADS_MAX]);
        close_window(tracer, pid);
    }
    sender_ends = 1;
    assert_int_equal(pthread_join(thief, NULL), 0);
    assert_runs_again(pid);
    (void)gpucr_tracer_free(tracer);
    end_target(pid);
}

static void test_several_windows(void **state)
{
    enum { COUNT = 5 };
    struct board *boards[COUNT];
    pid_t pids[COUNT];

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        pids[i] = start_target();
        boards[i] = board;
        stop(pids[i]);
    }
    struct gpucr_tracer *tracer = new_tracer();
    for (int i = 0; i < COUNT; i++)
        open_window(tracer, pids[i]);
    for (int i = 0; i < COUNT; i++) {
        board = boards[i];
        give_order(ORDER_THREAD);
        wait_for_change(&board->fresh[0]);
    }
    for (int i = 0; i < COUNT - 2; i++)
        close_window(tracer, pids[i]);
    board = boards[COUNT - 1];
    wait_for_change(&board->driver);
    /* The last two are closed with the tracer. */
    (void)gpucr_tracer_free(tracer);
    for (int i = 0; i < COUNT; i++) {
        board = boards[i];
        assert_true(all_are(pids[i], 'T'));
        assert_still();
        assert_runs_again(pids[i]);
        end_target(pids[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_driver_runs),
        cmocka_unit_test(test_new_threads_run_and_get_their_creators_mask),
        cmocka_unit_test(test_threads_end_in_the_window),
        cmocka_unit_test(test_signals_wait_for_the_end),
        cmocka_unit_test(test_faults_reach_the_programs_handler),
        cmocka_unit_test(test_own_change_of_the_mask_stays),
        cmocka_unit_test(test_uninterruptible_thread_is_waited_for),
        cmocka_unit_test(test_sigcont_is_noticed),
        cmocka_unit_test(test_sigcont_at_any_time),
        cmocka_unit_test(test_refusals_change_nothing),
        cmocka_unit_test(test_other_tracer_is_named),
        cmocka_unit_test(test_missing_rights_are_named),
        cmocka_unit_test(test_target_dies),
        cmocka_unit_test(test_tracer_dies),
        cmocka_unit_test(test_program_with_children),
        cmocka_unit_test(test_several_windows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
