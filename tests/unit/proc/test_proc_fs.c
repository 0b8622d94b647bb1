/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the readers of /proc say, against what the test itself arranged. */
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "proc/ident.h"
#include "proc/procfs.h"
#include "proc_child.h"

static void strange_name(int arg)
{
    (void)arg;
    (void)prctl(PR_SET_NAME, "a) R 1 (b\nc");
    child_shared->flags[1] = 1;
    for (;;)
        (void)pause();
}

static void test_stat(void **state)
{
    pid_t pid = child_start(strange_name, 0);
    struct gpucr_proc_stat stat;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    child_await_flag(1, 1);
    assert_true(child_await_state(pid, 'S'));
    assert_int_equal(gpucr_proc_stat_read(pid, &stat, &err), 0);
    assert_int_equal(stat.pid, pid);
    assert_string_equal(stat.comm, "a) R 1 (b\nc");
    assert_int_equal(stat.parent_pid, getpid());
    assert_int_equal(stat.group, getpgrp());
    assert_int_equal(stat.session, getsid(0));
    assert_int_equal(stat.thread_count, 1);
    assert_false(stat.kernel_thread);
    assert_true(stat.start_ticks > 0);
    assert_true(stat.rss_bytes > 0 && stat.rss_bytes % 4096 == 0);
    child_kill(pid);
    stat.pid = 4711;
    assert_int_equal(gpucr_proc_stat_read(pid, &stat, &err), GPUCR_ERR_NOT_FOUND);
    assert_int_equal(err.pid, pid);
    assert_non_null(strstr(err.text, "cannot read the state of process"));
    assert_int_equal(stat.pid, 4711); /* untouched */
}

static void test_zombie(void **state)
{
    pid_t pid = fork();
    struct gpucr_proc_stat stat;
    struct gpucr_ident ident;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    char line[64];

    (void)state;
    if (pid == 0)
        _exit(0);
    assert_true(child_await_state(pid, 'Z'));
    assert_int_equal(gpucr_proc_stat_read(pid, &stat, &err), 0);
    assert_int_equal(stat.thread_count, 1);
    gpucr_cmdline_read(pid, line, sizeof(line));
    assert_int_equal(line[0], '[');
    assert_int_equal(gpucr_ident_open(pid, &ident, &err), GPUCR_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "has ended"));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void handler(int sig)
{
    (void)sig;
}

static void test_status(void **state)
{
    struct gpucr_proc_status status;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct sigaction act = {.sa_handler = handler};
    struct sigaction old;
    sigset_t block;
    sigset_t before;

    (void)state;
    assert_int_equal(sigemptyset(&block), 0);
    assert_int_equal(sigaddset(&block, SIGUSR2), 0);
    assert_int_equal(sigprocmask(SIG_BLOCK, &block, &before), 0);
    assert_int_equal(sigaction(SIGUSR1, &act, &old), 0);
    assert_int_equal(gpucr_proc_status_read(getpid(), &status, &err), 0);
    assert_int_equal(status.pid, getpid());
    assert_int_equal(status.uid[0], getuid());
    assert_int_equal(status.uid[1], geteuid());
    assert_int_equal(status.gid[1], getegid());
    assert_int_equal(status.tracer_pid, 0);
    assert_true(status.ns_level_count >= 1);
    assert_int_equal(status.ns_pids[0], getpid());
    assert_true(status.rss_bytes > 0);
    assert_true(status.signals_caught & (1ULL << (SIGUSR1 - 1)));
    assert_true(status.signals_blocked & (1ULL << (SIGUSR2 - 1)));
    assert_false(status.signals_blocked & (1ULL << (SIGUSR1 - 1)));
    assert_true(status.switches > 0);
    assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(gpucr_proc_status_read(0x3ffffff, &status, &err), GPUCR_ERR_NOT_FOUND);
}

