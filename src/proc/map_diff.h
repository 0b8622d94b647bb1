/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file map_diff.h
 * How the mappings of a process changed. Compared as ranges of addresses, not as
 * rows of /proc/PID/maps: the kernel splits and merges rows at will.
 */
#ifndef GPUCR_PROC_MAP_DIFF_H
#define GPUCR_PROC_MAP_DIFF_H

#include "proc/procfs.h"

enum gpucr_map_change_kind {
    GPUCR_MAP_ADDED,
    GPUCR_MAP_REMOVED,
    GPUCR_MAP_REPLACED,  /* other memory at the same addresses */
    GPUCR_MAP_PROTECTION /* the same memory, but other access rights */
};

struct gpucr_map_change {
    enum gpucr_map_change_kind kind;
    uint64_t start, end;
    const struct gpucr_mapping *before, *now; /* NULL for added, for removed */
};

/** A non-zero return ends the walk and is its result. */
typedef int (*gpucr_map_change_fn)(void *arg, const struct gpucr_map_change *change,
                                   struct gpucr_error *err);

/** Both lists ascending, as the kernel gives them. */
int gpucr_map_diff(const struct gpucr_maps *before, const struct gpucr_maps *now,
                   gpucr_map_change_fn fn, void *arg, struct gpucr_error *err);

#endif
