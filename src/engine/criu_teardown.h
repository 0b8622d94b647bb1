/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_teardown.h
 * Removing everything that a failed restore made: processes, and files that criu
 * put beside the files of the program (ghosts, link_remap.N).
 *
 * While it exists, orphans become children of the calling process
 * (PR_SET_CHILD_SUBREAPER), so that what criu leaves can be found and reaped.
 */
#ifndef GPUCR_ENGINE_CRIU_TEARDOWN_H
#define GPUCR_ENGINE_CRIU_TEARDOWN_H

#include "engine/criu_channel.h"
#include "engine/engine.h"

struct gpucr_criu_teardown;

/** Record how everything is, before criu starts. */
int gpucr_criu_teardown_new(const struct gpucr_engine_restore *request,
                            struct gpucr_criu_teardown **ret, struct gpucr_error *err);

/** NULL is fine. */
void gpucr_criu_teardown_free(struct gpucr_criu_teardown *teardown);

/**
 * End criu and all it made; wait until every pid of the image that was free before
 * is free again. GPUCR_ERR_VERIFY names what stays.
 */
int gpucr_criu_teardown_run(struct gpucr_criu_teardown *teardown,
                            struct gpucr_criu_channel *channel, struct gpucr_error *err);

#endif