static void test_lists(void **state)
{
    struct gpucr_pids pids;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    pid_t pid;

    (void)state;
    child_shared->flags[0] = 5;
    pid = child_start(child_threads, 0);
    for (int i = 0; i <= 5; i++)
        child_await_count(i, 1);
    assert_int_equal(gpucr_proc_list(&pids, &err), 0);
    assert_true(gpucr_pids_contain(&pids, pid));
    assert_true(gpucr_pids_contain(&pids, getpid()));
    for (size_t i = 1; i < pids.count; i++)
        assert_true(pids.ids[i - 1] < pids.ids[i]);
    gpucr_pids_done(&pids);
    assert_int_equal(gpucr_task_list(pid, &pids, &err), 0);
    assert_int_equal(pids.count, 6);
    assert_int_equal(pids.ids[0], pid);
    for (size_t i = 0; i < pids.count; i++) {
        struct gpucr_proc_stat stat;

        assert_int_equal(gpucr_task_stat_read(pid, pids.ids[i], &stat, &err), 0);
        assert_int_equal(stat.pid, pids.ids[i]);
        assert_int_equal(stat.thread_count, 6);
    }
    gpucr_pids_done(&pids);
    child_kill(pid);
    assert_int_equal(gpucr_task_list(pid, &pids, &err), GPUCR_ERR_NOT_FOUND);
}

static const struct gpucr_mapping *mapping_at(const struct gpucr_maps *maps, const void *address)
{
    for (size_t i = 0; i < maps->count; i++) {
        if (maps->items[i].start <= (uintptr_t)address && (uintptr_t)address < maps->items[i].end)
            return &maps->items[i];
    }
    return NULL;
}

static void test_maps(void **state)
{
    char folder[] = "/tmp/gpucr-maps-XXXXXX";
    struct gpucr_maps maps;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    const struct gpucr_mapping *m;
    struct stat st;
    char *shared;
    char *anon;
    char path[128];
    char gone[160];
    int fd;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/a b\nc", folder);
    (void)snprintf(gone, sizeof(gone), "%s (deleted)", path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 3 * 4096), 0);
    assert_int_equal(fstat(fd, &st), 0);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 8192);
    anon = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(shared != MAP_FAILED && anon != MAP_FAILED);

    assert_int_equal(gpucr_maps_read(getpid(), &maps, &err), 0);
    m = mapping_at(&maps, shared);
    assert_non_null(m);
    assert_string_equal(m->path, path);
    assert_true(m->shared && m->readable && m->writable && !m->executable && !m->deleted);
    assert_int_equal(m->offset, 8192);
    assert_int_equal(m->inode, st.st_ino);
    assert_int_equal(m->end - m->start, 4096);
    m = mapping_at(&maps, anon);
    assert_non_null(m);
    assert_string_equal(m->path, "");
    assert_true(!m->shared && !m->readable && !m->writable);
    m = mapping_at(&maps, (const void *)(uintptr_t)test_maps);
    assert_true(m && m->executable && m->path[0] == '/');
    gpucr_maps_done(&maps);

    assert_int_equal(unlink(path), 0);
    assert_int_equal(gpucr_maps_read(getpid(), &maps, &err), 0);
    m = mapping_at(&maps, shared);
    assert_true(m && m->deleted);
    assert_string_equal(m->path, gone);
    gpucr_maps_done(&maps);
    assert_null(maps.items);

    assert_int_equal(munmap(shared, 4096), 0);
    assert_int_equal(munmap(anon, 65536), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(gpucr_maps_read(0x3ffffff, &maps, &err), GPUCR_ERR_NOT_FOUND);
}

/* More lines than a page of text: the kernel hands them out in several pieces. */
static void test_maps_many(void **state)
{
    enum { COUNT = 3000, PAGE = 4096 };
    struct gpucr_maps maps;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    size_t seen = 0;
    char *area = mmap(NULL, (size_t)COUNT * 2 * PAGE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)state;
    assert_true(area != MAP_FAILED);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(mprotect(area + i * 2 * PAGE, PAGE, PROT_READ), 0);
    assert_int_equal(gpucr_maps_read(getpid(), &maps, &err), 0);
    for (size_t i = 0; i < maps.count; i++) {
        if (maps.items[i].start >= (uintptr_t)area &&
            maps.items[i].end <= (uintptr_t)(area + (size_t)COUNT * 2 * PAGE))
            seen++;
        if (i > 0)
            assert_true(maps.items[i - 1].end <= maps.items[i].start);
    }
    assert_int_equal(seen, COUNT * 2);
    gpucr_maps_done(&maps);
    assert_int_equal(munmap(area, (size_t)COUNT * 2 * PAGE), 0);
}

