/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * criu crashes, or is stopped for ever, at ten points of a dump and of a restore: when
 * its log has reached a tenth, two tenths … of its usual length. After a dump the
 * target must be as before, with its TCP connection where this criu can dump one; after
 * a restore nothing may be left, and a later one must succeed.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gpucr/log.h>

#include "engine_support.h"

enum { POINTS = 10, THREADS = 4, HANG_MS = 400 };

enum how { CRASH, HANG };

struct saboteur {
    struct fixture *fixture;
    const char *log;
    pid_t spared; /* a child of ours that is neither criu nor its parent */
    off_t threshold;
    enum how how;
    int crash_signal; /* criu blocks SIGSEGV in a restore */
    atomic_bool stop;
    atomic_bool struck;
    pthread_t thread;
};

static const char *criu;

static off_t log_size(const struct fixture *f, const char *name)
{
    struct stat st;

    return fstatat(f->work_fd, name, &st, 0) == 0 ? st.st_size : 0;
}

/* A child of @p parent that leads a process group, none of the two. */
static pid_t find_child(pid_t parent, pid_t not_this, pid_t nor_this)
{
    struct gpucr_pids pids = {0};
    pid_t found = 0;

    if (gpucr_proc_list(&pids, NULL) != 0)
        return 0;
    for (size_t i = 0; i < pids.count; i++) {
        struct gpucr_proc_stat stat;

        if (pids.ids[i] != not_this && pids.ids[i] != nor_this &&
            gpucr_proc_stat_read(pids.ids[i], &stat, NULL) == 0 && stat.parent_pid == parent &&
            stat.state != 'Z')
            found = stat.pid;
    }
    gpucr_pids_done(&pids);
    return found;
}

/* criu is a child of ours, or, in another pid namespace, of a keeper that is. */
static pid_t find_criu(const struct saboteur *s)
{
    pid_t child = find_child(getpid(), s->fixture->pid, s->spared);
    struct gpucr_proc_stat stat;

    if (child == 0 || gpucr_proc_stat_read(child, &stat, NULL) != 0)
        return 0;
    return strcmp(stat.comm, "gpucr-keeper") == 0 ? find_child(child, 0, 0) : child;
}

static void *sabotage(void *arg)
{
    struct saboteur *s = arg;
    pid_t victim = 0;

    while (!atomic_load(&s->stop)) {
        off_t size = log_size(s->fixture, s->log);

        if (victim == 0 && size > 0)
            victim = find_criu(s);
        if (victim != 0 && size >= s->threshold) {
            (void)kill(victim, s->how == CRASH ? s->crash_signal : SIGSTOP);
            atomic_store(&s->struck, true);
            return NULL;
        }
    }
    return NULL;
}

static void saboteur_start(struct saboteur *s)
{
    assert_int_equal(pthread_create(&s->thread, NULL, sabotage, s), 0);
}

static bool saboteur_stop(struct saboteur *s)
{
    atomic_store(&s->stop, true);
    (void)pthread_join(s->thread, NULL);
    return atomic_load(&s->struck);
}

/* Before 4.2 criu cannot dump network sockets on kernels from 6.16 on. */
static bool can_tcp(const struct gpucr_engine *engine)
{
    struct utsname name;
    unsigned major = 0;
    unsigned minor = 0;

    return engine->version >= 40200 || uname(&name) != 0 ||
           sscanf(name.release, "%u.%u", &major, &minor) != 2 || major < 6 ||
           (major == 6 && minor < 16);
}

static const char *const *arguments(bool tcp)
{
    static const char *const plain[] = {"4", "16", NULL};
    static const char *const with_tcp[] = {"4", "16", "tcp", NULL};

    return tcp ? with_tcp : plain;
}

static int commit(void *arg, struct gpucr_error *err)
{
    (void)arg;
    (void)err;
    return 0;
}

