/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file netns.h
 * Doing something in the network namespace of another process.
 */
#ifndef GPUCR_ENGINE_NETNS_H
#define GPUCR_ENGINE_NETNS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/** Is the process in another network namespace than the caller? */
bool gpucr_netns_differs(pid_t pid);

/**
 * Call @p fn in the network namespace of @p pid and return what it returns, or an
 * error when the namespace cannot be entered. Where that is not the caller's, a
 * thread is started for it, which enters the namespace and ends in it.
 */
int gpucr_netns_call(pid_t pid, int (*fn)(void *arg, struct gpucr_error *err), void *arg,
                     struct gpucr_error *err);

#endif
