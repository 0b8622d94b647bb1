/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file engine_use.h
 * Between a job's options and result and those of its engine.
 */
#ifndef GPUCR_JOB_ENGINE_USE_H
#define GPUCR_JOB_ENGINE_USE_H

#include "engine/engine.h"
#include "image/manifest.h"

/** The engine's options from the caller's. */
struct gpucr_engine_options gpucr_engine_options_of(const struct gpucr_job_options *options);

/** Options that the checkpoint was taken with and that its restore needs as well. */
void gpucr_restore_options(const struct gpucr_manifest *manifest,
                           struct gpucr_engine_options *options);

/** The lines of the engine's log that explain a failure. */
void gpucr_engine_log_to_result(const struct gpucr_engine_log *log, struct gpucr_result *result);

#endif
