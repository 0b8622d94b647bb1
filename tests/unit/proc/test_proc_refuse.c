/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What cannot be stopped is named, and everything else runs on. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "proc_child.h"
#include "proc_holding.h"

/*
 * A read of the memory of another process that is served by nobody (userfaultfd):
 * an uninterruptible wait as a hung file system makes it.
 */
static void stuck_in_kernel(int arg)
{
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register area = {.mode = UFFDIO_REGISTER_MODE_MISSING};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char byte;
    struct iovec to = {.iov_base = &byte, .iov_len = 1};
    struct iovec from = {.iov_base = page, .iov_len = 1};
    pid_t self = getpid();

    (void)arg;
    area.range.start = (uintptr_t)page;
    area.range.len = 4096;
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0 || ioctl(fd, UFFDIO_REGISTER, &area) < 0) {
        child_shared->flags[1] = -1;
        child_count(0);
    }
    if (child_fork() == 0) {
        child_shared->pids[2] = getpid();
        (void)process_vm_readv(self, &to, 1, &from, 1, 0);
        _exit(0);
    }
    child_count(0);
}

static void test_stuck_in_kernel(void **state)
{
    pid_t root = child_start(stuck_in_kernel, 0);
    struct gpucr_error err;
    char part[64];

    (void)state;
    child_await_count(0, 1);
    if (child_shared->flags[1] < 0) {
        print_message("userfaultfd is not allowed here\n");
        skip();
    }
    while (child_shared->pids[2] == 0)
        (void)usleep(100);
    if (!child_await_state(child_shared->pids[2], 'D')) {
        print_message("this kernel waits in another way\n");
        skip();
    }
    err = holding_refused(root, 200, GPUCR_ERR_TIMEOUT);
    assert_int_equal(err.pid, child_shared->pids[2]);
    (void)snprintf(part, sizeof(part), "its thread %d is in state D, in the kernel function ",
                   (int)child_shared->pids[2]);
    assert_non_null(strstr(err.text, part));
    assert_non_null(strstr(err.text, "userfault"));
    assert_true(child_moves(0));
}

/* flags[4]: 1 says that the tracer is there. */
static void trace_thread(int tid)
{
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0)
        _exit(1);
    (void)prctl(PR_SET_NAME, "nosy");
    child_shared->flags[4] = 1;
    for (;;) {
        int status;

        if (waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status)) {
            if (status >> 16 == PTRACE_EVENT_STOP && WSTOPSIG(status) == SIGTRAP)
                (void)ptrace(PTRACE_CONT, tid, NULL, NULL);
            else if (status >> 16 == PTRACE_EVENT_STOP)
                (void)ptrace(PTRACE_LISTEN, tid, NULL, NULL);
            else
                (void)ptrace(PTRACE_CONT, tid, NULL, (void *)(intptr_t)WSTOPSIG(status));
        }
    }
}

static void test_traced(void **state)
{
    pid_t root = child_start(child_count, 0);
    struct gpucr_error err;
    pid_t tracer;
    char part[64];

    (void)state;
    child_await_count(0, 1);
    tracer = child_start(trace_thread, root);
    child_await_flag(4, 1);
    err = holding_refused(root, 1000, GPUCR_ERR_BUSY);
    (void)snprintf(part, sizeof(part), "is traced by process %d (nosy)", (int)tracer);
    assert_non_null(strstr(err.text, part));
    assert_int_equal(err.pid, root);
    assert_true(child_moves(0));
}

static void test_traced_thread(void **state)
{
    struct gpucr_pids tids;
    pid_t root;

    (void)state;
    child_shared->flags[0] = 1;
    root = child_start(child_threads, 0);
    child_await_count(1, 1);
    assert_int_equal(gpucr_task_list(root, &tids, NULL), 0);
    assert_int_equal(tids.count, 2);
    (void)child_start(trace_thread, tids.ids[1]);
    gpucr_pids_done(&tids);
    child_await_flag(4, 1);
    (void)holding_refused(root, 2000, GPUCR_ERR_BUSY);
    assert_true(child_moves(0) && child_moves(1));
}

static void test_not_self(void **state)
{
    struct gpucr_error err;

    (void)state;
    err = holding_refused(getpid(), 100, GPUCR_ERR_USAGE);
    assert_non_null(strstr(err.text, "gpucr itself"));
    err = holding_refused(getppid(), 100, GPUCR_ERR_USAGE);
    assert_int_equal(err.pid, getppid());
    err = holding_refused(0x3ffffff, 100, GPUCR_ERR_NOT_FOUND);
    assert_int_equal(err.pid, 0x3ffffff);
}

