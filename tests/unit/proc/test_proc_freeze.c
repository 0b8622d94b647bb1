/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Holds in a frozen cgroup: nothing runs whoever sends SIGCONT, and nothing is left behind. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "proc/cgroup.h"
#include "proc/hold.h"
#include "proc/tracer.h"
#include "proc_child.h"

static char test_folder[GPUCR_CGROUP_PATH_BYTES]; /* a cgroup v2 of the test, for its children */

static void write_file(const char *folder, const char *name, const char *value)
{
    char path[GPUCR_CGROUP_PATH_BYTES + 64];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (write(fd, value, strlen(value)) < 0)
            print_message("cannot write %s: %s\n", path, strerror(errno));
        (void)close(fd);
    }
}

static void enter(const char *folder, pid_t pid)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%d", (int)pid);
    write_file(folder, "cgroup.procs", text);
}

static void folder_of(pid_t pid, char ret[GPUCR_CGROUP_PATH_BYTES])
{
    struct gpucr_cgroups cgroups;

    assert_int_equal(gpucr_cgroups_open(&cgroups, NULL), 0);
    assert_int_equal(gpucr_cgroup_folder(&cgroups, pid, ret, NULL), 0);
    gpucr_cgroups_done(&cgroups);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static int make_test_folder(void)
{
    char own[GPUCR_CGROUP_PATH_BYTES];
    struct gpucr_cgroups cgroups;
    int rc = gpucr_cgroups_open(&cgroups, NULL);

    if (rc < 0)
        return rc;
    rc = gpucr_cgroup_folder(&cgroups, getpid(), own, NULL);
    gpucr_cgroups_done(&cgroups);
    if (rc < 0)
        return rc;
    if (snprintf(test_folder, sizeof(test_folder), "%s/test-%d", own, (int)getpid()) >=
        (int)sizeof(test_folder))
        return -1;
    return mkdir(test_folder, 0755);
}

/* ---- the children ---- */

/* Three busy threads, a child, and a grandchild that its owner has stopped. */
static void *busy_thread(void *arg)
{
    child_count_fast((int)(intptr_t)arg);
    return NULL;
}

static void busy_family(int arg)
{
    pthread_t thread;

    (void)arg;
    if (child_fork() == 0) {
        if (child_fork() == 0) {
            child_shared->counters[4] = 1;
            child_shared->pids[4] = getpid();
            (void)raise(SIGSTOP);
            child_count(4);
        }
        child_count_fast(3);
    }
    (void)pthread_create(&thread, NULL, busy_thread, (void *)(intptr_t)1);
    (void)pthread_create(&thread, NULL, busy_thread, (void *)(intptr_t)2);
    child_count_fast(0);
}

static pid_t start_in_folder(void (*fn)(int arg), int count)
{
    pid_t root;

    enter(test_folder, getpid()); /* children are born there */
    root = child_start(fn, 0);
    for (int i = 0; i < count; i++)
        child_await_count(i, 1);
    return root;
}

static int teardown(void **state)
{
    char own[GPUCR_CGROUP_PATH_BYTES];
    int rc = child_teardown(state);

    (void)snprintf(own, sizeof(own), "%s", test_folder);
    *strrchr(own, '/') = '\0';
    enter(own, getpid());
    return rc;
}

static struct gpucr_hold *take(pid_t root)
{
    struct gpucr_hold *hold = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_hold_take(root, false, gpucr_deadline_in_ms(10000), &hold, &err) != 0)
        fail_msg("%s", err.text);
    return hold;
}

static void freeze(struct gpucr_hold *hold)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_hold_freeze(hold, &err) != 1)
        fail_msg("%s", err.text);
}

static void thaw(struct gpucr_hold *hold)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_hold_thaw(hold, &err) != 0)
        fail_msg("%s", err.text);
}

static void release(struct gpucr_hold *hold)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_hold_release(hold, &err) != 0)
        fail_msg("%s", err.text);
    gpucr_hold_free(hold);
}

static void send_all(const struct gpucr_hold *hold, int sig)
{
    for (size_t i = 0; i < hold->count; i++)
        assert_int_equal(kill(hold->items[i].ident.pid, sig), 0);
}

