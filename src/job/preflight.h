/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file preflight.h
 * Everything that can be checked before anything is touched. Each finding has a
 * stable name (docs/findings.md lists them), a sentence that says why, and a
 * remedy. A refusal is overridden by its name, never all at once.
 */
#ifndef GPUCR_JOB_PREFLIGHT_H
#define GPUCR_JOB_PREFLIGHT_H

#include "image/manifest.h"
#include "job/job.h"

/** Names of the findings; the table in preflight.c gives severity and remedy. */
enum gpucr_finding_id {
    GPUCR_FINDING_NOT_CUDA,
    GPUCR_FINDING_CPU_ONLY,
    GPUCR_FINDING_DRIVER_MISSING,
    GPUCR_FINDING_ENGINE_MISSING,
    GPUCR_FINDING_TRACED,
    GPUCR_FINDING_ALREADY_SUSPENDED,
    GPUCR_FINDING_FROZEN,
    GPUCR_FINDING_NAMESPACE_INIT,
    GPUCR_FINDING_PERMISSION,
    GPUCR_FINDING_ORPHANABLE_GROUP,
    GPUCR_FINDING_WEAK_HOLD,
    GPUCR_FINDING_INHERITED_DEVICE,
    GPUCR_FINDING_DEVICE_FILE,
    GPUCR_FINDING_IO_URING,
    GPUCR_FINDING_OUTSIDE_SESSION,
    GPUCR_FINDING_TCP_ESTABLISHED,
    GPUCR_FINDING_HOST_MEMORY,
    GPUCR_FINDING_DISK_SPACE,
    GPUCR_FINDING_HARDWARE_BREAKPOINTS,
    GPUCR_FINDING_STATE_FAILED,
    GPUCR_FINDING_PID_TAKEN,
    GPUCR_FINDING_DRIVER_DIFFERS,
    GPUCR_FINDING_GPU_MISSING,
    GPUCR_FINDING_DEVICE_MEMORY,
    GPUCR_FINDING_KERNEL_DIFFERS,
    GPUCR_FINDING_FOREIGN_UID,
    GPUCR_FINDING_MAX,
};

/**
 * Record a finding about @p pid (0: the machine) with its sentence. Of a great many of
 * one kind only the first ones are kept.
 */
int gpucr_preflight_add(struct gpucr_job *job, enum gpucr_finding_id id, int32_t pid,
                        struct gpucr_error *err, const char *format, ...) GPUCR_PRINTF(5, 6);

/** Is there a finding of that name? */
bool gpucr_preflight_has(const struct gpucr_job *job, enum gpucr_finding_id id);

/**
 * Checks of each process from /proc alone. They come before the driver is asked: a
 * traced or stopped process answers no driver call.
 */
int gpucr_preflight_processes(struct gpucr_job *job, struct gpucr_error *err);

/** Checks that need the driver's answers: CUDA state, hold, host memory. */
int gpucr_preflight_tree(struct gpucr_job *job, struct gpucr_error *err);

/**
 * The tree can be held by SIGSTOP alone, because of @p why: a finding, once. Also where
 * a cgroup that looked as if it could be frozen could not.
 */
int gpucr_preflight_weak_hold(struct gpucr_job *job, const char *why, struct gpucr_error *err);

/** Descriptors, sockets and sessions that CRIU cannot dump. */
int gpucr_preflight_dump(struct gpucr_job *job, struct gpucr_error *err);

/** Checks of an image against this machine. */
int gpucr_preflight_restore(struct gpucr_job *job, const struct gpucr_manifest *manifest,
                            struct gpucr_error *err);

/** GPUCR_ERR_REFUSED with the first refusal that was not overridden, else 0. */
int gpucr_preflight_verdict(struct gpucr_job *job, struct gpucr_error *err);

/** Space for the image on its file system. */
int gpucr_preflight_disk(struct gpucr_job *job, uint64_t free_bytes, struct gpucr_error *err);

#endif
