/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file digest.h
 * Digests as docs/image-format.md defines them: XXH3-128 over the XXH3-128 of the
 * 64 MiB pieces of a file, so that all cores work on a single large file, too.
 */
#ifndef GPUCR_IMAGE_DIGEST_H
#define GPUCR_IMAGE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpucr/image.h>

#include "base/err.h"

enum {
    GPUCR_DIGEST_PIECE_BYTES = 64 << 20,
    GPUCR_DIGEST_TEXT_BYTES = 33, /* 32 hexadecimal digits and the NUL */
};

/** One file of a job. */
struct gpucr_digest_item {
    const char *path; /* relative to the root */
    uint64_t size_bytes;
    char digest[GPUCR_DIGEST_TEXT_BYTES]; /* result, when failure is GPUCR_DIGEST_OK */
    int failure;                          /* enum gpucr_digest_failure */
    int os_errno;                         /* of the failure, or 0 */
};

enum gpucr_digest_failure {
    GPUCR_DIGEST_OK = 0,
    GPUCR_DIGEST_OPEN,  /* cannot be opened */
    GPUCR_DIGEST_READ,  /* cannot be read */
    GPUCR_DIGEST_SIZE,  /* has another size than the item says */
    GPUCR_DIGEST_FLUSH, /* cannot be written back */
};

struct gpucr_digest_job {
    int root_fd;
    struct gpucr_digest_item *items;
    size_t count;
    bool flush; /* wait for the disk, too: the digest of a piece and its way to the disk overlap */
    gpucr_image_progress_fn progress; /* from any thread, one call at a time; may be NULL */
    void *arg;
};

/**
 * Digest all items. Returns 0 when each was tried: item->failure tells how it went.
 * The sizes must add up to no more than GPUCR_MANIFEST_IMAGE_BYTES_MAX.
 */
int gpucr_digest_files(struct gpucr_digest_job *job, struct gpucr_error *err);

/** XXH3-128 of a buffer as text: the digest in manifest.digest. */
void gpucr_digest_buffer(const void *data, size_t size_bytes, char ret[GPUCR_DIGEST_TEXT_BYTES]);

/** Threads for work on files: more than cores where these are few, since threads wait for the disk.
 */
size_t gpucr_digest_threads(void);

#endif
