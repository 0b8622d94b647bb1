/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_img.h
 * Reading the few fields of CRIU's image files that gpucr wants: names of files and
 * mounts by their numbers. The files are data from outside: every length is checked,
 * and what makes no sense ends the reading without an error.
 *
 * A file is 8 bytes of magic and then records, each a 32-bit length and a protobuf
 * message. (Since 1.1 of CRIU's format; pages and archives are not of this kind.)
 */
#ifndef GPUCR_ENGINE_CRIU_IMG_H
#define GPUCR_ENGINE_CRIU_IMG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/** A stretch of a protobuf message that is still to be read. */
struct gpucr_pb {
    const uint8_t *at;
    const uint8_t *end;
};

/** One field: a number, or bytes (strings and messages). */
struct gpucr_pb_field {
    uint32_t number;
    bool is_bytes;
    uint64_t value;        /* of a number (fixed-width ones too) */
    struct gpucr_pb bytes; /* of bytes */
};

/** The next field; false at the end, and at anything malformed. */
bool gpucr_pb_next(struct gpucr_pb *pb, struct gpucr_pb_field *ret);

/** Copy bytes as text: cut to @p size, with unprintable characters replaced. */
void gpucr_pb_text(const struct gpucr_pb *bytes, char *ret, size_t size);

/** An image file in memory. */
struct gpucr_criu_img {
    uint8_t *data;
    struct gpucr_pb rest; /* records still to be read */
};

int gpucr_criu_img_open(int images_fd, const char *name, struct gpucr_criu_img *ret,
                        struct gpucr_error *err);
void gpucr_criu_img_done(struct gpucr_criu_img *img);

/** The next record; false at the end, and at anything malformed. */
bool gpucr_criu_img_next(struct gpucr_criu_img *img, struct gpucr_pb *ret);

/** A regular file of the image. */
struct gpucr_criu_file {
    uint32_t id;
    char path[4096]; /* from the root of its mount namespace, without leading slash */
};

/** Call @p fn for each regular file; a non-zero return ends the walk and is returned. */
typedef int (*gpucr_criu_file_fn)(void *arg, const struct gpucr_criu_file *file);
int gpucr_criu_img_walk_files(int images_fd, gpucr_criu_file_fn fn, void *arg);

/** A file that had been deleted: another one stands in for it during the restore. */
struct gpucr_criu_remap_entry {
    uint32_t file_id;  /* of the deleted file */
    uint32_t remap_id; /* linked: id of the file that stands in; ghost: number of its image */
    bool is_ghost;
    bool is_linked;
};

/** Call @p fn for each of them; a non-zero return ends the walk and is returned. */
typedef int (*gpucr_criu_remap_fn)(void *arg, const struct gpucr_criu_remap_entry *entry);
int gpucr_criu_img_walk_remaps(int images_fd, gpucr_criu_remap_fn fn, void *arg);

/**
 * Call @p fn for each process and thread id of the tree, parents first; a non-zero
 * return ends the walk and is returned. Without a process tree in the image:
 * GPUCR_ERR_IMAGE_FORMAT.
 */
typedef int (*gpucr_criu_id_fn)(void *arg, int32_t id, struct gpucr_error *err);
int gpucr_criu_img_walk_ids(int images_fd, gpucr_criu_id_fn fn, void *arg, struct gpucr_error *err);

/** Path of the regular file with that id, with leading slash; false when there is none. */
bool gpucr_criu_img_file_path(int images_fd, uint32_t id, char *ret, size_t size);

/** Path of descriptor @p fd of process @p pid; false when the image does not tell. */
bool gpucr_criu_img_fd_path(int images_fd, int32_t pid, uint32_t fd, char *ret, size_t size);

/** Path at which mount @p mount_id was mounted; false when the image does not tell. */
bool gpucr_criu_img_mount_path(int images_fd, uint32_t mount_id, char *ret, size_t size);

#endif