static void assert_counters(const uint64_t *before)
{
    for (int i = 0; i <= 4; i++)
        assert_true(child_shared->counters[i] == before[i]);
}

static void copy_counters(uint64_t *ret)
{
    for (int i = 0; i <= 4; i++)
        ret[i] = child_shared->counters[i];
}

static uint64_t pending_signals(pid_t pid)
{
    char path[64];
    char text[8192];
    char *end;
    const char *line;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    assert_true(gpucr_file_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
    line = strstr(text, "ShdPnd:");
    assert_non_null(line);
    return strtoull(line + 7, &end, 16);
}

/* ---- the tests ---- */

static void test_no_sigcont_wakes(void **state)
{
    pid_t root = start_in_folder(busy_family, 5);
    char cgroup[GPUCR_CGROUP_PATH_BYTES];
    char folder[GPUCR_CGROUP_PATH_BYTES];
    struct gpucr_hold *hold;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    uint64_t before[5];

    (void)state;
    assert_true(child_await_state(child_shared->pids[4], 'T'));
    assert_int_equal(gpucr_hold_can_freeze(root, &err), 1);
    hold = take(root);
    copy_counters(before);
    freeze(hold);
    assert_non_null(hold->cgroup);
    (void)snprintf(cgroup, sizeof(cgroup), "%s", hold->cgroup);
    folder_of(child_shared->pids[3], folder);
    assert_string_equal(folder, cgroup);
    assert_int_equal(gpucr_hold_check(hold, &err), 0);
    assert_int_equal(gpucr_hold_can_freeze(root, &err), 0); /* it is in one of ours already */
    assert_int_equal(gpucr_hold_freeze(hold, &err), 1);     /* and stays there */
    for (int round = 0; round < 20; round++) {
        send_all(hold, SIGCONT);
        gpucr_sleep_us(1000);
        assert_counters(before);
    }
    assert_int_equal(gpucr_hold_check(hold, &err), 0);
    thaw(hold);
    assert_null(hold->cgroup);
    assert_int_equal(gpucr_hold_check(hold, &err), 0);
    gpucr_sleep_us(20000);
    assert_counters(before); /* thawed and still held: not one step */
    assert_false(exists(cgroup));
    folder_of(root, folder);
    assert_string_equal(folder, test_folder);
    assert_int_equal(child_state(root), 'T');
    release(hold);
    for (int i = 0; i <= 4; i++) /* 4 was continued by the SIGCONT of somebody */
        assert_true(child_moves(i));
}

static void test_plain(void **state)
{
    pid_t root = start_in_folder(busy_family, 5);
    struct gpucr_hold *hold;
    uint64_t before[5];

    (void)state;
    assert_true(child_await_state(child_shared->pids[4], 'T'));
    for (int round = 0; round < 10; round++) {
        hold = take(root);
        copy_counters(before);
        freeze(hold);
        thaw(hold);
        assert_int_equal(gpucr_hold_check(hold, NULL), 0);
        for (size_t i = 0; i < hold->count; i++)
            assert_int_equal(pending_signals(hold->items[i].ident.pid) & (1ULL << (SIGSTOP - 1)),
                             0);
        assert_counters(before);
        release(hold);
        for (int i = 0; i <= 3; i++)
            assert_true(child_moves(i));
        assert_int_equal(child_state(child_shared->pids[4]), 'T'); /* its owner's wish */
    }
}

/* Release alone thaws too: nothing stays frozen because a caller forgot. */
static void test_release_thaws(void **state)
{
    pid_t root = start_in_folder(busy_family, 5);
    struct gpucr_hold *hold = take(root);
    char cgroup[GPUCR_CGROUP_PATH_BYTES];

    (void)state;
    freeze(hold);
    (void)snprintf(cgroup, sizeof(cgroup), "%s", hold->cgroup);
    release(hold);
    assert_true(child_moves(0) && child_moves(3));
    assert_false(exists(cgroup));
}

static void test_several_cgroups(void **state)
{
    char other[GPUCR_CGROUP_PATH_BYTES];
    char folder[GPUCR_CGROUP_PATH_BYTES];
    pid_t root = start_in_folder(busy_family, 5);
    struct gpucr_hold *hold;
    uint64_t before[5];

    (void)state;
    assert_true(snprintf(other, sizeof(other), "%s/other", test_folder) < (int)sizeof(other));
    assert_int_equal(mkdir(other, 0755), 0);
    enter(other, child_shared->pids[3]);
    hold = take(root);
    copy_counters(before);
    freeze(hold);
    assert_int_equal(hold->cgroup_count, 2);
    send_all(hold, SIGCONT);
    gpucr_sleep_us(10000);
    assert_counters(before);
    thaw(hold);
    gpucr_sleep_us(10000);
    assert_counters(before);
    folder_of(child_shared->pids[3], folder);
    assert_string_equal(folder, other);
    folder_of(root, folder);
    assert_string_equal(folder, test_folder);
    release(hold);
    assert_true(child_moves(0) && child_moves(3));
    child_kill(root);
    assert_true(child_await_gone(child_shared->pids[3]));
    assert_true(child_await_gone(child_shared->pids[4]));
    assert_int_equal(rmdir(other), 0);
}

static void hold_and_die(int root)
{
    struct gpucr_hold *hold;

    if (gpucr_hold_take(root, false, gpucr_deadline_in_ms(10000), &hold, NULL) == 0 &&
        gpucr_hold_freeze(hold, NULL) == 1)
        child_shared->flags[6] = 1;
    (void)kill(getpid(), SIGKILL);
}

static void test_after_a_crash(void **state)
{
    pid_t root = start_in_folder(busy_family, 5);
    char cgroup[GPUCR_CGROUP_PATH_BYTES];
    pid_t ids[4] = {root, child_shared->pids[3], child_shared->pids[4]};
    bool was_stopped[4] = {false, false, true};
    struct gpucr_pids pids = {.ids = ids, .count = 3};
    struct gpucr_hold *hold;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    uint64_t before[5];

    (void)state;
    assert_true(child_await_state(child_shared->pids[4], 'T'));
    (void)child_start(hold_and_die, root);
    child_await_flag(6, 1);
    copy_counters(before);
    assert_int_equal(kill(root, SIGCONT), 0);
    gpucr_sleep_us(5000);
    assert_int_equal(gpucr_hold_take(root, false, gpucr_deadline_in_ms(100), &hold, &err),
                     GPUCR_ERR_BUSY);
    assert_non_null(strstr(err.text, "gpucr-"));
    assert_int_equal(gpucr_hold_adopt(&pids, was_stopped, &hold, &err), 0);
    assert_non_null(hold->cgroup);
    (void)snprintf(cgroup, sizeof(cgroup), "%s", hold->cgroup);
    assert_int_equal(gpucr_hold_check(hold, &err), 0);
    thaw(hold);
    gpucr_sleep_us(5000);
    assert_counters(before);
    assert_false(exists(cgroup));
    release(hold);
    for (int i = 0; i <= 3; i++)
        assert_true(child_moves(i));
    assert_int_equal(child_state(child_shared->pids[4]), 'T');
}

static void freeze_as_nobody(int pid)
{
    struct gpucr_hold *hold;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_hold_take(pid, false, gpucr_deadline_in_ms(10000), &hold, &err) != 0 ||
        setgid(65534) != 0 || setuid(65534) != 0)
        _exit(1);
    child_shared->flags[4] = gpucr_hold_can_freeze(pid, &err);
    child_shared->flags[5] = gpucr_hold_freeze(hold, &err);
    child_shared->flags[7] = err.code;
    child_shared->flags[6] = 1;
    _exit(0);
}

