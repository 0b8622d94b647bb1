/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cpuonly: what counter does, in ordinary memory and without a GPU. */
#define _GNU_SOURCE
#include "cpu_threads.h"
#include "options.h"
#include "output.h"
#include "pattern.h"
#include "signals.h"

#include <stdlib.h>
#include <unistd.h>

#define HOST_SEED 0x6000000000000000ull

static uint64_t *words;
static uint64_t counter;

static void verify(const struct sample_options *options)
{
    sample_say("verify counter=%llu bad=%llu pinned_bad=0 timer=%llu term=%llu pid=%d "
               "expected=%llu threads=%llu thread_bad=%llu bytes=%llu",
               (unsigned long long)counter,
               (unsigned long long)sample_pattern_check(words, options->host_bytes / 8, HOST_SEED),
               (unsigned long long)signals_timer_ticks(), (unsigned long long)signals_terms(),
               getpid(), (unsigned long long)counter, (unsigned long long)cpu_threads_progress(),
               (unsigned long long)cpu_threads_bad(), (unsigned long long)options->host_bytes);
}

int main(int argc, char **argv)
{
    struct sample_options options;

    sample_options_parse(&options, argc, argv);
    if (!options.host_bytes)
        options.host_bytes = 16ull << 20;
    signals_install(options.count_term);
    words = malloc(options.host_bytes);
    if (!words)
        sample_die("call=malloc");
    sample_pattern_fill(words, options.host_bytes / 8, HOST_SEED);
    cpu_threads_start(options.threads, options.tick_file);
    signals_start_timer(options.timer_us);
    sample_say("ready pid=%d devices=0 bytes=%llu", getpid(),
               (unsigned long long)options.host_bytes);
    while (!signals_end) {
        counter++;
        sample_sleep_until(sample_now_ns() + (options.period_ms + 1) * 1000000, &signals_woken);
        signals_woken = 0;
        if (signals_verify) {
            signals_verify = 0;
            verify(&options);
        }
    }
    verify(&options);
    return 0;
}
