/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* T1 … T8, F1 and F4 of docs/image-format.md: whose images are opened. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image_fixture.h"

enum { STRANGER = 65533, SKIPPED = 77 };

/** Where in the image a rule has to hold: at the top, deep inside, and in the logs. */
static const char *const places[] = {"",
                                     "/criu",
                                     "/criu/core-1.img",
                                     "/criu/sub/deep/pages-2.img",
                                     "/manifest.json",
                                     "/manifest.digest",
                                     "/logs",
                                     "/logs/dump.log"};
enum { PLACES = sizeof(places) / sizeof(places[0]) };

static const char *image_path(void **state)
{
    return fixture_path(state, "image");
}

static int setup(void **state)
{
    if (fixture_setup(state) != 0)
        return -1;
    fixture_image(image_path(state));
    return 0;
}

static bool is_root(void)
{
    if (geteuid() == 0)
        return true;
    print_message("not root: nobody else's files can be made here\n");
    return false;
}

/** Runs @p fn in a child and returns its exit status. */
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

static void test_good(void **state)
{
    char *with_slash = NULL;

    fixture_assert(image_path(state), 0, "");
    assert_true(asprintf(&with_slash, "%s//", image_path(state)) > 0);
    fixture_assert(with_slash, 0, "");
    free(with_slash);
    /* Readable by others: accepted, with a warning. */
    assert_int_equal(chmod(image_path(state), 0755), 0);
    assert_int_equal(chmod(fixture_path(state, "image/criu/core-1.img"), 0444), 0);
    fixture_assert(image_path(state), 0, "");
}

/* T1, and that links on the way are followed */
static void test_link_to_image(void **state)
{
    assert_int_equal(symlink("image", fixture_path(state, "link")), 0);
    fixture_assert(fixture_path(state, "link"), GPUCR_ERR_IMAGE_UNSAFE, "is a symbolic link");
    fixture_assert(fixture_path(state, "link/"), GPUCR_ERR_IMAGE_UNSAFE, "is a symbolic link");
    assert_int_equal(symlink(".", fixture_path(state, "here")), 0);
    fixture_assert(fixture_path(state, "here/image"), 0, "");
}

/* T2 */
static void test_foreign_owner(void **state)
{
    if (!is_root())
        skip();
    for (size_t i = 0; i < PLACES; i++) {
        const char *path = fixture_path(state, "image%s", places[i]);

        assert_int_equal(chown(path, STRANGER, 0), 0);
        fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "belongs to user 65533");
        assert_int_equal(chown(path, 0, 0), 0);
    }
    fixture_assert(image_path(state), 0, "");
}

/** A user without rights: root's images and the own ones are fine, those of others are not. */
static int check_as_stranger(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int rc;

    if (setresgid(STRANGER, STRANGER, STRANGER) != 0 ||
        setresuid(STRANGER, STRANGER, STRANGER) != 0)
        return SKIPPED;
    rc = fixture_check(image_path(state), &err);
    return rc == 0                                                                     ? 0
           : rc == GPUCR_ERR_PERMISSION                                                ? 1
           : rc == GPUCR_ERR_IMAGE_UNSAFE && strstr(err.text, "belongs to user 65532") ? 2
                                                                                       : 3;
}

static void change_all(void **state, uid_t uid, mode_t folder, mode_t file)
{
    for (size_t i = 0; i < PLACES; i++) {
        const char *path = fixture_path(state, "image%s", places[i]);
        struct stat st;

        assert_int_equal(lstat(path, &st), 0);
        assert_int_equal(chown(path, uid, 0), 0);
        assert_int_equal(chmod(path, S_ISDIR(st.st_mode) ? folder : file), 0);
    }
    for (size_t i = 0; i < fixture_file_count; i++) {
        const char *path = fixture_path(state, "image/criu/%s", fixture_files[i].path);

        assert_int_equal(chown(path, uid, 0), 0);
        assert_int_equal(chmod(path, file), 0);
    }
    assert_int_equal(chown(fixture_path(state, "image/criu/sub"), uid, 0), 0);
    assert_int_equal(chmod(fixture_path(state, "image/criu/sub"), folder), 0);
    assert_int_equal(chown(fixture_path(state, "image/criu/sub/deep"), uid, 0), 0);
    assert_int_equal(chmod(fixture_path(state, "image/criu/sub/deep"), folder), 0);
}

/* T2 as another caller than root */
static void test_other_caller(void **state)
{
    if (!is_root())
        skip();
    assert_int_equal(chmod(*state, 0755), 0);
    assert_int_equal(in_child(state, check_as_stranger), 1); /* root's, 0700 */
    change_all(state, 0, 0755, 0644);
    assert_int_equal(in_child(state, check_as_stranger), 0); /* root's, readable */
    change_all(state, STRANGER, 0700, 0600);
    assert_int_equal(in_child(state, check_as_stranger), 0); /* the own one */
    change_all(state, STRANGER - 1, 0755, 0644);
    assert_int_equal(in_child(state, check_as_stranger), 2); /* somebody else's */
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "belongs to user 65532");
}

/* T3 */
static void test_writable(void **state)
{
    for (size_t i = 0; i < PLACES; i++) {
        const char *path = fixture_path(state, "image%s", places[i]);
        struct stat st;

        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(chmod(path, (st.st_mode & 07777) | S_IWGRP), 0);
        fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "by its group or by others");
        assert_int_equal(chmod(path, (st.st_mode & 07777) | S_IWOTH), 0);
        fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "by its group or by others");
        assert_int_equal(chmod(path, st.st_mode & 07777), 0);
    }
    fixture_assert(image_path(state), 0, "");
}

