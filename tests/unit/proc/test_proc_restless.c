/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Stopping trees that fork, vfork, start threads and end all the time. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "proc_child.h"
#include "proc_holding.h"

/* Children that live some milliseconds, as fast as they can be made, 20 at a time. */
static void fork_storm(int arg)
{
    (void)arg;
    for (int alive = 0;;) {
        if (child_fork() == 0) {
            int counter = 100 + getpid() % 100;

            for (int i = 0; i < 50; i++) {
                child_shared->counters[counter]++;
                (void)usleep(50);
            }
            _exit(0);
        }
        child_shared->counters[0]++;
        alive++;
        while (alive > 20 || (alive > 0 && waitpid(-1, NULL, WNOHANG) > 0)) {
            if (alive > 20)
                (void)waitpid(-1, NULL, 0);
            alive--;
        }
    }
}

static uint64_t sum_of_counters(void)
{
    uint64_t sum = 0;

    for (int i = 0; i < CHILD_COUNTERS; i++)
        sum += child_shared->counters[i];
    return sum;
}

static void test_fork_storm(void **state)
{
    pid_t root = child_start(fork_storm, 0);

    (void)state;
    child_await_count(0, 30);
    for (int round = 0; round < 20; round++) {
        struct gpucr_hold *hold = holding_take(root);
        uint64_t before = sum_of_counters();

        gpucr_sleep_us(5000);
        assert_true(sum_of_counters() == before);
        holding_release(hold);
        assert_true(child_moves(0));
    }
}

/* Each new process makes two more, up to 60. */
static void bomb(int arg)
{
    for (int i = arg; i < 2; i++) {
        if (__atomic_add_fetch(&child_shared->counters[0], 1, __ATOMIC_SEQ_CST) > 60)
            break;
        if (child_fork() == 0) {
            (void)usleep(300);
            i = -1;
        }
    }
    for (;;) {
        child_shared->counters[1 + getpid() % 200]++;
        (void)usleep(1000);
    }
}

static void test_fork_bomb(void **state)
{
    pid_t root;

    (void)state;
    for (int round = 0; round < 3; round++) {
        struct gpucr_hold *hold;
        uint64_t before;

        (void)child_teardown(NULL);
        (void)child_reset(NULL);
        root = child_start(bomb, 0);
        child_await_count(0, 10);
        hold = holding_take(root);
        before = sum_of_counters();
        gpucr_sleep_us(10000);
        assert_true(sum_of_counters() == before);
        holding_release(hold);
    }
}

/* A raw vfork: in between, only system calls in assembler-free C, as in a libc. */
static void vfork_once(uint64_t sleep_ms, bool execute)
{
    static const char *const argv[] = {"/bin/sleep", "60", NULL};
    struct timespec t = {.tv_sec = (time_t)(sleep_ms / 1000),
                         .tv_nsec = (long)(sleep_ms % 1000 * 1000000)};
    pid_t pid = vfork();

    if (pid == 0) {
        child_shared->pids[10] = (pid_t)syscall(SYS_getpid);
        (void)syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        child_shared->flags[2]++;
        (void)syscall(SYS_nanosleep, &t, NULL);
        child_shared->flags[3]++;
        if (execute)
            (void)syscall(SYS_execve, argv[0], argv, NULL);
        (void)syscall(SYS_exit, 0);
    }
    if (!execute)
        (void)waitpid(pid, NULL, 0);
}

static void vfork_slowly(int sleep_ms)
{
    pthread_t thread;

    (void)pthread_create(&thread, NULL, child_count_thread, (void *)(intptr_t)1);
    while (child_shared->counters[1] == 0)
        (void)usleep(100);
    vfork_once((uint64_t)sleep_ms, true);
    child_count(0);
}

static void test_vfork(void **state)
{
    pid_t root = child_start(vfork_slowly, 200);
    struct gpucr_hold *hold;
    char line[64];

    (void)state;
    child_await_flag(2, 1);
    hold = holding_take(root);
    assert_int_equal(child_shared->flags[3], 1); /* the child was let go as far as its exec */
    assert_int_equal(hold->count, 2);
    assert_int_equal(child_state(child_shared->pids[10]), 'T');
    gpucr_cmdline_read(child_shared->pids[10], line, sizeof(line));
    assert_string_equal(line, "/bin/sleep 60");
    assert_true(child_rests(0) && child_rests(1));
    holding_release(hold);
    assert_true(child_moves(0) && child_moves(1));
    assert_true(child_await_state(child_shared->pids[10], 'S'));
}

static void vfork_on_and_on(int execute)
{
    for (;;) {
        vfork_once(0, execute);
        if (execute && child_shared->pids[10] > 0) {
            (void)kill(child_shared->pids[10], SIGKILL);
            (void)waitpid(child_shared->pids[10], NULL, 0);
        }
        child_shared->counters[0]++;
    }
}

static void test_vforks_in_a_loop(void **state)
{
    pid_t root = child_start(vfork_on_and_on, 0);

    (void)state;
    child_await_count(0, 50);
    holding_often(root, 30);
}

