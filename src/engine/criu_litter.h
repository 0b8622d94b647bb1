/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_litter.h
 * Folders with random names that criu makes in /tmp, some with a mount on them, and
 * that stay when it is ended.
 */
#ifndef GPUCR_ENGINE_CRIU_LITTER_H
#define GPUCR_ENGINE_CRIU_LITTER_H

#include <stdbool.h>

#include "base/err.h"

struct gpucr_criu_litter;

/** Record what is there before criu starts. */
int gpucr_criu_litter_record(struct gpucr_criu_litter **ret, struct gpucr_error *err);

/** NULL is fine. */
void gpucr_criu_litter_free(struct gpucr_criu_litter *litter);

/**
 * Unmount and remove what is new and empty. While another criu is at work nobody can
 * tell whose a folder is: then they are only named in the log.
 */
int gpucr_criu_litter_remove(const struct gpucr_criu_litter *litter, struct gpucr_error *err);

/** Is there a criu at work on this machine? (Ours has ended when this is asked.) */
bool gpucr_criu_other_runs(void);

#endif
