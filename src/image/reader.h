/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file reader.h
 * What the layers above need of an opened image beside gpucr/image.h.
 */
#ifndef GPUCR_IMAGE_READER_H
#define GPUCR_IMAGE_READER_H

#include <gpucr/image.h>

#include "image/manifest.h"

/** The parsed manifest; belongs to the image. */
const struct gpucr_manifest *gpucr_image_manifest(const struct gpucr_image *image);

/** Descriptor of criu/, opened with the image's trust checks; belongs to the image. Its files
 *  are checked by gpucr_image_verify() only: nothing of it goes to an engine before that. */
int gpucr_image_criu_fd(const struct gpucr_image *image);

/** A fresh private folder (0700) for the engine's work files and log of a restore: created in
 *  $TMPDIR or /tmp, never in the image. Caller closes the fd; path in @p ret_path. */
int gpucr_image_work_dir(char *ret_path, size_t size, int *ret_fd, struct gpucr_error *err);

/** Remove such a folder with its files. */
void gpucr_image_work_dir_remove(const char *path);

#endif