static void test_not_allowed(void **state)
{
    pid_t root = start_in_folder(busy_family, 5);
    char folder[GPUCR_CGROUP_PATH_BYTES];

    (void)state;
    child_shared->flags[4] = child_shared->flags[5] = -1;
    (void)child_start(freeze_as_nobody, root);
    child_await_flag(6, 1);
    assert_int_equal(child_shared->flags[4], 0);
    assert_int_equal(child_shared->flags[5], 0);
    assert_int_equal(child_shared->flags[7], GPUCR_ERR_PERMISSION);
    folder_of(root, folder);
    assert_string_equal(folder, test_folder);
    assert_true(child_rests(0)); /* still held, as before */
}

static void test_undone_on_failure(void **state)
{
#ifdef GPUCR_FAULTS
    pid_t root = start_in_folder(busy_family, 5);
    struct gpucr_hold *hold = take(root);
    struct gpucr_error err = GPUCR_ERROR_INIT;
    char folder[GPUCR_CGROUP_PATH_BYTES];
    uint64_t before[5];

    (void)state;
    copy_counters(before);
    assert_int_equal(setenv("GPUCR_FAULT", "hold.frozen", 1), 0);
    assert_int_equal(gpucr_hold_freeze(hold, &err), 0);
    assert_int_equal(unsetenv("GPUCR_FAULT"), 0);
    assert_int_equal(err.code, GPUCR_ERR_INTERNAL);
    assert_null(hold->cgroup);
    folder_of(root, folder);
    assert_string_equal(folder, test_folder);
    assert_int_equal(gpucr_hold_check(hold, &err), 0);
    gpucr_sleep_us(5000);
    assert_counters(before);
    release(hold);
    assert_true(child_moves(0));

    assert_int_equal(setenv("GPUCR_FAULT", "hold.taken", 1), 0);
    assert_int_equal(gpucr_hold_take(root, false, gpucr_deadline_in_ms(10000), &hold, &err),
                     GPUCR_ERR_INTERNAL);
    assert_int_equal(unsetenv("GPUCR_FAULT"), 0);
    for (int i = 0; i <= 3; i++)
        assert_true(child_moves(i));
#else
    (void)state;
    skip();
#endif
}

