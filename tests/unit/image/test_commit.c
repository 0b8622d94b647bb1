/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The commit, interrupted at every step. The calls that make things durable are wrapped
 * (ld --wrap): they are recorded, and one of them can be made to fail. Whatever happens,
 * there is no image under the name, or a complete one.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image/tree_walk.h"
#include "image_fixture.h"

enum { CALLS_MAX = 64 };

/** What was called, in order: "fsync criu/sub", "rename image", paths relative to the scratch. */
static struct {
    pthread_mutex_t mutex;
    char calls[CALLS_MAX][96];
    size_t count;
    size_t fail_at;       /* number of the call that fails, from 1; 0 for none */
    int fail_errno;       /* of that call */
    bool no_replace_flag; /* the file system lacks RENAME_NOREPLACE */
    bool make_folder;     /* something appears under the name just before the rename */
} spy = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);

/** Record a call; true when it has to fail. */
static bool record(const char *what, const char *path)
{
    bool fail;

    (void)pthread_mutex_lock(&spy.mutex);
    if (spy.count < CALLS_MAX)
        (void)snprintf(spy.calls[spy.count], sizeof(spy.calls[0]), "%s %.80s", what, path);
    spy.count++;
    fail = spy.count == spy.fail_at;
    (void)pthread_mutex_unlock(&spy.mutex);
    if (fail)
        errno = spy.fail_errno;
    return fail;
}

static bool record_fd(const char *what, int fd)
{
    char link[64];
    char path[PATH_MAX];
    const char *at;
    ssize_t n;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    /* What is in the hidden folder is named as it will be in the image. */
    at = strstr(path, ".gpucr-");
    if (at)
        return record(what, at[13] == '/' ? at + 14 : "");
    return record(what, "parent");
}

int __wrap_fsync(int fd)
{
    return record_fd("sync", fd) ? -1 : __real_fsync(fd);
}

int __wrap_fdatasync(int fd)
{
    return record_fd("sync", fd) ? -1 : __real_fdatasync(fd);
}

int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    if (record("rename", to[0] == '.' ? "back" : to))
        return -1;
    if (spy.make_folder)
        (void)mkdirat(to_fd, to, 0700);
    if (spy.no_replace_flag) {
        errno = EINVAL;
        return -1;
    }
    return __real_renameat2(from_fd, from, to_fd, to, flags);
}

static const char *image_path(void **state)
{
    return fixture_path(state, "image");
}

static int setup(void **state)
{
    spy.count = spy.fail_at = 0;
    spy.no_replace_flag = spy.make_folder = false;
    return fixture_setup(state);
}

/** Writes the small image; returns what the commit returns. */
static int write_image(void **state, struct gpucr_error *err)
{
    struct gpucr_image_writer *writer = NULL;
    struct gpucr_manifest m;
    int rc;

    fixture_manifest(&m);
    rc = gpucr_image_writer_begin(image_path(state), &writer, err);
    if (rc == 0) {
        fixture_fill(writer);
        rc = gpucr_image_writer_commit(writer, &m, NULL, NULL, err);
    }
    gpucr_image_writer_free(writer);
    gpucr_manifest_done(&m);
    return rc;
}

static size_t find_call(const char *call)
{
    for (size_t i = 0; i < spy.count && i < CALLS_MAX; i++) {
        if (strcmp(spy.calls[i], call) == 0)
            return i;
    }
    fail_msg("\"%s\" was not called", call);
    return 0;
}

/* What a power cut at any instant would leave depends on this order alone. */
static void test_order(void **state)
{
    static const char *const folders[] = {"sync criu/sub/deep", "sync criu/sub", "sync criu",
                                          "sync logs", "sync "};
    size_t rename_at;
    size_t manifest;
    size_t digest;

    assert_int_equal(write_image(state, NULL), 0);
    rename_at = find_call("rename image");
    manifest = find_call("sync manifest.json");
    digest = find_call("sync manifest.digest");
    for (size_t i = 0; i < fixture_file_count; i++) {
        char call[96];

        (void)snprintf(call, sizeof(call), "sync criu/%s", fixture_files[i].path);
        assert_true(find_call(call) < manifest);
    }
    assert_true(manifest < digest);
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        assert_true(find_call(folders[i]) > digest);
        assert_true(find_call(folders[i]) < rename_at);
    }
    assert_true(find_call("sync criu/sub/deep") < find_call("sync criu/sub"));
    assert_true(find_call("sync criu/sub") < find_call("sync criu"));
    assert_true(find_call("sync criu") < find_call("sync "));
    assert_true(find_call("sync parent") > rename_at);
    assert_int_equal(spy.count, fixture_file_count + 2 + 5 + 1 + 1);
}

