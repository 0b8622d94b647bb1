/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

enum { THREADS_MAX = 256 };

struct parallel {
    gpucr_parallel_fn fn;
    void *arg;
    size_t count;
    atomic_size_t next;
};

static void *work(void *arg)
{
    struct parallel *p = arg;

    for (;;) {
        size_t i = atomic_fetch_add(&p->next, 1);

        if (i >= p->count)
            return NULL;
        p->fn(p->arg, i);
    }
}

int gpucr_thread_start(pthread_t *ret, void *(*fn)(void *arg), void *arg)
{
    sigset_t all;
    sigset_t before;
    int rc;

    /* Signals belong to the program's own threads; a new thread inherits the mask. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(ret, NULL, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void gpucr_parallel_for(size_t count, size_t thread_max, gpucr_parallel_fn fn, void *arg)
{
    struct parallel p = {.fn = fn, .arg = arg, .count = count};
    pthread_t threads[THREADS_MAX];
    size_t started = 0;

    if (thread_max > THREADS_MAX)
        thread_max = THREADS_MAX;
    while (started + 1 < thread_max && started + 1 < count) {
        if (gpucr_thread_start(&threads[started], work, &p) != 0)
            break;
        started++;
    }
    (void)work(&p);
    while (started > 0)
        (void)pthread_join(threads[--started], NULL);
}

size_t gpucr_cpu_count(void)
{
    cpu_set_t set;
    int n;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    n = CPU_COUNT(&set);
    return n > 0 ? (size_t)n : 1;
}
