/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file manifest_fill.h
 * The facts of a job as a manifest.
 */
#ifndef GPUCR_JOB_MANIFEST_FILL_H
#define GPUCR_JOB_MANIFEST_FILL_H

#include "image/manifest.h"
#include "job/job.h"

/** The options alone, which can be wrong: before anything is paused. */
int gpucr_manifest_fill_options(const struct gpucr_job_options *options, struct gpucr_manifest *m,
                                struct gpucr_error *err);

/** The rest, but phases and files. The tree is held, so that its threads stand still. */
int gpucr_manifest_fill(struct gpucr_job *job, const struct gpucr_engine *engine,
                        struct gpucr_manifest *ret, struct gpucr_error *err);

/** The phases measured so far. */
void gpucr_manifest_fill_phases(const struct gpucr_result *result, struct gpucr_manifest *manifest);

#endif
