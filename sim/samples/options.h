/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SAMPLE_OPTIONS_H
#define SAMPLE_OPTIONS_H

#include "gpu_work.h"

#include <stdbool.h>
#include <stdint.h>

struct sample_options {
    uint64_t bytes; /* device memory on each GPU */
    int devices[SAMPLE_GPU_MAX];
    int device_count; /* -1: all */
    enum gpu_memory memory;
    uint64_t period_ms;
    uint64_t spin_ms; /* a kernel of that length in each turn */
    uint64_t pinned_bytes;
    uint64_t host_bytes;
    uint64_t threads;
    uint64_t timer_us;
    bool count_term;
    bool nvml;
    const char *fork_tree;
    const char *tick_file;
    const char *leftover_fd; /* opened and kept, as a program would that uses a device itself */
    bool print_ptx;
};

/* Ends the program with a usage text when a word is not understood. */
void sample_options_parse(struct sample_options *options, int argc, char **argv);

/* Parses "cuda=2,cpu=1". False when it is not like that. */
bool sample_tree_parse(const char *text, unsigned *cuda, unsigned *cpu);

#endif