struct wanted {
    int fd;
    char target[128];
    int calls;
};

static int find_fd(void *arg, int fd, const char *target)
{
    struct wanted *wanted = arg;

    wanted->calls++;
    if (fd == wanted->fd) {
        (void)snprintf(wanted->target, sizeof(wanted->target), "%s", target);
        return 7;
    }
    return 0;
}

static void test_fds(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct wanted wanted = {.fd = open("/dev/null", O_RDONLY | O_CLOEXEC)};
    struct wanted none = {.fd = -1};

    (void)state;
    assert_true(wanted.fd >= 0);
    assert_int_equal(gpucr_fds_walk(getpid(), getpid(), find_fd, &wanted, &err), 7);
    assert_string_equal(wanted.target, "/dev/null");
    assert_int_equal(gpucr_fds_walk(getpid(), getpid(), find_fd, &none, &err), 0);
    assert_true(none.calls >= 4); /* the three standard ones and ours */
    assert_int_equal(close(wanted.fd), 0);
    assert_int_equal(gpucr_fds_walk(0x3ffffff, 0x3ffffff, find_fd, &none, &err),
                     GPUCR_ERR_NOT_FOUND);
}

static void exec_cat(int arg)
{
    int ends[2];

    (void)arg;
    if (pipe(ends) == 0 && dup2(ends[0], 0) == 0)
        (void)execl("/bin/cat", "cat", "-", "a\033b", (char *)NULL);
    _exit(1);
}

static void test_cmdline_and_wchan(void **state)
{
    pid_t pid = child_start(exec_cat, 0);
    char line[64];
    char small[8];

    (void)state;
    do {
        gpucr_cmdline_read(pid, line, sizeof(line));
        gpucr_wchan_read(pid, pid, small, sizeof(small));
    } while (strncmp(line, "cat", 3) != 0 || child_state(pid) != 'S');
    assert_string_equal(line, "cat - a?b");
    gpucr_cmdline_read(pid, small, sizeof(small));
    assert_string_equal(small, "cat - a");
    gpucr_wchan_read(pid, pid, line, sizeof(line));
    assert_true(line[0] == '\0' || strstr(line, "pipe") || strstr(line, "read"));
    child_kill(pid);
    gpucr_wchan_read(pid, pid, line, sizeof(line));
    assert_string_equal(line, "");
    gpucr_cmdline_read(pid, line, sizeof(line));
    assert_string_equal(line, "[]");
}

static void test_kernel_thread(void **state)
{
    struct gpucr_proc_stat stat;
    char line[64];

    (void)state;
    if (gpucr_proc_stat_read(2, &stat, NULL) < 0 || strcmp(stat.comm, "kthreadd") != 0) {
        print_message("no kernel threads are visible here\n");
        skip();
    }
    assert_true(stat.kernel_thread);
    assert_int_equal(stat.parent_pid, 0);
    gpucr_cmdline_read(2, line, sizeof(line));
    assert_string_equal(line, "[kthreadd]");
}

static void test_thread_names(void **state)
{
    (void)state;
    assert_true(gpucr_comm_is_restore_thread("cuda0000123abcd"));
    assert_true(gpucr_comm_is_restore_thread("cudaABCDEF01234"));
    assert_false(gpucr_comm_is_restore_thread("cuda0000123abc"));
    assert_false(gpucr_comm_is_restore_thread("cuda0000123abcde"));
    assert_false(gpucr_comm_is_restore_thread("cuda0000123abcg"));
    assert_false(gpucr_comm_is_restore_thread("cudb0000123abcd"));
    assert_false(gpucr_comm_is_restore_thread("cuda-EvtHandlr"));
    assert_false(gpucr_comm_is_restore_thread(""));
    assert_true(gpucr_comm_is_driver_thread("cuda-EvtHandlr"));
    assert_true(gpucr_comm_is_driver_thread("cuda0000123abcd"));
    assert_false(gpucr_comm_is_driver_thread("cuda-EvtHandler"));
    assert_false(gpucr_comm_is_driver_thread("python3"));
}

