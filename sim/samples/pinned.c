/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "pinned.h"

#include "cuda_api.h"
#include "gpu_work.h"
#include "output.h"
#include "pattern.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

#define SEED 0x7000000000000000ull

static uint64_t *words;
static uint64_t word_count;
static _Atomic uint64_t polls;

static void *poll_flag(void *arg)
{
    const volatile uint64_t *flag = words;
    uint64_t first = *flag;

    (void)arg;
    for (uint64_t i = 1;; i++) {
        /* The last word is a second place, far from the first. */
        if (flag[0] != first || flag[word_count - 1] == first + 1)
            sample_say("poll-changed value=%llu", (unsigned long long)*flag);
        atomic_fetch_add(&polls, 1);
        if (i % 4096 == 0)
            sched_yield();
    }
    return NULL;
}

static void *synchronize(void *arg)
{
    (void)arg;
    for (;;) {
        gpu_synchronize();
        sample_sleep_until(sample_now_ns() + 500000, NULL);
    }
    return NULL;
}

static void start(void *(*run)(void *arg))
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, run, NULL) != 0)
        sample_die("call=pthread_create");
    pthread_detach(thread);
}

void pinned_start(uint64_t bytes)
{
    void *memory;

    if (!bytes)
        return;
    cuda_expect("cuMemHostAlloc", cuda_api()->host_alloc(&memory, bytes, 0));
    words = memory;
    word_count = bytes / 8;
    sample_pattern_fill(words, word_count, SEED);
    start(poll_flag);
    start(synchronize);
}

uint64_t pinned_bad(void)
{
    return sample_pattern_check(words, word_count, SEED);
}

uint64_t pinned_polls(void)
{
    return atomic_load(&polls);
}
