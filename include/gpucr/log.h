/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file gpucr/log.h
 * The library never prints. What it has to tell beside results goes to one
 * sink per process, set by the program. Without a sink nothing is formatted.
 *
 * Threads: the sink is called from any thread of the library, one call at a time.
 *
 * Since: 0.1
 */
#ifndef GPUCR_LOG_H
#define GPUCR_LOG_H

#ifdef __cplusplus
extern "C" {
#endif

enum gpucr_log_level {
    GPUCR_LOG_ERROR = 0, /**< an operation failed; also in the result */
    GPUCR_LOG_WARN = 1,  /**< something to know, the operation goes on */
    GPUCR_LOG_INFO = 2,  /**< once per step */
    GPUCR_LOG_DEBUG = 3, /**< once per process, thread or call */
    GPUCR_LOG_TRACE = 4, /**< everything */
};

/** Receives one line, without newline. @p text is valid during the call only. */
typedef void (*gpucr_log_fn)(void *arg, enum gpucr_log_level level, const char *text);

/** Set the sink (NULL: none) and the most detailed level it wants. */
void gpucr_log_set(gpucr_log_fn fn, void *arg, enum gpucr_log_level level);

#ifdef __cplusplus
}
#endif
#endif
