/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file clock.h
 * Monotonic time, deadlines and short sleeps.
 */
#ifndef GPUCR_BASE_CLOCK_H
#define GPUCR_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/** CLOCK_MONOTONIC in nanoseconds. */
uint64_t gpucr_now_ns(void);

/** A point in time; UINT64_MAX never passes. */
struct gpucr_deadline {
    uint64_t at_ns;
};

struct gpucr_deadline gpucr_deadline_in_ms(uint64_t ms);
bool gpucr_deadline_passed(struct gpucr_deadline deadline);

/** Milliseconds left, rounded up; 0 when passed; never more than INT32_MAX. */
int gpucr_deadline_left_ms(struct gpucr_deadline deadline);

/** Sleep through interruptions. */
void gpucr_sleep_us(uint64_t us);

#endif
