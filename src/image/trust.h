/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file trust.h
 * Owner, mode and links: may this caller restore this image? The rules and their
 * reasons are in docs/image-format.md, "Trust".
 */
#ifndef GPUCR_IMAGE_TRUST_H
#define GPUCR_IMAGE_TRUST_H

#include "image/tree_walk.h"

/**
 * Judge one entry. @p path is for the message; it is the whole path, so that the
 * repair that the message proposes can be typed as it stands.
 */
int gpucr_trust_check(const char *path, const struct statx *st, struct gpucr_error *err);

/**
 * Judge the folder of an image and everything in it. @p ret, if not NULL, gets what was
 * found. @p image_path is for messages.
 */
int gpucr_trust_walk(int image_fd, const char *image_path, struct gpucr_image_tree *ret,
                     struct gpucr_error *err);

#endif
