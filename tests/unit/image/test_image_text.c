/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Texts and paths that an image may contain. */
#include <string.h>

#include "image/image_text.h"
#include "image_fixture.h"

/** The decoder that Unicode describes, written the slow way, to compare with. */
static bool is_allowed(uint32_t c)
{
    return c >= 0x20 && !(c >= 0x7f && c <= 0x9f) && !(c >= 0xd800 && c <= 0xdfff) && c <= 0x10ffff;
}

static size_t encode(uint32_t c, unsigned char *to)
{
    if (c < 0x80) {
        to[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (unsigned char)(0xc0 | c >> 6);
        to[1] = (unsigned char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (unsigned char)(0xe0 | c >> 12);
        to[1] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
        to[2] = (unsigned char)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (unsigned char)(0xf0 | c >> 18);
    to[1] = (unsigned char)(0x80 | (c >> 12 & 0x3f));
    to[2] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
    to[3] = (unsigned char)(0x80 | (c & 0x3f));
    return 4;
}

static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x1fffff; c++) {
        unsigned char text[4];
        size_t n = encode(c, text);

        if (gpucr_image_text_valid((const char *)text, n) != is_allowed(c))
            fail_msg("U+%04X", c);
        for (size_t i = 1; i < n; i++)
            assert_false(gpucr_image_text_valid((const char *)text, i));
    }
}

static void test_two_and_three_bytes(void **state)
{
    size_t valid = 0;

    (void)state;
    /* U+0080–U+07FF but for the 32 control characters; U+0800–U+FFFF but for surrogates. */
    for (unsigned i = 0; i < 0x10000; i++) {
        const char text[2] = {(char)(i >> 8), (char)i};

        valid += i >> 8 >= 0x80 && gpucr_image_text_valid(text, 2);
    }
    assert_int_equal(valid, 0x780 - 32);
    valid = 0;
    for (unsigned i = 0xe00000; i < 0xf00000; i++) {
        const char text[3] = {(char)(i >> 16), (char)(i >> 8), (char)i};

        valid += gpucr_image_text_valid(text, 3);
    }
    assert_int_equal(valid, 0xf800 - 0x800);
}

static void test_show(void **state)
{
    char shown[8];

    (void)state;
    assert_string_equal(gpucr_image_text_show(shown, sizeof(shown), "a\x1b[2J"), "a?[2J");
    /* Cut in the middle of a character. */
    assert_string_equal(gpucr_image_text_show(shown, sizeof(shown), "abcdef\xc3\xa4"), "abcdef?");
}

static void test_paths(void **state)
{
    static const char *const good[] = {"criu/a",  "criu/a/b/c/d/e/f/g", "criu/...",
                                       "criu/.a", "criu/a..",           "criu/\xc3\xa4 b"};
    static const char *const bad[] = {"",           "criu",     "criu/",    "/criu/a",  "criu//a",
                                      "criu/../a",  "criu/..",  "criu/./a", "criux/a",  "criu/a\n",
                                      "criu/a\xff", "logs/a.b", "..",       "../criu/a"};
    char path[2000];

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_null(gpucr_image_path_fault(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_non_null(gpucr_image_path_fault(bad[i]));
    (void)memset(path, 'a', sizeof(path));
    (void)memcpy(path, "criu/", 5);
    path[5 + 255] = '\0';
    assert_null(gpucr_image_path_fault(path));
    path[5 + 255] = 'a';
    path[5 + 256] = '\0';
    assert_non_null(gpucr_image_path_fault(path));
    path[5 + 256] = 'a';
    for (size_t i = 100; i < sizeof(path); i += 250)
        path[i] = '/';
    path[1024] = '\0';
    assert_string_equal(gpucr_image_path_fault(path), "is too long");
    path[1023] = '\0';
    assert_null(gpucr_image_path_fault(path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_two_and_three_bytes),
        cmocka_unit_test(test_show),
        cmocka_unit_test(test_paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