static void test_vforks_that_exec(void **state)
{
    pid_t root = child_start(vfork_on_and_on, 1);

    (void)state;
    child_await_count(0, 10);
    holding_often(root, 30);
}

static void test_vfork_without_end(void **state)
{
    pid_t root = child_start(vfork_slowly, 60000);
    struct gpucr_error err;
    char tid[32];
    char child[32];

    (void)state;
    child_await_flag(2, 1);
    err = holding_refused(root, 1000, GPUCR_ERR_TIMEOUT);
    (void)snprintf(tid, sizeof(tid), "its thread %d is in state D", (int)root);
    (void)snprintf(child, sizeof(child), "its vfork child %d ", (int)child_shared->pids[10]);
    assert_int_equal(err.pid, root);
    if (!strstr(err.text, tid))
        print_message("%s\n", err.text);
    assert_non_null(strstr(err.text, tid));
    assert_non_null(strstr(err.text, child));
    assert_true(child_moves(1)); /* the rest of it runs again */
    assert_int_equal(child_state(child_shared->pids[10]), 'S');
}

/* CLONE_VFORK without CLONE_VM: the memory is a copy, the parent waits all the same. */
static pid_t clone_vfork(void)
{
    return (pid_t)syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
}

static void vfork_with_copy(int sleep_ms)
{
    if (clone_vfork() == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        child_shared->pids[10] = getpid();
        child_shared->flags[2]++;
        (void)usleep((useconds_t)sleep_ms * 1000);
        child_shared->flags[3]++;
        (void)execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(0);
    }
    child_count(0);
}

static void test_vfork_with_copy(void **state)
{
    pid_t root = child_start(vfork_with_copy, 100);
    struct gpucr_hold *hold;

    (void)state;
    child_await_flag(2, 1);
    hold = holding_take(root);
    assert_int_equal(child_shared->flags[3], 1);
    assert_int_equal(child_state(child_shared->pids[10]), 'T');
    assert_true(child_rests(0));
    holding_release(hold);
    assert_true(child_moves(0));
}

static void *copy_thread(void *sleep_ms)
{
    vfork_with_copy((int)(intptr_t)sleep_ms);
    return NULL;
}

static void *short_vfork_thread(void *arg)
{
    struct timespec t = {.tv_nsec = 300000000};
    pid_t pid = vfork();

    if (pid == 0) {
        (void)syscall(SYS_nanosleep, &t, NULL);
        (void)syscall(SYS_exit, 0);
    }
    (void)waitpid(pid, NULL, 0);
    return arg;
}

/*
 * The same in a second thread, while an ordinary vfork of the first one draws the
 * attention: the child with the copy is stopped before it is known to be awaited.
 */
static void vfork_in_a_thread(int sleep_ms)
{
    pthread_t thread;

    (void)pthread_create(&thread, NULL, short_vfork_thread, NULL);
    (void)usleep(20000);
    (void)pthread_create(&thread, NULL, copy_thread, (void *)(intptr_t)sleep_ms);
    child_count(20);
}

static void test_vfork_noticed_late(void **state)
{
    pid_t root = child_start(vfork_in_a_thread, 100);
    struct gpucr_hold *hold;
    char line[64];

    (void)state;
    child_await_flag(2, 1);
    child_await_count(20, 1);
    hold = holding_take(root);
    assert_int_equal(child_shared->flags[3], 1);
    assert_int_equal(child_state(child_shared->pids[10]), 'T');
    gpucr_cmdline_read(child_shared->pids[10], line, sizeof(line));
    assert_string_equal(line, "sleep 60");
    assert_true(child_rests(0) && child_rests(20));
    holding_release(hold);
    assert_true(child_moves(0) && child_moves(20));
}

/* A child stopped by its owner (30), and a vfork child that takes its time. */
static void stopped_child_and_vfork(int sleep_ms)
{
    if (child_fork() == 0) {
        child_shared->pids[30] = getpid();
        (void)raise(SIGSTOP);
        child_count(30);
    }
    while (child_shared->pids[30] == 0)
        (void)usleep(100);
    vfork_slowly(sleep_ms);
}

static void continue_later(int pid)
{
    (void)usleep(100000);
    (void)kill(pid, SIGCONT);
}

/* The owner continues it while the rest is being stopped: then it runs at the end. */
static void test_continued_by_owner(void **state)
{
    pid_t root = child_start(stopped_child_and_vfork, 400);
    struct gpucr_hold *hold;

    (void)state;
    child_await_flag(2, 1);
    assert_true(child_await_state(child_shared->pids[30], 'T'));
    (void)child_start(continue_later, child_shared->pids[30]);
    hold = holding_take(root);
    assert_true(child_rests(30) && child_rests(1));
    assert_int_equal(child_state(child_shared->pids[30]), 'T');
    holding_release(hold);
    assert_true(child_moves(30) && child_moves(1));
}

/* What only root may see of processes that changed their user: flags[5] tells how it went. */
static void vforks_of_nobody(int arg)
{
    if (setgid(65534) != 0 || setuid(65534) != 0)
        _exit(1);
    vfork_on_and_on(arg);
}