/** Each call in turn fails: nothing is under the name, nothing is left, and the cause is told. */
static void fail_each(void **state, int os_errno, int code)
{
    size_t calls;
    size_t k = 1;

    spy.fail_errno = os_errno;
    for (;; k++) {
        struct gpucr_error err = GPUCR_ERROR_INIT;
        int rc;

        spy.count = 0;
        spy.fail_at = k;
        rc = write_image(state, &err);
        calls = spy.count;
        if (calls < k) {
            assert_int_equal(rc, 0);
            break;
        }
        if (rc != code)
            fail_msg("call %zu: %s: %s", k, gpucr_code_name(rc), err.text);
        assert_int_equal(err.stage, GPUCR_STAGE_COMMIT);
        assert_non_null(strstr(err.text, image_path(state)));
        assert_string_equal(err.path, image_path(state));
        assert_int_equal(fixture_count(*state), 0);
    }
    assert_int_equal(k, fixture_file_count + 2 + 5 + 1 + 1 + 1);
    fixture_assert(image_path(state), 0, "");
}

static void test_failing_disk(void **state)
{
    fail_each(state, EIO, GPUCR_ERR_SYSTEM);
}

static void test_full_disk(void **state)
{
    fail_each(state, ENOSPC, GPUCR_ERR_NO_SPACE);
}

static void test_quota(void **state)
{
    fail_each(state, EDQUOT, GPUCR_ERR_NO_SPACE);
}

/* NFS and some FUSE file systems */
static void test_without_noreplace(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    spy.no_replace_flag = true;
    assert_int_equal(write_image(state, &err), 0);
    fixture_assert(image_path(state), 0, "");
    /* It has to be taken back without the flag, too. */
    assert_int_equal(rename(image_path(state), fixture_path(state, "first")), 0);
    spy.fail_at = find_call("sync parent") + 1;
    spy.fail_errno = EIO;
    spy.count = 0;
    assert_int_equal(write_image(state, &err), GPUCR_ERR_SYSTEM);
    assert_int_equal(fixture_count(*state), 1);
}

static void test_name_taken_meanwhile(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    spy.make_folder = true;
    assert_int_equal(write_image(state, &err), GPUCR_ERR_EXISTS);
    assert_int_equal(fixture_count(*state), 1);
    assert_int_equal(rmdir(image_path(state)), 0); /* still empty */
    spy.no_replace_flag = true;
    assert_int_equal(write_image(state, &err), GPUCR_ERR_EXISTS);
    assert_int_equal(fixture_count(*state), 1);
    assert_int_equal(rmdir(image_path(state)), 0);
}

static void test_cannot_rename(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    assert_int_equal(write_image(state, &err), 0);
    assert_int_equal(rename(image_path(state), fixture_path(state, "first")), 0);
    spy.fail_at = find_call("rename image") + 1;
    spy.fail_errno = EROFS;
    spy.count = 0;
    assert_int_equal(write_image(state, &err), GPUCR_ERR_SYSTEM);
    assert_int_equal(err.os_errno, EROFS);
    assert_int_equal(fixture_count(*state), 1);
}

#ifdef GPUCR_FAULTS
static const struct {
    const char *name;
    bool visible; /* a writer that is killed here leaves an image */
} faults[] = {
    {"image.begin.after-mkdir", false},
    {"image.commit.before-manifest", false},
    {"image.commit.before-manifest-digest", false},
    {"image.commit.before-rename", false},
    {"image.commit.after-rename", true},
};

static void test_fault_fails(void **state)
{
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct gpucr_error err = GPUCR_ERROR_INIT;

        assert_int_equal(setenv("GPUCR_FAULT", faults[i].name, 1), 0);
        if (write_image(state, &err) != GPUCR_ERR_INTERNAL)
            fail_msg("%s was not hit", faults[i].name);
        assert_int_equal(unsetenv("GPUCR_FAULT"), 0);
        assert_int_equal(fixture_count(*state), 0);
    }
    assert_int_equal(write_image(state, NULL), 0);
    fixture_assert(image_path(state), 0, "");
}

static void test_fault_kills(void **state)
{
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        char armed[64];
        int status = 0;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
            (void)snprintf(armed, sizeof(armed), "%s:kill", faults[i].name);
            _exit(setenv("GPUCR_FAULT", armed, 1) == 0 ? 1 + write_image(state, NULL) : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFSIGNALED(status))
            fail_msg("%s was not hit", faults[i].name);
        assert_int_equal(fixture_count(*state), 1);
        if (faults[i].visible) {
            fixture_assert(image_path(state), 0, "");
            continue;
        }
        assert_int_equal(access(image_path(state), F_OK), -1);
        /* The next one takes the rest away and succeeds. */
        assert_int_equal(write_image(state, NULL), 0);
        assert_int_equal(fixture_count(*state), 1);
        fixture_assert(image_path(state), 0, "");
        assert_int_equal(rename(image_path(state), fixture_path(state, "old")), 0);
        assert_int_equal(gpucr_image_tree_remove(AT_FDCWD, fixture_path(state, "old")), 0);
    }
}
#else
static void test_fault_fails(void **state)
{
    (void)state;
    print_message("built without fault points\n");
    skip();
}

static void test_fault_kills(void **state)
{
    test_fault_fails(state);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_failing_disk, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_quota, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_without_noreplace, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_name_taken_meanwhile, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_cannot_rename, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_fault_fails, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_fault_kills, setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
