/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file undo.h
 * How a half-done operation goes back: a stack of actions, each pushed before
 * or right after the step it undoes, run in reverse. An action that fails does
 * not stop the ones below it; the first failure is reported.
 */
#ifndef GPUCR_BASE_UNDO_H
#define GPUCR_BASE_UNDO_H

#include <stddef.h>

#include <gpucr/error.h>

enum { GPUCR_UNDO_MAX = 64 };

typedef int (*gpucr_undo_fn)(void *arg, struct gpucr_error *err);

struct gpucr_undo {
    struct {
        const char *what; /**< static string for the log: "unlock the group" */
        gpucr_undo_fn fn;
        void *arg;
    } actions[GPUCR_UNDO_MAX];
    size_t count;
};

/** Add an action. The stack is sized for the longest flow; overflow is a bug. */
void gpucr_undo_push(struct gpucr_undo *undo, const char *what, gpucr_undo_fn fn, void *arg);

/** Forget the newest action: its step was undone or completed otherwise. */
void gpucr_undo_pop(struct gpucr_undo *undo);

/** Forget all: the operation succeeded. */
void gpucr_undo_clear(struct gpucr_undo *undo);

/** Run all, newest first, and empty the stack. 0, or the code of the first failure (in err). */
int gpucr_undo_run(struct gpucr_undo *undo, struct gpucr_error *err);

#endif
