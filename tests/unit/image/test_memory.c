/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory runs out at each allocation in turn (ld --wrap). The error says so, nothing is
 * left on the disk, and ASan sees that nothing is left in memory.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "image_fixture.h"

static struct {
    pthread_mutex_t mutex;
    size_t count;
    size_t fail_at; /* 0: none */
} spy = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t n);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);

static bool fails(void)
{
    bool now;

    (void)pthread_mutex_lock(&spy.mutex);
    now = ++spy.count == spy.fail_at;
    (void)pthread_mutex_unlock(&spy.mutex);
    return now;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(align, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t n)
{
    return fails() ? NULL : __real_strndup(text, n);
}

/** Calls @p step with each allocation failing in turn, until none does. */
static void fail_each(void **state, int (*step)(void **state, struct gpucr_error *err),
                      void (*check)(void **state))
{
    size_t k = 1;

    for (;; k++) {
        struct gpucr_error err = GPUCR_ERROR_INIT;
        int rc;
        bool hit;

        spy.count = 0;
        spy.fail_at = k;
        rc = step(state, &err);
        hit = spy.count >= k;
        spy.fail_at = 0;
        if (!hit) {
            assert_int_equal(rc, 0);
            break;
        }
        if (rc != GPUCR_ERR_NO_MEMORY)
            fail_msg("allocation %zu: %s: %s", k, gpucr_code_name(rc), err.text);
        check(state);
    }
    assert_true(k > 5);
}

static int write_step(void **state, struct gpucr_error *err)
{
    struct gpucr_image_writer *writer = NULL;
    struct gpucr_manifest m;
    size_t fail_at = spy.fail_at;
    int rc;

    spy.fail_at = 0; /* not what the test itself allocates */
    fixture_manifest(&m);
    spy.count = 0;
    spy.fail_at = fail_at;
    rc = gpucr_image_writer_begin(fixture_path(state, "image"), &writer, err);
    if (rc == 0) {
        fixture_fill(writer);
        rc = gpucr_image_writer_commit(writer, &m, NULL, NULL, err);
    }
    gpucr_image_writer_free(writer);
    gpucr_manifest_done(&m);
    return rc;
}

static void nothing_there(void **state)
{
    assert_int_equal(fixture_count(*state), 0);
}

static int read_step(void **state, struct gpucr_error *err)
{
    return fixture_check(fixture_path(state, "image"), err);
}

static void still_good(void **state)
{
    fixture_assert(fixture_path(state, "image"), 0, "");
}

static void test_write(void **state)
{
    fail_each(state, write_step, nothing_there);
    still_good(state);
}

static void test_read(void **state)
{
    fixture_image(fixture_path(state, "image"));
    fail_each(state, read_step, still_good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_write, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_read, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
