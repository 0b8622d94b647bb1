/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_known.h
 * What the messages of criu mean, and what helps.
 */
#ifndef GPUCR_ENGINE_CRIU_KNOWN_H
#define GPUCR_ENGINE_CRIU_KNOWN_H

#include <stdbool.h>

struct gpucr_criu_known {
    const char *pattern; /* part of the message */
    const char *meaning;
    const char *remedy; /* NULL: none is known */
};

/** The entry for a message, NULL if it is not known. */
const struct gpucr_criu_known *gpucr_criu_known_find(const char *message);

/** Is the message an error in criu's words only: it goes on, and so should the reader? */
bool gpucr_criu_known_harmless(const char *message);

/** Does the message only say that an earlier one ended the work? */
bool gpucr_criu_known_summary(const char *message);

#endif
