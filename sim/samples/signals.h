/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The signals that the samples take. The handlers set flags and count, nothing else. */
#ifndef SAMPLE_SIGNALS_H
#define SAMPLE_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

/* Set by SIGUSR1 and SIGUSR2; woken is set by both and ends a sample_sleep_until(). */
extern volatile int signals_verify;
extern volatile int signals_end;
extern volatile int signals_woken;

void signals_install(bool count_term);
/* A timer of that period; 0: none. */
void signals_start_timer(uint64_t period_us);
uint64_t signals_timer_ticks(void);
uint64_t signals_terms(void);

#endif
