/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/tracer.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/parallel.h"
#include "proc/window.h"

enum { SLEEP_US_MIN = 50, SLEEP_US_MAX = 500, RECOVER_EVERY = 20 };

struct request {
    struct request *next;
    int (*fn)(void *arg, struct gpucr_error *err);
    void *arg;
    struct gpucr_error *err; /* the caller's, which waits until we are done */
    int code;
    bool done;
};

struct gpucr_tracer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;   /* a request, or the end */
    pthread_cond_t answer; /* some request is done */
    struct request *first, **last;
    bool ending;
    struct gpucr_windows windows; /* only for the thread */
};

static void sleep_until_work(struct gpucr_tracer *tracer, uint64_t us)
{
    struct timespec at;

    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += (long)us * 1000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    (void)pthread_cond_timedwait(&tracer->work, &tracer->lock, &at);
}

/* Called with the lock; serves the open windows while it waits. NULL at the end. */
static struct request *next_request(struct gpucr_tracer *tracer)
{
    uint64_t sleep_us = SLEEP_US_MIN;

    for (unsigned idle = 0; !tracer->first && !tracer->ending;) {
        if (!tracer->windows.first) {
            (void)pthread_cond_wait(&tracer->work, &tracer->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&tracer->lock);
        unsigned count = gpucr_windows_pump(&tracer->windows);
        if (!count && ++idle % RECOVER_EVERY == 0)
            count = gpucr_windows_recover(&tracer->windows);
        (void)pthread_mutex_lock(&tracer->lock);
        if (count)
            sleep_us = SLEEP_US_MIN;
        if (!tracer->first && !tracer->ending)
            sleep_until_work(tracer, sleep_us);
        sleep_us = sleep_us * 3 / 2 > SLEEP_US_MAX ? SLEEP_US_MAX : sleep_us * 3 / 2;
    }
    struct request *request = tracer->first;
    if (request) {
        tracer->first = request->next;
        if (!tracer->first)
            tracer->last = &tracer->first;
    }
    return request;
}

static void *tracer_main(void *arg)
{
    struct gpucr_tracer *tracer = arg;
    struct request *request;

    (void)pthread_mutex_lock(&tracer->lock);
    while ((request = next_request(tracer))) {
        (void)pthread_mutex_unlock(&tracer->lock);
        request->code = request->fn(request->arg, request->err);
        (void)pthread_mutex_lock(&tracer->lock);
        request->done = true;
        (void)pthread_cond_broadcast(&tracer->answer);
    }
    (void)pthread_mutex_unlock(&tracer->lock);
    gpucr_windows_close_all(&tracer->windows);
    return NULL;
}

static int start_thread(struct gpucr_tracer *tracer)
{
    int rc = gpucr_thread_start(&tracer->thread, tracer_main, tracer);

    if (!rc)
        (void)pthread_setname_np(tracer->thread, "gpucr-tracer");
    return rc;
}

static void destroy(struct gpucr_tracer *tracer)
{
    (void)pthread_cond_destroy(&tracer->answer);
    (void)pthread_cond_destroy(&tracer->work);
    (void)pthread_mutex_destroy(&tracer->lock);
    free(tracer);
}

int gpucr_tracer_new(struct gpucr_tracer **ret, struct gpucr_error *err)
{
    pthread_condattr_t attr;
    struct gpucr_tracer *tracer = calloc(1, sizeof(*tracer));

    if (!tracer)
        return gpucr_error_no_memory(err);
    tracer->last = &tracer->first;
    (void)pthread_mutex_init(&tracer->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&tracer->work, &attr);
    (void)pthread_cond_init(&tracer->answer, NULL);
    (void)pthread_condattr_destroy(&attr);
    int os_errno = start_thread(tracer);
    if (os_errno) {
        destroy(tracer);
        return gpucr_error_errno(err, os_errno, "cannot start the thread that traces");
    }
    *ret = tracer;
    return 0;
}

struct gpucr_tracer *gpucr_tracer_free(struct gpucr_tracer *tracer)
{
    if (!tracer)
        return NULL;
    (void)pthread_mutex_lock(&tracer->lock);
    tracer->ending = true;
    (void)pthread_cond_signal(&tracer->work);
    (void)pthread_mutex_unlock(&tracer->lock);
    (void)pthread_join(tracer->thread, NULL);
    assert(!tracer->first);
    destroy(tracer);
    return NULL;
}

int gpucr_tracer_call(struct gpucr_tracer *tracer, int (*fn)(void *arg, struct gpucr_error *err),
                      void *arg, struct gpucr_error *err)
{
    struct request request = {.fn = fn, .arg = arg, .err = err};

    if (pthread_equal(pthread_self(), tracer->thread))
        return fn(arg, err);
    GPUCR_SCOPED_LOCK(held, &tracer->lock);
    assert(!tracer->ending);
    *tracer->last = &request;
    tracer->last = &request.next;
    (void)pthread_cond_signal(&tracer->work);
    while (!request.done)
        (void)pthread_cond_wait(&tracer->answer, &tracer->lock);
    return request.code;
}

struct window_arg {
    struct gpucr_windows *windows;
    pid_t pid;
};

static int open_call(void *arg, struct gpucr_error *err)
{
    const struct window_arg *window = arg;

    return gpucr_windows_open(window->windows, window->pid, err);
}

static int close_call(void *arg, struct gpucr_error *err)
{
    const struct window_arg *window = arg;

    return gpucr_windows_close(window->windows, window->pid, err);
}

int gpucr_tracer_open_window(struct gpucr_tracer *tracer, pid_t pid, struct gpucr_error *err)
{
    struct window_arg arg = {.windows = &tracer->windows, .pid = pid};

    return gpucr_tracer_call(tracer, open_call, &arg, err);
}

int gpucr_tracer_close_window(struct gpucr_tracer *tracer, pid_t pid, struct gpucr_error *err)
{
    struct window_arg arg = {.windows = &tracer->windows, .pid = pid};

    return gpucr_tracer_call(tracer, close_call, &arg, err);
}
