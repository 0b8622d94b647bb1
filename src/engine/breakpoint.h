/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file breakpoint.h
 * Do hardware breakpoints work here? In some virtual machines the debug registers
 * can be written and nothing ever happens; criu before 4.2 then waits for ever at
 * the end of a dump.
 */
#ifndef GPUCR_ENGINE_BREAKPOINT_H
#define GPUCR_ENGINE_BREAKPOINT_H

#include <stdbool.h>

/**
 * Set one in a child of our own and see whether it fires within 200 ms. Tried once
 * per process; false also when it could not be tried.
 */
bool gpucr_breakpoints_fire(void);

#endif