/* A process that dies in the frozen cgroup keeps neither it nor the others. */
static void test_killed_while_frozen(void **state)
{
    pid_t root = start_in_folder(busy_family, 5);
    struct gpucr_hold *hold = take(root);
    char cgroup[GPUCR_CGROUP_PATH_BYTES];

    (void)state;
    freeze(hold);
    (void)snprintf(cgroup, sizeof(cgroup), "%s", hold->cgroup);
    assert_int_equal(kill(child_shared->pids[3], SIGKILL), 0);
    assert_true(child_await_gone(child_shared->pids[3]));
    assert_int_equal(gpucr_hold_check(hold, NULL), GPUCR_ERR_TARGET_DIED);
    thaw(hold);
    assert_false(exists(cgroup));
    release(hold);
    assert_true(child_moves(0) && child_moves(1));
}

static void on_alarm(int sig)
{
    (void)sig;
    child_shared->counters[5]++;
}

static void *driver_thread(void *arg)
{
    (void)prctl(PR_SET_NAME, "cuda0123456789a");
    child_count((int)(intptr_t)arg);
    return NULL;
}

/* Eight threads with the name of the driver's, a busy one, and a timer that never rests. */
static void with_timer(int arg)
{
    struct sigaction act = {.sa_handler = on_alarm};
    struct itimerval every = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000};
    pthread_t thread;

    (void)arg;
    for (int i = 1; i <= 8; i++)
        (void)pthread_create(&thread, NULL, driver_thread, (void *)(intptr_t)(10 + i));
    (void)sigaction(SIGALRM, &act, NULL);
    (void)setitimer(ITIMER_REAL, &every, NULL);
    child_count_fast(0);
}

/* Driver's threads that have begun to handle the signal: it is blocked meanwhile. */
static size_t caught_by_driver(pid_t pid)
{
    struct gpucr_pids tids;
    size_t count = 0;

    assert_int_equal(gpucr_task_list(pid, &tids, NULL), 0);
    assert_int_equal(tids.count, 9);
    for (size_t i = 0; i < tids.count; i++) {
        struct gpucr_proc_status status;

        assert_int_equal(gpucr_task_status_read(pid, tids.ids[i], &status, NULL), 0);
        if (tids.ids[i] != pid && (status.signals_blocked & (1ULL << (SIGALRM - 1))))
            count++;
    }
    gpucr_pids_done(&tids);
    return count;
}

