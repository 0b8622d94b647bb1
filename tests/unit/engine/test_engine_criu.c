/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The engine with a real criu: dump, restore, refusals. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine_support.h"

static const char *criu;
static const char *const four_threads[] = {"4", "16", NULL};

static int good_commit(void *arg, struct gpucr_error *err)
{
    (void)err;
    ++*(int *)arg;
    return 0;
}

static int bad_commit(void *arg, struct gpucr_error *err)
{
    (void)arg;
    return gpucr_error_set(err, GPUCR_ERR_NO_SPACE, "the disk of the test is full");
}

/* Dump the stopped target away; it is reaped. */
static void dump_away(struct fixture *f)
{
    struct gpucr_engine_dump request = fixture_dump_request(f);
    bool committed = false;
    int commits = 0;
    int status;

    request.commit = good_commit;
    request.commit_arg = &commits;
    if (f->engine->ops->dump(f->engine, &request, &f->log, &committed, &f->err) != 0)
        fail_msg("%s", f->err.text);
    assert_true(committed);
    assert_int_equal(commits, 1);
    assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
    assert_true(WIFSIGNALED(status));
}

static void open_stopped(struct fixture *f, const char *const *arguments)
{
    fixture_open(f, criu);
    fixture_start(f, arguments);
    fixture_stop(f);
}

static void test_dump_and_restore(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct fixture f;
    uint64_t count;

    (void)state;
    open_stopped(&f, four_threads);
    count = f.page->counts[0];
    dump_away(&f);
    request = fixture_restore_request(&f);
    if (f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err) != 0)
        fail_msg("%s", f.err.text);
    assert_int_equal(restored.root, f.pid);
    assert_int_equal(restored.keeper, 0);
    sleep_ms(50);
    assert_int_equal(state_of(f.pid), 'T');
    assert_int_equal(f.page->counts[0], count); /* nothing has run */
    assert_no_children(f.pid);
    assert_goes_on(&f, f.pid, 4);
    fixture_close(&f);
}

static void test_leave_running(void **state)
{
    struct gpucr_engine_dump request;
    bool committed = false;
    int commits = 0;
    struct fixture f;

    (void)state;
    open_stopped(&f, four_threads);
    request = fixture_dump_request(&f);
    request.leave_running = true;
    request.commit = good_commit;
    request.commit_arg = &commits;
    if (f.engine->ops->dump(f.engine, &request, &f.log, &committed, &f.err) != 0)
        fail_msg("%s", f.err.text);
    assert_true(committed);
    assert_untouched(&f);
    assert_goes_on(&f, f.pid, 4);
    fixture_close(&f);
}

static void test_commit_fails(void **state)
{
    struct gpucr_engine_dump request;
    bool committed = true;
    struct fixture f;

    (void)state;
    open_stopped(&f, four_threads);
    request = fixture_dump_request(&f);
    request.commit = bad_commit;
    assert_int_equal(f.engine->ops->dump(f.engine, &request, &f.log, &committed, &f.err),
                     GPUCR_ERR_NO_SPACE);
    assert_false(committed);
    assert_string_equal(f.err.text, "the disk of the test is full");
    assert_untouched(&f);
    assert_goes_on(&f, f.pid, 4);
    fixture_close(&f);
}

static void test_pid_namespace(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct gpucr_proc_status status;
    struct fixture f;
    int ended;

    (void)state;
    open_stopped(&f, four_threads);
    dump_away(&f);
    request = fixture_restore_request(&f);
    request.pid_namespace = true;
    if (f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err) != 0)
        fail_msg("%s", f.err.text);
    assert_int_not_equal(restored.root, f.pid);
    assert_int_equal(gpucr_proc_status_read(restored.root, &status, NULL), 0);
    assert_int_equal(status.ns_pids[status.ns_level_count - 1], f.pid);
    assert_int_equal(state_of(restored.root), 'T');
    assert_no_children(restored.keeper);
    assert_goes_on(&f, restored.root, 4);
    /* The keeper ends with its root, with a status that tells how. */
    assert_int_equal(kill(restored.root, SIGTERM), 0);
    assert_int_equal(waitpid(restored.keeper, &ended, 0), restored.keeper);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 128 + SIGTERM);
    f.pid = 0;
    fixture_close(&f);
}

