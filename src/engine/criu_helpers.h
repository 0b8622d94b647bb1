/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_helpers.h
 * The descendants of criu, held by descriptors so that no stranger with a reused pid
 * is ever hit.
 */
#ifndef GPUCR_ENGINE_CRIU_HELPERS_H
#define GPUCR_ENGINE_CRIU_HELPERS_H

#include "proc/procfs.h"

struct gpucr_criu_helper {
    pid_t pid;
    int pidfd;
};

struct gpucr_criu_helpers {
    struct gpucr_criu_helper *items;
    size_t count;
    size_t capacity;
};

/** Add @p pid if it is not there yet and still lives. */
void gpucr_criu_helpers_add(struct gpucr_criu_helpers *helpers, pid_t pid);

/** Add all descendants of @p top (not itself). */
void gpucr_criu_helpers_collect(struct gpucr_criu_helpers *helpers, pid_t top);

/** SIGKILL to all; those that are children of the caller are reaped. */
void gpucr_criu_helpers_end(struct gpucr_criu_helpers *helpers);

void gpucr_criu_helpers_done(struct gpucr_criu_helpers *helpers);

#endif
