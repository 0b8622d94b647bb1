/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The undo stack: reverse order, a failure stops nothing, the first one is reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/undo.h"

/* What ran, as letters. */
static char ran[GPUCR_UNDO_MAX + 1];

struct step {
    char letter;
    int code; /* what the action returns */
};

static int undo_step(void *arg, struct gpucr_error *err)
{
    const struct step *step = arg;
    size_t n = strlen(ran);

    ran[n] = step->letter;
    ran[n + 1] = '\0';
    if (step->code < 0)
        return gpucr_error_set(err, step->code, "step %c failed", step->letter);
    return step->code;
}

static int reset(void **state)
{
    (void)state;
    (void)memset(ran, 0, sizeof(ran));
    return 0;
}

static void an_empty_stack_does_nothing(void **state)
{
    struct gpucr_undo undo = {0};
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_int_equal(gpucr_undo_run(&undo, &err), 0);
    assert_int_equal(err.code, 0);
    assert_string_equal(ran, "");
}

static void newest_first(void **state)
{
    struct step steps[] = {{'a', 0}, {'b', 0}, {'c', 0}};
    struct gpucr_undo undo = {0};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        gpucr_undo_push(&undo, "step", undo_step, &steps[i]);
    assert_int_equal(gpucr_undo_run(&undo, NULL), 0);
    assert_string_equal(ran, "cba");
    /* it is empty now: nothing is undone twice */
    assert_int_equal(gpucr_undo_run(&undo, NULL), 0);
    assert_string_equal(ran, "cba");
}

static void failures_stop_nothing_and_the_first_is_told(void **state)
{
    struct step steps[] = {{'a', GPUCR_ERR_SYSTEM}, {'b', 0}, {'c', GPUCR_ERR_TIMEOUT}, {'d', 5}};
    struct gpucr_undo undo = {0};
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        gpucr_undo_push(&undo, "step", undo_step, &steps[i]);
    assert_int_equal(gpucr_undo_run(&undo, &err), GPUCR_ERR_TIMEOUT);
    assert_string_equal(ran, "dcba");
    assert_int_equal(err.code, GPUCR_ERR_TIMEOUT);
    assert_string_equal(err.text, "step c failed");
}

static void the_error_is_untouched_when_all_went_well(void **state)
{
    struct step step = {'a', 0};
    struct gpucr_undo undo = {0};
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    (void)gpucr_error_set(&err, GPUCR_ERR_ENGINE, "the cause of the rollback");
    gpucr_undo_push(&undo, "step", undo_step, &step);
    assert_int_equal(gpucr_undo_run(&undo, &err), 0);
    assert_int_equal(err.code, GPUCR_ERR_ENGINE);
    assert_string_equal(err.text, "the cause of the rollback");
}

static void a_failure_without_error_object_is_returned(void **state)
{
    struct step step = {'a', GPUCR_ERR_VERIFY};
    struct gpucr_undo undo = {0};

    (void)state;
    gpucr_undo_push(&undo, "step", undo_step, &step);
    assert_int_equal(gpucr_undo_run(&undo, NULL), GPUCR_ERR_VERIFY);
}

static void pop_forgets_the_newest_only(void **state)
{
    struct step steps[] = {{'a', 0}, {'b', 0}, {'c', 0}};
    struct gpucr_undo undo = {0};

    (void)state;
    gpucr_undo_push(&undo, "a", undo_step, &steps[0]);
    gpucr_undo_push(&undo, "b", undo_step, &steps[1]);
    gpucr_undo_pop(&undo);
    gpucr_undo_push(&undo, "c", undo_step, &steps[2]);
    assert_int_equal(gpucr_undo_run(&undo, NULL), 0);
    assert_string_equal(ran, "ca");
}

static void clear_forgets_all(void **state)
{
    struct step step = {'a', 0};
    struct gpucr_undo undo = {0};

    (void)state;
    gpucr_undo_push(&undo, "a", undo_step, &step);
    gpucr_undo_push(&undo, "a", undo_step, &step);
    gpucr_undo_clear(&undo);
    assert_int_equal(gpucr_undo_run(&undo, NULL), 0);
    assert_string_equal(ran, "");
}

static void a_full_stack_is_undone_wholly(void **state)
{
    struct step step = {'x', 0};
    struct gpucr_undo undo = {0};

    (void)state;
    for (size_t i = 0; i < GPUCR_UNDO_MAX; i++)
        gpucr_undo_push(&undo, "x", undo_step, &step);
    assert_int_equal(gpucr_undo_run(&undo, NULL), 0);
    assert_int_equal(strlen(ran), GPUCR_UNDO_MAX);
}

/* An action may itself undo: the stack is consistent while one runs. */
static int run_the_rest(void *arg, struct gpucr_error *err)
{
    struct gpucr_undo *undo = arg;

    return gpucr_undo_run(undo, err);
}

static void an_action_runs_once_even_when_nested(void **state)
{
    struct step steps[] = {{'a', 0}, {'b', 0}};
    struct gpucr_undo undo = {0};

    (void)state;
    gpucr_undo_push(&undo, "a", undo_step, &steps[0]);
    gpucr_undo_push(&undo, "b", undo_step, &steps[1]);
    gpucr_undo_push(&undo, "rest", run_the_rest, &undo);
    assert_int_equal(gpucr_undo_run(&undo, NULL), 0);
    assert_string_equal(ran, "ba");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_empty_stack_does_nothing, reset),
        cmocka_unit_test_setup(newest_first, reset),
        cmocka_unit_test_setup(failures_stop_nothing_and_the_first_is_told, reset),
        cmocka_unit_test_setup(the_error_is_untouched_when_all_went_well, reset),
        cmocka_unit_test_setup(a_failure_without_error_object_is_returned, reset),
        cmocka_unit_test_setup(pop_forgets_the_newest_only, reset),
        cmocka_unit_test_setup(clear_forgets_all, reset),
        cmocka_unit_test_setup(a_full_stack_is_undone_wholly, reset),
        cmocka_unit_test_setup(an_action_runs_once_even_when_nested, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
