/* SPDX-License-Identifier: LGPL-2.1-or-later */
/** @file proc_snapshot_child.h  Running the self-checking program, and looking after it. */
#ifndef GPUCR_TESTS_PROC_SNAPSHOT_CHILD_H
#define GPUCR_TESTS_PROC_SNAPSHOT_CHILD_H

#include "proc/snapshot.h"
#include "proc_snapshot_target.h"

struct target {
    struct target_board *board;
    struct gpucr_tracer *tracer;
    pid_t pid;
    char dir[64]; /* for its file and the images */
};

/** For cmocka: the state is a struct target. */
int snapshot_target_setup(void **state);
int snapshot_target_teardown(void **state);

void snapshot_target_stop(const struct target *target);

/** SIGCONT; then all threads go on, and none has seen what may not be. */
void assert_snapshot_target_goes_on(const struct target *target);

/** These fail the test with the error's text; the process is all T afterwards. */
struct gpucr_snapshot *take_snapshot(const struct target *target);
struct gpucr_repair repair_snapshot(const struct target *target,
                                    const struct gpucr_snapshot *snapshot);

void remove_flat_dir(const char *dir);

#endif
