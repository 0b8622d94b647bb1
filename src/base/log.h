/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file log.h
 * Lines for the sink of gpucr/log.h. Cheap when nobody listens.
 */
#ifndef GPUCR_BASE_LOG_H
#define GPUCR_BASE_LOG_H

#include <stdbool.h>

#include <gpucr/log.h>

#include "base/err.h"

/** Does anybody want lines of this level? */
bool gpucr_log_wants(enum gpucr_log_level level);

void gpucr_log_write(enum gpucr_log_level level, const char *format, ...) GPUCR_PRINTF(2, 3);

#define gpucr_log(level, ...)                                                                      \
    do {                                                                                           \
        if (gpucr_log_wants(level))                                                                \
            gpucr_log_write(level, __VA_ARGS__);                                                   \
    } while (0)

#define gpucr_warn(...)  gpucr_log(GPUCR_LOG_WARN, __VA_ARGS__)
#define gpucr_info(...)  gpucr_log(GPUCR_LOG_INFO, __VA_ARGS__)
#define gpucr_debug(...) gpucr_log(GPUCR_LOG_DEBUG, __VA_ARGS__)
#define gpucr_trace(...) gpucr_log(GPUCR_LOG_TRACE, __VA_ARGS__)

#endif
