/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file trusted_path.h
 * Which program root may start.
 */
#ifndef GPUCR_ENGINE_TRUSTED_PATH_H
#define GPUCR_ENGINE_TRUSTED_PATH_H

#include "base/err.h"

/**
 * When the caller is root: @p path (absolute, resolved) and every folder above it
 * belong to root and cannot be written by others (a sticky folder can, if the next
 * part belongs to root). Anybody else may start what he likes: 0.
 * GPUCR_ERR_PERMISSION names the part that is not safe.
 */
int gpucr_trusted_path_check(const char *path, struct gpucr_error *err);

#endif