static void test_boot_id(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    char id[37];

    (void)state;
    assert_int_equal(gpucr_boot_id_read(id, &err), 0);
    assert_int_equal(strlen(id), 36);
    assert_int_equal(strspn(id, "0123456789abcdef-"), 36);
}

static void sleep_only(int arg)
{
    (void)arg;
    for (;;)
        (void)pause();
}

static void test_ident(void **state)
{
    pid_t pid = child_start(sleep_only, 0);
    struct gpucr_ident ident;
    struct gpucr_proc_stat facts;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct stat ns;

    (void)state;
    assert_int_equal(gpucr_ident_open(pid, &ident, &err), 0);
    assert_int_equal(gpucr_proc_stat_read(pid, &facts, &err), 0);
    assert_int_equal(facts.start_ticks, ident.start_ticks);
    assert_int_equal(stat("/proc/self/ns/pid", &ns), 0);
    assert_int_equal(ident.pid_ns_inode, ns.st_ino);
    assert_false(gpucr_ident_ended(&ident));
    assert_int_equal(gpucr_ident_wait_end(&ident, 20, &err), GPUCR_ERR_TIMEOUT);
    assert_int_equal(gpucr_ident_signal(&ident, 0, &err), 0);
    assert_int_equal(gpucr_ident_signal(&ident, SIGKILL, &err), 0);
    assert_int_equal(gpucr_ident_wait_end(&ident, 10000, &err), 0);
    assert_true(gpucr_ident_ended(&ident)); /* a zombie still */
    assert_int_equal(child_state(pid), 'Z');
    child_kill(pid);
    assert_true(gpucr_ident_ended(&ident));
    assert_int_equal(gpucr_ident_signal(&ident, SIGCONT, &err), GPUCR_ERR_NOT_FOUND);
    assert_int_equal(gpucr_ident_open(pid, &ident, &err), GPUCR_ERR_NOT_FOUND);
    gpucr_ident_done(&ident);
    assert_int_equal(ident.pidfd, -1);
    gpucr_ident_done(&ident);
    assert_int_equal(gpucr_ident_open(0, &ident, &err), GPUCR_ERR_NOT_FOUND);
    assert_int_equal(gpucr_ident_open(-5, &ident, &err), GPUCR_ERR_NOT_FOUND);
}

static void test_ident_of_thread(void **state)
{
    struct gpucr_ident ident;
    struct gpucr_pids tids;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    pid_t pid;

    (void)state;
    child_shared->flags[0] = 1;
    pid = child_start(child_threads, 0);
    child_await_count(1, 1);
    assert_int_equal(gpucr_task_list(pid, &tids, &err), 0);
    assert_int_equal(tids.count, 2);
    assert_int_equal(gpucr_ident_open(tids.ids[1], &ident, &err), GPUCR_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "is a thread"));
    gpucr_pids_done(&tids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stat, child_reset, child_teardown),
        cmocka_unit_test_setup_teardown(test_zombie, child_reset, child_teardown),
        cmocka_unit_test(test_status),
        cmocka_unit_test_setup_teardown(test_lists, child_reset, child_teardown),
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_maps_many),
        cmocka_unit_test(test_fds),
        cmocka_unit_test_setup_teardown(test_cmdline_and_wchan, child_reset, child_teardown),
        cmocka_unit_test(test_kernel_thread),
        cmocka_unit_test(test_thread_names),
        cmocka_unit_test(test_boot_id),
        cmocka_unit_test_setup_teardown(test_ident, child_reset, child_teardown),
        cmocka_unit_test_setup_teardown(test_ident_of_thread, child_reset, child_teardown),
    };

    return cmocka_run_group_tests(tests, child_group_setup, NULL);
}