static int dump(struct fixture *f, bool leave_running, bool tcp, uint64_t idle_ms,
                bool *ret_committed)
{
    struct gpucr_engine_dump request = fixture_dump_request(f);

    request.leave_running = leave_running;
    request.options.idle_timeout_ms = idle_ms;
    request.options.tcp_established = tcp;
    request.commit = commit;
    return f->engine->ops->dump(f->engine, &request, &f->log, ret_committed, &f->err);
}

/* One dump that is struck at @p threshold. */
static bool struck_dump(struct fixture *f, off_t threshold, enum how how, bool tcp, pid_t keeper)
{
    struct saboteur s = {.spared = keeper,
                         .fixture = f,
                         .log = "dump.log",
                         .threshold = threshold,
                         .how = how,
                         .crash_signal = SIGSEGV};
    bool committed = false;
    bool struck;
    int rc;

    fixture_empty(f);
    fixture_stop(f);
    saboteur_start(&s);
    rc = dump(f, true, tcp, how == HANG ? HANG_MS : 20000, &committed);
    struck = saboteur_stop(&s);
    if (rc == GPUCR_ERR_VERIFY || (rc != 0 && !struck))
        fail_msg("%s", f->err.text);
    if (rc != 0)
        assert_int_equal(rc, how == HANG ? GPUCR_ERR_ENGINE_HUNG : GPUCR_ERR_ENGINE);
    assert_untouched(f);
    assert_no_children(keeper > 0 ? keeper : f->pid);
    assert_no_tables();
    assert_goes_on(f, f->pid, THREADS);
    return rc != 0;
}

static void test_dump(void **state)
{
    enum how how = *state ? HANG : CRASH;
    bool committed = false;
    size_t failures = 0;
    struct fixture f;
    off_t whole;
    bool tcp;

    fixture_open(&f, criu);
    tcp = can_tcp(f.engine);
    fixture_start(&f, arguments(tcp));
    fixture_stop(&f);
    if (dump(&f, true, tcp, 20000, &committed) != 0)
        fail_msg("%s", f.err.text);
    assert_goes_on(&f, f.pid, THREADS);
    whole = log_size(&f, "dump.log");
    for (int i = 0; i < POINTS; i++)
        failures += struck_dump(&f, whole * (2 * i + 1) / (2 * POINTS), how, tcp, 0);
    (void)printf("%s, %s: %zu of %d dumps were ended midway\n", how == CRASH ? "crashed" : "hung",
                 tcp ? "with a TCP connection" : "without TCP", failures, POINTS);
    assert_true(failures >= POINTS / 2);
    /* And then it can still be dumped and restored. */
    fixture_empty(&f);
    fixture_stop(&f);
    if (dump(&f, true, tcp, 20000, &committed) != 0)
        fail_msg("%s", f.err.text);
    assert_goes_on(&f, f.pid, THREADS);
    fixture_close(&f);
}

static int restore(struct fixture *f, bool tcp, uint64_t idle_ms, pid_t *ret_pid)
{
    struct gpucr_engine_restore request = fixture_restore_request(f);
    struct gpucr_engine_restored restored = {0};
    int rc;

    request.options.tcp_established = tcp;
    request.options.idle_timeout_ms = idle_ms;
    rc = f->engine->ops->restore(f->engine, &request, &f->log, &restored, &f->err);
    *ret_pid = restored.root;
    return rc;
}