static void test_driver_takes_no_signal(void **state)
{
    pid_t root = start_in_folder(with_timer, 1);
    uint64_t alarms = 0;

    (void)state;
    for (int i = 1; i <= 8; i++)
        child_await_count(10 + i, 1);
    for (int round = 0; round < 30; round++) {
        struct gpucr_hold *hold = take(root);
        size_t before = caught_by_driver(root); /* when it was stopped, rarely */

        alarms = child_shared->counters[5];
        freeze(hold);
        gpucr_sleep_us(2000); /* the timer goes off */
        thaw(hold);
        assert_int_equal(caught_by_driver(root), before);
        assert_int_equal(gpucr_hold_check(hold, NULL), 0);
        assert_true(child_shared->counters[5] == alarms);
        release(hold);
        assert_true(child_moves(0) && child_moves(5)); /* and is handled afterwards */
    }
}

/* After a thaw the driver's threads can be let run, alone, as after any other stop. */
static void test_window_after_thaw(void **state)
{
    pid_t root = start_in_folder(with_timer, 1);
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_tracer *tracer;

    (void)state;
    for (int i = 1; i <= 8; i++)
        child_await_count(10 + i, 1);
    assert_int_equal(gpucr_tracer_new(&tracer, &err), 0);
    for (int round = 0; round < 5; round++) {
        struct gpucr_hold *hold = take(root);

        freeze(hold);
        gpucr_sleep_us(2000);
        thaw(hold);
        assert_int_equal(gpucr_tracer_open_window(tracer, root, &err), 0);
        for (int i = 1; i <= 8; i++)
            assert_true(child_moves(10 + i));
        assert_true(child_rests(0));
        assert_int_equal(gpucr_tracer_close_window(tracer, root, &err), 0);
        for (int i = 1; i <= 8; i++)
            assert_true(child_rests(10 + i));
        assert_int_equal(gpucr_hold_check(hold, &err), 0);
        release(hold);
        assert_true(child_moves(0) && child_moves(11));
    }
    (void)gpucr_tracer_free(tracer);
}

/* A shell (counter 5) and its job (6), a process group of its own. */
static void shell_and_job(int arg)
{
    (void)arg;
    (void)setsid();
    if (fork() == 0) {
        (void)setpgid(0, 0);
        child_count_fast(6);
    }
    child_count(5);
}

/*
 * The shell exits while its job is held: the kernel sends SIGHUP and SIGCONT to stopped
 * processes of the group that this orphans. The frozen job lives on.
 */
static void test_orphaned_while_frozen(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_hold *hold;
    uint64_t before;

    (void)state;
    (void)start_in_folder(shell_and_job, 0);
    child_await_count(5, 1);
    child_await_count(6, 1);
    hold = take(child_shared->pids[6]);
    before = child_shared->counters[6];
    freeze(hold);
    child_kill(child_shared->pids[5]);
    gpucr_sleep_us(20000);
    assert_int_equal(gpucr_hold_check(hold, &err), 0);
    thaw(hold);
    assert_int_equal(gpucr_hold_check(hold, &err), 0);
    gpucr_sleep_us(5000);
    assert_true(child_shared->counters[6] == before);
    release(hold);
    assert_true(child_moves(6));
    child_shared->pids[5] = 0;
    assert_int_equal(kill(child_shared->pids[6], SIGKILL), 0);
    assert_true(child_await_gone(child_shared->pids[6]));
}

/* The cgroup of a program that was killed while it was held goes at the next occasion. */
static void test_stale_cgroup(void **state)
{
    pid_t root = start_in_folder(busy_family, 5);
    char stale[GPUCR_CGROUP_PATH_BYTES];
    char reused[GPUCR_CGROUP_PATH_BYTES];
    struct gpucr_hold *hold;

    (void)state;
    assert_true(snprintf(stale, sizeof(stale), "%s/gpucr-67108863-1", test_folder) <
                (int)sizeof(stale));
    assert_true(snprintf(reused, sizeof(reused), "%s/gpucr-%d-1", test_folder, (int)root) <
                (int)sizeof(reused));
    assert_int_equal(mkdir(stale, 0755), 0);
    assert_int_equal(mkdir(reused, 0755), 0);
    hold = take(root);
    freeze(hold);
    assert_false(exists(stale));
    assert_false(exists(reused));
    assert_true(exists(hold->cgroup));
    release(hold);
}

