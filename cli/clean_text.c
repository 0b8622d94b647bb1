/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Text that comes from elsewhere, made fit to be shown; numbers made readable. */
#include <string.h>

#include "cli.h"
#include "out.h"

/* Length of the valid UTF-8 sequence at @p s, 0 if it is none (RFC 3629). */
static size_t utf8_length(const unsigned char *s)
{
    static const struct {
        unsigned char low, high; /* of the first byte */
        unsigned char second_low, second_high;
        size_t length;
    } forms[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t i = 0; i < CLI_ARRAY_SIZE(forms); i++) {
        if (s[0] < forms[i].low || s[0] > forms[i].high)
            continue;
        if (forms[i].length > 1 && (s[1] < forms[i].second_low || s[1] > forms[i].second_high))
            return 0;
        for (size_t k = 2; k < forms[i].length; k++) {
            if ((s[k] & 0xc0) != 0x80)
                return 0;
        }
        return forms[i].length;
    }
    return 0;
}

/* Control characters can repaint a terminal: C0, DEL and, in two bytes, C1. */
static bool is_control(const unsigned char *s)
{
    return s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && s[1] < 0xa0);
}

const char *cli_clean_text(char *buffer, size_t size, const char *text, bool visible)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t used = 0;

    while (*s) {
        size_t length = utf8_length(s);
        bool bad = length == 0 || (visible && is_control(s));

        if (length == 0)
            length = 1;
        if (used + length + 1 > size)
            break;
        if (bad)
            buffer[used++] = '?';
        else
            used += (size_t)(stpncpy(buffer + used, (const char *)s, length) - (buffer + used));
        s += length;
    }
    buffer[used] = '\0';
    return buffer;
}

/* Columns that a text takes; every character outside ASCII counts as one. */
static unsigned columns_of(const char *text, size_t length)
{
    unsigned columns = 0;

    for (size_t i = 0; i < length; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

void cli_wrap_text(FILE *out, unsigned indent, unsigned width, const char *text)
{
    unsigned column = indent;

    while (*text) {
        size_t length = strcspn(text, " ");
        unsigned columns = columns_of(text, length);

        if (column > indent && column + 1 + columns > width) {
            (void)fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            (void)fputc(' ', out);
            column++;
        }
        (void)fwrite(text, 1, length, out);
        column += columns;
        text += length + strspn(text + length, " ");
    }
    (void)fputc('\n', out);
}

const char *cli_format_bytes(char buffer[CLI_TEXT_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;

    if (bytes < 1024) {
        (void)snprintf(buffer, CLI_TEXT_BYTES, "%u B", (unsigned)bytes);
        return buffer;
    }
    for (; value >= 1023.95 && unit + 1 < CLI_ARRAY_SIZE(units); unit++)
        value /= 1024;
    (void)snprintf(buffer, CLI_TEXT_BYTES, "%.1f %s", value, units[unit]);
    return buffer;
}

const char *cli_format_version(char buffer[CLI_TEXT_BYTES], int32_t version)
{
    (void)snprintf(buffer, CLI_TEXT_BYTES, "%d.%d", version / 10000, version / 100 % 100);
    if (version % 100)
        (void)snprintf(buffer + strlen(buffer), CLI_TEXT_BYTES - strlen(buffer), ".%d",
                       version % 100);
    return buffer;
}

const char *cli_format_gpus(char buffer[CLI_TEXT_BYTES], const uint32_t *gpus, uint32_t count)
{
    size_t used = 0;

    (void)snprintf(buffer, CLI_TEXT_BYTES, "-");
    for (uint32_t i = 0; i < count; i++) {
        int n = snprintf(buffer + used, CLI_TEXT_BYTES - used, i ? ",%u" : "%u", gpus[i]);

        if (n < 0 || used + (size_t)n >= CLI_TEXT_BYTES - 5) { /* room for the dots */
            (void)snprintf(buffer + used, CLI_TEXT_BYTES - used, ",...");
            break;
        }
        used += (size_t)n;
    }
    return buffer;
}
