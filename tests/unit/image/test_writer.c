/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Beginning an image, and what a commit does with what it finds. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "image_fixture.h"

enum { STRANGER = 65533, SKIPPED = 77, WRITERS = 6 };

static const char *image_path(void **state)
{
    return fixture_path(state, "image");
}

static int in_child(void **state, int (*fn)(void **state))
{
    pid_t pid = fork();
    int status = 0;

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fn(state));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/** Begins at @p path and expects a failure that changes nothing. */
static void assert_begin_fails(void **state, const char *path, int code, const char *part)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_image_writer *writer = NULL;
    size_t before = fixture_count(*state);
    int rc = gpucr_image_writer_begin(path, &writer, &err);

    if (rc != code)
        fail_msg("%s: %s expected, but %s: %s", path, gpucr_code_name(code), gpucr_code_name(rc),
                 err.text);
    assert_null(writer);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" is not in: %s", part, err.text);
    assert_int_equal(fixture_count(*state), before);
}

static struct gpucr_image_writer *begin(const char *path)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_image_writer *writer = NULL;

    if (gpucr_image_writer_begin(path, &writer, &err) != 0)
        fail_msg("%s", err.text);
    return writer;
}

/** Commits a writer that was filled. */
static int commit(struct gpucr_image_writer *writer, struct gpucr_error *err)
{
    struct gpucr_manifest m;
    int rc;

    fixture_manifest(&m);
    rc = gpucr_image_writer_commit(writer, &m, NULL, NULL, err);
    gpucr_manifest_done(&m);
    return rc;
}

static void assert_commit_fails(struct gpucr_image_writer *writer, int code, const char *part)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int rc = commit(writer, &err);

    if (rc != code)
        fail_msg("%s expected, but %s: %s", gpucr_code_name(code), gpucr_code_name(rc), err.text);
    assert_int_equal(err.stage, GPUCR_STAGE_COMMIT);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" is not in: %s", part, err.text);
}

static void test_name_taken(void **state)
{
    assert_int_equal(mkdir(image_path(state), 0700), 0);
    assert_begin_fails(state, image_path(state), GPUCR_ERR_EXISTS, "there is a folder called");
    assert_int_equal(rmdir(image_path(state)), 0);
    assert_int_equal(symlink("nowhere", image_path(state)), 0);
    assert_begin_fails(state, image_path(state), GPUCR_ERR_EXISTS, "there is a file called");
    assert_int_equal(unlink(image_path(state)), 0);
    fixture_write(AT_FDCWD, image_path(state), "x", 1);
    assert_begin_fails(state, image_path(state), GPUCR_ERR_EXISTS, "there is a file called");
    assert_begin_fails(state, fixture_path(state, "image/in/it"), GPUCR_ERR_SYSTEM,
                       "Not a directory");
}

static void test_bad_names(void **state)
{
    static const char *const names[] = {"", "/", "//", ".", "..", "./", "a/.", "a/..", "../"};
    char name[250];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_begin_fails(state, names[i], GPUCR_ERR_USAGE, "does not name a new folder");
    (void)memset(name, 'n', sizeof(name));
    name[242] = '\0';
    assert_begin_fails(state, fixture_path(state, "%s", name), GPUCR_ERR_USAGE, "has 242 bytes");
    name[241] = '\0';
    fixture_image(fixture_path(state, "%s", name));
    fixture_assert(fixture_path(state, "%s", name), 0, "");
    fixture_image(fixture_path(state, "...//"));
    fixture_assert(fixture_path(state, "..."), 0, "");
}

static void test_relative_name(void **state)
{
    char *before = getcwd(NULL, 0);

    assert_non_null(before);
    assert_int_equal(chdir(*state), 0);
    fixture_image("image/");
    fixture_assert("image", 0, "");
    fixture_assert("./image", 0, "");
    assert_int_equal(chdir(before), 0);
    free(before);
    fixture_assert(image_path(state), 0, "");
}

