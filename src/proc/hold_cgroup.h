/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file hold_cgroup.h
 * The frozen cgroups of a hold; for hold.c only. The calls for others are in hold.h.
 */
#ifndef GPUCR_PROC_HOLD_CGROUP_H
#define GPUCR_PROC_HOLD_CGROUP_H

#include "proc/hold.h"

/** Which held processes sit in a cgroup of ours already? Fills hold->cgroups. */
int gpucr_hold_find_cgroups(struct gpucr_hold *hold, struct gpucr_error *err);

/** Is @p pid in one of the hold's cgroups, and this one frozen? */
bool gpucr_hold_is_frozen(const struct gpucr_hold *hold, pid_t pid);

/** Thaw and remove the cgroups without stopping anything first: what is held may run. */
int gpucr_hold_open_cgroups(struct gpucr_hold *hold, struct gpucr_error *err);

/** Release the list of cgroups; the cgroups stay. */
void gpucr_hold_forget_cgroups(struct gpucr_hold *hold);

#endif
