/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file text.h
 * Strings: strict number parsing and a growing buffer.
 */
#ifndef GPUCR_BASE_TEXT_H
#define GPUCR_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/** Whole string is an unsigned number in @p base (10 or 16), no sign, no spaces. */
bool gpucr_parse_u64(const char *text, int base, uint64_t *ret);

/** Number at the start of @p text; *end is set behind it. */
bool gpucr_scan_u64(const char *text, int base, uint64_t *ret, const char **end);

/** Copy with truncation, always terminated. Returns false if truncated. */
bool gpucr_copy_text(char *to, size_t size, const char *from);

bool gpucr_starts_with(const char *text, const char *prefix);
bool gpucr_ends_with(const char *text, const char *suffix);

#endif
