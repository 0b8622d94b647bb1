/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file driver_init.h
 * For implementations of the driver vtable: the thread of gpucr_driver_start_init().
 */
#ifndef GPUCR_GPU_DRIVER_INIT_H
#define GPUCR_GPU_DRIVER_INIT_H

#include "gpu/driver.h"

/** Prepare driver->init; the driver's ops must be set. */
int gpucr_driver_init_new(struct gpucr_driver *driver, struct gpucr_error *err);

/** Has the thread been started? Then the library must stay loaded. */
bool gpucr_driver_init_was_started(struct gpucr_driver *driver);

/** Join the thread and release. NULL is fine. Returns NULL. */
struct gpucr_driver_init *gpucr_driver_init_free(struct gpucr_driver_init *init);

#endif
