/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <locale.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "cli.h"
#include "out.h"

static void test_bytes(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {1536, "1.5 KiB"},
        {(1 << 20) - 1, "1.0 MiB"},
        {UINT64_C(20) << 30, "20.0 GiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    char text[CLI_TEXT_BYTES];

    (void)state;
    for (size_t i = 0; i < CLI_ARRAY_SIZE(cases); i++)
        assert_string_equal(cli_format_bytes(text, cases[i].bytes), cases[i].text);
}

static void test_version_and_gpus(void **state)
{
    uint32_t many[GPUCR_GPUS_PER_PROCESS_MAX];
    char text[CLI_TEXT_BYTES];

    (void)state;
    assert_string_equal(cli_format_version(text, 40101), "4.1.1");
    assert_string_equal(cli_format_version(text, 40200), "4.2");
    for (uint32_t i = 0; i < GPUCR_GPUS_PER_PROCESS_MAX; i++)
        many[i] = i + 1000000000;
    assert_string_equal(cli_format_gpus(text, many, 0), "-");
    assert_string_equal(cli_format_gpus(text, many, 2), "1000000000,1000000001");
    assert_string_equal(cli_format_gpus(text, many, GPUCR_GPUS_PER_PROCESS_MAX) + 54, ",...");
}

static void test_clean_text(void **state)
{
    static const struct {
        const char *dirty, *visible, *valid;
    } cases[] = {
        {"plain", "plain", "plain"},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x92\xa9", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x92\xa9",
         "\xc3\xa4\xe2\x82\xac\xf0\x9f\x92\xa9"},
        {"a\033[2J\nb\x7f", "a?[2J?b?", "a\033[2J\nb\x7f"},
        {"\xc2\x9b", "?", "\xc2\x9b"},              /* C1: CSI in two bytes */
        {"\xff\xc0\x80\xe0\x80", "?????", "?????"}, /* never valid, overlong, cut short */
        {"\xed\xa0\x80", "???", "???"},             /* surrogate */
        {"\xf4\x90\x80\x80", "????", "????"},       /* beyond U+10FFFF */
        {"\xe2\x82", "??", "??"},
    };
    char text[64];

    (void)state;
    for (size_t i = 0; i < CLI_ARRAY_SIZE(cases); i++) {
        assert_string_equal(cli_clean_text(text, sizeof(text), cases[i].dirty, true),
                            cases[i].visible);
        assert_string_equal(cli_clean_text(text, sizeof(text), cases[i].dirty, false),
                            cases[i].valid);
    }
    /* never half a character at the end */
    assert_string_equal(cli_clean_text(text, 5, "ab\xe2\x82\xac", true), "ab");
    assert_string_equal(cli_clean_text(text, 6, "ab\xe2\x82\xac", true), "ab\xe2\x82\xac");
}

static char *wrapped(unsigned indent, unsigned width, const char *text)
{
    char *out = NULL;
    size_t size;
    FILE *f = open_memstream(&out, &size);

    assert_non_null(f);
    cli_wrap_text(f, indent, width, text);
    (void)fclose(f);
    return out;
}

static void test_wrap(void **state)
{
    static const struct {
        unsigned indent, width;
        const char *text, *lines;
    } cases[] = {
        {0, 10, "", "\n"},
        {0, 10, "one two three", "one two\nthree\n"},
        {2, 9, "one two three", "one two\n  three\n"},
        {0, 4, "toolongword a", "toolongword\na\n"},
        {0, 7, "\xc3\xa4\xc3\xb6\xc3\xbc abc", "\xc3\xa4\xc3\xb6\xc3\xbc abc\n"},
    };

    (void)state;
    for (size_t i = 0; i < CLI_ARRAY_SIZE(cases); i++) {
        char *out = wrapped(cases[i].indent, cases[i].width, cases[i].text);

        assert_string_equal(out, cases[i].lines);
        free(out);
    }
}

static void test_progress_line(void **state)
{
    const uint64_t gib = UINT64_C(1) << 30, second = 1000000000;
    const struct cli_progress_state known = {"dump", 10 * gib, 30 * gib, 5 * second};
    const struct cli_progress_state start = {"dump", 0, 30 * gib, second};
    const struct cli_progress_state unknown = {"hold", 0, 0, 125 * second};
    const struct cli_progress_state slow = {"dump", 1, 30 * gib, second};
    char line[128];

    (void)state;
    cli_progress_line(line, 79, &known);
    assert_string_equal(line, "dump  10.0 GiB of 30.0 GiB  2.15 GB/s  10 s left");
    cli_progress_line(line, 79, &start);
    assert_string_equal(line, "dump  0 B of 30.0 GiB");
    cli_progress_line(line, 79, &unknown);
    assert_string_equal(line, "hold  2:05 min");
    cli_progress_line(line, 79, &slow);
    assert_string_equal(line, "dump  1 B of 30.0 GiB  0.00 GB/s  100:00 h left");
    cli_progress_line(line, 10, &known);
    assert_string_equal(line, "dump  10.0");
}

