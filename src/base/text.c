/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/text.h"

#include <ctype.h>
#include <string.h>

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 99;
}

bool gpucr_scan_u64(const char *text, int base, uint64_t *ret, const char **end)
{
    uint64_t value = 0;
    const char *p = text;

    for (; digit_value(*p) < base; p++) {
        if (__builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit_value(*p), &value))
            return false;
    }
    if (p == text)
        return false;
    *ret = value;
    if (end)
        *end = p;
    return true;
}

bool gpucr_parse_u64(const char *text, int base, uint64_t *ret)
{
    const char *end;
    uint64_t value;

    if (!gpucr_scan_u64(text, base, &value, &end) || *end)
        return false;
    *ret = value;
    return true;
}

bool gpucr_copy_text(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size);
    bool fits = n < size;

    if (size == 0)
        return false;
    if (!fits)
        n = size - 1;
    (void)memcpy(to, from, n);
    to[n] = '\0';
    return fits;
}

bool gpucr_starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool gpucr_ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text);
    size_t m = strlen(suffix);

    return n >= m && strcmp(text + n - m, suffix) == 0;
}
