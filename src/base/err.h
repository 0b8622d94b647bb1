/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file err.h
 * Making errors. All functions return the code, so that a failure is one
 * statement: `return gpucr_error_set(err, GPUCR_ERR_TIMEOUT, "…");`
 * All accept a NULL err. Texts are whole sentences without a final full stop.
 */
#ifndef GPUCR_BASE_ERR_H
#define GPUCR_BASE_ERR_H

#include <stdarg.h>

#include <gpucr/error.h>

#define GPUCR_PRINTF(a, b) __attribute__((format(printf, a, b)))

/** New error with a text. */
int gpucr_error_set(struct gpucr_error *err, int code, const char *format, ...) GPUCR_PRINTF(3, 4);

/**
 * New error from errno: appends ": " and its meaning, and chooses the code
 * (EACCES/EPERM permission, ENOENT/ESRCH not found, ENOMEM, ENOSPC/EDQUOT,
 * EEXIST, else system).
 */
int gpucr_error_errno(struct gpucr_error *err, int os_errno, const char *format, ...)
    GPUCR_PRINTF(3, 4);

/** Put "outer: " in front of the text; code and facts stay. Returns err->code (or @p code if err is
 * NULL). */
int gpucr_error_wrap(struct gpucr_error *err, int code, const char *format, ...) GPUCR_PRINTF(3, 4);

/** Out of memory, always the same. */
int gpucr_error_no_memory(struct gpucr_error *err);

/** Facts, added after the error was made; each returns the code and does nothing unless it is
 * negative. */
int gpucr_error_pid(struct gpucr_error *err, int code, int pid);
int gpucr_error_path(struct gpucr_error *err, int code, const char *path);
int gpucr_error_stage(struct gpucr_error *err, int code, enum gpucr_stage stage);

#endif
