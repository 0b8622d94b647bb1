/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file gpucr/error.h
 * The error contract; docs/errors.md explains it with examples.
 *
 * Every function that can fail returns 0 (or a non-negative result where its
 * comment says so) or one of the negative codes below, and fills the
 * `struct gpucr_error` that is its last parameter. The parameter may be NULL.
 * On success it is untouched; on failure all other out-parameters are.
 *
 * An error owns no memory: it may be copied by assignment and needs no release.
 *
 * Since: 0.1
 */
#ifndef GPUCR_ERROR_H
#define GPUCR_ERROR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Stable codes: a number never changes its meaning. */
enum gpucr_code {
    GPUCR_OK = 0,
    GPUCR_ERR_USAGE = -1,           /**< the caller's arguments make no sense */
    GPUCR_ERR_NO_MEMORY = -2,       /**< memory for gpucr itself ran out */
    GPUCR_ERR_SYSTEM = -3,          /**< a system call failed; os_errno tells */
    GPUCR_ERR_NOT_FOUND = -4,       /**< the process or file is not there */
    GPUCR_ERR_PERMISSION = -5,      /**< the caller may not do this */
    GPUCR_ERR_TIMEOUT = -6,         /**< a deadline passed */
    GPUCR_ERR_CANCELLED = -7,       /**< the caller asked to stop */
    GPUCR_ERR_REFUSED = -8,         /**< a preflight finding forbids it; `finding` names it */
    GPUCR_ERR_BUSY = -9,            /**< somebody else works on the target */
    GPUCR_ERR_DRIVER = -10,         /**< a driver call failed; driver_code tells */
    GPUCR_ERR_DRIVER_MISSING = -11, /**< no usable libcuda on this machine */
    GPUCR_ERR_NOT_CUDA = -12,       /**< the process has no CUDA state */
    GPUCR_ERR_TARGET_DIED = -13,    /**< the process ended while it was handled */
    GPUCR_ERR_POISONED = -14,       /**< the driver lost the process; it cannot run again */
    GPUCR_ERR_IMAGE_FORMAT = -15,   /**< the image breaks its format or is of another version */
    GPUCR_ERR_IMAGE_DAMAGED = -16,  /**< sizes or checksums of the image do not match */
    GPUCR_ERR_IMAGE_UNSAFE = -17,   /**< owner, mode or links of the image cannot be trusted */
    GPUCR_ERR_EXISTS = -18,         /**< the name is taken */
    GPUCR_ERR_NO_SPACE = -19,       /**< disk or memory is too small */
    GPUCR_ERR_ENGINE = -20,         /**< the engine (CRIU) refused or failed */
    GPUCR_ERR_ENGINE_MISSING = -21, /**< no usable engine was found */
    GPUCR_ERR_ENGINE_HUNG = -22,    /**< the engine passed its deadline and was ended */
    GPUCR_ERR_UNSUPPORTED = -23,    /**< this machine, kernel or driver cannot do it */
    GPUCR_ERR_VERIFY = -24,         /**< the end state read back is not the promised one */
    GPUCR_ERR_INTERNAL = -25,       /**< a broken invariant of gpucr */
};

/** The step in which an error arose. */
enum gpucr_stage {
    GPUCR_STAGE_NONE = 0,
    GPUCR_STAGE_DISCOVER,       /**< finding processes and their state */
    GPUCR_STAGE_PREFLIGHT,      /**< checks before anything is touched */
    GPUCR_STAGE_LOCK,           /**< driver Lock */
    GPUCR_STAGE_HOLD,           /**< stopping the tree */
    GPUCR_STAGE_CHECKPOINT,     /**< driver Checkpoint */
    GPUCR_STAGE_DUMP,           /**< engine dump */
    GPUCR_STAGE_COMMIT,         /**< making the image durable */
    GPUCR_STAGE_KILL,           /**< ending the dumped processes */
    GPUCR_STAGE_VERIFY,         /**< reading and checking an image */
    GPUCR_STAGE_ENGINE_RESTORE, /**< engine restore */
    GPUCR_STAGE_RESTORE,        /**< driver Restore */
    GPUCR_STAGE_UNLOCK,         /**< driver Unlock */
    GPUCR_STAGE_RELEASE,        /**< letting the tree run again */
    GPUCR_STAGE_READBACK,       /**< confirming the end state */
    GPUCR_STAGE_ROLLBACK,       /**< undoing a failed operation */
    GPUCR_STAGE_MAX,
};

enum {
    GPUCR_ERROR_TEXT_BYTES = 1024,
    GPUCR_ERROR_PATH_BYTES = 256,
    GPUCR_ERROR_FINDING_BYTES = 40,
};

/** What went wrong, as facts and as one sentence to print. */
struct gpucr_error {
    int code;                                /**< enum gpucr_code */
    int os_errno;                            /**< errno, or 0 */
    int driver_code;                         /**< CUresult, or 0 */
    enum gpucr_stage stage;                  /**< where; GPUCR_STAGE_NONE if unknown */
    int32_t pid;                             /**< process concerned, or 0 */
    int32_t device;                          /**< GPU index concerned, or -1 */
    char finding[GPUCR_ERROR_FINDING_BYTES]; /**< name of a preflight finding, or "" */
    char path[GPUCR_ERROR_PATH_BYTES];       /**< file concerned, or "" */
    char text[GPUCR_ERROR_TEXT_BYTES];       /**< complete sentence, no trailing newline */
};

#define GPUCR_ERROR_INIT                                                                           \
    {                                                                                              \
        .code = 0, .device = -1                                                                    \
    }

/** Name of a code, as in JSON output ("timeout"). Never NULL. */
const char *gpucr_code_name(int code);

/** Name of a stage, as in JSON output ("lock"). Never NULL. */
const char *gpucr_stage_name(enum gpucr_stage stage);

#ifdef __cplusplus
}
#endif
#endif
