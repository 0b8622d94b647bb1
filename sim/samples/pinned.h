/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pinned host memory that one thread reads all the time while another synchronises the GPU. */
#ifndef SAMPLE_PINNED_H
#define SAMPLE_PINNED_H

#include <stdint.h>

/* Needs a GPU that was added; 0 bytes: nothing. */
void pinned_start(uint64_t bytes);
uint64_t pinned_bad(void);
/* How often the poller looked. */
uint64_t pinned_polls(void);

#endif
