/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Errors: facts are set and kept, texts never overflow, names cover every code and stage. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/err.h"

static void every_code_has_its_own_name(void **state)
{
    (void)state;
    for (int code = GPUCR_OK; code >= GPUCR_ERR_INTERNAL; code--) {
        assert_non_null(gpucr_code_name(code));
        assert_string_not_equal(gpucr_code_name(code), "unknown");
        for (int other = code + 1; other <= 0; other++)
            assert_string_not_equal(gpucr_code_name(code), gpucr_code_name(other));
    }
}

static void every_stage_has_its_own_name(void **state)
{
    (void)state;
    for (int stage = 0; stage < GPUCR_STAGE_MAX; stage++) {
        const char *name = gpucr_stage_name((enum gpucr_stage)stage);

        assert_non_null(name);
        assert_string_not_equal(name, "unknown");
        for (int other = 0; other < stage; other++)
            assert_string_not_equal(name, gpucr_stage_name((enum gpucr_stage)other));
    }
}

static void other_numbers_are_unknown(void **state)
{
    (void)state;
    assert_string_equal(gpucr_code_name(1), "unknown");
    assert_string_equal(gpucr_code_name(INT32_MAX), "unknown");
    assert_string_equal(gpucr_code_name(GPUCR_ERR_INTERNAL - 1), "unknown");
    assert_string_equal(gpucr_code_name(INT32_MIN), "unknown");
    assert_string_equal(gpucr_stage_name(GPUCR_STAGE_MAX), "unknown");
    assert_string_equal(gpucr_stage_name((enum gpucr_stage) - 1), "unknown");
}

static void set_fills_a_fresh_error(void **state)
{
    struct gpucr_error err;

    (void)state;
    (void)memset(&err, 0x5a, sizeof(err)); /* rubbish from an earlier use */
    assert_int_equal(gpucr_error_set(&err, GPUCR_ERR_BUSY, "process %d is %s", 7, "taken"),
                     GPUCR_ERR_BUSY);
    assert_int_equal(err.code, GPUCR_ERR_BUSY);
    assert_string_equal(err.text, "process 7 is taken");
    assert_int_equal(err.os_errno, 0);
    assert_int_equal(err.driver_code, 0);
    assert_int_equal(err.stage, GPUCR_STAGE_NONE);
    assert_int_equal(err.pid, 0);
    assert_int_equal(err.device, -1);
    assert_string_equal(err.finding, "");
    assert_string_equal(err.path, "");
}

static void everything_accepts_null(void **state)
{
    (void)state;
    assert_int_equal(gpucr_error_set(NULL, GPUCR_ERR_USAGE, "%s", "x"), GPUCR_ERR_USAGE);
    assert_int_equal(gpucr_error_errno(NULL, ENOENT, "%s", "x"), GPUCR_ERR_NOT_FOUND);
    assert_int_equal(gpucr_error_wrap(NULL, GPUCR_ERR_ENGINE, "%s", "x"), GPUCR_ERR_ENGINE);
    assert_int_equal(gpucr_error_no_memory(NULL), GPUCR_ERR_NO_MEMORY);
    assert_int_equal(gpucr_error_pid(NULL, GPUCR_ERR_BUSY, 1), GPUCR_ERR_BUSY);
    assert_int_equal(gpucr_error_path(NULL, GPUCR_ERR_BUSY, "/a"), GPUCR_ERR_BUSY);
    assert_int_equal(gpucr_error_stage(NULL, GPUCR_ERR_BUSY, GPUCR_STAGE_LOCK), GPUCR_ERR_BUSY);
}

static void errno_chooses_the_code(void **state)
{
    static const struct {
        int os_errno;
        int code;
    } cases[] = {
        {EACCES, GPUCR_ERR_PERMISSION}, {EPERM, GPUCR_ERR_PERMISSION},
        {ENOENT, GPUCR_ERR_NOT_FOUND},  {ESRCH, GPUCR_ERR_NOT_FOUND},
        {ENOMEM, GPUCR_ERR_NO_MEMORY},  {ENOSPC, GPUCR_ERR_NO_SPACE},
        {EDQUOT, GPUCR_ERR_NO_SPACE},   {EEXIST, GPUCR_ERR_EXISTS},
        {ETIMEDOUT, GPUCR_ERR_TIMEOUT}, {EIO, GPUCR_ERR_SYSTEM},
        {12345, GPUCR_ERR_SYSTEM},
    };

    (void)state;
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(cases); i++) {
        struct gpucr_error err = GPUCR_ERROR_INIT;

        assert_int_equal(gpucr_error_errno(&err, cases[i].os_errno, "cannot look"), cases[i].code);
        assert_int_equal(err.code, cases[i].code);
        assert_int_equal(err.os_errno, cases[i].os_errno);
    }
}

