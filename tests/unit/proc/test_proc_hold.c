/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Stopping trees and letting them go on. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "proc_child.h"
#include "proc_holding.h"

static const struct gpucr_held *held(const struct gpucr_hold *hold, pid_t pid)
{
    for (size_t i = 0; i < hold->count; i++) {
        if (hold->items[i].ident.pid == pid)
            return &hold->items[i];
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct gpucr_hold *hold;
    pid_t pid;

    (void)state;
    child_shared->flags[0] = 20;
    pid = child_start(child_threads, 0);
    for (int i = 0; i <= 20; i++)
        child_await_count(i, 1);
    hold = holding_take(pid);
    assert_int_equal(hold->count, 1);
    for (int i = 0; i <= 20; i += 5)
        assert_true(child_rests(i));
    assert_int_equal(child_state(pid), 'T');
    holding_release(hold);
    for (int i = 0; i <= 20; i++)
        assert_true(child_moves(i));
}

/* 0: root, 1: child with two threads (2), 3: its child; 4: stopped by its owner. */
static void family(int arg)
{
    (void)arg;
    if (child_fork() == 0) {
        if (child_fork() == 0)
            child_count(3);
        child_shared->flags[0] = 1;
        child_threads(1);
    }
    if (child_fork() == 0) {
        child_shared->counters[4] = 1;
        child_shared->pids[4] = getpid();
        (void)raise(SIGSTOP);
        child_count(4);
    }
    child_count(0);
}

static pid_t start_family(void)
{
    pid_t root = child_start(family, 0);

    for (int i = 0; i <= 4; i++)
        child_await_count(i, 1);
    assert_true(child_await_state(child_shared->pids[4], 'T'));
    return root;
}

static void test_tree(void **state)
{
    pid_t root = start_family();
    struct gpucr_hold *hold;

    (void)state;
    hold = holding_take(root);
    assert_int_equal(hold->count, 4);
    assert_int_equal(hold->items[0].ident.pid, root);
    assert_int_equal(held(hold, child_shared->pids[3])->parent_pid, child_shared->pids[1]);
    assert_true(held(hold, child_shared->pids[3]) > held(hold, child_shared->pids[1]));
    assert_true(held(hold, child_shared->pids[4])->was_stopped);
    assert_false(held(hold, child_shared->pids[1])->was_stopped);
    for (int i = 0; i <= 3; i++)
        assert_true(child_rests(i));
    holding_release(hold);
    for (int i = 0; i <= 3; i++)
        assert_true(child_moves(i));
    /* The one its owner had stopped is stopped still, until its owner continues it. */
    assert_int_equal(child_state(child_shared->pids[4]), 'T');
    assert_int_equal(kill(child_shared->pids[4], SIGCONT), 0);
    assert_true(child_moves(4));
}

static void test_single(void **state)
{
    pid_t root = start_family();
    struct gpucr_hold *hold;

    (void)state;
    assert_int_equal(gpucr_hold_take(root, true, gpucr_deadline_in_ms(HOLDING_MS), &hold, NULL), 0);
    assert_int_equal(hold->count, 1);
    assert_true(child_rests(0));
    assert_true(child_moves(1));
    holding_release(hold);
    assert_true(child_moves(0));
}

static void test_adopt(void **state)
{
    pid_t root = start_family();
    pid_t ids[6];
    bool was_stopped[6] = {false};
    struct gpucr_pids pids = {.ids = ids, .count = 6};
    struct gpucr_hold *hold = holding_take(root);
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    gpucr_hold_free(hold); /* forgets, and does not continue */
    for (int i = 0; i <= 3; i++)
        assert_true(child_rests(i));
    ids[0] = root;
    ids[1] = child_shared->pids[3]; /* before its parent */
    ids[2] = child_shared->pids[4];
    ids[3] = child_shared->pids[1];
    ids[4] = root;      /* twice */
    ids[5] = 0x3ffffff; /* gone */
    was_stopped[2] = true;
    assert_int_equal(gpucr_hold_adopt(&pids, was_stopped, &hold, &err), 0);
    assert_int_equal(hold->count, 5);
    assert_int_equal(hold->root, root);
    assert_true(held(hold, child_shared->pids[3]) > held(hold, child_shared->pids[1]));
    assert_true(held(hold, 0x3ffffff)->ended);
    assert_int_equal(gpucr_hold_check(hold, &err), 0);
    holding_release(hold);
    for (int i = 0; i <= 3; i++)
        assert_true(child_moves(i));
    assert_int_equal(child_state(child_shared->pids[4]), 'T');
    pids.count = 0;
    assert_int_equal(gpucr_hold_adopt(&pids, NULL, &hold, &err), GPUCR_ERR_USAGE);
}

static void test_check(void **state)
{
    pid_t root = start_family();
    struct gpucr_hold *hold = holding_take(root);
    struct gpucr_error err = GPUCR_ERROR_INIT;
    pid_t pid = child_shared->pids[1];

    (void)state;
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_true(child_moves(1));
    assert_int_equal(gpucr_hold_check(hold, &err), GPUCR_ERR_VERIFY);
    assert_int_equal(err.pid, pid);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    while (gpucr_hold_check(hold, &err) != 0)
        (void)usleep(200);
    child_kill(child_shared->pids[3]);
    assert_true(child_await_gone(child_shared->pids[3]));
    assert_int_equal(gpucr_hold_check(hold, &err), GPUCR_ERR_TARGET_DIED);
    assert_int_equal(err.pid, child_shared->pids[3]);
    holding_release(hold); /* an ended one is no obstacle */
    assert_true(child_moves(1));
}

/* A second release must not continue what was stopped since. */
static void test_release_once(void **state)
{
    pid_t pid = child_start(child_count, 0);
    struct gpucr_hold *hold;

    (void)state;
    child_await_count(0, 1);
    hold = holding_take(pid);
    assert_int_equal(gpucr_hold_release(hold, NULL), 0);
    assert_true(child_moves(0));
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_true(child_await_state(pid, 'T'));
    holding_release(hold);
    assert_int_equal(child_state(pid), 'T');
}

static void stop_oneself(int sig)
{
    (void)sig;
    child_shared->counters[1]++;
    (void)raise(SIGSTOP);
}

static void stubborn(int arg)
{
    struct sigaction act = {.sa_handler = stop_oneself};

    (void)arg;
    (void)sigaction(SIGCONT, &act, NULL);
    child_count(0);
}

static void test_stops_again_by_itself(void **state)
{
    pid_t pid = child_start(stubborn, 0);
    uint64_t begin_ns;
    struct gpucr_hold *hold;

    (void)state;
    child_await_count(0, 1);
    hold = holding_take(pid);
    begin_ns = gpucr_now_ns();
    holding_release(hold);
    assert_true(gpucr_now_ns() - begin_ns < 2000000000);
    child_await_count(1, 1);
    assert_true(child_await_state(pid, 'T'));
}

static void continue_often(int pid)
{
    for (;;) {
        (void)kill(pid, SIGCONT);
        child_shared->counters[9]++;
        (void)usleep(500);
    }
}

/* Somebody sends SIGCONT all the time: what comes out is a hold or an error, never a hang. */
static void test_contested(void **state)
{
    pid_t root = child_start(child_count, 0);
    pid_t rival;

    (void)state;
    child_await_count(0, 1);
    rival = child_start(continue_often, root);
    child_await_count(9, 1);
    for (int round = 0; round < 10; round++) {
        struct gpucr_hold *hold = NULL;
        int rc = gpucr_hold_take(root, false, gpucr_deadline_in_ms(50), &hold, NULL);

        assert_true(rc == 0 || rc == GPUCR_ERR_TIMEOUT);
        if (rc == 0)
            holding_release(hold);
    }
    child_kill(rival);
    assert_true(child_moves(0));
}

#define PROC_TEST(fn) cmocka_unit_test_setup_teardown(fn, child_reset, child_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROC_TEST(test_threads),
        PROC_TEST(test_tree),
        PROC_TEST(test_single),
        PROC_TEST(test_adopt),
        PROC_TEST(test_check),
        PROC_TEST(test_release_once),
        PROC_TEST(test_stops_again_by_itself),
        PROC_TEST(test_contested),
    };

    return cmocka_run_group_tests(tests, child_group_setup, NULL);
}