/* --- exit statuses -------------------------------------------------------------------------- */

static int exit_of(enum gpucr_outcome outcome, int code)
{
    static struct gpucr_result result;

    result = (struct gpucr_result){.outcome = outcome, .error = {.code = code}};
    return cli_exit_of_result(&result, code);
}

static void test_exit_statuses(void **state)
{
    (void)state;
    assert_int_equal(exit_of(GPUCR_OUTCOME_DONE, 0), 0);
    assert_int_equal(exit_of(GPUCR_OUTCOME_DONE, GPUCR_ERR_SYSTEM), 5);
    assert_int_equal(exit_of(GPUCR_OUTCOME_REFUSED, GPUCR_ERR_USAGE), 1);
    assert_int_equal(exit_of(GPUCR_OUTCOME_REFUSED, GPUCR_ERR_NOT_FOUND), 2);
    assert_int_equal(exit_of(GPUCR_OUTCOME_REFUSED, GPUCR_ERR_INTERNAL), 5);
    assert_int_equal(exit_of(GPUCR_OUTCOME_ROLLED_BACK, GPUCR_ERR_INTERNAL), 3);
    assert_int_equal(exit_of(GPUCR_OUTCOME_ROLLED_BACK, GPUCR_ERR_ENGINE), 3);
    assert_int_equal(exit_of(GPUCR_OUTCOME_NOT_ROLLED_BACK, GPUCR_ERR_POISONED), 4);
    assert_int_equal(cli_exit_of_wait_status(W_EXITCODE(7, 0)), 7);
    assert_int_equal(cli_exit_of_wait_status(W_EXITCODE(0, SIGTERM)), 128 + SIGTERM);
    assert_int_equal(cli_exit_of_wait_status(W_EXITCODE(0, SIGSEGV) | WCOREFLAG), 128 + SIGSEGV);
}

/* --- json ----------------------------------------------------------------------------------- */

static const char *text_at(struct json_object *root, const char *pointer)
{
    struct json_object *value = NULL;

    if (json_pointer_get(root, pointer, &value) != 0)
        fail_msg("no %s in the document", pointer);
    return value ? json_object_to_json_string(value) : "null";
}

static void expect_at(struct json_object *root, const char *pointer, const char *text)
{
    if (strcmp(text_at(root, pointer), text) != 0)
        fail_msg("%s is %s, not %s", pointer, text_at(root, pointer), text);
}

static void expect_error_json(struct json_object *root)
{
    expect_at(root, "/error/code", "-10");
    expect_at(root, "/error/code_name", "\"driver\"");
    expect_at(root, "/error/errno", "12");
    expect_at(root, "/error/driver_code", "2");
    expect_at(root, "/error/stage", "\"restore\"");
    expect_at(root, "/error/pid", "77");
    expect_at(root, "/error/device", "0");
    expect_at(root, "/error/path", "\"\\/a\"");
    expect_at(root, "/error/finding", "null");
    expect_at(root, "/error/text", "\"Bad \\\"thing\\\".\"");
}

static void expect_lists_json(struct json_object *root)
{
    expect_at(root, "/processes/0/pid", "77");
    expect_at(root, "/processes/0/start_ticks", "18446744073709551615");
    expect_at(root, "/processes/0/state_before", "\"running\"");
    expect_at(root, "/processes/0/state_after", "\"failed\"");
    expect_at(root, "/processes/0/device_bytes_before", "5");
    expect_at(root, "/processes/0/device_bytes_after", "6");
    expect_at(root, "/processes/0/gpus/1", "3");
    expect_at(root, "/processes/0/error/stage", "\"restore\"");
    expect_at(root, "/findings/0/name", "\"f\"");
    expect_at(root, "/findings/0/forced", "true");
    expect_at(root, "/findings/0/remedy", "null");
    expect_at(root, "/phases/0/bytes", "3000000000");
    expect_at(root, "/phases/0/seconds", "2.000000");
    expect_at(root, "/phases/0/driver_seconds", "1.000000");
    expect_at(root, "/phases/0/gb_per_s", "1.500000");
    expect_at(root, "/phases/1/gb_per_s", "null");
    expect_at(root, "/log/0/is_cause", "true");
    expect_at(root, "/log/0/text", "\"line\"");
}

