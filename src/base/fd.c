/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { READ_CHUNK_BYTES = 16384 };

int gpucr_fd_write_all(int fd, const void *data, size_t size_bytes, struct gpucr_error *err)
{
    const char *p = data;

    while (size_bytes > 0) {
        ssize_t n = write(fd, p, size_bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gpucr_error_errno(err, errno, "cannot write");
        p += n;
        size_bytes -= (size_t)n;
    }
    return 0;
}

int gpucr_fd_read_all(int fd, size_t limit_bytes, char **ret, size_t *ret_size_bytes,
                      struct gpucr_error *err)
{
    GPUCR_AUTO_FREE char *data = NULL;
    size_t capacity = 0;
    size_t used = 0;

    for (;;) {
        ssize_t n;

        if (capacity - used < READ_CHUNK_BYTES) {
            size_t wanted = capacity ? capacity * 2 : (size_t)READ_CHUNK_BYTES * 2;
            char *grown = realloc(data, wanted);

            if (!grown)
                return gpucr_error_no_memory(err);
            data = grown;
            capacity = wanted;
        }
        n = read(fd, data + used, capacity - used - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gpucr_error_errno(err, errno, "cannot read");
        if (n == 0)
            break;
        used += (size_t)n;
        if (used > limit_bytes)
            return gpucr_error_set(err, GPUCR_ERR_SYSTEM, "larger than %zu bytes", limit_bytes);
    }
    data[used] = '\0';
    if (ret_size_bytes)
        *ret_size_bytes = used;
    *ret = gpucr_steal_ptr(&data);
    return 0;
}

int gpucr_file_read(int dir_fd, const char *path, size_t limit_bytes, char **ret,
                    struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    int rc;

    if (fd < 0) {
        rc = gpucr_error_errno(err, errno, "cannot open %s", path);
        return gpucr_error_path(err, rc, path);
    }
    rc = gpucr_fd_read_all(fd, limit_bytes, ret, NULL, err);
    if (rc < 0) {
        rc = gpucr_error_wrap(err, rc, "%s", path);
        return gpucr_error_path(err, rc, path);
    }
    return 0;
}

int gpucr_file_read_small(int dir_fd, const char *path, char *buffer, size_t size)
{
    GPUCR_AUTO_FD int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    size_t used = 0;

    if (fd < 0)
        return -errno;
    while (used + 1 < size) {
        ssize_t n = read(fd, buffer + used, size - 1 - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    buffer[used] = '\0';
    return (int)used;
}
