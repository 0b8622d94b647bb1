/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file keeper_image.h
 * The keeper's program (keeper/keeper_main.c), carried inside the library.
 */
#ifndef GPUCR_ENGINE_KEEPER_IMAGE_H
#define GPUCR_ENGINE_KEEPER_IMAGE_H

#include <stddef.h>

extern const unsigned char gpucr_keeper_image[];
size_t gpucr_keeper_image_bytes(void);

#endif
