/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file fault.h
 * Named fault points: places where a test lets a step fail, hang or end the
 * process. Compiled in with GPUCR_FAULTS (test builds), nothing otherwise.
 * docs/testing.md lists them; a test hits each one.
 *
 * GPUCR_FAULT=name[:action] with action fail (default), kill, hang.
 */
#ifndef GPUCR_BASE_FAULT_H
#define GPUCR_BASE_FAULT_H

#include "base/err.h"

#ifdef GPUCR_FAULTS
/** 0, or a code when the fault point is armed to fail. */
int gpucr_fault(const char *name, struct gpucr_error *err);
#else
static inline int gpucr_fault(const char *name, struct gpucr_error *err)
{
    (void)name;
    (void)err;
    return 0;
}
#endif

#endif
