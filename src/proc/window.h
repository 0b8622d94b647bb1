/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file window.h
 * The windows of tracer.h as seen by the thread that owns them; every function
 * here must be called on that thread.
 */
#ifndef GPUCR_PROC_WINDOW_H
#define GPUCR_PROC_WINDOW_H

#include "proc/procfs.h"

struct gpucr_window;

struct gpucr_windows {
    struct gpucr_window *first;
};

int gpucr_windows_open(struct gpucr_windows *windows, pid_t pid, struct gpucr_error *err);
int gpucr_windows_close(struct gpucr_windows *windows, pid_t pid, struct gpucr_error *err);

/** Close all, failures are logged. */
void gpucr_windows_close_all(struct gpucr_windows *windows);

/** Handle what the traced threads reported since; returns the number of reports. */
unsigned gpucr_windows_pump(struct gpucr_windows *windows);

/** Find reports that another thread of this program took: to be called now and then. */
unsigned gpucr_windows_recover(struct gpucr_windows *windows);

#endif