static void test_json_has_everything(void **state)
{
    struct cli_options options = {.verb = &cli_verbs[CLI_RESTORE], .job.image_dir = "/i"};
    struct gpucr_error err = {.code = GPUCR_ERR_DRIVER,
                              .os_errno = 12,
                              .driver_code = 2,
                              .stage = GPUCR_STAGE_RESTORE,
                              .pid = 77,
                              .device = 0,
                              .path = "/a",
                              .text = "Bad \"thing\"."};
    struct gpucr_process_result process = {.pid = 77,
                                           .start_ticks = UINT64_MAX,
                                           .before = GPUCR_PROCESS_RUNNING,
                                           .after = GPUCR_PROCESS_FAILED,
                                           .device_bytes = 5,
                                           .device_bytes_after = 6,
                                           .gpu_count = 2,
                                           .gpus = {1, 3},
                                           .error = err};
    struct gpucr_finding finding = {.name = "f", .forced = true, .text = "t"};
    struct gpucr_result result = {
        .outcome = GPUCR_OUTCOME_NOT_ROLLED_BACK,
        .error = err,
        .processes = &process,
        .process_count = 1,
        .findings = &finding,
        .finding_count = 1,
        .phases = {{"a", 3000000000, 2000000000, 1000000000}, {"b", 0, 1, 0}},
        .phase_count = 2,
        .log_lines = {{true, "line"}},
        .log_line_count = 1,
        .total_ns = 1500000000,
        .image_bytes = 9};
    char *text = cli_json_report(&options, &result, NULL, 4);
    struct json_object *root = json_tokener_parse(text);

    (void)state;
    assert_non_null(root);
    expect_at(root, "/command", "\"restore\"");
    expect_at(root, "/outcome", "\"not-rolled-back\"");
    expect_at(root, "/exit_status", "4");
    expect_at(root, "/root_pid", "null");
    expect_at(root, "/seconds", "1.500000");
    expect_at(root, "/image", "\"\\/i\"");
    expect_at(root, "/image_bytes", "9");
    expect_error_json(root);
    expect_lists_json(root);
    (void)json_object_put(root);
    free(text);
}

/* --- image inspect -------------------------------------------------------------------------- */

static const char manifest[] =
    "{\"gpucr_version\":\"0.1.0\",\"created\":\"2026-01-31T12:00:00Z\",\"host\":\"node1\","
    "\"kernel\":\"6.1.0 SMP\",\"engine\":\"criu\",\"engine_version\":40101,"
    "\"driver\":\"580.159.04\",\"cuda_version\":13000,\"root_pid\":100,"
    "\"gpus\":[{\"index\":1,\"uuid\":\"GPU-x\",\"name\":\"NVIDIA H200\","
    "\"memory_bytes\":151397597184}],\"processes\":["
    "{\"pid\":100,\"parent_pid\":1,\"name\":\"train\",\"threads\":[100,101,102],"
    "\"was_stopped\":false,\"is_cuda\":true,\"cuda_state\":0,\"device_bytes\":1073741824,"
    "\"host_bytes\":2048,\"gpus\":[1]},"
    "{\"pid\":90,\"parent_pid\":100,\"name\":\"load\\u001b[2J\",\"threads\":[90],"
    "\"was_stopped\":true,\"is_cuda\":false,\"cuda_state\":0,\"device_bytes\":0,"
    "\"host_bytes\":1024,\"gpus\":[]},"
    "{\"pid\":103,\"parent_pid\":90,\"name\":\"sh\",\"threads\":[103],"
    "\"was_stopped\":false,\"is_cuda\":false,\"cuda_state\":0,\"device_bytes\":0,"
    "\"host_bytes\":1024,\"gpus\":[]}],"
    "\"options\":[{\"name\":\"shell-job\",\"value\":\"\"},{\"name\":\"ghost-limit\","
    "\"value\":\"1M\"}],\"phases\":[{\"name\":\"dump\",\"bytes\":2147483648,\"ns\":1000000000}],"
    "\"files\":[{},{}]}";

static const char inspected[] =
    "created     2026-01-31T12:00:00Z\n"
    "host        node1, kernel 6.1.0 SMP\n"
    "written by  gpucr 0.1.0, criu 4.1.1\n"
    "driver      580.159.04, CUDA 13.0\n"
    "GPU 1       NVIDIA H200, 141.0 GiB, GPU-x\n"
    "size        2.0 GiB in 2 files\n"
    "options     shell-job\n"
    "            ghost-limit=1M\n"
    "\n"
    "PROCESS    PID STATE   THREADS GPU DEVICE MEM HOST MEM\n"
    "train      100 running       3 1      1.0 GiB  2.0 KiB\n"
    "\xe2\x94\x94\xe2\x94\x80load?[2J  90 stopped       1 -            -  1.0 KiB\n"
    "  \xe2\x94\x94\xe2\x94\x80sh     103 running       1 -            -  1.0 KiB\n"
    "\n"
    "PHASE   BYTES SECONDS GB/S\n"
    "dump  2.0 GiB   1.000 2.15\n"
    "total       -   1.000    -\n";

static void test_image_report(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    char *out = NULL;
    size_t size;
    FILE *f = open_memstream(&out, &size);

    (void)state;
    assert_int_equal(cli_image_report(f, manifest, UINT64_C(2) << 30, &err), 0);
    (void)fclose(f);
    assert_string_equal(out, inspected);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),         cmocka_unit_test(test_version_and_gpus),
        cmocka_unit_test(test_clean_text),    cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_progress_line), cmocka_unit_test(test_exit_statuses),
        cmocka_unit_test(test_image_report),  cmocka_unit_test(test_json_has_everything),
    };

    (void)setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
