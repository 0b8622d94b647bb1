/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "image/json_scan.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/** May the byte stand outside a string? Numbers are whole, words are true and false. */
static bool is_structure(char c)
{
    return c != '\0' && strchr("{}[]:, \n0123456789truefalse", c);
}

/** Length of the rest of a string, its closing quote included; @p bad_at is lowered if need be. */
static size_t scan_string(const char *json, size_t at, size_t size_bytes, size_t *bad_at)
{
    size_t i = at;

    for (; i < size_bytes && json[i] != '"'; i++) {
        bool bad = (unsigned char)json[i] < 0x20;

        if (json[i] == '\\') {
            i++;
            bad = i >= size_bytes || (json[i] != '"' && json[i] != '\\');
        }
        if (bad && *bad_at == SIZE_MAX)
            *bad_at = i;
    }
    return i - at + 1;
}

struct gpucr_json_scan gpucr_json_scan(const char *json, size_t size_bytes)
{
    struct gpucr_json_scan scan = {.bad_at = SIZE_MAX};

    for (size_t i = 0; i < size_bytes; i++) {
        if (json[i] == '"')
            i += scan_string(json, i + 1, size_bytes, &scan.bad_at);
        else if (json[i] == ':')
            scan.colons++;
        else if (json[i] == ',')
            scan.commas++;
        else if (!is_structure(json[i]) && scan.bad_at == SIZE_MAX)
            scan.bad_at = i;
    }
    return scan;
}
