/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file gpucr/image.h
 * Looking at an image without restoring it. docs/image-format.md is the format.
 *
 * An image is opened once; owner, modes and links are checked before anything
 * in it is read (docs/image-format.md, "Trust").
 *
 * Threads: an opened image may be used by one thread at a time.
 *
 * Since: 0.1
 */
#ifndef GPUCR_IMAGE_H
#define GPUCR_IMAGE_H

#include <stdint.h>

#include <gpucr/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpucr_image;

/**
 * Progress of a verification, about ten times a second and once at the end. Called from
 * any thread of the library, one call at a time.
 */
typedef void (*gpucr_image_progress_fn)(void *arg, uint64_t done_bytes, uint64_t total_bytes);

/**
 * Open an image and read its manifest. Release with gpucr_image_close().
 * GPUCR_ERR_IMAGE_UNSAFE: owner, mode or links, with the way to repair it;
 * GPUCR_ERR_IMAGE_FORMAT: not an image, or of another version;
 * GPUCR_ERR_IMAGE_DAMAGED: the manifest has changed since it was written.
 */
int gpucr_image_open(const char *path, struct gpucr_image **ret, struct gpucr_error *err);

/** NULL is fine. Returns NULL. */
struct gpucr_image *gpucr_image_close(struct gpucr_image *image);

/** The manifest as JSON text, as it is in the image; belongs to the image. Never NULL. */
const char *gpucr_image_manifest_json(const struct gpucr_image *image);

/** Sum of the sizes of all files of the image but its logs. */
uint64_t gpucr_image_size_bytes(const struct gpucr_image *image);

/**
 * Read every file and compare size and digest with the manifest; a file that the
 * manifest does not name is an error too. Owners, modes and links are checked again.
 * Every fault is logged, the first one is in @p err. @p progress may be NULL.
 */
int gpucr_image_verify(struct gpucr_image *image, gpucr_image_progress_fn progress, void *arg,
                       struct gpucr_error *err);

#ifdef __cplusplus
}
#endif
#endif