/* ---- frozen by somebody else ---- */

static void assert_busy(pid_t root, const char *folder)
{
    struct gpucr_hold *hold;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    assert_int_equal(gpucr_hold_take(root, false, gpucr_deadline_in_ms(2000), &hold, &err),
                     GPUCR_ERR_BUSY);
    assert_non_null(strstr(err.text, folder));
    assert_string_equal(err.path, folder);
}

static void test_frozen_by_others(void **state)
{
    pid_t root = start_in_folder(busy_family, 5);
    char inner[GPUCR_CGROUP_PATH_BYTES];

    (void)state;
    assert_true(snprintf(inner, sizeof(inner), "%s/inner", test_folder) < (int)sizeof(inner));
    assert_int_equal(mkdir(inner, 0755), 0);
    enter(inner, child_shared->pids[3]);
    write_file(inner, "cgroup.freeze", "1"); /* only one of the tree */
    while (!child_rests(3))
        (void)usleep(100);
    assert_busy(root, inner);
    assert_true(child_moves(0));
    write_file(inner, "cgroup.freeze", "0");
    assert_true(child_moves(3));
    child_kill(root);
    assert_true(child_await_gone(child_shared->pids[3]));
    assert_true(child_await_gone(child_shared->pids[4]));
    assert_int_equal(rmdir(inner), 0);
}

static void test_frozen_by_v1(void **state)
{
    pid_t root = child_start(child_count, 0);
    struct gpucr_cgroups cgroups;
    char folder[GPUCR_CGROUP_PATH_BYTES];
    struct gpucr_hold *hold;

    (void)state;
    child_await_count(0, 1);
    assert_int_equal(gpucr_cgroups_open(&cgroups, NULL), 0);
    if (!cgroups.freezer.folder ||
        snprintf(folder, sizeof(folder), "%s/test-%d", cgroups.freezer.folder, (int)getpid()) >=
            (int)sizeof(folder) ||
        mkdir(folder, 0755) < 0) {
        gpucr_cgroups_done(&cgroups);
        print_message("there is no cgroup v1 freezer here\n");
        skip();
    }
    gpucr_cgroups_done(&cgroups);
    enter(folder, root);
    write_file(folder, "freezer.state", "FROZEN");
    while (!child_rests(0))
        (void)usleep(100);
    assert_busy(root, folder);
    write_file(folder, "freezer.state", "THAWED");
    assert_true(child_moves(0));
    hold = take(root);
    release(hold);
    child_kill(root);
    assert_int_equal(rmdir(folder), 0);
}

#define PROC_TEST(fn) cmocka_unit_test_setup_teardown(fn, child_reset, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PROC_TEST(test_no_sigcont_wakes),       PROC_TEST(test_plain),
        PROC_TEST(test_release_thaws),          PROC_TEST(test_several_cgroups),
        PROC_TEST(test_after_a_crash),          PROC_TEST(test_not_allowed),
        PROC_TEST(test_undone_on_failure),      PROC_TEST(test_killed_while_frozen),
        PROC_TEST(test_orphaned_while_frozen),  PROC_TEST(test_stale_cgroup),
        PROC_TEST(test_driver_takes_no_signal), PROC_TEST(test_window_after_thaw),
        PROC_TEST(test_frozen_by_others),       PROC_TEST(test_frozen_by_v1),
    };
    int rc;

    if (make_test_folder() < 0) {
        (void)printf("a cgroup v2 that can be written to is needed\n");
        return 77;
    }
    rc = cmocka_run_group_tests(tests, child_group_setup, NULL);
    if (rmdir(test_folder) < 0)
        (void)printf("%s is left: %s\n", test_folder, strerror(errno));
    return rc;
}
