/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file writer_private.h
 * Shared by writer.c and commit.c.
 */
#ifndef GPUCR_IMAGE_WRITER_PRIVATE_H
#define GPUCR_IMAGE_WRITER_PRIVATE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct gpucr_image_writer {
    char *path;              /* final, as the caller gave it, for messages */
    char *parent;            /* of path, for messages */
    char name[NAME_MAX + 1]; /* final, in the parent */
    char temp_name[NAME_MAX + 1];
    int parent_fd;
    int fd; /* the hidden folder; carries the lock */
    int criu_fd;
    int logs_fd;
    bool committed;
    uint64_t size_bytes;
};

#endif