static void test_parent(void **state)
{
    assert_begin_fails(state, fixture_path(state, "none/image"), GPUCR_ERR_NOT_FOUND, "none");
    assert_int_equal(chmod(*state, 0777), 0);
    assert_begin_fails(state, image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "sticky bit");
    assert_int_equal(chmod(*state, 01777), 0);
    fixture_image(image_path(state));
    assert_int_equal(chmod(*state, 0770), 0);
    fixture_image(fixture_path(state, "second"));
    fixture_assert(fixture_path(state, "second"), 0, "");
}

static int begin_as_stranger(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_image_writer *writer = NULL;
    int rc;

    if (setresgid(STRANGER, STRANGER, STRANGER) != 0 ||
        setresuid(STRANGER, STRANGER, STRANGER) != 0)
        return SKIPPED;
    rc = gpucr_image_writer_begin(image_path(state), &writer, &err);
    return rc == GPUCR_ERR_PERMISSION && strstr(err.text, "takes no new entry") ? 0 : 1;
}

static int begin_on_read_only(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_image_writer *writer = NULL;
    int rc;

    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", *state, "tmpfs", MS_RDONLY, NULL) != 0)
        return SKIPPED;
    rc = gpucr_image_writer_begin(image_path(state), &writer, &err);
    return rc == GPUCR_ERR_SYSTEM && strstr(err.text, "Read-only file system") ? 0 : 1;
}

