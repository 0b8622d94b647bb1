/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <ctype.h>
#include <string.h>

#include "cli.h"

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"K", UINT64_C(1) << 10},
    {"KiB", UINT64_C(1) << 10},
    {"M", UINT64_C(1) << 20},
    {"MiB", UINT64_C(1) << 20},
    {"G", UINT64_C(1) << 30},
    {"GiB", UINT64_C(1) << 30},
    {"T", UINT64_C(1) << 40},
    {"TiB", UINT64_C(1) << 40},
};

static const struct unit duration_units[] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000},
};

/* Digits and a unit; false where it is anything else, zero, or beyond uint64_t. */
static bool read_number(const char *text, const struct unit *units, size_t count, uint64_t *ret)
{
    uint64_t value = 0;
    const char *p = text;

    for (; isdigit((unsigned char)*p); p++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    }
    if (p == text || value == 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(p, units[i].name) != 0)
            continue;
        return !__builtin_mul_overflow(value, units[i].factor, ret);
    }
    return false;
}

int cli_value_pid(const char *text, int32_t *ret, struct gpucr_error *err)
{
    static const struct unit plain[] = {{"", 1}};
    uint64_t value;

    if (!read_number(text, plain, CLI_ARRAY_SIZE(plain), &value) || value > INT32_MAX)
        return cli_error_set(err, GPUCR_ERR_USAGE, "\"%s\" is not a process id", text);
    *ret = (int32_t)value;
    return 0;
}

int cli_value_size(const char *text, uint64_t *ret, struct gpucr_error *err)
{
    uint64_t value;

    if (!read_number(text, size_units, CLI_ARRAY_SIZE(size_units), &value))
        return cli_error_set(err, GPUCR_ERR_USAGE,
                             "\"%s\" is not a size; give bytes above 0, or a number with "
                             "K, M, G or T",
                             text);
    *ret = value;
    return 0;
}

int cli_value_duration(const char *text, uint64_t *ret, struct gpucr_error *err)
{
    uint64_t value;

    /* 24 days: every timeout below fits the int of poll() in milliseconds */
    if (!read_number(text, duration_units, CLI_ARRAY_SIZE(duration_units), &value) ||
        value > INT32_MAX)
        return cli_error_set(err, GPUCR_ERR_USAGE,
                             "\"%s\" is not a duration; give whole seconds above 0, or a "
                             "number with ms, s, m or h, up to 24 days",
                             text);
    *ret = value;
    return 0;
}

enum { WORD_MAX = 48, DISTANCE_FAR = 99 };

static unsigned smallest(unsigned a, unsigned b, unsigned c)
{
    unsigned ab = a < b ? a : b;

    return ab < c ? ab : c;
}

unsigned cli_word_distance(const char *a, const char *b)
{
    unsigned rows[3][WORD_MAX + 1];
    size_t a_length = strlen(a), b_length = strlen(b);

    if (a_length > WORD_MAX || b_length > WORD_MAX)
        return DISTANCE_FAR;
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_length; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            unsigned replace = above[j - 1] + (a[i - 1] != b[j - 1]);

            row[j] = smallest(above[j] + 1, row[j - 1] + 1, replace);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                above2[j - 2] + 1 < row[j])
                row[j] = above2[j - 2] + 1;
        }
    }
    return rows[a_length % 3][b_length];
}

const char *cli_word_nearest(const char *text, const char *const *words, size_t count)
{
    /* one edit in a short word, a third of a long one */
    unsigned best = (unsigned)strlen(text) / 3 + 2;
    const char *nearest = NULL;

    for (size_t i = 0; i < count; i++) {
        unsigned distance = cli_word_distance(text, words[i]);

        if (strlen(text) >= 4 && strncmp(text, words[i], strlen(text)) == 0)
            distance = 1;
        if (distance < best) {
            best = distance;
            nearest = words[i];
        }
    }
    return nearest;
}
