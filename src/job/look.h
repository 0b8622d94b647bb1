/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file look.h
 * The part of suspend and checkpoint that touches nothing.
 */
#ifndef GPUCR_JOB_LOOK_H
#define GPUCR_JOB_LOOK_H

#include "job/job.h"

/** One gpucr per target, before it is looked at; the lock ends with the job. */
int gpucr_job_lock(struct gpucr_job *job, int32_t pid, struct gpucr_error *err);

/** Scan, /proc checks, driver probe, device memory, checks that need them. No verdict on the last.
 */
int gpucr_job_look(struct gpucr_job *job, struct gpucr_error *err);

#endif