/* T4: in place of a file, in place of a folder, and as one thing more */
static void test_link_inside(void **state)
{
    static const char *const links[] = {"criu/core-1.img", "criu/sub/deep", "criu",
                                        "manifest.json",   "logs/link",     "more"};

    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        const char *path = fixture_path(state, "image/%s", links[i]);
        const char *aside = fixture_path(state, "aside");
        bool exists = rename(path, aside) == 0;

        assert_int_equal(symlink(exists ? aside : "/etc", path), 0);
        fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "is a symbolic link");
        assert_int_equal(unlink(path), 0);
        if (exists)
            assert_int_equal(rename(aside, path), 0);
    }
    fixture_assert(image_path(state), 0, "");
}

/* T5 */
static void test_special_files(void **state)
{
    const char *path = fixture_path(state, "image/criu/special");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(mkfifo(path, 0600), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "a socket, a pipe or a device");
    assert_int_equal(unlink(path), 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(chmod(path, 0600), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "a socket, a pipe or a device");
    assert_int_equal(unlink(path), 0);
    (void)close(fd);
    if (mknod(path, S_IFCHR | 0600, makedev(1, 3)) == 0) {
        fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "a socket, a pipe or a device");
        assert_int_equal(unlink(path), 0);
    }
    /* A listed file that is a pipe must not make the reader wait for a writer. */
    assert_int_equal(unlink(fixture_path(state, "image/criu/core-1.img")), 0);
    assert_int_equal(mkfifo(fixture_path(state, "image/criu/core-1.img"), 0600), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "a socket, a pipe or a device");
}

/* T6 */
static void test_hard_link(void **state)
{
    const char *outside = fixture_path(state, "second");

    assert_int_equal(link(fixture_path(state, "image/criu/core-1.img"), outside), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "has a second name");
    assert_int_equal(unlink(outside), 0);
    fixture_assert(image_path(state), 0, "");
}

/* T7 */
static void test_setuid(void **state)
{
    assert_int_equal(chmod(fixture_path(state, "image/criu/core-1.img"), 04700), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "is setuid or setgid");
    assert_int_equal(chmod(fixture_path(state, "image/criu/core-1.img"), 02710), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_UNSAFE, "is setuid or setgid");
    assert_int_equal(chmod(fixture_path(state, "image/criu/core-1.img"), 0600), 0);
    /* A folder may have inherited the bit from its parent; it means nothing here. */
    assert_int_equal(chmod(fixture_path(state, "image/criu"), 02700), 0);
    fixture_assert(image_path(state), 0, "");
}

static int check_mounts(void **state)
{
    const char *image = image_path(state);
    const char *folder = fixture_path(state, "image/criu/sub");
    const char *file = fixture_path(state, "image/criu/core-1.img");
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(folder, folder, NULL, MS_BIND, NULL) != 0)
        return SKIPPED;
    if (fixture_check(image, &err) != GPUCR_ERR_IMAGE_UNSAFE || !strstr(err.text, "mount point"))
        return 1;
    if (umount(folder) != 0 || mount(file, file, NULL, MS_BIND, NULL) != 0)
        return 2;
    if (fixture_check(image, &err) != GPUCR_ERR_IMAGE_UNSAFE || !strstr(err.text, "mount point"))
        return 3;
    /* The image itself may be one. */
    if (umount(file) != 0 || mount(image, image, NULL, MS_BIND, NULL) != 0)
        return 4;
    return fixture_check(image, &err) == 0 ? 0 : 5;
}

/* T8 */
static void test_mount_inside(void **state)
{
    int status = in_child(state, check_mounts);

    if (status == SKIPPED) {
        print_message("nothing can be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* F1 */
static void test_not_a_folder(void **state)
{
    fixture_assert(fixture_path(state, "image/manifest.json"), GPUCR_ERR_IMAGE_FORMAT,
                   "is not a folder");
    fixture_assert(fixture_path(state, "none"), GPUCR_ERR_NOT_FOUND, "cannot open the image");
    assert_int_equal(fixture_check("", NULL), GPUCR_ERR_NOT_FOUND);
}

/* F4 */
static void test_depth(void **state)
{
    assert_int_equal(mkdir(fixture_path(state, "image/logs/2"), 0700), 0);
    assert_int_equal(mkdir(fixture_path(state, "image/logs/2/3"), 0700), 0);
    assert_int_equal(mkdir(fixture_path(state, "image/logs/2/3/4"), 0700), 0);
    assert_int_equal(mkdir(fixture_path(state, "image/logs/2/3/4/5"), 0700), 0);
    assert_int_equal(mkdir(fixture_path(state, "image/logs/2/3/4/5/6"), 0700), 0);
    assert_int_equal(mkdir(fixture_path(state, "image/logs/2/3/4/5/6/7"), 0700), 0);
    assert_int_equal(mkdir(fixture_path(state, "image/logs/2/3/4/5/6/7/8"), 0700), 0);
    fixture_assert(image_path(state), 0, "");
    assert_int_equal(mkdir(fixture_path(state, "image/logs/2/3/4/5/6/7/8/9"), 0700), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_FORMAT, "more than 8 deep");
}

/* A name on the disk can hold anything; what is printed must not move the cursor. */
static void test_names_are_shown_safely(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    assert_int_equal(symlink("x", fixture_path(state, "image/criu/\x1b[2J")), 0);
    assert_int_equal(fixture_check(image_path(state), &err), GPUCR_ERR_IMAGE_UNSAFE);
    assert_non_null(strstr(err.text, "?[2J"));
    assert_null(strchr(err.text, '\x1b'));
    assert_null(strchr(err.path, '\x1b'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_good, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_link_to_image, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_foreign_owner, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_other_caller, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_writable, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_link_inside, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_special_files, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_hard_link, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_setuid, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_mount_inside, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_not_a_folder, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_depth, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_names_are_shown_safely, setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
