/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Digests: the test vectors of docs/image-format.md, and a slow way to compare with. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "image/digest.h"
#include "image_fixture.h"

enum { PIECE = GPUCR_DIGEST_PIECE_BYTES };

/** Digests one file of the scratch folder. */
static struct gpucr_digest_item digest(void **state, const char *name, uint64_t size_bytes,
                                       bool flush)
{
    struct gpucr_digest_item item = {.path = name, .size_bytes = size_bytes};
    struct gpucr_digest_job job = {.items = &item, .count = 1, .flush = flush};
    struct gpucr_error err = GPUCR_ERROR_INIT;

    job.root_fd = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(job.root_fd >= 0);
    assert_int_equal(gpucr_digest_files(&job, &err), 0);
    (void)close(job.root_fd);
    return item;
}

static void put(void **state, const char *name, const void *data, size_t size_bytes)
{
    fixture_write(AT_FDCWD, fixture_path(state, "%s", name), data, size_bytes);
}

static void test_vectors(void **state)
{
    size_t n = (size_t)PIECE + 1;
    unsigned char *data = malloc(n);

    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char)(i % 251);
    put(state, "nothing", "", 0);
    put(state, "abc", "abc", 3);
    put(state, "large", data, n);
    free(data);
    assert_string_equal(digest(state, "nothing", 0, false).digest,
                        "99aa06d3014798d86001c324468d497f");
    assert_string_equal(digest(state, "abc", 3, true).digest, "f758394eebabb2bb51ee911f78f31836");
    assert_string_equal(digest(state, "large", n, false).digest,
                        "5b7889a7ef1140e962fdc880d79df25c");
    assert_string_equal(digest(state, "large", n, true).digest, "5b7889a7ef1140e962fdc880d79df25c");
}

static void test_buffer(void **state)
{
    char text[GPUCR_DIGEST_TEXT_BYTES];

    (void)state;
    gpucr_digest_buffer("abc", 3, text);
    assert_string_equal(text, "06b05ab6733a618578af5f94892f3950");
}

/** The definition, read off the document: no threads, no blocks. */
static void slow_digest(const unsigned char *data, size_t n, char ret[33])
{
    XXH128_canonical_t pieces[8];
    XXH128_canonical_t whole;
    size_t count = 0;

    for (size_t at = 0; at < n; at += PIECE) {
        size_t left = n - at;

        XXH128_canonicalFromHash(&pieces[count++],
                                 XXH3_128bits(data + at, left < PIECE ? left : PIECE));
    }
    XXH128_canonicalFromHash(&whole, XXH3_128bits(pieces, count * 16));
    for (size_t i = 0; i < 16; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", whole.digest[i]);
}

/** Sizes around the ends of blocks and pieces; a sparse file, most of it holes. */
static void test_sizes(void **state)
{
    static const size_t sizes[] = {
        1,         4095,  (1 << 20) - 1, 1 << 20,           (1 << 20) + 1,
        PIECE - 1, PIECE, PIECE + 1,     2 * (size_t)PIECE, 2 * (size_t)PIECE + 12345};
    size_t largest = 2 * (size_t)PIECE + 12345;
    unsigned char *data = calloc(1, largest);
    int fd = open(fixture_path(state, "sparse"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    assert_non_null(data);
    assert_true(fd >= 0);
    for (size_t at = 1000; at < largest; at += 30000001) {
        data[at] = 0x77;
        assert_int_equal(pwrite(fd, &data[at], 1, (off_t)at), 1);
    }
    for (size_t i = sizeof(sizes) / sizeof(sizes[0]); i > 0; i--) {
        char expected[33];

        assert_int_equal(ftruncate(fd, (off_t)sizes[i - 1]), 0);
        slow_digest(data, sizes[i - 1], expected);
        assert_string_equal(digest(state, "sparse", sizes[i - 1], false).digest, expected);
    }
    (void)close(fd);
    free(data);
}

static void test_failures(void **state)
{
    put(state, "abc", "abc", 3);
    assert_int_equal(mkdir(fixture_path(state, "folder"), 0700), 0);
    assert_int_equal(symlink("abc", fixture_path(state, "link")), 0);
    assert_int_equal(digest(state, "abc", 2, false).failure, GPUCR_DIGEST_SIZE);
    assert_int_equal(digest(state, "abc", (uint64_t)PIECE * 3, false).failure, GPUCR_DIGEST_SIZE);
    assert_int_equal(digest(state, "folder", 0, false).failure, GPUCR_DIGEST_SIZE);
    assert_int_equal(digest(state, "link", 3, false).failure, GPUCR_DIGEST_OPEN);
    assert_int_equal(digest(state, "link", 3, false).os_errno, ELOOP);
    assert_int_equal(digest(state, "none", 3, false).failure, GPUCR_DIGEST_OPEN);
    assert_int_equal(digest(state, "none", 3, false).os_errno, ENOENT);
    assert_int_equal(digest(state, "../none", 3, false).os_errno, EXDEV);
    assert_int_equal(digest(state, "abc", 3, false).failure, GPUCR_DIGEST_OK);
}

struct seen {
    uint64_t last;
    uint64_t total;
    unsigned calls;
    bool wrong;
};

static void see(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct seen *seen = arg;

    /* On a thread of the library: cmocka can only be told later. */
    seen->wrong |= done_bytes < seen->last || done_bytes > total_bytes;
    seen->last = done_bytes;
    seen->total = total_bytes;
    seen->calls++;
}

static void test_many_files(void **state)
{
    enum { COUNT = 500 };
    struct gpucr_digest_item *items = calloc(COUNT, sizeof(*items));
    struct seen seen = {0};
    struct gpucr_digest_job job = {
        .items = items, .count = COUNT, .flush = true, .progress = see, .arg = &seen};
    char names[COUNT][8];
    uint64_t total = 0;

    assert_non_null(items);
    job.root_fd = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "%07zu", i);
        items[i].path = names[i];
        items[i].size_bytes = i % 50 * 16;
        total += items[i].size_bytes;
    }
    for (size_t i = 0; i < COUNT; i++)
        fixture_write(job.root_fd, names[i], names, items[i].size_bytes);
    assert_int_equal(gpucr_digest_files(&job, NULL), 0);
    for (size_t i = 0; i < COUNT; i++) {
        char expected[33];

        slow_digest((const unsigned char *)names, items[i].size_bytes, expected);
        assert_int_equal(items[i].failure, GPUCR_DIGEST_OK);
        assert_string_equal(items[i].digest, expected);
    }
    assert_true(seen.calls > 0);
    assert_false(seen.wrong);
    assert_int_equal(seen.last, total);
    assert_int_equal(seen.total, total);
    (void)close(job.root_fd);
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_vectors, fixture_setup, fixture_teardown),
        cmocka_unit_test(test_buffer),
        cmocka_unit_test_setup_teardown(test_sizes, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_failures, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_many_files, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
