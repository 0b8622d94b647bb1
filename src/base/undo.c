/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/undo.h"

#include <assert.h>

#include "base/log.h"

void gpucr_undo_push(struct gpucr_undo *undo, const char *what, gpucr_undo_fn fn, void *arg)
{
    assert(undo->count < GPUCR_UNDO_MAX);
    undo->actions[undo->count].what = what;
    undo->actions[undo->count].fn = fn;
    undo->actions[undo->count].arg = arg;
    undo->count++;
}

void gpucr_undo_pop(struct gpucr_undo *undo)
{
    assert(undo->count > 0);
    undo->count--;
}

void gpucr_undo_clear(struct gpucr_undo *undo)
{
    undo->count = 0;
}

int gpucr_undo_run(struct gpucr_undo *undo, struct gpucr_error *err)
{
    int first = 0;

    while (undo->count > 0) {
        struct gpucr_error one = GPUCR_ERROR_INIT;
        size_t i = --undo->count;
        int rc;

        gpucr_info("undo: %s", undo->actions[i].what);
        rc = undo->actions[i].fn(undo->actions[i].arg, &one);
        if (rc >= 0)
            continue;
        gpucr_warn("undo failed: %s: %s", undo->actions[i].what, one.text);
        if (first == 0) {
            first = rc;
            if (err)
                *err = one;
        }
    }
    return first;
}
