/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whole reads and writes: short ones, interrupted ones, limits, failures. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"

enum { BIG_BYTES = 1 << 20 };

static volatile sig_atomic_t interruptions;

static void on_alarm(int number)
{
    (void)number;
    interruptions++;
}

/* A signal every millisecond, without SA_RESTART: reads and writes return EINTR. */
static void interrupt_often(bool on)
{
    struct sigaction action = {.sa_handler = on ? on_alarm : SIG_IGN};
    struct itimerval timer = {{0, on ? 1000 : 0}, {0, on ? 1000 : 0}};

    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

static int file_with(const char *data, size_t size_bytes)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size_bytes), size_bytes);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

struct pipe_writer {
    int fd;
    const char *data;
};

static void *write_big(void *arg)
{
    struct pipe_writer *writer = arg;
    sigset_t all;

    /* the reader is the one to be interrupted */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (size_t done = 0; done < BIG_BYTES; done += 4096) {
        /* slow enough that the reader blocks in between */
        if (done % (128 * 1024) == 0)
            (void)usleep(3000);
        if (gpucr_fd_write_all(writer->fd, writer->data + done, 4096, NULL) < 0)
            break;
    }
    (void)close(writer->fd);
    return NULL;
}

static void a_pipe_is_read_to_its_end_through_interruptions(void **state)
{
    GPUCR_AUTO_FREE char *data = malloc(BIG_BYTES);
    GPUCR_AUTO_FREE char *read_back = NULL;
    struct pipe_writer writer = {.data = data};
    struct gpucr_error err = GPUCR_ERROR_INIT;
    pthread_t thread;
    size_t size = 0;
    int ends[2];

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < BIG_BYTES; i++)
        data[i] = (char)(i * 2654435761U >> 13);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    writer.fd = ends[1];
    assert_int_equal(pthread_create(&thread, NULL, write_big, &writer), 0);
    interruptions = 0;
    interrupt_often(true);
    assert_int_equal(gpucr_fd_read_all(ends[0], BIG_BYTES, &read_back, &size, &err), 0);
    interrupt_often(false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(ends[0]);
    assert_int_equal(size, BIG_BYTES);
    assert_memory_equal(read_back, data, BIG_BYTES);
    assert_int_equal(read_back[size], '\0');
    assert_true(interruptions > 0);
}

struct pipe_reader {
    int fd;
    char *data;
    size_t used;
};

static void *read_slowly(void *arg)
{
    struct pipe_reader *reader = arg;
    sigset_t all;
    ssize_t n;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, NULL);
    while ((n = read(reader->fd, reader->data + reader->used, 50000)) > 0) {
        reader->used += (size_t)n;
        (void)usleep(2000);
    }
    return NULL;
}

static void a_full_pipe_takes_all_through_short_writes(void **state)
{
    GPUCR_AUTO_FREE char *data = malloc(BIG_BYTES);
    GPUCR_AUTO_FREE char *copy = malloc(BIG_BYTES + 50000);
    struct pipe_reader reader = {.data = copy};
    pthread_t thread;
    int ends[2];

    (void)state;
    assert_non_null(data);
    assert_non_null(copy);
    for (size_t i = 0; i < BIG_BYTES; i++)
        data[i] = (char)(i * 40503U >> 7);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    reader.fd = ends[0];
    assert_int_equal(pthread_create(&thread, NULL, read_slowly, &reader), 0);
    interrupt_often(true);
    assert_int_equal(gpucr_fd_write_all(ends[1], data, BIG_BYTES, NULL), 0);
    interrupt_often(false);
    (void)close(ends[1]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(ends[0]);
    assert_int_equal(reader.used, BIG_BYTES);
    assert_memory_equal(copy, data, BIG_BYTES);
}

static void a_write_that_fails_says_why(void **state)
{
    GPUCR_AUTO_FD int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(gpucr_fd_write_all(fd, "x", 1, &err), GPUCR_ERR_NO_SPACE);
    assert_int_equal(err.os_errno, ENOSPC);
    assert_string_equal(err.text, "cannot write: No space left on device");
    assert_int_equal(gpucr_fd_write_all(fd, "", 0, &err), 0);
    assert_int_equal(gpucr_fd_write_all(-1, "x", 1, &err), GPUCR_ERR_SYSTEM);
    assert_int_equal(err.os_errno, EBADF);
}

static void the_limit_is_exact(void **state)
{
    static const size_t sizes[] = {0, 1, 16383, 16384, 16385, 32767, 32768, 100000};

    (void)state;
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(sizes); i++) {
        size_t n = sizes[i];
        GPUCR_AUTO_FREE char *data = malloc(n + 1);
        GPUCR_AUTO_FREE char *whole = NULL;
        char *none = NULL;
        struct gpucr_error err = GPUCR_ERROR_INIT;
        size_t size = 4711;

        assert_non_null(data);
        (void)memset(data, 'a', n + 1);
        GPUCR_AUTO_FD int fd = file_with(data, n);
        assert_int_equal(gpucr_fd_read_all(fd, n, &whole, &size, &err), 0);
        assert_int_equal(size, n);
        assert_int_equal(whole[n], '\0');
        assert_memory_equal(whole, data, n);

        GPUCR_AUTO_FD int longer = file_with(data, n + 1);
        size = 4711;
        assert_int_equal(gpucr_fd_read_all(longer, n, &none, &size, &err), GPUCR_ERR_SYSTEM);
        assert_null(none);
        assert_int_equal(size, 4711);
        assert_non_null(strstr(err.text, "larger than"));
    }
}

