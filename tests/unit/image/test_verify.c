/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* D1 … D8, F2 and F3 of docs/image-format.md: damage is found and named. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "image_fixture.h"

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

static void overwrite(void **state, const char *name, const char *text)
{
    fixture_write(AT_FDCWD, fixture_path(state, "image/%s", name), text, strlen(text));
}

static void remove_entry(void **state, const char *name)
{
    assert_int_equal(unlink(fixture_path(state, "image/%s", name)), 0);
}

static void see(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    uint64_t *seen = arg;

    seen[0] = done_bytes;
    seen[1] = total_bytes;
}

static void test_good(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_image *image = NULL;
    uint64_t seen[2] = {0};
    size_t json_bytes = 0;
    char *json = fixture_read(fixture_path(state, "image/manifest.json"), &json_bytes);
    uint64_t files = 0;

    for (size_t i = 0; i < fixture_file_count; i++)
        files += fixture_files[i].size_bytes;
    if (gpucr_image_open(image_path(state), &image, &err) != 0)
        fail_msg("%s", err.text);
    assert_string_equal(gpucr_image_manifest_json(image), json);
    assert_int_equal(gpucr_image_size_bytes(image), files + json_bytes + 33);
    assert_int_equal(gpucr_image_manifest(image)->file_count, fixture_file_count);
    assert_int_equal(gpucr_image_manifest(image)->processes[1].pid, 1010);
    assert_int_equal(faccessat(gpucr_image_criu_fd(image), "core-1.img", R_OK, 0), 0);
    assert_int_equal(gpucr_image_verify(image, see, seen, &err), 0);
    assert_int_equal(seen[0], files);
    assert_int_equal(seen[1], files);
    assert_int_equal(gpucr_image_verify(image, NULL, NULL, NULL), 0);
    assert_null(gpucr_image_close(image));
    assert_null(gpucr_image_close(NULL));
    free(json);
}

/* The log is no part of the image: the engine may still be writing it. */
static void test_logs_do_not_count(void **state)
{
    overwrite(state, "logs/dump.log", "more than before\n");
    overwrite(state, "logs/stats", "new");
    assert_int_equal(mkdir(fixture_path(state, "image/logs/folder"), 0700), 0);
    fixture_assert(image_path(state), 0, "");
    remove_entry(state, "logs/dump.log");
    fixture_assert(image_path(state), 0, "");
}

/* F2 and F3 */
static void test_no_manifest(void **state)
{
    assert_int_equal(
        truncate(fixture_path(state, "image/manifest.json"), (off_t)GPUCR_MANIFEST_BYTES_MAX + 1),
        0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_FORMAT, "more than 67108864");
    remove_entry(state, "manifest.json");
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_FORMAT, "manifest.json is missing");
    fixture_assert(*state, GPUCR_ERR_IMAGE_FORMAT, "manifest.json is missing");
}

/* D1 */
static void test_manifest_digest_form(void **state)
{
    static const char *const bad[] = {"",
                                      "\n",
                                      "0123456789abcdef0123456789abcdef",
                                      "0123456789ABCDEF0123456789abcdef\n",
                                      "0123456789abcdef0123456789abcde\n",
                                      "0123456789abcdef0123456789abcdef\n\n",
                                      "0123456789abcdef0123456789abcdefg\n"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        overwrite(state, "manifest.digest", bad[i]);
        fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "manifest.digest");
    }
    remove_entry(state, "manifest.digest");
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "manifest.digest is missing");
}

/* D2 */
static void test_manifest_changed(void **state)
{
    size_t n = 0;
    char *json = fixture_read(fixture_path(state, "image/manifest.json"), &n);

    overwrite(state, "manifest.digest", "0123456789abcdef0123456789abcdef\n");
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED,
                   "its digest should be 0123456789abcdef0123456789abcdef and is ");
    /* Not even JSON: the digest is what is reported. */
    fixture_put_manifest(image_path(state), json, n);
    overwrite(state, "manifest.json", "{");
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "manifest.json is damaged");
    /* A digest that fits: now the format is. */
    fixture_put_manifest(image_path(state), "{", 1);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_FORMAT, "is not valid");
    free(json);
}

