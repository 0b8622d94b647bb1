/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Deadlines at their edges, and sleeps that signals do not shorten. */
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>

#include <cmocka.h>

#include "base/clock.h"

static void time_does_not_go_back(void **state)
{
    uint64_t last = gpucr_now_ns();

    (void)state;
    assert_true(last > 0);
    for (int i = 0; i < 100000; i++) {
        uint64_t now = gpucr_now_ns();

        assert_true(now >= last);
        last = now;
    }
}

static void a_deadline_of_nothing_has_passed(void **state)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(0);

    (void)state;
    assert_true(gpucr_deadline_passed(deadline));
    assert_int_equal(gpucr_deadline_left_ms(deadline), 0);
    assert_int_equal(gpucr_deadline_left_ms((struct gpucr_deadline){0}), 0);
}

static void a_deadline_passes_when_its_time_has_come(void **state)
{
    uint64_t begin_ns = gpucr_now_ns();
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(20);

    (void)state;
    while (!gpucr_deadline_passed(deadline)) {
        int left = gpucr_deadline_left_ms(deadline);

        assert_in_range(left, 0, 20);
        gpucr_sleep_us(500);
    }
    assert_true(gpucr_now_ns() - begin_ns >= 20 * 1000000ULL);
    assert_int_equal(gpucr_deadline_left_ms(deadline), 0);
}

/* Rounded up: a poll() with the rest never returns just before the deadline, to spin. */
static void the_rest_is_rounded_up(void **state)
{
    struct gpucr_deadline deadline = {.at_ns = gpucr_now_ns() + 60000000000ULL + 1};
    int left = gpucr_deadline_left_ms(deadline);
    uint64_t left_ns = deadline.at_ns - gpucr_now_ns();

    (void)state;
    assert_true((uint64_t)left * 1000000 >= left_ns);
    assert_in_range(left, 59000, 60001);
}

static void huge_times_never_pass(void **state)
{
    static const uint64_t huge[] = {UINT64_MAX, UINT64_MAX / 1000000, UINT64_MAX / 1000000 + 1,
                                    INT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++) {
        struct gpucr_deadline deadline = gpucr_deadline_in_ms(huge[i]);

        assert_false(gpucr_deadline_passed(deadline));
        assert_int_equal(gpucr_deadline_left_ms(deadline), INT_MAX);
    }
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

static void signals_do_not_shorten_a_sleep(void **state)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 1000}, {0, 1000}};
    struct itimerval never = {0};
    uint64_t begin_ns;

    (void)state;
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    begin_ns = gpucr_now_ns();
    gpucr_sleep_us(50000);
    assert_true(gpucr_now_ns() - begin_ns >= 50 * 1000000ULL);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_true(alarms > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_does_not_go_back),
        cmocka_unit_test(a_deadline_of_nothing_has_passed),
        cmocka_unit_test(a_deadline_passes_when_its_time_has_come),
        cmocka_unit_test(the_rest_is_rounded_up),
        cmocka_unit_test(huge_times_never_pass),
        cmocka_unit_test(signals_do_not_shorten_a_sleep),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
