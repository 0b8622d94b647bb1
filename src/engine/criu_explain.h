/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_explain.h
 * Why criu failed, for people: the lines of its log that matter, the first cause
 * first, with numbers of mounts and descriptors resolved to paths, and for known
 * causes a plain sentence with a remedy. Nothing is decided by these texts.
 */
#ifndef GPUCR_ENGINE_CRIU_EXPLAIN_H
#define GPUCR_ENGINE_CRIU_EXPLAIN_H

#include "engine/criu_channel.h"
#include "engine/engine.h"

struct gpucr_criu_explain {
    const char *verb; /* "dump" or "restore" */
    int work_fd;
    const char *log_name; /* in the work folder */
    int images_fd;        /* restore: numbers are resolved through the image; dump: -1 */
};

/** The error for an answer that says "failed", before the log is looked at. */
int gpucr_criu_explain_answer(const GpucrCriu__Response *response,
                              const struct gpucr_criu_channel *channel, const char *verb,
                              struct gpucr_error *err);

/**
 * Complete @p err, whose code is @p code, from the log, and fill @p log (may be
 * NULL) with the lines. Returns the code.
 */
int gpucr_criu_explain(const struct gpucr_criu_explain *explain, int code,
                       struct gpucr_engine_log *log, struct gpucr_error *err);

/** The clean-up failed too: the error becomes GPUCR_ERR_VERIFY and holds both. */
int gpucr_criu_explain_unverified(struct gpucr_error *err, const struct gpucr_error *undo);

#endif