/* D3 and D4 */
static void test_wrong_kinds(void **state)
{
    assert_int_equal(rename(fixture_path(state, "image/criu"), fixture_path(state, "aside")), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "criu is missing");
    overwrite(state, "criu", "");
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "criu is not a folder");
    remove_entry(state, "criu");
    assert_int_equal(rename(fixture_path(state, "aside"), fixture_path(state, "image/criu")), 0);
    remove_entry(state, "manifest.digest");
    assert_int_equal(mkdir(fixture_path(state, "image/manifest.digest"), 0700), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "manifest.digest is not a file");
    remove_entry(state, "manifest.json");
    assert_int_equal(mkdir(fixture_path(state, "image/manifest.json"), 0700), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "manifest.json is not a file");
}

/* D5 */
static void test_missing(void **state)
{
    remove_entry(state, "criu/core-1.img");
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "criu/core-1.img is missing");
    assert_int_equal(mkdir(fixture_path(state, "image/criu/core-1.img"), 0700), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "criu/core-1.img is a folder where");
}

static void test_last_missing(void **state)
{
    remove_entry(state, "criu/sub/deep/pages-2.img");
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "pages-2.img is missing");
    assert_int_equal(rmdir(fixture_path(state, "image/criu/sub/deep")), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "pages-2.img is missing");
}

/* D6, at every size a file can have been cut to, and one that grew */
static void test_size(void **state)
{
    char *path = strdup(fixture_path(state, "image/criu/core-1.img"));
    size_t n = 0;
    char *data = fixture_read(path, &n);

    for (size_t i = 0; i < n; i++) {
        assert_int_equal(truncate(path, (off_t)i), 0);
        fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED,
                       "criu/core-1.img is truncated: it should have 97 bytes and has ");
        fixture_write(AT_FDCWD, path, data, n);
    }
    assert_int_equal(truncate(path, (off_t)n + 1), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED,
                   "is too long: it should have 97 bytes and has 98");
    free(data);
    free(path);
}

/** Flips each bit of a file in turn (each 73rd of a large one) and expects that it is found. */
static void flip_bits(void **state, const char *name)
{
    char *path = strdup(fixture_path(state, "image/%s", name));
    struct gpucr_error err = GPUCR_ERROR_INIT;
    size_t n = 0;
    char *data = fixture_read(path, &n);
    size_t step = n > 200 ? 73 : 1;

    for (size_t bit = 0; bit < n * 8; bit += step) {
        data[bit / 8] ^= (char)(1 << bit % 8);
        fixture_write(AT_FDCWD, path, data, n);
        if (fixture_check(image_path(state), &err) != GPUCR_ERR_IMAGE_DAMAGED)
            fail_msg("bit %zu of %s is flipped, but: %s", bit, name, err.text);
        data[bit / 8] ^= (char)(1 << bit % 8);
    }
    fixture_write(AT_FDCWD, path, data, n);
    free(data);
    free(path);
}

/* D1, D2 and D7 */
static void test_bit_flips(void **state)
{
    flip_bits(state, "manifest.json");
    flip_bits(state, "manifest.digest");
    for (size_t i = 0; i < fixture_file_count; i++) {
        char name[64];

        (void)snprintf(name, sizeof(name), "criu/%s", fixture_files[i].path);
        flip_bits(state, name);
    }
    fixture_assert(image_path(state), 0, "");
}

