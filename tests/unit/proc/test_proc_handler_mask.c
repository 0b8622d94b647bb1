/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A driver thread that is stopped inside a signal handler gets its old signal mask back
 * when the handler returns in the window. It must not take the program's signals then:
 * their handlers would run while the program's memory is not there.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "proc/hold.h"
#include "proc/tracer.h"

struct board {
    _Atomic int in_handler, leave, handled;
    _Atomic pid_t driver_tid;
    _Atomic uint64_t turns;
};

static struct board *board;

static void linger(int sig)
{
    (void)sig;
    board->in_handler = 1;
    while (!board->leave)
        ;
    board->in_handler = 0;
}

static void count(int sig)
{
    (void)sig;
    board->handled++;
}

static void *driver_main(void *arg)
{
    (void)arg;
    (void)pthread_setname_np(pthread_self(), "cuda0123456789a");
    board->driver_tid = (pid_t)syscall(SYS_gettid);
    for (;;)
        board->turns++;
    return NULL;
}

static void child_main(void)
{
    pthread_t thread;
    sigset_t set;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGUSR1, linger);
    (void)signal(SIGUSR2, count);
    (void)pthread_create(&thread, NULL, driver_main, NULL);
    (void)sigfillset(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (;;)
        (void)pause();
}

static void wait_for(_Atomic int *flag, int value)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(10000);

    while (*flag != value && !gpucr_deadline_passed(deadline))
        gpucr_sleep_us(200);
    assert_int_equal(*flag, value);
}

static void test_handler_returns_in_the_window(void **state)
{
    struct gpucr_tracer *tracer = NULL;
    struct gpucr_hold *hold = NULL;
    uint64_t turns;
    pid_t pid;

    (void)state;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(board, MAP_FAILED);
    pid = fork();
    if (pid == 0)
        child_main();
    while (!board->driver_tid)
        gpucr_sleep_us(200);
    assert_int_equal(syscall(SYS_tgkill, pid, board->driver_tid, SIGUSR1), 0);
    wait_for(&board->in_handler, 1);

    assert_int_equal(gpucr_tracer_new(&tracer, NULL), 0);
    assert_int_equal(gpucr_hold_take(pid, false, gpucr_deadline_in_ms(5000), &hold, NULL), 0);
    assert_int_equal(gpucr_tracer_open_window(tracer, pid, NULL), 0);
    board->leave = 1;
    wait_for(&board->in_handler, 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(kill(pid, SIGUSR2), 0);
        gpucr_sleep_us(2000);
    }
    assert_int_equal(board->handled, 0);
    turns = board->turns;
    gpucr_sleep_us(20000);
    assert_true(board->turns > turns); /* the thread itself runs */
    assert_int_equal(gpucr_tracer_close_window(tracer, pid, NULL), 0);
    assert_int_equal(gpucr_hold_check(hold, NULL), 0);
    assert_int_equal(board->handled, 0);
    assert_int_equal(gpucr_hold_release(hold, NULL), 0);
    wait_for(&board->handled, 1); /* held back, not lost; the thread's own mask is back */
    board->handled = 0;
    assert_int_equal(kill(pid, SIGUSR2), 0);
    wait_for(&board->handled, 1);

    gpucr_hold_free(hold);
    (void)gpucr_tracer_free(tracer);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)munmap(board, sizeof(*board));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handler_returns_in_the_window),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