static void become_nobody(int pid)
{
    struct gpucr_hold *hold;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (setgid(65534) != 0 || setuid(65534) != 0)
        _exit(1);
    child_shared->flags[5] = gpucr_hold_take(pid, false, gpucr_deadline_in_ms(1000), &hold, &err);
    child_shared->flags[6] = 1;
    _exit(0);
}

static void test_permission(void **state)
{
    pid_t root = child_start(child_count, 0);

    (void)state;
    if (geteuid() != 0) {
        print_message("only root can become another user\n");
        skip();
    }
    child_await_count(0, 1);
    (void)child_start(become_nobody, root);
    child_await_flag(6, 1);
    assert_int_equal(child_shared->flags[5], GPUCR_ERR_PERMISSION);
    assert_true(child_moves(0));
}

/* In a pid namespace and with a /proc of its own: the init of it counts. */
static void namespace_init(int arg)
{
    pid_t pid;

    (void)arg;
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        child_shared->flags[6] = -1;
        _exit(0);
    }
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (mount("proc", "/proc", "proc", 0, NULL) != 0)
            child_shared->flags[6] = -1;
        child_count(0);
    }
    child_shared->pids[7] = pid;
    (void)waitpid(pid, NULL, 0);
}

/* Enters from outside, as `docker exec` does, so that it is no descendant of that init. */
static void enter_and_hold(int pid)
{
    char path[64];
    int spaces[2];

    (void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
    spaces[0] = open(path, O_RDONLY | O_CLOEXEC);
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", pid);
    spaces[1] = open(path, O_RDONLY | O_CLOEXEC);
    if (setns(spaces[0], CLONE_NEWPID) != 0 || setns(spaces[1], CLONE_NEWNS) != 0)
        _exit(1);
    if (fork() == 0) {
        struct gpucr_hold *hold;

        child_shared->flags[5] = gpucr_hold_take(1, false, gpucr_deadline_in_ms(1000), &hold, NULL);
        child_shared->flags[6] = 1;
        _exit(0);
    }
    (void)wait(NULL);
}

static void test_namespace_init(void **state)
{
    struct gpucr_hold *hold;

    (void)state;
    (void)child_start(namespace_init, 0);
    while (child_shared->flags[6] == 0 &&
           (child_shared->counters[0] == 0 || child_shared->pids[7] == 0))
        (void)usleep(200);
    if (child_shared->flags[6] < 0) {
        print_message("pid namespaces cannot be made here\n");
        skip();
    }
    (void)child_start(enter_and_hold, child_shared->pids[7]);
    child_await_flag(6, 1);
    assert_int_equal(child_shared->flags[5], GPUCR_ERR_UNSUPPORTED);
    assert_true(child_moves(0));
    /* From outside it can be stopped. */
    hold = holding_take(child_shared->pids[7]);
    assert_true(child_rests(0));
    holding_release(hold);
    assert_true(child_moves(0));
}

/* 0: root, 1: its child, stopped by its owner, 2: another child. */
static void half_stopped(int arg)
{
    (void)arg;
    if (child_fork() == 0) {
        child_shared->counters[1] = 1;
        child_shared->pids[1] = getpid();
        (void)raise(SIGSTOP);
        child_count(1);
    }
    if (child_fork() == 0)
        child_count(2);
    child_count(0);
}

/* An owner-stopped process is not ours to continue when the attempt fails. */
static void test_failure_keeps_stopped(void **state)
{
    pid_t root = child_start(half_stopped, 0);
    struct gpucr_error err;

    (void)state;
    for (int i = 0; i <= 2; i++)
        child_await_count(i, 1);
    assert_true(child_await_state(child_shared->pids[1], 'T'));
    (void)child_start(trace_thread, child_shared->pids[2]);
    child_await_flag(4, 1);
    err = holding_refused(root, 1000, GPUCR_ERR_BUSY);
    assert_int_equal(err.pid, child_shared->pids[2]);
    assert_true(child_moves(0) && child_moves(2));
    assert_int_equal(child_state(child_shared->pids[1]), 'T');
}

#define PROC_TEST(fn) cmocka_unit_test_setup_teardown(fn, child_reset, child_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROC_TEST(test_stuck_in_kernel),
        PROC_TEST(test_traced),
        PROC_TEST(test_traced_thread),
        PROC_TEST(test_not_self),
        PROC_TEST(test_permission),
        PROC_TEST(test_namespace_init),
        PROC_TEST(test_failure_keeps_stopped),
    };

    return cmocka_run_group_tests(tests, child_group_setup, NULL);
}