static void errno_text_ends_with_its_meaning(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    (void)gpucr_error_errno(&err, ENOENT, "cannot open %s", "/a/b");
    assert_string_equal(err.text, "cannot open /a/b: No such file or directory");
}

static void wrap_adds_outside_and_keeps_facts(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int rc = gpucr_error_errno(&err, EACCES, "cannot open maps");

    (void)state;
    rc = gpucr_error_pid(&err, rc, 42);
    rc = gpucr_error_path(&err, rc, "/proc/42/maps");
    rc = gpucr_error_stage(&err, rc, GPUCR_STAGE_DISCOVER);
    rc = gpucr_error_wrap(&err, rc, "process %d", 42);
    rc = gpucr_error_wrap(&err, rc, "the tree");
    assert_int_equal(rc, GPUCR_ERR_PERMISSION);
    assert_string_equal(err.text, "the tree: process 42: cannot open maps: Permission denied");
    assert_int_equal(err.os_errno, EACCES);
    assert_int_equal(err.pid, 42);
    assert_string_equal(err.path, "/proc/42/maps");
    assert_int_equal(err.stage, GPUCR_STAGE_DISCOVER);
}

static void wrap_never_replaces_the_code(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    (void)gpucr_error_set(&err, GPUCR_ERR_TIMEOUT, "late");
    assert_int_equal(gpucr_error_wrap(&err, GPUCR_ERR_ENGINE, "outer"), GPUCR_ERR_TIMEOUT);
    assert_int_equal(err.code, GPUCR_ERR_TIMEOUT);
}

static void facts_need_a_failure(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_int_equal(gpucr_error_pid(&err, 0, 42), 0);
    assert_int_equal(gpucr_error_path(&err, 3, "/a"), 3);
    assert_int_equal(gpucr_error_stage(&err, 0, GPUCR_STAGE_LOCK), 0);
    assert_int_equal(err.pid, 0);
    assert_string_equal(err.path, "");
    assert_int_equal(err.stage, GPUCR_STAGE_NONE);
}

static void long_texts_are_cut_not_overrun(void **state)
{
    char big[3 * GPUCR_ERROR_TEXT_BYTES];
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    (void)memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    (void)gpucr_error_set(&err, GPUCR_ERR_SYSTEM, "%s", big);
    assert_int_equal(strlen(err.text), GPUCR_ERROR_TEXT_BYTES - 1);
    (void)gpucr_error_errno(&err, EIO, "%s", big);
    assert_int_equal(strlen(err.text), GPUCR_ERROR_TEXT_BYTES - 1);
    (void)gpucr_error_path(&err, GPUCR_ERR_SYSTEM, big);
    assert_int_equal(strlen(err.path), GPUCR_ERROR_PATH_BYTES - 1);
    /* the outer words are what a reader sees first; the inner end is what is lost */
    (void)gpucr_error_wrap(&err, GPUCR_ERR_SYSTEM, "outer");
    assert_int_equal(strlen(err.text), GPUCR_ERROR_TEXT_BYTES - 1);
    assert_memory_equal(err.text, "outer: xxx", 10);
    (void)gpucr_error_wrap(&err, GPUCR_ERR_SYSTEM, "%s", big);
    assert_int_equal(strlen(err.text), GPUCR_ERROR_TEXT_BYTES - 1);
    assert_int_equal(err.text[0], 'x');
}

static void an_error_may_be_copied(void **state)
{
    struct gpucr_error one = GPUCR_ERROR_INIT;
    struct gpucr_error two;

    (void)state;
    (void)gpucr_error_set(&one, GPUCR_ERR_VERIFY, "it is not what was promised");
    two = one;
    one.text[0] = '\0';
    assert_string_equal(two.text, "it is not what was promised");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_own_name),
        cmocka_unit_test(every_stage_has_its_own_name),
        cmocka_unit_test(other_numbers_are_unknown),
        cmocka_unit_test(set_fills_a_fresh_error),
        cmocka_unit_test(everything_accepts_null),
        cmocka_unit_test(errno_chooses_the_code),
        cmocka_unit_test(errno_text_ends_with_its_meaning),
        cmocka_unit_test(wrap_adds_outside_and_keeps_facts),
        cmocka_unit_test(wrap_never_replaces_the_code),
        cmocka_unit_test(facts_need_a_failure),
        cmocka_unit_test(long_texts_are_cut_not_overrun),
        cmocka_unit_test(an_error_may_be_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
