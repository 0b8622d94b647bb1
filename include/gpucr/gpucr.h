/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file gpucr/gpucr.h
 * Everything public, in reading order.
 */
#ifndef GPUCR_GPUCR_H
#define GPUCR_GPUCR_H

#include <gpucr/error.h>
#include <gpucr/image.h>
#include <gpucr/job.h>
#include <gpucr/log.h>
#include <gpucr/result.h>
#include <gpucr/version.h>

#endif
