/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/map_diff.h"

#include <string.h>

/* The row of a list that covers @p at or comes next after it. */
static const struct gpucr_mapping *row_at(const struct gpucr_maps *maps, size_t *index, uint64_t at)
{
    while (*index < maps->count && maps->items[*index].end <= at)
        (*index)++;
    return *index < maps->count ? &maps->items[*index] : NULL;
}

static bool covers(const struct gpucr_mapping *row, uint64_t at)
{
    return row && row->start <= at;
}

static uint64_t next_edge(const struct gpucr_mapping *row, uint64_t at)
{
    if (!row)
        return UINT64_MAX;
    return row->start <= at ? row->end : row->start;
}

static bool same_memory(const struct gpucr_mapping *a, const struct gpucr_mapping *b)
{
    if (a->shared != b->shared || a->inode != b->inode || a->dev_major != b->dev_major ||
        a->dev_minor != b->dev_minor)
        return false;
    /* Offsets mean something for files only; "[heap]" and the like may come and go. */
    return !a->inode || a->offset - a->start == b->offset - b->start;
}

static bool same_protection(const struct gpucr_mapping *a, const struct gpucr_mapping *b)
{
    return a->readable == b->readable && a->writable == b->writable &&
           a->executable == b->executable;
}

int gpucr_map_diff(const struct gpucr_maps *before, const struct gpucr_maps *now,
                   gpucr_map_change_fn fn, void *arg, struct gpucr_error *err)
{
    size_t i = 0, j = 0;
    uint64_t at = 0;

    for (;;) {
        const struct gpucr_mapping *a = row_at(before, &i, at);
        const struct gpucr_mapping *b = row_at(now, &j, at);
        if (!a && !b)
            return 0;
        uint64_t end_a = next_edge(a, at), end_b = next_edge(b, at);
        struct gpucr_map_change change = {.start = at, .end = end_a < end_b ? end_a : end_b};
        change.before = covers(a, at) ? a : NULL;
        change.now = covers(b, at) ? b : NULL;
        at = change.end;
        if (!change.before && !change.now)
            continue;
        if (!change.before)
            change.kind = GPUCR_MAP_ADDED;
        else if (!change.now)
            change.kind = GPUCR_MAP_REMOVED;
        else if (!same_memory(a, b))
            change.kind = GPUCR_MAP_REPLACED;
        else if (!same_protection(a, b))
            change.kind = GPUCR_MAP_PROTECTION;
        else
            continue;
        int rc = fn(arg, &change, err);
        if (rc)
            return rc;
    }
}