static void test_pid_taken(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct fixture f;

    (void)state;
    open_stopped(&f, four_threads);
    {
        struct gpucr_engine_dump dump = fixture_dump_request(&f);
        bool committed = false;

        dump.leave_running = true; /* so the pid stays taken */
        assert_int_equal(f.engine->ops->dump(f.engine, &dump, &f.log, &committed, &f.err), 0);
    }
    request = fixture_restore_request(&f);
    assert_int_equal(f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err),
                     GPUCR_ERR_ENGINE);
    assert_non_null(strstr(f.err.text, "process id is in use"));
    assert_non_null(strstr(f.err.text, "engine_target"));
    assert_true(f.log.count > 0 && f.log.lines[0].is_cause);
    assert_no_children(f.pid);
    assert_untouched(&f); /* the one that has the pid */
    assert_goes_on(&f, f.pid, 4);
    fixture_close(&f);
}

/* A socket to somebody outside: refused, named, and nothing changed. */
static void test_refusal(void **state)
{
    struct gpucr_engine_dump request;
    bool committed = true;
    struct fixture f;

    (void)state;
    fixture_open(&f, criu);
    fixture_start(&f, (const char *const[]){"2", "0", "lock", NULL});
    fixture_stop(&f);
    request = fixture_dump_request(&f);
    assert_int_equal(f.engine->ops->dump(f.engine, &request, &f.log, &committed, &f.err),
                     GPUCR_ERR_ENGINE);
    assert_false(committed);
    assert_non_null(strstr(f.err.text, "--file-locks"));
    assert_true(f.log.count > 0);
    assert_true(f.log.lines[0].is_cause);
    assert_untouched(&f);
    assert_goes_on(&f, f.pid, 2);
    fixture_close(&f);
}

static void test_unknown_option(void **state)
{
    static const struct gpucr_name_value extra[] = {{"no-such-thing", "1"}};
    struct gpucr_engine_dump request;
    bool committed = true;
    struct fixture f;

    (void)state;
    open_stopped(&f, four_threads);
    request = fixture_dump_request(&f);
    request.options.extra = extra;
    request.options.extra_count = 1;
    assert_int_equal(f.engine->ops->dump(f.engine, &request, &f.log, &committed, &f.err),
                     GPUCR_ERR_ENGINE);
    assert_non_null(strstr(f.err.text, "no-such-thing"));
    assert_untouched(&f);
    assert_goes_on(&f, f.pid, 4);
    fixture_close(&f);
}

/* A truncated memory image makes criu spin for ever; it is ended and nothing is left. */
static void test_truncated_image(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct fixture f;
    int rc;

    (void)state;
    open_stopped(&f, four_threads);
    dump_away(&f);
    {
        int fd = openat(f.images_fd, "pages-1.img", O_WRONLY | O_CLOEXEC);

        assert_int_equal(ftruncate(fd, 4096), 0);
        (void)close(fd);
    }
    request = fixture_restore_request(&f);
    request.options.idle_timeout_ms = 1500;
    rc = f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err);
    assert_true(rc == GPUCR_ERR_ENGINE_HUNG || rc == GPUCR_ERR_ENGINE);
    assert_no_children(0);
    assert_int_equal(state_of(f.pid), '-');
    f.pid = 0;
    fixture_close(&f);
}

static void test_cancel(void **state)
{
    static const volatile int cancel = 1;
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct fixture f;

    (void)state;
    open_stopped(&f, (const char *const[]){"2", "0", NULL});
    dump_away(&f);
    {
        int fd = openat(f.images_fd, "pages-1.img", O_WRONLY | O_CLOEXEC);

        assert_int_equal(ftruncate(fd, 4096), 0); /* so that it cannot finish first */
        (void)close(fd);
    }
    request = fixture_restore_request(&f);
    request.cancel = &cancel;
    assert_int_equal(f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err),
                     GPUCR_ERR_CANCELLED);
    assert_no_children(0);
    assert_int_equal(state_of(f.pid), '-');
    f.pid = 0;
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dump_and_restore), cmocka_unit_test(test_leave_running),
        cmocka_unit_test(test_commit_fails),     cmocka_unit_test(test_pid_namespace),
        cmocka_unit_test(test_pid_taken),        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_unknown_option),   cmocka_unit_test(test_truncated_image),
        cmocka_unit_test(test_cancel),
    };

    criu = real_criu();
    if (!criu)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
