/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_rollback.h
 * Putting a tree back after a dump that failed at any moment: refused by criu,
 * criu crashed, criu hung and was ended.
 *
 * What criu may leave: the tree with its parasite inside (code, a memory mapping, a
 * socket), TCP connections in repair mode and cut off by packet filters, hard links
 * named link_remap.N, a thawed or frozen cgroup, temporary folders, child processes.
 */
#ifndef GPUCR_ENGINE_CRIU_ROLLBACK_H
#define GPUCR_ENGINE_CRIU_ROLLBACK_H

#include "engine/criu_channel.h"
#include "engine/engine.h"

struct gpucr_criu_rollback;

/** Record how everything is, before criu starts. The tree must be stopped. */
int gpucr_criu_rollback_new(const struct gpucr_engine_dump *request,
                            struct gpucr_criu_rollback **ret, struct gpucr_error *err);

/** NULL is fine. */
void gpucr_criu_rollback_free(struct gpucr_criu_rollback *rollback);

/** Is @p stat still process number @p index of the request, not a later one of the same pid? */
bool gpucr_criu_rollback_is_same(const struct gpucr_criu_rollback *rollback, size_t index,
                                 const struct gpucr_proc_stat *stat);

/** Are all processes there, stopped and untraced? GPUCR_ERR_VERIFY names one that is not. */
int gpucr_criu_rollback_verify(const struct gpucr_criu_rollback *rollback, struct gpucr_error *err);

/**
 * The image counts and the processes are to end, but criu failed before it ended them:
 * kill them while criu still holds them, so that none of their code runs again.
 */
void gpucr_criu_rollback_kill(const struct gpucr_criu_rollback *rollback);

/**
 * End criu and its helpers, put everything back, verify. All steps are tried; the
 * first failure is reported. @p answered: criu gave its final answer, so it has put
 * back what it can and is about to exit.
 */
int gpucr_criu_rollback_run(struct gpucr_criu_rollback *rollback,
                            struct gpucr_criu_channel *channel, bool answered,
                            struct gpucr_error *err);

#endif
