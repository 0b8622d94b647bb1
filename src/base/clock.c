/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <time.h>

enum { NS_PER_US = 1000, NS_PER_MS = 1000000, NS_PER_S = 1000000000 };

uint64_t gpucr_now_ns(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

struct gpucr_deadline gpucr_deadline_in_ms(uint64_t ms)
{
    struct gpucr_deadline deadline = {UINT64_MAX};
    uint64_t ns;

    if (__builtin_mul_overflow(ms, (uint64_t)NS_PER_MS, &ns) ||
        __builtin_add_overflow(gpucr_now_ns(), ns, &deadline.at_ns))
        deadline.at_ns = UINT64_MAX;
    return deadline;
}

bool gpucr_deadline_passed(struct gpucr_deadline deadline)
{
    return deadline.at_ns != UINT64_MAX && gpucr_now_ns() >= deadline.at_ns;
}

int gpucr_deadline_left_ms(struct gpucr_deadline deadline)
{
    uint64_t now = gpucr_now_ns();
    uint64_t ms;

    if (now >= deadline.at_ns)
        return 0;
    ms = (deadline.at_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

void gpucr_sleep_us(uint64_t us)
{
    struct timespec t = {
        .tv_sec = (time_t)(us / 1000000),
        .tv_nsec = (long)(us % 1000000 * NS_PER_US),
    };

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
        ;
}
