/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Process trees, and what is said of process groups against what the kernel then does. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "proc/ident.h"
#include "proc/tree.h"
#include "proc_child.h"

/* Counters: 0 the root, 1 and 2 its children, 3 and 4 theirs; 5 a zombie of the root. */
static void small_tree(int arg)
{
    pid_t zombie;

    (void)arg;
    for (int i = 1; i <= 2; i++) {
        if (child_fork() == 0) {
            if (child_fork() == 0)
                child_count(i + 2);
            child_count(i);
        }
    }
    zombie = fork();
    if (zombie == 0)
        _exit(0);
    child_shared->pids[5] = zombie;
    child_count(0);
}

static size_t place_of(const struct gpucr_tree *tree, pid_t pid)
{
    for (size_t i = 0; i < tree->count; i++) {
        if (tree->items[i].pid == pid)
            return i;
    }
    return SIZE_MAX;
}

static void test_shape(void **state)
{
    pid_t root = child_start(small_tree, 0);
    struct gpucr_tree tree;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    for (int i = 0; i <= 4; i++)
        child_await_count(i, 1);
    assert_true(child_await_state(child_shared->pids[5], 'Z'));
    assert_int_equal(gpucr_tree_read(root, &tree, &err), 0);
    assert_int_equal(tree.count, 6);
    assert_int_equal(tree.items[0].pid, root);
    for (size_t i = 1; i < tree.count; i++)
        assert_true(place_of(&tree, tree.items[i].parent_pid) < i);
    for (int i = 0; i <= 5; i++)
        assert_true(gpucr_tree_contains(&tree, child_shared->pids[i]));
    assert_false(gpucr_tree_contains(&tree, getpid()));
    assert_int_equal(tree.items[place_of(&tree, child_shared->pids[5])].state, 'Z');
    gpucr_tree_done(&tree);
    assert_null(tree.items);
    child_kill(root);
    assert_int_equal(gpucr_tree_read(root, &tree, &err), GPUCR_ERR_NOT_FOUND);
    assert_int_equal(err.pid, root);
}

static __attribute__((noinline)) void start_sleeper(void)
{
    if (vfork() == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* when the thread ends; it stays */
        (void)execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(1);
    }
}

/* Children of several threads, and of one more than fit into one piece of text. */
static void *forking_thread(void *arg)
{
    for (int i = 0; i < (int)(intptr_t)arg; i++)
        start_sleeper();
    (void)__atomic_add_fetch(&child_shared->counters[1], 1, __ATOMIC_SEQ_CST);
    for (;;)
        (void)pause();
    return NULL;
}

static void many_children(int arg)
{
    pthread_t thread;

    for (int i = 0; i < 4; i++)
        (void)pthread_create(&thread, NULL, forking_thread, (void *)(intptr_t)(i == 0 ? arg : 2));
    child_count(0);
}

static void assert_both_ways(pid_t root, size_t count)
{
    struct gpucr_tree scanned;
    struct gpucr_tree descended;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int rc;

    assert_int_equal(gpucr_tree_scan(root, &scanned, &err), 0);
    assert_int_equal(scanned.count, count);
    assert_int_equal(scanned.items[0].pid, root);
    rc = gpucr_tree_descend(root, count + 100, &descended, &err);
    if (rc == 1) {
        print_message("this kernel lists no children\n");
    } else {
        assert_int_equal(rc, 0);
        assert_int_equal(descended.count, count);
        for (size_t i = 0; i < count; i++)
            assert_true(gpucr_tree_contains(&descended, scanned.items[i].pid));
        for (size_t i = 1; i < count; i++)
            assert_true(place_of(&descended, descended.items[i].parent_pid) < i);
        gpucr_tree_done(&descended);
    }
    assert_int_equal(gpucr_tree_descend(root, 2, &descended, &err), 1); /* too dear */
    gpucr_tree_done(&scanned);
}

static void test_both_ways(void **state)
{
    pid_t root = child_start(small_tree, 0);

    (void)state;
    for (int i = 0; i <= 4; i++)
        child_await_count(i, 1);
    while (child_shared->pids[5] == 0)
        gpucr_sleep_us(200);
    assert_both_ways(root, 6);
    assert_int_equal(child_teardown(NULL), 0);

    (void)child_reset(NULL);
    root = child_start(many_children, 900); /* their pids have up to 7 digits, and 4 at least */
    child_await_count(1, 4);
    assert_both_ways(root, 907);
}

static void lost_parent(int arg)
{
    (void)arg;
    if (fork() == 0) {
        if (fork() == 0)
            child_count(1);
        _exit(0);
    }
    (void)wait(NULL);
    child_count(0);
}

static void test_reparented(void **state)
{
    pid_t root = child_start(lost_parent, 0);
    struct gpucr_tree tree;

    (void)state;
    child_await_count(0, 1);
    child_await_count(1, 1);
    assert_int_equal(gpucr_tree_read(root, &tree, NULL), 0);
    assert_int_equal(tree.count, 1); /* the grandchild belongs to its reaper now */
    gpucr_tree_done(&tree);
}

static void fork_on_and_on(int arg)
{
    (void)arg;
    for (;;) {
        child_shared->counters[0]++;
        if (child_fork() == 0)
            _exit(0);
        (void)wait(NULL);
    }
}

