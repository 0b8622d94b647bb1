/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file pids_free.h
 * Pids and thread ids of an image that have to be free before CRIU starts.
 */
#ifndef GPUCR_JOB_PIDS_FREE_H
#define GPUCR_JOB_PIDS_FREE_H

#include "image/manifest.h"
#include "job/job.h"

/**
 * Wait until every pid and tid of the image is free; after a kill that takes until
 * the parent has reaped it. GPUCR_ERR_EXISTS names who has it, and for a zombie the
 * parent that does not reap it. GPUCR_ERR_CANCELLED when the caller of @p job asks to stop.
 */
int gpucr_pids_wait_free(struct gpucr_job *job, const struct gpucr_manifest *manifest,
                         uint64_t timeout_ms, struct gpucr_error *err);

#endif
