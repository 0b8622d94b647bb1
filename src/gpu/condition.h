/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file condition.h
 * Can a process answer the driver? A stopped or frozen one cannot, and a call
 * would wait for as long as it stays so: /proc is asked before every call.
 */
#ifndef GPUCR_GPU_CONDITION_H
#define GPUCR_GPU_CONDITION_H

#include "proc/procfs.h"

enum gpucr_condition {
    GPUCR_CONDITION_RUNS,    /* its threads can run: it answers */
    GPUCR_CONDITION_STOPPED, /* T: answers through a tracer window only */
    GPUCR_CONDITION_TRACED,  /* t: held by a debugger */
    GPUCR_CONDITION_FROZEN,  /* in a frozen cgroup (v1 or v2) */
    GPUCR_CONDITION_GONE,    /* ended, or a zombie */
};

/** Look at one process. Fails only where /proc cannot be read. */
int gpucr_condition_read(pid_t pid, enum gpucr_condition *ret, struct gpucr_error *err);

/**
 * Has it ended? A zombie has, and one that a signal is ending; one whose first thread
 * alone has ended has not.
 */
bool gpucr_condition_is_gone(pid_t pid);

/**
 * The same, but give a process that has just been killed a moment for it: the driver
 * may notice earlier than /proc shows it.
 */
bool gpucr_condition_await_end(pid_t pid, uint64_t timeout_ms);

/** "process 4711 (python3)", or without the name if it cannot be read. */
void gpucr_condition_describe(pid_t pid, char *ret, size_t size);

#endif
