/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file image_text.h
 * What texts and paths of an image may contain (docs/image-format.md).
 */
#ifndef GPUCR_IMAGE_TEXT_H
#define GPUCR_IMAGE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

enum {
    GPUCR_IMAGE_PATH_BYTES = 1024, /* with the NUL */
    GPUCR_IMAGE_NAME_MAX = 255,
    GPUCR_IMAGE_DEPTH_MAX = 8,
};

/** Valid UTF-8 without control characters (C0, DEL, C1) and without NUL. */
bool gpucr_image_text_valid(const char *text, size_t size_bytes);

/** Replace every byte that gpucr_image_text_valid() would object to by '?', in place. */
void gpucr_image_text_clean(char *text);

/** Copy for a message: cleaned, truncated to @p size. Returns @p to. */
const char *gpucr_image_text_show(char *to, size_t size, const char *text);

/** NULL, or what is wrong with the path of a listed file ("has an empty component"). */
const char *gpucr_image_path_fault(const char *path);

#endif
