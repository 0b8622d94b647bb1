/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Holds as the tests want them: they succeed, or fail with that code. */
#ifndef GPUCR_TESTS_PROC_HOLDING_H
#define GPUCR_TESTS_PROC_HOLDING_H

#include "proc/hold.h"

enum { HOLDING_MS = 10000 };

struct gpucr_hold *holding_take(pid_t root);
void holding_release(struct gpucr_hold *hold); /* and free */

/* The failure that is expected, within the time; the error is returned. */
struct gpucr_error holding_refused(pid_t root, uint64_t timeout_ms, int code);

/* Take and release while counter 0 moves: each time it stands still in between. */
void holding_often(pid_t root, int rounds);

#endif
