/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_netlock.h
 * The packet filter rules with which criu cuts TCP connections off during a dump,
 * and removing them when it was ended before it could.
 *
 * After a dump that succeeded they stay on purpose: until the restore nobody must
 * answer the peer. So a failed restore leaves them too.
 */
#ifndef GPUCR_ENGINE_CRIU_NETLOCK_H
#define GPUCR_ENGINE_CRIU_NETLOCK_H

#include "engine/criu_descriptors.h"

struct gpucr_criu_netlock;

/** Record what is there before criu starts; @p root tells the network namespace. */
int gpucr_criu_netlock_record(pid_t root, struct gpucr_criu_netlock **ret, struct gpucr_error *err);

/** NULL is fine. */
void gpucr_criu_netlock_free(struct gpucr_criu_netlock *netlock);

/**
 * Remove criu's tables and rules for these connections that are new since then. Of
 * several new tables (another criu may be at work) ours is the one whose random number
 * stands at the head of our criu's log, @p log_name in @p work_fd.
 */
int gpucr_criu_netlock_remove(const struct gpucr_criu_netlock *netlock,
                              const struct gpucr_criu_descriptors *descriptors, int work_fd,
                              const char *log_name, struct gpucr_error *err);

#endif
