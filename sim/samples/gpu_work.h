/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a sample keeps on its GPUs: a counter and a pattern on each. */
#ifndef SAMPLE_GPU_WORK_H
#define SAMPLE_GPU_WORK_H

#include <stdbool.h>
#include <stdint.h>

#define SAMPLE_GPU_MAX 16

enum gpu_memory {
    GPU_MEMORY_PLAIN,
    GPU_MEMORY_VMM,
    GPU_MEMORY_MANAGED,
};

/* Initialises CUDA; returns the number of GPUs. */
int gpu_init(void);
/* Puts counter and pattern (bytes of it, a multiple of 8) on a GPU. */
void gpu_add(int device, uint64_t bytes, enum gpu_memory memory);
int gpu_added(void);
/* One increment on each GPU. */
void gpu_increment(void);
/* Starts a kernel of so many milliseconds on each GPU; it increments too. */
void gpu_spin(uint64_t ms);
/* Waits for the first GPU; makes its context current where none is. */
void gpu_synchronize(void);
/* The sum of the counters, and of the words that are not as the pattern says. */
uint64_t gpu_counter(void);
uint64_t gpu_bad(void);

#endif
