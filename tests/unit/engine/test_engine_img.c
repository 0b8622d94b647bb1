/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The reader of CRIU's image files: what it finds, and what it survives. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/criu_img.h"
#include "engine_support.h"

static void test_fields(void **state)
{
    /* 1: varint 300; 2: bytes "ab"; 3: fixed 32; 4: fixed 64 */
    static const uint8_t data[] = {0x08, 0xac, 0x02, 0x12, 0x02, 'a', 'b', 0x1d, 1, 0, 0,
                                   0,    0x21, 2,    0,    0,    0,   0,   0,    0, 1};
    struct gpucr_pb pb = {data, data + sizeof(data)};
    struct gpucr_pb_field field;
    char text[8];

    (void)state;
    assert_true(gpucr_pb_next(&pb, &field));
    assert_int_equal(field.number, 1);
    assert_int_equal(field.value, 300);
    assert_true(gpucr_pb_next(&pb, &field));
    assert_true(field.is_bytes);
    gpucr_pb_text(&field.bytes, text, sizeof(text));
    assert_string_equal(text, "ab");
    gpucr_pb_text(&field.bytes, text, 2);
    assert_string_equal(text, "a");
    assert_true(gpucr_pb_next(&pb, &field));
    assert_int_equal(field.value, 1);
    assert_true(gpucr_pb_next(&pb, &field));
    assert_int_equal(field.value, UINT64_C(0x0100000000000002));
    assert_false(gpucr_pb_next(&pb, &field));
}

static void expect_malformed(const uint8_t *data, size_t size)
{
    /* On the heap and of just that size, so that a sanitizer sees a byte too far. */
    uint8_t *copy = malloc(size > 0 ? size : 1);
    struct gpucr_pb pb = {copy, copy + size};
    struct gpucr_pb_field field;

    assert_non_null(copy);
    if (size > 0)
        (void)memcpy(copy, data, size);
    assert_false(gpucr_pb_next(&pb, &field));
    free(copy);
}

static void test_malformed(void **state)
{
    (void)state;
    expect_malformed((const uint8_t[]){0x08}, 1);             /* no value */
    expect_malformed((const uint8_t[]){0x80, 0x80, 0x80}, 3); /* endless key */
    expect_malformed((const uint8_t[]){0x12, 0x05, 'a'}, 3);  /* too short */
    expect_malformed(
        (const uint8_t[]){0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
        11);                                            /* length of 64 bits */
    expect_malformed((const uint8_t[]){0x1d, 1, 0}, 3); /* half a number */
    expect_malformed((const uint8_t[]){0x0b}, 1);       /* group */
    expect_malformed((const uint8_t[]){0x00, 0x00}, 2); /* field 0 */
    expect_malformed(NULL, 0);
}

static void write_img(const struct fixture *f, const char *name, const uint8_t *data, size_t size)
{
    int fd = openat(f->images_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), (ssize_t)size);
    (void)close(fd);
}

static int count_file(void *arg, const struct gpucr_criu_file *file)
{
    (void)file;
    ++*(int *)arg;
    return 0;
}

/* Every prefix of a good file, and every byte of it changed: no crash, and an end. */
static void test_damaged(void **state)
{
    static const uint8_t good[] = {0x19, 0x43, 0x56, 0x54, 0,    0,    0,    0,    0x0e,
                                   0,    0,    0,    0x08, 0x01, 0x10, 0x07, 0x1a, 0x08,
                                   0x08, 0x07, 0x32, 0x04, 'a',  '/',  'b',  'c'};
    uint8_t bad[sizeof(good)];
    struct fixture f;
    int count = 0;

    (void)state;
    fixture_open(&f, NULL);
    write_img(&f, "files.img", good, sizeof(good));
    assert_int_equal(gpucr_criu_img_walk_files(f.images_fd, count_file, &count), 0);
    assert_int_equal(count, 1);
    for (size_t size = 0; size < sizeof(good); size++) {
        write_img(&f, "files.img", good, size);
        (void)gpucr_criu_img_walk_files(f.images_fd, count_file, &count);
    }
    for (size_t i = 0; i < sizeof(good); i++) {
        for (unsigned flip = 1; flip < 256; flip <<= 1) {
            (void)memcpy(bad, good, sizeof(bad));
            bad[i] ^= (uint8_t)flip;
            write_img(&f, "files.img", bad, sizeof(bad));
            (void)gpucr_criu_img_walk_files(f.images_fd, count_file, &count);
        }
    }
    fixture_close(&f);
}

/* Not a file, not CRIU's, a link: refused. */
static void test_other_things(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_criu_img img = {0};
    struct fixture f;

    (void)state;
    fixture_open(&f, NULL);
    write_img(&f, "plain.img", (const uint8_t *)"something else", 14);
    assert_int_equal(gpucr_criu_img_open(f.images_fd, "plain.img", &img, &err),
                     GPUCR_ERR_IMAGE_FORMAT);
    assert_int_equal(symlinkat("plain.img", f.images_fd, "link.img"), 0);
    assert_int_not_equal(gpucr_criu_img_open(f.images_fd, "link.img", &img, &err), 0);
    assert_int_equal(mkfifoat(f.images_fd, "fifo.img", 0600), 0);
    assert_int_equal(gpucr_criu_img_open(f.images_fd, "fifo.img", &img, &err),
                     GPUCR_ERR_IMAGE_FORMAT);
    assert_int_equal(gpucr_criu_img_open(f.images_fd, "none.img", &img, &err), GPUCR_ERR_NOT_FOUND);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_other_things),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