/* criu works inside the namespace in which the target was restored. */
static void test_dump_namespace(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    bool committed = false;
    size_t failures = 0;
    struct fixture f;
    off_t whole;

    (void)state;
    fixture_open(&f, criu);
    fixture_start(&f, arguments(false));
    fixture_stop(&f);
    if (dump(&f, false, false, 20000, &committed) != 0)
        fail_msg("%s", f.err.text);
    assert_int_equal(waitpid(f.pid, NULL, 0), f.pid);
    request = fixture_restore_request(&f);
    request.pid_namespace = true;
    if (f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err) != 0)
        fail_msg("%s", f.err.text);
    f.pid = restored.root;
    assert_goes_on(&f, f.pid, THREADS);
    fixture_empty(&f);
    fixture_stop(&f);
    if (dump(&f, true, false, 20000, &committed) != 0)
        fail_msg("%s", f.err.text);
    assert_goes_on(&f, f.pid, THREADS);
    whole = log_size(&f, "dump.log");
    for (int i = 0; i < POINTS; i++)
        failures += struck_dump(&f, whole * (2 * i + 1) / (2 * POINTS), i % 2 ? HANG : CRASH, false,
                                restored.keeper);
    (void)printf("in a namespace: %zu of %d dumps were ended midway\n", failures, POINTS);
    assert_true(failures >= POINTS / 2);
    (void)kill(f.pid, SIGKILL);
    assert_int_equal(waitpid(restored.keeper, NULL, 0), restored.keeper);
    f.pid = 0;
    fixture_close(&f);
}

static bool struck_restore(struct fixture *f, off_t threshold, enum how how, bool tcp)
{
    struct saboteur s = {.fixture = f,
                         .log = "restore.log",
                         .threshold = threshold,
                         .how = how,
                         .crash_signal = SIGKILL};
    pid_t pid = 0;
    bool struck;
    int rc;

    (void)unlinkat(f->work_fd, "restore.log", 0);
    saboteur_start(&s);
    rc = restore(f, tcp, how == HANG ? HANG_MS : 20000, &pid);
    struck = saboteur_stop(&s);
    if (rc == GPUCR_ERR_VERIFY || (rc != 0 && !struck))
        fail_msg("%s", f->err.text);
    if (rc == 0) { /* it was through already */
        assert_int_equal(pid, f->pid);
        (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
    assert_int_equal(state_of(f->pid), '-');
    assert_no_children(0);
    return rc != 0;
}

static void test_restore(void **state)
{
    enum how how = *state ? HANG : CRASH;
    bool committed = false;
    size_t failures = 0;
    struct fixture f;
    off_t whole;
    pid_t pid;

    /* Without a connection: it would be broken by the first restore that is ended. */
    fixture_open(&f, criu);
    fixture_start(&f, arguments(false));
    fixture_stop(&f);
    if (dump(&f, false, false, 20000, &committed) != 0)
        fail_msg("%s", f.err.text);
    assert_int_equal(waitpid(f.pid, NULL, 0), f.pid);
    if (restore(&f, false, 20000, &pid) != 0)
        fail_msg("%s", f.err.text);
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    whole = log_size(&f, "restore.log");
    for (int i = 0; i < POINTS; i++)
        failures += struck_restore(&f, whole * (2 * i + 1) / (2 * POINTS), how, false);
    (void)printf("%s: %zu of %d restores were ended midway\n", how == CRASH ? "crashed" : "hung",
                 failures, POINTS);
    assert_true(failures >= POINTS / 2);
    if (restore(&f, false, 20000, &pid) != 0)
        fail_msg("%s", f.err.text);
    assert_goes_on(&f, pid, THREADS);
    fixture_close(&f);
}

/* Somebody wants debug lines: then criu's log is long, and the points are many. */
static void swallow(void *arg, enum gpucr_log_level level, const char *text)
{
    if (getenv("ENGINE_TEST_LOG"))
        (void)printf("[%d] %s\n", (int)level, text);
    (void)arg;
}

int main(void)
{
    static int hang = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dump),
        {"test_dump_hang", test_dump, NULL, NULL, &hang},
        cmocka_unit_test(test_dump_namespace),
        cmocka_unit_test(test_restore),
        {"test_restore_hang", test_restore, NULL, NULL, &hang},
    };

    criu = real_criu();
    if (!criu)
        return 77;
    gpucr_log_set(swallow, NULL, GPUCR_LOG_DEBUG);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
