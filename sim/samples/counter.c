/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * counter: counts in the memory of its GPUs and verifies a pattern there when it is asked.
 *
 *     ready pid=N ...
 *     verify counter=N bad=N pinned_bad=N timer=N term=N pid=N expected=N ...
 *
 * counter is what the GPUs hold, expected what the CPU side has launched: they must be the same.
 */
#define _GNU_SOURCE
#include "cpu_threads.h"
#include "gpu_work.h"
#include "options.h"
#include "output.h"
#include "pattern.h"
#include "pinned.h"
#include "ptx.h"
#include "signals.h"
#include "tree.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HOST_SEED 0x6000000000000000ull

static uint64_t launched;
static uint64_t *host_words;

static void verify(const struct sample_options *options, bool end)
{
    uint64_t counter = gpu_counter(), bad = gpu_bad();

    tree_verify(end);
    sample_say(
        "verify counter=%llu bad=%llu pinned_bad=%llu timer=%llu term=%llu pid=%d "
        "expected=%llu host_bad=%llu threads=%llu thread_bad=%llu polls=%llu devices=%d "
        "bytes=%llu",
        (unsigned long long)counter, (unsigned long long)bad,
        (unsigned long long)(options->pinned_bytes ? pinned_bad() : 0),
        (unsigned long long)signals_timer_ticks(), (unsigned long long)signals_terms(), getpid(),
        (unsigned long long)launched,
        (unsigned long long)sample_pattern_check(host_words, options->host_bytes / 8, HOST_SEED),
        (unsigned long long)cpu_threads_progress(), (unsigned long long)cpu_threads_bad(),
        (unsigned long long)pinned_polls(), gpu_added(), (unsigned long long)options->bytes);
}

static void start_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void) = library ? (int (*)(void))dlsym(library, "nvmlInit_v2") : NULL;

    if (!init || init() != 0)
        sample_die("call=nvmlInit");
}

static void open_leftover(const char *path)
{
    if (open(path, O_RDWR | O_CLOEXEC) < 0)
        sample_die("call=open path=%s", path);
}

static void add_devices(const struct sample_options *options)
{
    int found = gpu_init();

    if (options->device_count < 0) {
        for (int i = 0; i < found && i < SAMPLE_GPU_MAX; i++)
            gpu_add(i, options->bytes, options->memory);
        return;
    }
    for (int i = 0; i < options->device_count; i++)
        gpu_add(options->devices[i], options->bytes, options->memory);
}

static void prepare(const struct sample_options *options)
{
    signals_install(options->count_term);
    tree_start(options);
    if (options->leftover_fd)
        open_leftover(options->leftover_fd);
    if (options->nvml)
        start_nvml();
    if (options->host_bytes) {
        host_words = malloc(options->host_bytes);
        if (!host_words)
            sample_die("call=malloc");
        sample_pattern_fill(host_words, options->host_bytes / 8, HOST_SEED);
    }
    add_devices(options);
    pinned_start(options->pinned_bytes);
    cpu_threads_start(options->threads, options->tick_file);
    signals_start_timer(options->timer_us);
}

static void count(const struct sample_options *options)
{
    gpu_increment();
    launched += (uint64_t)gpu_added();
    if (options->spin_ms) {
        gpu_spin(options->spin_ms);
        launched += (uint64_t)gpu_added();
    }
}

int main(int argc, char **argv)
{
    struct sample_options options;

    sample_options_parse(&options, argc, argv);
    if (options.print_ptx)
        return fputs(sample_ptx, stdout) < 0;
    prepare(&options);
    sample_say("ready pid=%d devices=%d bytes=%llu", getpid(), gpu_added(),
               (unsigned long long)options.bytes);
    while (!signals_end) {
        count(&options);
        if (options.period_ms)
            sample_sleep_until(sample_now_ns() + options.period_ms * 1000000, &signals_woken);
        signals_woken = 0;
        if (signals_verify) {
            signals_verify = 0;
            verify(&options, false);
        }
    }
    verify(&options, true);
    return 0;
}
