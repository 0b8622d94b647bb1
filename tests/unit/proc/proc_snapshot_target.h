/* SPDX-License-Identifier: LGPL-2.1-or-later */
/** @file proc_snapshot_target.h  What the self-checking program tells. */
#ifndef GPUCR_TESTS_PROC_SNAPSHOT_TARGET_H
#define GPUCR_TESTS_PROC_SNAPSHOT_TARGET_H

#include <stdatomic.h>
#include <stdint.h>

enum { TARGET_SLOTS = 16, TARGET_FUTEX_SLOT = 5, TARGET_READ_SLOT = 6 };

struct target_board {
    _Atomic uint64_t rounds[TARGET_SLOTS];
    _Atomic uint64_t wrong[TARGET_SLOTS];
    _Atomic uint32_t word; /* a futex; change and wake */
    _Atomic uint32_t thread_count;
    _Atomic uint32_t ready;
    _Atomic uint32_t leader_ends; /* set: the first thread leaves the others alone */
};

#endif