static void test_not_writable(void **state)
{
    int status = SKIPPED;

    if (geteuid() == 0) {
        assert_int_equal(chmod(*state, 0755), 0);
        status = in_child(state, begin_as_stranger);
    }
    if (status == SKIPPED) {
        print_message("not root: the caller cannot be changed\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void test_read_only(void **state)
{
    int status = in_child(state, begin_on_read_only);

    if (status == SKIPPED) {
        print_message("nothing can be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* Nothing under the name before the commit, nothing at all after a writer that gave up. */
static void test_given_up(void **state)
{
    struct gpucr_image_writer *writer = begin(image_path(state));
    uint64_t free_bytes = 0;

    assert_int_equal(gpucr_image_writer_written_bytes(writer), 0);
    fixture_fill(writer);
    assert_int_equal(gpucr_image_writer_written_bytes(writer), 97 + 40 + 4000);
    assert_int_equal(gpucr_image_writer_free_bytes(writer, &free_bytes, NULL), 0);
    assert_true(free_bytes > 0);
    assert_int_equal(access(image_path(state), F_OK), -1);
    assert_int_equal(fixture_count(*state), 1);
    gpucr_image_writer_free(writer);
    gpucr_image_writer_free(NULL);
    assert_int_equal(fixture_count(*state), 0);
}

static void assert_mode(void **state, const char *name, mode_t mode)
{
    struct stat st;

    assert_int_equal(stat(fixture_path(state, "image%s", name), &st), 0);
    assert_int_equal(st.st_mode & 07777, mode);
}

static void assert_modes(void **state)
{
    assert_mode(state, "", 0700);
    assert_mode(state, "/criu", 0700);
    assert_mode(state, "/criu/sub/deep", 0700);
    assert_mode(state, "/logs", 0700);
    assert_mode(state, "/criu/core-1.img", 0600);
    assert_mode(state, "/criu/sub/deep/pages-2.img", 0600);
    assert_mode(state, "/manifest.json", 0600);
    assert_mode(state, "/manifest.digest", 0600);
    assert_mode(state, "/logs/dump.log", 0600);
}

static void test_modes(void **state)
{
    struct gpucr_image_writer *writer;
    mode_t before = umask(0);

    fixture_image(image_path(state));
    assert_modes(state);
    assert_int_equal(rename(image_path(state), fixture_path(state, "first")), 0);
    /* A parent that gives its group away, and files that the engine made as it liked. */
    assert_int_equal(chmod(*state, 02700), 0);
    writer = begin(image_path(state));
    fixture_fill(writer);
    assert_int_equal(fchmodat(gpucr_image_writer_criu_fd(writer), "core-1.img", 06777, 0), 0);
    assert_int_equal(fchmodat(gpucr_image_writer_criu_fd(writer), "sub", 0777, 0), 0);
    (void)umask(0777);
    assert_int_equal(commit(writer, NULL), 0);
    gpucr_image_writer_free(writer);
    (void)umask(before);
    assert_modes(state);
    fixture_assert(image_path(state), 0, "");
}

static void test_strict_umask(void **state)
{
    mode_t before = umask(0177); /* files without rights for all, folders that cannot be entered */
    struct gpucr_image_writer *writer = begin(image_path(state));

    (void)umask(before);
    assert_int_equal(faccessat(gpucr_image_writer_criu_fd(writer), ".", R_OK | W_OK | X_OK, 0), 0);
    fixture_fill(writer);
    assert_int_equal(commit(writer, NULL), 0);
    assert_true(gpucr_image_writer_size_bytes(writer) > 97 + 40 + 4000 + 11 + 33);
    gpucr_image_writer_free(writer);
    assert_modes(state);
}

/* What an engine must not leave in criu/. */
static void test_bad_entries(void **state)
{
    struct gpucr_image_writer *writer = begin(image_path(state));
    int criu = gpucr_image_writer_criu_fd(writer);

    assert_commit_fails(writer, GPUCR_ERR_INTERNAL, "criu is empty");
    fixture_fill(writer);
    assert_int_equal(symlinkat("core-1.img", criu, "link"), 0);
    assert_commit_fails(writer, GPUCR_ERR_IMAGE_UNSAFE, "image/criu/link is a symbolic link");
    assert_int_equal(unlinkat(criu, "link", 0), 0);
    assert_int_equal(mkfifoat(criu, "pipe", 0600), 0);
    assert_commit_fails(writer, GPUCR_ERR_IMAGE_UNSAFE, "a socket, a pipe or a device");
    assert_int_equal(unlinkat(criu, "pipe", 0), 0);
    assert_int_equal(linkat(criu, "core-1.img", criu, "second", 0), 0);
    assert_commit_fails(writer, GPUCR_ERR_IMAGE_UNSAFE, "has a second name");
    assert_int_equal(unlinkat(criu, "second", 0), 0);
    fixture_write(criu, "bad\xffname", "", 0);
    assert_commit_fails(writer, GPUCR_ERR_IMAGE_FORMAT, "not UTF-8");
    assert_int_equal(unlinkat(criu, "bad\xffname", 0), 0);
    fixture_write(criu, "../more", "", 0);
    assert_commit_fails(writer, GPUCR_ERR_IMAGE_UNSAFE, "was not made by gpucr");
    assert_int_equal(unlinkat(criu, "../more", 0), 0);
    assert_int_equal(fixture_count(*state), 1);
    /* All repaired: the same writer commits. */
    assert_int_equal(commit(writer, NULL), 0);
    gpucr_image_writer_free(writer);
    fixture_assert(image_path(state), 0, "");
}

/* A log is not worth a failed checkpoint. */
static void test_odd_logs(void **state)
{
    struct gpucr_image_writer *writer = begin(image_path(state));
    int logs = gpucr_image_writer_logs_fd(writer);

    fixture_fill(writer);
    assert_int_equal(symlinkat("/etc", logs, "link"), 0);
    assert_int_equal(mkfifoat(logs, "pipe", 0600), 0);
    assert_int_equal(linkat(logs, "dump.log", logs, "second", 0), 0);
    assert_int_equal(commit(writer, NULL), 0);
    gpucr_image_writer_free(writer);
    assert_true(fixture_count(fixture_path(state, "image/logs")) <= 1);
    assert_int_equal(access("/etc", F_OK), 0);
    fixture_assert(image_path(state), 0, "");
}

static void append(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    const struct gpucr_image_writer *writer = arg;
    int fd = openat(gpucr_image_writer_criu_fd(writer), "inventory.img",
                    O_WRONLY | O_APPEND | O_CLOEXEC);

    (void)done_bytes;
    (void)total_bytes;
    (void)gpucr_fd_write_all(fd, "late", 4, NULL);
    (void)close(fd);
}

static void test_still_written(void **state)
{
    struct gpucr_image_writer *writer = begin(image_path(state));
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_manifest m;

    fixture_manifest(&m);
    fixture_fill(writer);
    assert_int_equal(gpucr_image_writer_commit(writer, &m, append, writer, &err), GPUCR_ERR_ENGINE);
    assert_non_null(strstr(err.text, "inventory.img is still being written"));
    gpucr_image_writer_free(writer);
    gpucr_manifest_done(&m);
    assert_int_equal(fixture_count(*state), 0);
}

/* A manifest that cannot be read is found before the image gets its name. */
static void test_bad_manifest(void **state)
{
    struct gpucr_image_writer *writer = begin(image_path(state));
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_manifest m;

    fixture_manifest(&m);
    fixture_fill(writer);
    m.root_pid = 77;
    assert_int_equal(gpucr_image_writer_commit(writer, &m, NULL, NULL, &err),
                     GPUCR_ERR_IMAGE_FORMAT);
    assert_non_null(strstr(err.text, "not the root"));
    assert_int_equal(access(image_path(state), F_OK), -1);
    m.root_pid = 1000;
    assert_int_equal(gpucr_image_writer_commit(writer, &m, NULL, NULL, &err), 0);
    assert_int_equal(m.file_count, fixture_file_count);
    assert_string_equal(m.files[0].path, "criu/core-1.img");
    gpucr_image_writer_free(writer);
    gpucr_manifest_done(&m);
    fixture_assert(image_path(state), 0, "");
}

/** A writer that is killed; its folder is left, its lock is free. */
static void leave_temp(void **state, const char *name)
{
    pid_t pid = fork();
    int status = 0;

    assert_true(pid >= 0);
    if (pid == 0) {
        struct gpucr_image_writer *writer = begin(fixture_path(state, "%s", name));

        fixture_fill(writer);
        (void)raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void test_leftovers(void **state)
{
    struct gpucr_image_writer *alive;
    struct gpucr_image_writer *writer;

    leave_temp(state, "image");
    leave_temp(state, "image2");
    assert_int_equal(fixture_count(*state), 2);
    alive = begin(image_path(state)); /* removes the first one, not that of image2 */
    assert_int_equal(fixture_count(*state), 2);
    assert_int_equal(mkdir(fixture_path(state, ".image.gpucr-short"), 0700), 0);
    assert_int_equal(mkdir(fixture_path(state, ".image.gpucr-toolong"), 0700), 0);
    assert_int_equal(mkdir(fixture_path(state, "image.gpucr-abcdef"), 0700), 0);
    fixture_write(AT_FDCWD, fixture_path(state, ".image.gpucr-afile2"), "", 0);
    writer = begin(image_path(state)); /* not that of the living one, nor what only looks alike */
    assert_int_equal(fixture_count(*state), 7);
    fixture_fill(alive);
    assert_int_equal(commit(alive, NULL), 0);
    fixture_fill(writer);
    assert_commit_fails(writer, GPUCR_ERR_EXISTS, "somebody else has put something at");
    fixture_assert(image_path(state), 0, "");
    gpucr_image_writer_free(alive);
    gpucr_image_writer_free(writer);
    assert_int_equal(fixture_count(*state), 6);
    fixture_assert(image_path(state), 0, "");
}

static void test_foreign_leftover(void **state)
{
    if (geteuid() != 0) {
        print_message("not root: nobody else's files can be made here\n");
        skip();
    }
    leave_temp(state, "image");
    assert_int_equal(mkdir(fixture_path(state, ".image.gpucr-abcdef"), 0700), 0);
    assert_int_equal(chown(fixture_path(state, ".image.gpucr-abcdef"), STRANGER, 0), 0);
    gpucr_image_writer_free(begin(image_path(state)));
    assert_int_equal(fixture_count(*state), 1);
}

/** Exit status 0: committed; 1: the name was taken, at whichever step; 2: anything else. */
static int write_one(void **state, int start_fd)
{
    struct gpucr_image_writer *writer = NULL;
    struct gpucr_manifest m;
    char byte;
    int rc;

    fixture_manifest(&m);
    if (read(start_fd, &byte, 1) != 0)
        return 2;
    rc = gpucr_image_writer_begin(image_path(state), &writer, NULL);
    if (rc == 0) {
        fixture_fill(writer);
        rc = gpucr_image_writer_commit(writer, &m, NULL, NULL, NULL);
    }
    gpucr_image_writer_free(writer);
    return rc == 0 ? 0 : rc == GPUCR_ERR_EXISTS ? 1 : 2;
}

/* Many writers of one name: one wins, and nobody harms another. */
static void test_race(void **state)
{
    pid_t pids[WRITERS];
    unsigned counts[3] = {0};
    int start[2];

    assert_int_equal(pipe2(start, O_CLOEXEC), 0);
    for (int i = 0; i < WRITERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            (void)close(start[1]);
            _exit(write_one(state, start[0]));
        }
    }
    (void)close(start[1]);
    for (int i = 0; i < WRITERS; i++) {
        int status = 0;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 3);
        counts[WEXITSTATUS(status)]++;
    }
    (void)close(start[0]);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], WRITERS - 1);
    assert_int_equal(fixture_count(*state), 1);
    fixture_assert(image_path(state), 0, "");
}

/** A tiny file system that is full by the time of the commit. */
static int commit_on_full_disk(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_image_writer *writer = NULL;
    struct gpucr_manifest m;
    char block[4096] = {0};
    int fd;

    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", *state, "tmpfs", 0, "size=256k,mode=0700") != 0)
        return SKIPPED;
    fixture_manifest(&m);
    writer = begin(image_path(state));
    fixture_fill(writer);
    fd = open(fixture_path(state, "filler"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (write(fd, block, sizeof(block)) > 0)
        ;
    if (gpucr_image_writer_commit(writer, &m, NULL, NULL, &err) != GPUCR_ERR_NO_SPACE)
        return 1;
    if (!strstr(err.text, "needs ") || !strstr(err.text, " 0 bytes are free") ||
        strcmp(err.path, image_path(state)) != 0 || access(image_path(state), F_OK) == 0)
        return 2;
    /* Space is made: the same writer goes on. */
    if (ftruncate(fd, 0) != 0 || gpucr_image_writer_commit(writer, &m, NULL, NULL, &err) != 0)
        return 3;
    gpucr_image_writer_free(writer);
    if (fixture_check(image_path(state), &err) != 0)
        return 4;
    /* Full again, and given up: nothing of it is left. */
    writer = begin(fixture_path(state, "second"));
    while (write(fd, block, sizeof(block)) > 0)
        ;
    fixture_write(gpucr_image_writer_criu_fd(writer), "empty", "", 0);
    if (gpucr_image_writer_commit(writer, &m, NULL, NULL, &err) != GPUCR_ERR_NO_SPACE)
        return 5;
    gpucr_image_writer_free(writer);
    return fixture_count(*state) == 2 ? 0 : 6;
}

static void test_full_disk(void **state)
{
    int status = in_child(state, commit_on_full_disk);

    if (status == SKIPPED) {
        print_message("nothing can be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_name_taken, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_bad_names, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_relative_name, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_parent, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_not_writable, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_read_only, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_given_up, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_modes, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_strict_umask, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_bad_entries, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_odd_logs, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_still_written, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_bad_manifest, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_leftovers, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_foreign_leftover, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_race, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
