/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The sink: levels, nothing formatted without a listener, one call at a time. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/parallel.h"

struct heard {
    unsigned lines;
    enum gpucr_log_level level;
    char text[4096];
    atomic_int inside;
    atomic_bool overlapped;
};

static void hear(void *arg, enum gpucr_log_level level, const char *text)
{
    struct heard *heard = arg;

    if (atomic_fetch_add(&heard->inside, 1) != 0)
        atomic_store(&heard->overlapped, true);
    heard->lines++;
    heard->level = level;
    (void)snprintf(heard->text, sizeof(heard->text), "%s", text);
    atomic_fetch_sub(&heard->inside, 1);
}

static int silence(void **state)
{
    (void)state;
    gpucr_log_set(NULL, NULL, GPUCR_LOG_ERROR);
    return 0;
}

static unsigned evaluated;

static const char *argument(void)
{
    evaluated++;
    return "x";
}

static void without_a_sink_nothing_is_evaluated(void **state)
{
    (void)state;
    evaluated = 0;
    gpucr_log(GPUCR_LOG_ERROR, "%s", argument());
    gpucr_warn("%s", argument());
    assert_int_equal(evaluated, 0);
    assert_false(gpucr_log_wants(GPUCR_LOG_ERROR));
    /* a level without a function is no listener either */
    gpucr_log_set(NULL, NULL, GPUCR_LOG_TRACE);
    gpucr_warn("%s", argument());
    assert_int_equal(evaluated, 0);
}

static void only_wanted_levels_arrive(void **state)
{
    static struct heard heard;

    (void)state;
    for (int level = GPUCR_LOG_ERROR; level <= GPUCR_LOG_TRACE; level++) {
        heard = (struct heard){0};
        gpucr_log_set(hear, &heard, (enum gpucr_log_level)level);
        gpucr_log(GPUCR_LOG_ERROR, "error");
        gpucr_warn("warn");
        gpucr_info("info");
        gpucr_debug("debug");
        gpucr_trace("trace");
        assert_int_equal(heard.lines, level + 1);
        assert_int_equal(heard.level, level);
        for (int other = GPUCR_LOG_ERROR; other <= GPUCR_LOG_TRACE; other++)
            assert_int_equal(gpucr_log_wants((enum gpucr_log_level)other), other <= level);
    }
}

static void a_line_arrives_as_formatted(void **state)
{
    static struct heard heard;

    (void)state;
    heard = (struct heard){0};
    gpucr_log_set(hear, &heard, GPUCR_LOG_INFO);
    gpucr_info("process %d: %s", 12, "100% done");
    assert_string_equal(heard.text, "process 12: 100% done");
}

static void a_long_line_is_cut(void **state)
{
    static struct heard heard;
    char big[8192];

    (void)state;
    heard = (struct heard){0};
    (void)memset(big, 'y', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    gpucr_log_set(hear, &heard, GPUCR_LOG_INFO);
    gpucr_info("%s", big);
    assert_int_equal(heard.lines, 1);
    assert_in_range(strlen(heard.text), 1000, sizeof(heard.text) - 1);
    assert_int_equal(strspn(heard.text, "y"), strlen(heard.text));
}

static void the_last_sink_wins(void **state)
{
    static struct heard one, two;

    (void)state;
    one = (struct heard){0};
    two = (struct heard){0};
    gpucr_log_set(hear, &one, GPUCR_LOG_INFO);
    gpucr_log_set(hear, &two, GPUCR_LOG_INFO);
    gpucr_info("hello");
    assert_int_equal(one.lines, 0);
    assert_int_equal(two.lines, 1);
    gpucr_log_set(NULL, NULL, GPUCR_LOG_INFO);
    gpucr_info("nobody");
    /* a thread that passed the level check just before the sink went away */
    gpucr_log_write(GPUCR_LOG_INFO, "nobody");
    assert_int_equal(two.lines, 1);
}

static void write_lines(void *arg, size_t index)
{
    (void)arg;
    for (int i = 0; i < 200; i++)
        gpucr_info("thread %zu line %d", index, i);
}

static void one_call_at_a_time(void **state)
{
    static struct heard heard;

    (void)state;
    heard = (struct heard){0};
    gpucr_log_set(hear, &heard, GPUCR_LOG_INFO);
    gpucr_parallel_for(8, 8, write_lines, NULL);
    assert_int_equal(heard.lines, 8 * 200);
    assert_false(atomic_load(&heard.overlapped));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_sink_nothing_is_evaluated, silence, silence),
        cmocka_unit_test_setup_teardown(only_wanted_levels_arrive, silence, silence),
        cmocka_unit_test_setup_teardown(a_line_arrives_as_formatted, silence, silence),
        cmocka_unit_test_setup_teardown(a_long_line_is_cut, silence, silence),
        cmocka_unit_test_setup_teardown(the_last_sink_wins, silence, silence),
        cmocka_unit_test_setup_teardown(one_call_at_a_time, silence, silence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
