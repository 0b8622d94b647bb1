/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file driver_library.h
 * Finding and loading the driver's libraries (libcuda, NVML).
 *
 * Loaded code runs with the caller's rights. For root, and for a program with
 * raised capabilities, a library is accepted only when it and every folder above
 * it belong to root and nobody else may write there. A sticky folder of root's
 * (/tmp) is no danger for what root owns in it.
 */
#ifndef GPUCR_GPU_DRIVER_LIBRARY_H
#define GPUCR_GPU_DRIVER_LIBRARY_H

#include "base/err.h"

/**
 * Load @p soname: below @p driver_root in the folders where drivers put it, or
 * with NULL in the dynamic loader's way. GPUCR_ERR_DRIVER_MISSING if it is not
 * there, GPUCR_ERR_PERMISSION if others could change it. @p ret_path (of
 * GPUCR_ERROR_PATH_BYTES) is the resolved file.
 */
int gpucr_driver_library_load(const char *driver_root, const char *soname, void **ret,
                              char *ret_path, struct gpucr_error *err);

/** The trust rule alone: is @p path, resolved, out of everybody else's reach? */
int gpucr_driver_library_check(const char *path, struct gpucr_error *err);

#endif
