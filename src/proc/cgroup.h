/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file cgroup.h
 * Where the cgroups of processes are mounted, and whether they are frozen.
 */
#ifndef GPUCR_PROC_CGROUP_H
#define GPUCR_PROC_CGROUP_H

#include "proc/procfs.h"

enum { GPUCR_CGROUP_PATH_BYTES = 4096 };

/** A mount of a cgroup hierarchy; `folder` is NULL if there is none. */
struct gpucr_cgroup_mount {
    char *folder; /* where it is mounted */
    char *root;   /* which cgroup is seen there */
};

struct gpucr_cgroups {
    struct gpucr_cgroup_mount unified; /* v2, also in the hybrid layout */
    struct gpucr_cgroup_mount freezer; /* v1 */
};

/** Find them in /proc/self/mountinfo. Machines without cgroups are no error. */
int gpucr_cgroups_open(struct gpucr_cgroups *ret, struct gpucr_error *err);
void gpucr_cgroups_done(struct gpucr_cgroups *cgroups);

/**
 * The folder of the cgroup v2 of @p pid. GPUCR_ERR_UNSUPPORTED when v2 is not mounted
 * or the cgroup is not below the mount (another cgroup namespace).
 */
int gpucr_cgroup_folder(const struct gpucr_cgroups *cgroups, pid_t pid,
                        char ret[GPUCR_CGROUP_PATH_BYTES], struct gpucr_error *err);

/**
 * Is the process frozen, or will it be as soon as it gets there, by a cgroup of
 * either version? Returns 1 with the folder of the cgroup, 0 if not (or not visible).
 */
int gpucr_cgroup_frozen(const struct gpucr_cgroups *cgroups, pid_t pid,
                        char ret[GPUCR_CGROUP_PATH_BYTES]);

#endif
