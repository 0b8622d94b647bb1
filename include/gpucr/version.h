/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file gpucr/version.h
 * Version of the headers and, by call, of the library that runs.
 */
#ifndef GPUCR_VERSION_H
#define GPUCR_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

#define GPUCR_VERSION_MAJOR 0
#define GPUCR_VERSION_MINOR 1
#define GPUCR_VERSION_PATCH 0
#define GPUCR_VERSION       "0.1.0"

/** Version of the library in use, "MAJOR.MINOR.PATCH". Since: 0.1 */
const char *gpucr_version(void);

#ifdef __cplusplus
}
#endif
#endif
