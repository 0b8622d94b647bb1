/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every item once, no more threads than asked for, signals left to the program. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/parallel.h"

enum { ITEMS_MAX = 5000 };

struct count {
    atomic_uint done[ITEMS_MAX];
    atomic_int inside;
    atomic_int most_inside;
    atomic_bool saw_open_signal;
    pthread_t caller;
    uint64_t sleep_us;
};

static void visit(void *arg, size_t index)
{
    struct count *count = arg;
    int now = atomic_fetch_add(&count->inside, 1) + 1;
    int most = atomic_load(&count->most_inside);

    while (now > most && !atomic_compare_exchange_weak(&count->most_inside, &most, now))
        ;
    atomic_fetch_add(&count->done[index], 1);
    if (!pthread_equal(pthread_self(), count->caller)) {
        sigset_t blocked;

        if (pthread_sigmask(SIG_SETMASK, NULL, &blocked) != 0 || !sigismember(&blocked, SIGTERM) ||
            !sigismember(&blocked, SIGINT))
            atomic_store(&count->saw_open_signal, true);
    }
    if (count->sleep_us)
        gpucr_sleep_us(count->sleep_us);
    atomic_fetch_sub(&count->inside, 1);
}

static void check_each_once(struct count *count, size_t items)
{
    for (size_t i = 0; i < ITEMS_MAX; i++)
        assert_int_equal(atomic_load(&count->done[i]), i < items ? 1 : 0);
}

static void every_item_is_done_once(void **state)
{
    static const size_t items[] = {0, 1, 2, 3, 17, ITEMS_MAX};
    static const size_t threads[] = {0, 1, 2, 3, 8, 1000};

    (void)state;
    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        for (size_t t = 0; t < sizeof(threads) / sizeof(threads[0]); t++) {
            static struct count count;

            count = (struct count){.caller = pthread_self()};
            gpucr_parallel_for(items[i], threads[t], visit, &count);
            check_each_once(&count, items[i]);
            assert_true(atomic_load(&count.most_inside) <= (int)(threads[t] ? threads[t] : 1));
            assert_false(atomic_load(&count.saw_open_signal));
        }
    }
}

static void threads_work_at_the_same_time(void **state)
{
    static struct count count;

    (void)state;
    count = (struct count){.caller = pthread_self(), .sleep_us = 20000};
    gpucr_parallel_for(8, 4, visit, &count);
    check_each_once(&count, 8);
    assert_in_range(atomic_load(&count.most_inside), 2, 4);
}

static void the_mask_of_the_caller_is_as_before(void **state)
{
    static struct count count;
    sigset_t set, before, after;

    (void)state;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &set, &before), 0);
    count = (struct count){.caller = pthread_self()};
    gpucr_parallel_for(10, 4, visit, &count);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, &after), 0);
    assert_true(sigismember(&after, SIGUSR1));
    assert_false(sigismember(&after, SIGTERM));
}

struct order {
    size_t seen[64];
    size_t count;
};

static void note_order(void *arg, size_t index)
{
    struct order *order = arg;

    order->seen[order->count++] = index;
}

static void one_thread_works_in_order(void **state)
{
    struct order order = {.count = 0};

    (void)state;
    gpucr_parallel_for(64, 1, note_order, &order);
    assert_int_equal(order.count, 64);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(order.seen[i], i);
}

/* The linker sends the library's calls here (--wrap): this many threads may still start. */
static size_t threads_left = SIZE_MAX;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg)
{
    if (threads_left == 0)
        return EAGAIN;
    threads_left--;
    return __real_pthread_create(thread, attr, start, arg);
}

static void without_threads_the_caller_works(void **state)
{
    static struct count count;

    (void)state;
    for (size_t left = 0; left < 3; left++) {
        count = (struct count){.caller = pthread_self(), .sleep_us = 200};
        threads_left = left;
        gpucr_parallel_for(100, 4, visit, &count);
        threads_left = SIZE_MAX;
        check_each_once(&count, 100);
        assert_in_range(atomic_load(&count.most_inside), 1, left + 1);
    }
}

static void *blocked_signals(void *arg)
{
    return pthread_sigmask(SIG_SETMASK, NULL, arg) == 0 ? arg : NULL;
}

static void a_started_thread_takes_no_signal(void **state)
{
    sigset_t inside, after;
    pthread_t thread;
    void *result = NULL;

    (void)state;
    assert_int_equal(gpucr_thread_start(&thread, blocked_signals, &inside), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &inside);
    assert_true(sigismember(&inside, SIGTERM));
    assert_true(sigismember(&inside, SIGINT));
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    assert_false(sigismember(&after, SIGTERM));
}

static void a_thread_that_does_not_start_leaves_the_mask_alone(void **state)
{
    sigset_t inside, after;
    pthread_t thread;

    (void)state;
    threads_left = 0;
    assert_int_equal(gpucr_thread_start(&thread, blocked_signals, &inside), EAGAIN);
    threads_left = SIZE_MAX;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    assert_false(sigismember(&after, SIGTERM));
}

static void cpus_are_those_of_this_process(void **state)
{
    cpu_set_t all, one;

    (void)state;
    assert_true(gpucr_cpu_count() >= 1);
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(gpucr_cpu_count(), CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(gpucr_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(threads_work_at_the_same_time),
        cmocka_unit_test(the_mask_of_the_caller_is_as_before),
        cmocka_unit_test(one_thread_works_in_order),
        cmocka_unit_test(without_threads_the_caller_works),
        cmocka_unit_test(a_started_thread_takes_no_signal),
        cmocka_unit_test(a_thread_that_does_not_start_leaves_the_mask_alone),
        cmocka_unit_test(cpus_are_those_of_this_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
