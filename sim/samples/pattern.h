/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The pattern that fills memory: the same word on the CPU as the kernels compute. */
#ifndef SAMPLE_PATTERN_H
#define SAMPLE_PATTERN_H

#include <stdint.h>

void sample_pattern_fill(uint64_t *words, uint64_t count, uint64_t seed);
/* Returns how many words differ. */
uint64_t sample_pattern_check(const volatile uint64_t *words, uint64_t count, uint64_t seed);

#endif
