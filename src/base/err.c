/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

static const char *const code_names[] = {
    [-GPUCR_OK] = "ok",
    [-GPUCR_ERR_USAGE] = "usage",
    [-GPUCR_ERR_NO_MEMORY] = "no-memory",
    [-GPUCR_ERR_SYSTEM] = "system",
    [-GPUCR_ERR_NOT_FOUND] = "not-found",
    [-GPUCR_ERR_PERMISSION] = "permission",
    [-GPUCR_ERR_TIMEOUT] = "timeout",
    [-GPUCR_ERR_CANCELLED] = "cancelled",
    [-GPUCR_ERR_REFUSED] = "refused",
    [-GPUCR_ERR_BUSY] = "busy",
    [-GPUCR_ERR_DRIVER] = "driver",
    [-GPUCR_ERR_DRIVER_MISSING] = "driver-missing",
    [-GPUCR_ERR_NOT_CUDA] = "not-cuda",
    [-GPUCR_ERR_TARGET_DIED] = "target-died",
    [-GPUCR_ERR_POISONED] = "poisoned",
    [-GPUCR_ERR_IMAGE_FORMAT] = "image-format",
    [-GPUCR_ERR_IMAGE_DAMAGED] = "image-damaged",
    [-GPUCR_ERR_IMAGE_UNSAFE] = "image-unsafe",
    [-GPUCR_ERR_EXISTS] = "exists",
    [-GPUCR_ERR_NO_SPACE] = "no-space",
    [-GPUCR_ERR_ENGINE] = "engine",
    [-GPUCR_ERR_ENGINE_MISSING] = "engine-missing",
    [-GPUCR_ERR_ENGINE_HUNG] = "engine-hung",
    [-GPUCR_ERR_UNSUPPORTED] = "unsupported",
    [-GPUCR_ERR_VERIFY] = "verify",
    [-GPUCR_ERR_INTERNAL] = "internal",
};

static const char *const stage_names[GPUCR_STAGE_MAX] = {
    [GPUCR_STAGE_NONE] = "none",
    [GPUCR_STAGE_DISCOVER] = "discover",
    [GPUCR_STAGE_PREFLIGHT] = "preflight",
    [GPUCR_STAGE_LOCK] = "lock",
    [GPUCR_STAGE_HOLD] = "hold",
    [GPUCR_STAGE_CHECKPOINT] = "checkpoint",
    [GPUCR_STAGE_DUMP] = "dump",
    [GPUCR_STAGE_COMMIT] = "commit",
    [GPUCR_STAGE_KILL] = "kill",
    [GPUCR_STAGE_VERIFY] = "verify",
    [GPUCR_STAGE_ENGINE_RESTORE] = "engine-restore",
    [GPUCR_STAGE_RESTORE] = "restore",
    [GPUCR_STAGE_UNLOCK] = "unlock",
    [GPUCR_STAGE_RELEASE] = "release",
    [GPUCR_STAGE_READBACK] = "readback",
    [GPUCR_STAGE_ROLLBACK] = "rollback",
};

const char *gpucr_code_name(int code)
{
    if (code > 0 || (size_t)-code >= GPUCR_ARRAY_SIZE(code_names))
        return "unknown";
    return code_names[-code];
}

const char *gpucr_stage_name(enum gpucr_stage stage)
{
    if ((unsigned)stage >= GPUCR_STAGE_MAX)
        return "unknown";
    return stage_names[stage];
}

static void set_text(struct gpucr_error *err, int code, const char *format, va_list args)
{
    *err = (struct gpucr_error){.code = code, .device = -1};
    (void)vsnprintf(err->text, sizeof(err->text), format, args);
}

int gpucr_error_set(struct gpucr_error *err, int code, const char *format, ...)
{
    va_list args;

    if (!err)
        return code;
    va_start(args, format);
    set_text(err, code, format, args);
    va_end(args);
    return code;
}

static int code_of_errno(int os_errno)
{
    switch (os_errno) {
    case EACCES:
    case EPERM:
        return GPUCR_ERR_PERMISSION;
    case ENOENT:
    case ESRCH:
        return GPUCR_ERR_NOT_FOUND;
    case ENOMEM:
        return GPUCR_ERR_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
        return GPUCR_ERR_NO_SPACE;
    case EEXIST:
        return GPUCR_ERR_EXISTS;
    case ETIMEDOUT:
        return GPUCR_ERR_TIMEOUT;
    default:
        return GPUCR_ERR_SYSTEM;
    }
}

int gpucr_error_errno(struct gpucr_error *err, int os_errno, const char *format, ...)
{
    int code = code_of_errno(os_errno);
    char meaning[128];
    va_list args;
    size_t used;

    if (!err)
        return code;
    va_start(args, format);
    set_text(err, code, format, args);
    va_end(args);
    err->os_errno = os_errno;
    used = strlen(err->text);
    (void)snprintf(err->text + used, sizeof(err->text) - used, ": %s",
                   strerror_r(os_errno, meaning, sizeof(meaning)));
    return code;
}

int gpucr_error_wrap(struct gpucr_error *err, int code, const char *format, ...)
{
    char outer[GPUCR_ERROR_TEXT_BYTES];
    char inner[GPUCR_ERROR_TEXT_BYTES];
    va_list args;
    int n;

    if (!err)
        return code;
    va_start(args, format);
    (void)vsnprintf(outer, sizeof(outer), format, args);
    va_end(args);
    (void)memcpy(inner, err->text, sizeof(inner));
    n = snprintf(err->text, sizeof(err->text), "%s: ", outer);
    if (n > 0 && (size_t)n < sizeof(err->text))
        (void)gpucr_copy_text(err->text + n, sizeof(err->text) - (size_t)n, inner);
    return err->code;
}

int gpucr_error_no_memory(struct gpucr_error *err)
{
    return gpucr_error_set(err, GPUCR_ERR_NO_MEMORY, "gpucr ran out of memory");
}

int gpucr_error_pid(struct gpucr_error *err, int code, int pid)
{
    if (err && code < 0)
        err->pid = pid;
    return code;
}

int gpucr_error_path(struct gpucr_error *err, int code, const char *path)
{
    if (err && code < 0)
        (void)snprintf(err->path, sizeof(err->path), "%s", path);
    return code;
}

int gpucr_error_stage(struct gpucr_error *err, int code, enum gpucr_stage stage)
{
    if (err && code < 0)
        err->stage = stage;
    return code;
}