/* D8 */
static void test_extra(void **state)
{
    static const char *const files[] = {"criu/more.img", "criu/sub/more.img", "more", "aaa",
                                        "criu/core-1.img.bak"};
    static const char *const folders[] = {"criu/more", "criu/sub/deep/er", "bulk", "criu/su"};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        overwrite(state, files[i], "");
        fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED,
                       "is a file that the manifest does not know");
        remove_entry(state, files[i]);
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        const char *path = fixture_path(state, "image/%s", folders[i]);

        assert_int_equal(mkdir(path, 0700), 0);
        fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED,
                       "is a folder that the manifest does not know");
        assert_int_equal(rmdir(path), 0);
    }
    fixture_assert(image_path(state), 0, "");
}

struct lines {
    size_t count;
    char all[4096];
};

static void collect(void *arg, enum gpucr_log_level level, const char *text)
{
    struct lines *lines = arg;
    size_t used = strlen(lines->all);

    if (level != GPUCR_LOG_ERROR)
        return;
    lines->count++;
    (void)snprintf(lines->all + used, sizeof(lines->all) - used, "%s\n", text);
}

/* Every fault is logged; the first one, by path, is the error. */
static void test_all_are_named(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct lines lines = {0};

    overwrite(state, "criu/core-1.img", "short");
    remove_entry(state, "criu/inventory.img");
    overwrite(state, "criu/zzz", "new");
    gpucr_log_set(collect, &lines, GPUCR_LOG_ERROR);
    assert_int_equal(fixture_check(image_path(state), &err), GPUCR_ERR_IMAGE_DAMAGED);
    gpucr_log_set(NULL, NULL, GPUCR_LOG_ERROR);
    assert_int_equal(lines.count, 3);
    assert_non_null(strstr(lines.all, "core-1.img is truncated"));
    assert_non_null(strstr(lines.all, "inventory.img is missing"));
    assert_non_null(strstr(lines.all, "zzz is a file that"));
    assert_non_null(strstr(err.text, "core-1.img is truncated"));
    assert_non_null(strstr(err.text, "(and 2 more faults in this image, see the log)"));
    assert_string_equal(err.path, fixture_path(state, "image/criu/core-1.img"));
}

/* The image is as it was after each failure: repaired, it verifies. */
static void test_repair(void **state)
{
    const char *path = fixture_path(state, "image/criu/pages-1.img");
    size_t n = 0;
    char *data = fixture_read(path, &n);

    assert_int_equal(truncate(path, 2048), 0);
    fixture_assert(image_path(state), GPUCR_ERR_IMAGE_DAMAGED, "pages-1.img is truncated");
    fixture_write(AT_FDCWD, path, data, n);
    fixture_assert(image_path(state), 0, "");
    free(data);
}

static void test_work_dir(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    char path[FIXTURE_PATH_BYTES];
    struct stat st;
    int fd = -1;

    assert_int_equal(setenv("TMPDIR", *state, 1), 0);
    assert_int_equal(gpucr_image_work_dir(path, 5, &fd, &err), GPUCR_ERR_USAGE);
    assert_int_equal(gpucr_image_work_dir(path, sizeof(path), &fd, &err), 0);
    assert_true(strncmp(path, *state, strlen(*state)) == 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    fixture_write(fd, "restore.log", "x", 1);
    assert_int_equal(mkdirat(fd, "sub", 0700), 0);
    fixture_write(fd, "sub/file", "x", 1);
    assert_int_equal(symlinkat("/etc", fd, "link"), 0);
    gpucr_image_work_dir_remove(path);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access("/etc", F_OK), 0);
    (void)close(fd);
    assert_int_equal(setenv("TMPDIR", fixture_path(state, "none"), 1), 0);
    assert_int_equal(gpucr_image_work_dir(path, sizeof(path), &fd, &err), GPUCR_ERR_NOT_FOUND);
    assert_int_equal(unsetenv("TMPDIR"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_good, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_logs_do_not_count, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_no_manifest, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_manifest_digest_form, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_manifest_changed, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_wrong_kinds, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_missing, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_last_missing, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_size, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_bit_flips, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_extra, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_all_are_named, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_repair, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_work_dir, setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
