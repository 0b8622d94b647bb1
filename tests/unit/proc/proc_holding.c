/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc_holding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proc_child.h"

struct gpucr_hold *holding_take(pid_t root)
{
    struct gpucr_hold *hold = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int rc = gpucr_hold_take(root, false, gpucr_deadline_in_ms(HOLDING_MS), &hold, &err);

    if (rc != 0)
        print_message("%s\n", err.text);
    assert_int_equal(rc, 0);
    assert_int_equal(gpucr_hold_check(hold, &err), 0);
    return hold;
}

void holding_release(struct gpucr_hold *hold)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int rc = gpucr_hold_release(hold, &err);

    if (rc != 0)
        print_message("%s\n", err.text);
    assert_int_equal(rc, 0);
    gpucr_hold_free(hold);
}

struct gpucr_error holding_refused(pid_t root, uint64_t timeout_ms, int code)
{
    struct gpucr_hold *hold = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int rc = gpucr_hold_take(root, false, gpucr_deadline_in_ms(timeout_ms), &hold, &err);

    if (rc != code)
        print_message("%d instead of %d: %s\n", rc, code, err.text);
    assert_int_equal(rc, code);
    assert_null(hold);
    return err;
}

void holding_often(pid_t root, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        struct gpucr_hold *hold = holding_take(root);
        uint64_t before = child_shared->counters[0];
        int flag = child_shared->flags[3];

        gpucr_sleep_us(3000);
        assert_true(child_shared->counters[0] == before);
        assert_int_equal(child_shared->flags[3], flag);
        holding_release(hold);
        assert_true(child_moves(0));
        gpucr_sleep_us((uint64_t)round * 37 % 1000); /* another moment each time */
    }
}