static void binary_data_keeps_its_zeros(void **state)
{
    GPUCR_AUTO_FD int fd = file_with("a\0b\0", 4);
    GPUCR_AUTO_FREE char *data = NULL;
    size_t size = 0;

    (void)state;
    assert_int_equal(gpucr_fd_read_all(fd, 100, &data, &size, NULL), 0);
    assert_int_equal(size, 4);
    assert_memory_equal(data, "a\0b\0", 5);
}

static void a_read_that_fails_says_why(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    char *data = NULL;

    (void)state;
    assert_int_equal(gpucr_fd_read_all(-1, 10, &data, NULL, &err), GPUCR_ERR_SYSTEM);
    assert_int_equal(err.os_errno, EBADF);
    assert_null(data);
}

static void a_file_is_read_by_name(void **state)
{
    GPUCR_AUTO_FREE char *data = NULL;
    GPUCR_AUTO_FD int proc = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_true(proc >= 0);
    assert_int_equal(gpucr_file_read(proc, "status", 1 << 16, &data, &err), 0);
    assert_non_null(strstr(data, "\nPid:"));
}

static void a_file_that_is_not_there_is_named(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    char *data = NULL;

    (void)state;
    assert_int_equal(gpucr_file_read(AT_FDCWD, "/proc/self/nothing", 10, &data, &err),
                     GPUCR_ERR_NOT_FOUND);
    assert_string_equal(err.path, "/proc/self/nothing");
    assert_string_equal(err.text, "cannot open /proc/self/nothing: No such file or directory");
    assert_null(data);
    assert_int_equal(gpucr_file_read(AT_FDCWD, "/proc/self/status", 10, &data, &err),
                     GPUCR_ERR_SYSTEM);
    assert_string_equal(err.path, "/proc/self/status");
    assert_string_equal(err.text, "/proc/self/status: larger than 10 bytes");
    assert_null(data);
    assert_int_equal(gpucr_file_read(AT_FDCWD, "/proc", 10, &data, &err), GPUCR_ERR_SYSTEM);
    assert_int_equal(err.os_errno, EISDIR);
}

static void small_files_need_no_memory(void **state)
{
    char text[64];
    char tiny[4];

    (void)state;
    assert_int_equal(prctl(PR_SET_NAME, "small-reader"), 0);
    assert_int_equal(gpucr_file_read_small(AT_FDCWD, "/proc/self/comm", text, sizeof(text)), 13);
    assert_string_equal(text, "small-reader\n");
    assert_int_equal(gpucr_file_read_small(AT_FDCWD, "/proc/self/comm", tiny, sizeof(tiny)), 3);
    assert_string_equal(tiny, "sma");
    assert_int_equal(gpucr_file_read_small(AT_FDCWD, "/dev/null", tiny, sizeof(tiny)), 0);
    assert_string_equal(tiny, "");
    assert_int_equal(gpucr_file_read_small(AT_FDCWD, "/proc/self/none", text, sizeof(text)),
                     -ENOENT);
    assert_int_equal(gpucr_file_read_small(AT_FDCWD, "/proc", text, sizeof(text)), -EISDIR);
}

static size_t open_descriptors(void)
{
    GPUCR_AUTO_DIR DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    return n;
}

static void no_descriptor_stays_open(void **state)
{
    size_t before = open_descriptors();
    char text[16];
    char *data = NULL;

    (void)state;
    (void)gpucr_file_read(AT_FDCWD, "/proc/self/comm", 1, &data, NULL);
    assert_null(data);
    assert_int_equal(gpucr_file_read(AT_FDCWD, "/proc/self/comm", 100, &data, NULL), 0);
    free(data);
    (void)gpucr_file_read_small(AT_FDCWD, "/proc/self/comm", text, sizeof(text));
    (void)gpucr_file_read_small(AT_FDCWD, "/proc", text, sizeof(text));
    assert_int_equal(open_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipe_is_read_to_its_end_through_interruptions),
        cmocka_unit_test(a_full_pipe_takes_all_through_short_writes),
        cmocka_unit_test(a_write_that_fails_says_why),
        cmocka_unit_test(the_limit_is_exact),
        cmocka_unit_test(binary_data_keeps_its_zeros),
        cmocka_unit_test(a_read_that_fails_says_why),
        cmocka_unit_test(a_file_is_read_by_name),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
        cmocka_unit_test(small_files_need_no_memory),
        cmocka_unit_test(no_descriptor_stays_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
