/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file fd.h
 * Whole reads and writes.
 */
#ifndef GPUCR_BASE_FD_H
#define GPUCR_BASE_FD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/** Write all of @p data; EINTR and short writes are handled. */
int gpucr_fd_write_all(int fd, const void *data, size_t size_bytes, struct gpucr_error *err);

/**
 * Read until end of file, at most @p limit_bytes (more is an error). The text is
 * terminated by a NUL that is not counted; free() it.
 */
int gpucr_fd_read_all(int fd, size_t limit_bytes, char **ret, size_t *ret_size_bytes,
                      struct gpucr_error *err);

/** The same by name, relative to @p dir_fd (AT_FDCWD for none). */
int gpucr_file_read(int dir_fd, const char *path, size_t limit_bytes, char **ret,
                    struct gpucr_error *err);

/**
 * Read a small file (of /proc) into a buffer of the caller, terminated.
 * Returns the length, or -errno. No allocation: for hot paths.
 */
int gpucr_file_read_small(int dir_fd, const char *path, char *buffer, size_t size);

#endif
