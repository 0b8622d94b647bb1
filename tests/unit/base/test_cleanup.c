/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Variables that release themselves: when the scope ends, not when stolen, errno kept. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int open_null(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static void descriptors_are_closed_at_the_end(void **state)
{
    int seen;

    (void)state;
    {
        GPUCR_AUTO_FD int fd = open_null();
        GPUCR_AUTO_FD int none = -1;

        (void)none;
        seen = fd;
        assert_true(is_open(seen));
    }
    assert_false(is_open(seen));
}

static int steal_it(void)
{
    GPUCR_AUTO_FD int fd = open_null();

    return gpucr_steal_fd(&fd);
}

static void a_stolen_descriptor_stays_open(void **state)
{
    int fd = steal_it();

    (void)state;
    assert_true(is_open(fd));
    (void)close(fd);
}

static char *steal_text(void)
{
    GPUCR_AUTO_FREE char *text = strdup("kept");

    return gpucr_steal_ptr(&text);
}

static void a_stolen_pointer_stays_alive(void **state)
{
    char *text = steal_text();

    (void)state;
    assert_string_equal(text, "kept"); /* the sanitizer sees it if it was freed */
    free(text);
}

static void errno_survives(void **state)
{
    (void)state;
    errno = 0;
    {
        GPUCR_AUTO_FD int bad = 1 << 20; /* closing it sets EBADF */
        GPUCR_AUTO_DIR DIR *dir = opendir("/");
        GPUCR_AUTO_FILE FILE *file = fopen("/dev/null", "re");
        GPUCR_AUTO_FREE void *memory = malloc(1);

        (void)bad;
        assert_non_null(dir);
        assert_non_null(file);
        assert_non_null(memory);
        errno = EXDEV;
    }
    assert_int_equal(errno, EXDEV);
}

static void a_lock_ends_with_its_scope(void **state)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

    (void)state;
    {
        GPUCR_SCOPED_LOCK(lock, &mutex);
        assert_int_equal(pthread_mutex_trylock(&mutex), EBUSY);
    }
    assert_int_equal(pthread_mutex_trylock(&mutex), 0);
    (void)pthread_mutex_unlock(&mutex);
}

static int released;

struct thing {
    int number;
};

static void thing_free(struct thing *thing)
{
    released += thing ? thing->number : 100;
    errno = EIO;
}

GPUCR_DEFINE_CLEANUP(struct thing, thing, thing_free)

static void own_types_can_be_cleaned_up(void **state)
{
    struct thing seven = {7};

    (void)state;
    errno = ENOENT;
    {
        struct thing *a GPUCR_CLEANUP(gpucr_cleanup_thing) = &seven;
        struct thing *b GPUCR_CLEANUP(gpucr_cleanup_thing) = NULL;

        (void)a;
        (void)b;
    }
    assert_int_equal(released, 107);
    assert_int_equal(errno, ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_are_closed_at_the_end),
        cmocka_unit_test(a_stolen_descriptor_stays_open),
        cmocka_unit_test(a_stolen_pointer_stays_alive),
        cmocka_unit_test(errno_survives),
        cmocka_unit_test(a_lock_ends_with_its_scope),
        cmocka_unit_test(own_types_can_be_cleaned_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