static void hold_as_nobody(int root)
{
    if (setgid(65534) != 0 || setuid(65534) != 0)
        _exit(1);
    for (int round = 0; round < 10; round++) {
        struct gpucr_error err = GPUCR_ERROR_INIT;
        struct gpucr_hold *hold;
        uint64_t before;

        child_shared->flags[5] =
            gpucr_hold_take(root, false, gpucr_deadline_in_ms(HOLDING_MS), &hold, &err);
        if (child_shared->flags[5] != 0)
            break;
        before = child_shared->counters[0];
        gpucr_sleep_us(3000);
        if (child_shared->counters[0] != before)
            child_shared->flags[5] = 1;
        if (gpucr_hold_release(hold, &err) != 0)
            child_shared->flags[5] = err.code;
        gpucr_hold_free(hold);
        gpucr_sleep_us(2000);
    }
    child_shared->flags[6] = 1;
}

static void test_without_rights(void **state)
{
    pid_t root;

    (void)state;
    if (geteuid() != 0) {
        print_message("only root can become another user\n");
        skip();
    }
    root = child_start(vforks_of_nobody, 1);
    child_await_count(0, 5);
    (void)child_start(hold_as_nobody, root);
    child_await_flag(6, 1);
    assert_int_equal(child_shared->flags[5], 0);
    assert_true(child_moves(0));
}

static void copies_on_and_on(int arg)
{
    (void)arg;
    for (;;) {
        pid_t pid = clone_vfork();

        if (pid == 0)
            _exit(0);
        (void)waitpid(pid, NULL, 0);
        child_shared->counters[0]++;
    }
}

static void test_vforks_with_copies(void **state)
{
    pid_t root = child_start(copies_on_and_on, 0);

    (void)state;
    child_await_count(0, 10);
    holding_often(root, 30);
}

static void leave_threads(int arg)
{
    pthread_t thread;

    (void)arg;
    (void)pthread_create(&thread, NULL, child_count_thread, (void *)(intptr_t)1);
    child_shared->pids[0] = getpid();
    pthread_exit(NULL);
}

static void test_leader_exited(void **state)
{
    pid_t root = child_start(leave_threads, 0);
    struct gpucr_hold *hold;

    (void)state;
    child_await_count(1, 1);
    assert_true(child_await_state(root, 'Z'));
    hold = holding_take(root);
    assert_int_equal(hold->count, 1);
    assert_true(child_rests(1));
    holding_release(hold);
    assert_true(child_moves(1));
}

/* Threads come and go all the time. */
static void *short_thread(void *arg)
{
    (void)arg;
    child_shared->counters[1]++;
    return NULL;
}

static void threads_on_and_on(int arg)
{
    (void)arg;
    for (;;) {
        pthread_t threads[4];
        int count = 0;

        while (count < 4 && pthread_create(&threads[count], NULL, short_thread, NULL) == 0)
            count++;
        while (count > 0)
            (void)pthread_join(threads[--count], NULL);
        child_shared->counters[0]++;
    }
}

static void test_restless_threads(void **state)
{
    pid_t root = child_start(threads_on_and_on, 0);

    (void)state;
    child_await_count(0, 10);
    for (int round = 0; round < 30; round++) {
        struct gpucr_hold *hold = holding_take(root);
        uint64_t before = sum_of_counters();

        gpucr_sleep_us(2000);
        assert_true(sum_of_counters() == before);
        holding_release(hold);
        assert_true(child_moves(0));
    }
}

static void end_soon(int arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        child_shared->counters[0]++;
        (void)usleep(50);
    }
}

/* The root ends at any moment of the attempt: an error that says so, or a hold. */
static void test_root_ends(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        pid_t root = child_start(end_soon, 0);
        struct gpucr_error err = GPUCR_ERROR_INIT;
        struct gpucr_hold *hold = NULL;
        int rc;

        gpucr_sleep_us((uint64_t)round * 100);
        rc = gpucr_hold_take(root, false, gpucr_deadline_in_ms(HOLDING_MS), &hold, &err);
        if (rc == 0)
            holding_release(hold);
        else
            assert_true(rc == GPUCR_ERR_NOT_FOUND || rc == GPUCR_ERR_TARGET_DIED);
        child_kill(root);
    }
}

#define PROC_TEST(fn) cmocka_unit_test_setup_teardown(fn, child_reset, child_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROC_TEST(test_fork_storm),
        PROC_TEST(test_fork_bomb),
        PROC_TEST(test_vfork),
        PROC_TEST(test_vforks_in_a_loop),
        PROC_TEST(test_vforks_that_exec),
        PROC_TEST(test_vfork_without_end),
        PROC_TEST(test_vfork_with_copy),
        PROC_TEST(test_vforks_with_copies),
        PROC_TEST(test_vfork_noticed_late),
        PROC_TEST(test_continued_by_owner),
        PROC_TEST(test_without_rights),
        PROC_TEST(test_leader_exited),
        PROC_TEST(test_restless_threads),
        PROC_TEST(test_root_ends),
    };

    return cmocka_run_group_tests(tests, child_group_setup, NULL);
}
