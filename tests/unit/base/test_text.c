/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Strict numbers and bounded copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/text.h"

static void whole_numbers_are_read(void **state)
{
    static const struct {
        const char *text;
        int base;
        uint64_t value;
    } cases[] = {
        {"0", 10, 0},
        {"7", 10, 7},
        {"007", 10, 7},
        {"18446744073709551615", 10, UINT64_MAX},
        {"ffffffffffffffff", 16, UINT64_MAX},
        {"FfFf", 16, 0xffff},
        {"0000000000000000000000000000000a", 16, 10},
    };

    (void)state;
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(cases); i++) {
        uint64_t value = 99;

        assert_true(gpucr_parse_u64(cases[i].text, cases[i].base, &value));
        assert_true(value == cases[i].value);
    }
}

static void anything_else_is_refused(void **state)
{
    static const struct {
        const char *text;
        int base;
    } cases[] = {
        {"", 10},
        {" 1", 10},
        {"1 ", 10},
        {"+1", 10},
        {"-1", 10},
        {"0x10", 16},
        {"1a", 10},
        {"g", 16},
        {"1\n", 10},
        {"1.0", 10},
        {"1e3", 10},
        {"18446744073709551616", 10},
        {"/", 10},
        {":", 10},
        {"\xb2", 10},
        {"10000000000000000", 16},
        {"99999999999999999999999999", 10},
    };

    (void)state;
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(cases); i++) {
        uint64_t value = 99;

        assert_false(gpucr_parse_u64(cases[i].text, cases[i].base, &value));
        assert_true(value == 99);
    }
}

static void scan_stops_behind_the_number(void **state)
{
    const char *text = "7f00-8000 r";
    const char *end = NULL;
    uint64_t value = 99;

    (void)state;
    assert_true(gpucr_scan_u64(text, 16, &value, &end));
    assert_true(value == 0x7f00);
    assert_ptr_equal(end, text + 4);
    assert_true(gpucr_scan_u64(end + 1, 16, &value, NULL));
    assert_true(value == 0x8000);
}

static void scan_leaves_its_results_alone_on_failure(void **state)
{
    const char *here = "here";
    const char *end = here;
    uint64_t value = 99;

    (void)state;
    assert_false(gpucr_scan_u64("-1", 10, &value, &end));
    assert_false(gpucr_scan_u64("18446744073709551616 ", 10, &value, &end));
    assert_true(value == 99);
    assert_ptr_equal(end, here);
}

static void copy_fits_or_says_so(void **state)
{
    char to[4] = {'#', '#', '#', '#'};

    (void)state;
    assert_true(gpucr_copy_text(to, sizeof(to), "abc"));
    assert_string_equal(to, "abc");
    assert_false(gpucr_copy_text(to, sizeof(to), "abcd"));
    assert_string_equal(to, "abc");
    assert_true(gpucr_copy_text(to, sizeof(to), ""));
    assert_string_equal(to, "");
    assert_false(gpucr_copy_text(to, 1, "a"));
    assert_string_equal(to, "");
}

static void copy_never_writes_outside(void **state)
{
    char to[4] = {'#', '#', '#', '#'};

    (void)state;
    assert_false(gpucr_copy_text(to, 0, "abc"));
    assert_memory_equal(to, "####", 4);
    assert_false(gpucr_copy_text(to, 2, "abc"));
    assert_memory_equal(to, "a\0##", 4);
}

static void copy_reads_no_further_than_it_writes(void **state)
{
    const char from[3] = {'a', 'b', 'c'}; /* no NUL: the sanitizer sees any byte too many */
    char to[3];

    (void)state;
    assert_false(gpucr_copy_text(to, sizeof(to), from));
    assert_string_equal(to, "ab");
}

static void prefixes_and_suffixes(void **state)
{
    (void)state;
    assert_true(gpucr_starts_with("nvidia0", "nvidia"));
    assert_true(gpucr_starts_with("nvidia", "nvidia"));
    assert_true(gpucr_starts_with("nvidia", ""));
    assert_false(gpucr_starts_with("nvi", "nvidia"));
    assert_false(gpucr_starts_with("", "n"));
    assert_true(gpucr_ends_with("pages-1.img", ".img"));
    assert_true(gpucr_ends_with(".img", ".img"));
    assert_true(gpucr_ends_with("x", ""));
    assert_false(gpucr_ends_with("mg", ".img"));
    assert_false(gpucr_ends_with("pages.imgx", ".img"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_are_read),
        cmocka_unit_test(anything_else_is_refused),
        cmocka_unit_test(scan_stops_behind_the_number),
        cmocka_unit_test(scan_leaves_its_results_alone_on_failure),
        cmocka_unit_test(copy_fits_or_says_so),
        cmocka_unit_test(copy_never_writes_outside),
        cmocka_unit_test(copy_reads_no_further_than_it_writes),
        cmocka_unit_test(prefixes_and_suffixes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
