/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pattern.h"

static uint64_t pattern_word(uint64_t value)
{
    value *= 0x9e3779b97f4a7c15ull;
    value ^= value >> 29;
    value *= 0xbf58476d1ce4e5b9ull;
    value ^= value >> 32;
    return value;
}

void sample_pattern_fill(uint64_t *words, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i++)
        words[i] = pattern_word(seed + i);
}

uint64_t sample_pattern_check(const volatile uint64_t *words, uint64_t count, uint64_t seed)
{
    uint64_t bad = 0;

    for (uint64_t i = 0; i < count; i++)
        bad += words[i] != pattern_word(seed + i);
    return bad;
}
