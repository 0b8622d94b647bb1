/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The engine with a criu that misbehaves (fake_criu.c): found, bounded, and undone. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "engine_support.h"

static char folder[64];

/* A copy of fake_criu under that name: it acts by its name. */
static const char *fake(const char *name)
{
    static char path[128];
    char *data = NULL;
    size_t size = 0;
    int fd = open(FAKE_CRIU, O_RDONLY | O_CLOEXEC);

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(gpucr_fd_read_all(fd, 64 << 20, &data, &size, NULL), 0);
    (void)close(fd);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_int_equal(gpucr_fd_write_all(fd, data, size, NULL), 0);
    (void)close(fd);
    free(data);
    return path;
}

static int open_error(const char *path, struct gpucr_error *err)
{
    struct gpucr_engine *engine = NULL;
    int rc = gpucr_engine_open_criu(path, &engine, err);

    (void)gpucr_engine_close(engine);
    return rc;
}

static void test_missing(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_int_equal(open_error("/nowhere/criu", &err), GPUCR_ERR_ENGINE_MISSING);
    assert_non_null(strstr(err.text, "/nowhere/criu"));
}

static void test_old(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_int_equal(open_error(fake("fake-old"), &err), GPUCR_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "3.17.1"));
    assert_non_null(strstr(err.text, "4.0"));
}

static void test_not_criu(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_int_equal(open_error(fake("fake-text"), &err), GPUCR_ERR_ENGINE_MISSING);
    assert_non_null(strstr(err.text, "this is not criu"));
}

static void test_mute(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    uint64_t begin = gpucr_now_ns();

    (void)state;
    assert_int_equal(open_error(fake("fake-mute"), &err), GPUCR_ERR_ENGINE_HUNG);
    assert_true((gpucr_now_ns() - begin) / 1000000 < 60000);
    assert_no_children(0);
}

/* As root: not from where others can write. */
static void test_unsafe_path(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    const char *path = fake("fake-old");

    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(path, 0777), 0);
    assert_int_equal(open_error(path, &err), GPUCR_ERR_PERMISSION);
    assert_non_null(strstr(err.text, "others may write"));
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(chown(path, 65534, 65534), 0);
    assert_int_equal(open_error(path, &err), GPUCR_ERR_PERMISSION);
    assert_non_null(strstr(err.text, "65534"));
    (void)unlink(path);
}

static int commit(void *arg, struct gpucr_error *err)
{
    (void)err;
    if (arg)
        ++*(int *)arg;
    return 0;
}

static int dump(struct fixture *f, uint64_t idle_ms, bool *ret_committed)
{
    struct gpucr_engine_dump request = fixture_dump_request(f);

    request.options.idle_timeout_ms = idle_ms;
    request.commit = commit;
    return f->engine->ops->dump(f->engine, &request, &f->log, ret_committed, &f->err);
}