static void test_restless(void **state)
{
    pid_t root = child_start(fork_on_and_on, 0);
    uint64_t begin_ns = gpucr_now_ns();
    struct gpucr_tree tree;

    (void)state;
    child_await_count(0, 10);
    assert_int_equal(gpucr_tree_read(root, &tree, NULL), 0);
    assert_int_equal(tree.items[0].pid, root);
    gpucr_tree_done(&tree);
    assert_true(gpucr_now_ns() - begin_ns < 5000000000);
}

/* ---- orphaned process groups ---- */

static void in_group(pid_t group, int counter)
{
    if (child_fork() == 0) {
        (void)setpgid(0, group);
        child_count(counter);
    }
}

/* A shell (0) with a job of its own group (1), of which 2 is a member too. */
static void shell_with_pipeline(int arg)
{
    (void)arg;
    (void)setsid();
    in_group(0, 1);
    while (!child_shared->pids[1])
        (void)usleep(100);
    in_group(child_shared->pids[1], 2);
    child_count(0);
}

/* A shell (0) with a script (1) as a job, which runs a program (2) in its group. */
static void script_main(void)
{
    (void)setpgid(0, 0);
    if (fork() == 0)
        child_count(2);
    child_count(1);
}

static void shell_with_script(int arg)
{
    (void)arg;
    (void)setsid();
    if (fork() == 0)
        script_main();
    child_count(0);
}

/* A parent (0) whose child (1) has a session of its own. */
static void daemon_child(int arg)
{
    (void)arg;
    if (fork() == 0) {
        (void)setsid();
        child_count(1);
    }
    child_count(0);
}

/* A shell (0), a job (1) of its own group whose child (2) has a group of its own. */
static void groups_in_groups(int arg)
{
    (void)arg;
    (void)setsid();
    if (child_fork() == 0) {
        (void)setpgid(0, 0);
        in_group(0, 2);
        child_count(1);
    }
    child_count(0);
}

static void start_scene(void (*fn)(int arg), int count)
{
    (void)child_start(fn, 0);
    for (int i = 0; i < count; i++)
        child_await_count(i, 1);
}

static int orphanable(int top, pid_t *ret_group, pid_t *ret_link)
{
    struct gpucr_tree tree;
    int rc;

    *ret_group = *ret_link = -1;
    assert_int_equal(gpucr_tree_read(child_shared->pids[top], &tree, NULL), 0);
    rc = gpucr_tree_orphanable(&tree, ret_group, ret_link, NULL);
    gpucr_tree_done(&tree);
    return rc;
}

/* What really happens to the child when the shell exits while the child is stopped. */
static bool dies_with_shell(int child)
{
    pid_t pid = child_shared->pids[child];
    struct gpucr_ident ident;
    bool died;

    assert_int_equal(gpucr_ident_open(pid, &ident, NULL), 0);
    assert_int_equal(gpucr_ident_signal(&ident, SIGSTOP, NULL), 0);
    assert_true(child_await_state(pid, 'T'));
    child_kill(child_shared->pids[0]);
    died = gpucr_ident_wait_end(&ident, 300, NULL) == 0;
    gpucr_ident_done(&ident);
    return died;
}

static void test_orphan_script(void **state)
{
    pid_t group;
    pid_t link;

    (void)state;
    start_scene(shell_with_script, 3);
    assert_int_equal(orphanable(2, &group, &link), 1);
    assert_int_equal(group, child_shared->pids[1]);
    assert_int_equal(link, child_shared->pids[0]);
    assert_int_equal(orphanable(1, &group, &link), 1);
    assert_int_equal(orphanable(0, &group, &link), 0); /* the shell is held too */
    assert_int_equal(group, -1);
    assert_true(dies_with_shell(2));
}

static void test_orphan_pipeline(void **state)
{
    pid_t group;
    pid_t link;

    (void)state;
    start_scene(shell_with_pipeline, 3);
    assert_int_equal(orphanable(1, &group, &link), 1);
    assert_int_equal(group, child_shared->pids[1]);
    assert_int_equal(link, child_shared->pids[0]);
    assert_int_equal(orphanable(2, &group, &link), 1);
    assert_int_equal(orphanable(0, &group, &link), 0);
}

static void test_orphan_daemon(void **state)
{
    pid_t group;
    pid_t link;

    (void)state;
    start_scene(daemon_child, 2);
    assert_int_equal(orphanable(1, &group, &link), 0);
    assert_false(dies_with_shell(1));
    assert_int_equal(child_state(child_shared->pids[1]), 'T');
}

static void test_orphan_nested(void **state)
{
    pid_t group;
    pid_t link;

    (void)state;
    start_scene(groups_in_groups, 3);
    assert_int_equal(orphanable(1, &group, &link), 1);
    assert_int_equal(group, child_shared->pids[1]); /* the inner one is connected inside */
    assert_int_equal(orphanable(2, &group, &link), 1);
    assert_int_equal(group, child_shared->pids[2]);
    assert_int_equal(link, child_shared->pids[1]);
    assert_int_equal(orphanable(0, &group, &link), 0);
}

#define PROC_TEST(fn) cmocka_unit_test_setup_teardown(fn, child_reset, child_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROC_TEST(test_shape),         PROC_TEST(test_both_ways),
        PROC_TEST(test_reparented),    PROC_TEST(test_restless),
        PROC_TEST(test_orphan_script), PROC_TEST(test_orphan_pipeline),
        PROC_TEST(test_orphan_daemon), PROC_TEST(test_orphan_nested),
    };

    return cmocka_run_group_tests(tests, child_group_setup, NULL);
}
