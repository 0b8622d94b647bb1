/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file json_scan.h
 * A look at the bytes of a JSON text before it is parsed.
 *
 * json-c 0.16 takes more than JSON even when told to be strict: strings in single
 * quotes, control characters in strings, NaN; of a member that occurs twice it keeps
 * the last one. The format allows none of that.
 */
#ifndef GPUCR_IMAGE_JSON_SCAN_H
#define GPUCR_IMAGE_JSON_SCAN_H

#include <stddef.h>

struct gpucr_json_scan {
    size_t colons; /* outside strings: the number of members of all objects */
    size_t commas;
    size_t bad_at; /* first byte outside the part of JSON that the format uses, or SIZE_MAX */
};

struct gpucr_json_scan gpucr_json_scan(const char *json, size_t size_bytes);

#endif