/* A dump by that fake fails with that code; the target is as before. */
static void expect_failure(const char *name, uint64_t idle_ms, int code, const char *text)
{
    bool committed = true;
    struct fixture f;

    fixture_open(&f, fake(name));
    fixture_start(&f, NULL);
    fixture_stop(&f);
    assert_int_equal(dump(&f, idle_ms, &committed), code);
    if (!strstr(f.err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", f.err.text, text);
    assert_false(committed);
    assert_untouched(&f);
    assert_no_children(f.pid);
    assert_goes_on(&f, f.pid, 1);
    fixture_close(&f);
}

static void test_dies(void **state)
{
    (void)state;
    expect_failure("fake-dies", 5000, GPUCR_ERR_ENGINE, "killed by signal 9");
    expect_failure("fake-dies", 5000, GPUCR_ERR_ENGINE, "almost there");
    expect_failure("fake-exits", 5000, GPUCR_ERR_ENGINE, "ended with status 3");
}

static void test_garbage(void **state)
{
    (void)state;
    expect_failure("fake-garbage", 5000, GPUCR_ERR_ENGINE, "makes no sense");
}

static void test_refuses(void **state)
{
    (void)state;
    expect_failure("fake-refuses", 5000, GPUCR_ERR_ENGINE, "--ext-unix-sk");
}

static void test_hangs(void **state)
{
    (void)state;
    expect_failure("fake-stuck", 600, GPUCR_ERR_ENGINE_HUNG, "about to do nothing");
    expect_failure("fake-spins", 600, GPUCR_ERR_ENGINE_HUNG, "the same again");
}

/* It takes longer than the idle time, but it gets on. */
static void test_slow(void **state)
{
    bool committed = false;
    struct fixture f;

    (void)state;
    fixture_open(&f, fake("fake-slow"));
    fixture_start(&f, NULL);
    fixture_stop(&f);
    if (dump(&f, 900, &committed) != 0)
        fail_msg("%s", f.err.text);
    assert_true(committed);
    assert_int_equal(waitpid(f.pid, NULL, 0), f.pid);
    f.pid = 0;
    fixture_close(&f);
}

/* The image counts once committed, whatever becomes of criu then. */
static void test_fails_after_commit(void **state)
{
    struct gpucr_engine_dump request;
    bool committed = false;
    struct fixture f;

    (void)state;
    fixture_open(&f, fake("fake-after"));
    fixture_start(&f, NULL);
    fixture_stop(&f);
    if (dump(&f, 5000, &committed) != 0)
        fail_msg("%s", f.err.text);
    assert_true(committed);
    assert_int_equal(waitpid(f.pid, NULL, 0), f.pid); /* killed */
    fixture_empty(&f);
    fixture_start(&f, NULL);
    fixture_stop(&f);
    committed = false;
    request = fixture_dump_request(&f);
    request.leave_running = true;
    request.commit = commit;
    assert_int_equal(f.engine->ops->dump(f.engine, &request, &f.log, &committed, &f.err),
                     GPUCR_ERR_ENGINE);
    assert_true(committed);
    assert_untouched(&f);
    assert_goes_on(&f, f.pid, 1);
    fixture_close(&f);
}

static void test_cancel(void **state)
{
    static const volatile int cancel = 1;
    struct gpucr_engine_dump request;
    bool committed = false;
    struct fixture f;

    (void)state;
    fixture_open(&f, fake("fake-slow"));
    fixture_start(&f, NULL);
    fixture_stop(&f);
    request = fixture_dump_request(&f);
    request.cancel = &cancel;
    assert_int_equal(f.engine->ops->dump(f.engine, &request, &f.log, &committed, &f.err),
                     GPUCR_ERR_CANCELLED);
    assert_untouched(&f);
    assert_goes_on(&f, f.pid, 1);
    fixture_close(&f);
}

static void test_restore_hangs(void **state)
{
    static const char *const names[] = {"fake-stuck", "fake-dies", "fake-refuses"};
    static const int codes[] = {GPUCR_ERR_ENGINE_HUNG, GPUCR_ERR_ENGINE, GPUCR_ERR_ENGINE};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct gpucr_engine_restored restored = {0};
        struct gpucr_engine_restore request;
        struct fixture f;

        fixture_open(&f, fake(names[i]));
        request = fixture_restore_request(&f);
        request.options.idle_timeout_ms = 600;
        assert_int_equal(f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err),
                         codes[i]);
        assert_int_equal(restored.root, 0);
        assert_no_children(0);
        fixture_close(&f);
    }
}

/* Without rights the answer comes at once and says what is missing. */
static void test_no_rights(void **state)
{
    int status;
    pid_t pid;

    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(chmod(fake("fake-slow"), 0755), 0);
    pid = fork();
    if (pid == 0) {
        struct gpucr_engine *engine = NULL;
        struct gpucr_error err = GPUCR_ERROR_INIT;
        struct gpucr_pids pids = {0};
        struct gpucr_engine_dump request = {.root = 1, .pids = &pids};
        struct gpucr_engine_log log = {0};
        char path[128];
        bool committed;

        (void)snprintf(path, sizeof(path), "%s/fake-slow", folder);
        if (setgid(65534) != 0 || setuid(65534) != 0 ||
            gpucr_engine_open_criu(path, &engine, &err) != 0)
            _exit(2);
        _exit(engine->ops->dump(engine, &request, &log, &committed, &err) == GPUCR_ERR_PERMISSION &&
                      strstr(err.text, "CAP_CHECKPOINT_RESTORE")
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing),       cmocka_unit_test(test_old),
        cmocka_unit_test(test_not_criu),      cmocka_unit_test(test_mute),
        cmocka_unit_test(test_unsafe_path),   cmocka_unit_test(test_dies),
        cmocka_unit_test(test_garbage),       cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_hangs),         cmocka_unit_test(test_slow),
        cmocka_unit_test(test_cancel),        cmocka_unit_test(test_fails_after_commit),
        cmocka_unit_test(test_restore_hangs), cmocka_unit_test(test_no_rights),
    };
    char command[128];
    int failed;

    if (geteuid() != 0) {
        (void)printf("only root can dump and restore: skipped\n");
        return 77;
    }
    (void)snprintf(folder, sizeof(folder), "/tmp/gpucr-fake.XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (const char *const *name =
             (const char *const[]){"fake-old", "fake-text", "fake-mute", "fake-dies", "fake-exits",
                                   "fake-garbage", "fake-refuses", "fake-stuck", "fake-spins",
                                   "fake-slow", "fake-after", NULL};
         *name; name++) {
        (void)snprintf(command, sizeof(command), "%s/%s", folder, *name);
        (void)unlink(command);
    }
    (void)rmdir(folder);
    return failed;
}
