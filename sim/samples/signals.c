/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "signals.h"

#include "output.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

volatile int signals_verify;
volatile int signals_end;
volatile int signals_woken;

static _Atomic uint64_t ticks;
static _Atomic uint64_t terms;

static void on_signal(int number)
{
    if (number == SIGALRM) {
        atomic_fetch_add(&ticks, 1);
        return;
    }
    if (number == SIGTERM) {
        atomic_fetch_add(&terms, 1);
        return;
    }
    if (number == SIGUSR1)
        signals_verify = 1;
    if (number == SIGUSR2)
        signals_end = 1;
    signals_woken = 1;
}

static void install(int number)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigemptyset(&action.sa_mask);
    if (sigaction(number, &action, NULL) != 0)
        sample_die("call=sigaction signal=%d", number);
}

void signals_install(bool count_term)
{
    install(SIGUSR1);
    install(SIGUSR2);
    install(SIGALRM);
    if (count_term)
        install(SIGTERM);
}

void signals_start_timer(uint64_t period_us)
{
    struct itimerval period = {.it_interval = {.tv_sec = (time_t)(period_us / 1000000),
                                               .tv_usec = (suseconds_t)(period_us % 1000000)}};

    if (!period_us)
        return;
    period.it_value = period.it_interval;
    if (setitimer(ITIMER_REAL, &period, NULL) != 0)
        sample_die("call=setitimer");
}

uint64_t signals_timer_ticks(void)
{
    return atomic_load(&ticks);
}

uint64_t signals_terms(void)
{
    return atomic_load(&terms);
}
