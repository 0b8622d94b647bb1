/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Fault points: armed by their exact name, in test builds only. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fault.h"

static int disarm(void **state)
{
    (void)state;
    return unsetenv("GPUCR_FAULT");
}

static void arm(const char *text)
{
    assert_int_equal(setenv("GPUCR_FAULT", text, 1), 0);
}

static void an_unarmed_point_does_nothing(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_int_equal(gpucr_fault("unit.point", &err), 0);
    arm("");
    assert_int_equal(gpucr_fault("unit.point", &err), 0);
    arm("unit.other");
    assert_int_equal(gpucr_fault("unit.point", &err), 0);
    assert_int_equal(err.code, 0);
}

#ifdef GPUCR_FAULTS

static void names_are_compared_wholly(void **state)
{
    (void)state;
    arm("unit.point");
    assert_int_equal(gpucr_fault("unit", NULL), 0);
    assert_int_equal(gpucr_fault("unit.point.longer", NULL), 0);
    assert_int_equal(gpucr_fault("unit.poin", NULL), 0);
    assert_int_equal(gpucr_fault("unit.point", NULL), GPUCR_ERR_INTERNAL);
}

static void an_armed_point_fails_and_names_itself(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    arm("unit.point");
    assert_int_equal(gpucr_fault("unit.point", &err), GPUCR_ERR_INTERNAL);
    assert_non_null(strstr(err.text, "unit.point"));
    arm("unit.point:fail");
    assert_int_equal(gpucr_fault("unit.point", NULL), GPUCR_ERR_INTERNAL);
}

static pid_t child_at_point(const char *armed)
{
    pid_t child;

    arm(armed);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(gpucr_fault("unit.point", NULL) == 0 ? 1 : 2);
    return child;
}

static void kill_ends_the_process_at_once(void **state)
{
    pid_t child = child_at_point("unit.point:kill");
    int status = 0;

    (void)state;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

static void hang_never_returns(void **state)
{
    pid_t child = child_at_point("unit.point:hang");
    int status = 0;

    (void)state;
    gpucr_sleep_us(100000);
    assert_int_equal(waitpid(child, &status, WNOHANG), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

#else

static void a_product_build_has_no_fault_points(void **state)
{
    (void)state;
    arm("unit.point:kill");
    assert_int_equal(gpucr_fault("unit.point", NULL), 0);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(an_unarmed_point_does_nothing, disarm),
#ifdef GPUCR_FAULTS
        cmocka_unit_test_teardown(names_are_compared_wholly, disarm),
        cmocka_unit_test_teardown(an_armed_point_fails_and_names_itself, disarm),
        cmocka_unit_test_teardown(kill_ends_the_process_at_once, disarm),
        cmocka_unit_test_teardown(hang_never_returns, disarm),
#else
        cmocka_unit_test_teardown(a_product_build_has_no_fault_points, disarm),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
