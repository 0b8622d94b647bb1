/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file image_private.h
 * Shared by reader.c and verify.c; and names that reader and writer share.
 */
#ifndef GPUCR_IMAGE_PRIVATE_H
#define GPUCR_IMAGE_PRIVATE_H

#include "base/err.h"
#include "image/manifest.h"

#define GPUCR_IMAGE_MANIFEST_NAME "manifest.json"
#define GPUCR_IMAGE_DIGEST_NAME   "manifest.digest"
#define GPUCR_IMAGE_CRIU_NAME     "criu"
#define GPUCR_IMAGE_LOGS_NAME     "logs"

struct gpucr_image {
    char *path; /* as the caller gave it, for messages */
    int fd;
    int criu_fd;
    char *json;
    size_t json_bytes;
    struct gpucr_manifest manifest;
    uint64_t size_bytes;
};

/**
 * New error about an entry of an image, with its whole path as a fact and as the subject of
 * the sentence that @p format goes on with.
 */
int gpucr_image_fail(struct gpucr_error *err, int code, const char *image_path, const char *name,
                     const char *format, ...) GPUCR_PRINTF(5, 6);

#endif
