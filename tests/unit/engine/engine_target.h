/* SPDX-License-Identifier: LGPL-2.1-or-later */
/** What engine_target shows in the file that it shares with the test. */
#ifndef TESTS_UNIT_ENGINE_ENGINE_TARGET_H
#define TESTS_UNIT_ENGINE_ENGINE_TARGET_H

#include <stdint.h>

enum { ENGINE_TARGET_THREADS_MAX = 16 };

struct engine_target_page {
    int32_t pid;        /* set when it runs */
    int32_t broken;     /* errno when the connection failed, 0: never */
    uint64_t exchanged; /* bytes that went over the connection */
    uint64_t counts[ENGINE_TARGET_THREADS_MAX];
    uint32_t verify_wanted; /* raised by the test */
    uint32_t verify_done;   /* follows when the memory was checked */
    uint32_t memory_good;
};

#endif
