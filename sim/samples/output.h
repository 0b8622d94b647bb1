/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lines on standard output, each written whole; no stdio buffer that a checkpoint could hold. */
#ifndef SAMPLE_OUTPUT_H
#define SAMPLE_OUTPUT_H

#include <stdint.h>

__attribute__((format(printf, 1, 2))) void sample_say(const char *format, ...);
/* Says "error ..." and ends the process with status 3. */
__attribute__((format(printf, 1, 2), noreturn)) void sample_die(const char *format, ...);

uint64_t sample_now_ns(void);
/* Sleeps until then, through signals, or until *stop is set (NULL: never). */
void sample_sleep_until(uint64_t when_ns, const volatile int *stop);

#endif
