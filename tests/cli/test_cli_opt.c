/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli.h"

enum { WORDS_MAX = 80, LINE_BYTES = 4096 };

/* A command line cut at spaces; "''" stands for an empty word. */
struct line {
    char text[LINE_BYTES];
    char *words[WORDS_MAX + 1];
    int count;
    struct cli_options options;
    struct gpucr_error err;
};

static void cut(struct line *line, const char *text)
{
    char *save = NULL;

    *line = (struct line){.err = GPUCR_ERROR_INIT};
    (void)snprintf(line->text, sizeof(line->text), "%s", text);
    for (char *word = strtok_r(line->text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        assert_true(line->count < WORDS_MAX);
        line->words[line->count++] = strcmp(word, "''") == 0 ? word + 2 : word;
    }
}

/* Parse "gpucr …" as main() does. */
static int parse(struct line *line, const char *text)
{
    int index = 0, words = 0, rc;

    cut(line, text);
    rc = cli_parse_global(line->count, line->words, &line->options, &index, &line->err);
    if (rc < 0)
        return rc;
    assert_true(index < line->count);
    rc = cli_parse_verb(line->count - index, line->words + index, &line->options.verb, &words,
                        &line->err);
    if (rc < 0)
        return rc;
    index += words - 1;
    return cli_parse_command(line->count - index, line->words + index, &line->options, &line->err);
}

static void expect_refused(const char *text, const char *message)
{
    static struct line line;

    if (parse(&line, text) != GPUCR_ERR_USAGE)
        fail_msg("accepted: %s", text);
    if (!strstr(line.err.text, message))
        fail_msg("%s: \"%s\" does not say \"%s\"", text, line.err.text, message);
}

static void test_checkpoint_with_everything(void **state)
{
    static struct line line;
    const struct gpucr_job_options *job = &line.options.job;

    (void)state;
    assert_int_equal(
        parse(&line, "gpucr --json checkpoint --pid 42 -o /tmp/x -Rjlx --tcp-established "
                     "--link-remap --ghost-limit 2M --criu /c --criu-option manage-cgroups=full "
                     "--criu-option --evasive-devices --criu-option a=b=c --force f1 --force f2 "
                     "--timeout 500ms --engine-timeout 2m --sequential -vv --log l "
                     "--driver-root /d --dev-root /v --state-dir /s"),
        0);
    assert_int_equal(job->pid, 42);
    assert_string_equal(job->image_dir, "/tmp/x");
    assert_true(job->leave_running && job->shell_job && job->file_locks && job->ext_unix_sk);
    assert_true(job->tcp_established && job->link_remap && job->sequential);
    assert_int_equal(job->ghost_limit_bytes, 2 << 20);
    assert_string_equal(job->criu_path, "/c");
    assert_int_equal(job->criu_option_count, 3);
    assert_string_equal(job->criu_options[0].name, "manage-cgroups");
    assert_string_equal(job->criu_options[0].value, "full");
    assert_string_equal(job->criu_options[1].name, "evasive-devices");
    assert_null(job->criu_options[1].value);
    assert_string_equal(job->criu_options[2].value, "b=c");
    assert_int_equal(job->forced_count, 2);
    assert_string_equal(job->forced[1], "f2");
    assert_int_equal(job->timeout_ms, 500);
    assert_int_equal(job->engine_timeout_ms, 120000);
    assert_string_equal(job->driver_root, "/d");
    assert_string_equal(job->dev_root, "/v");
    assert_string_equal(job->state_dir, "/s");
    assert_string_equal(line.options.log_file, "l");
    assert_true(line.options.json);
    assert_int_equal(line.options.verbosity, 2);
}

static void test_operands_and_aliases(void **state)
{
    static struct line line;

    (void)state;
    assert_int_equal(parse(&line, "gpucr suspend 7"), 0);
    assert_int_equal(line.options.job.pid, 7);
    assert_int_equal(parse(&line, "gpucr suspend -t 8"), 0);
    assert_int_equal(line.options.job.pid, 8);
    assert_int_equal(parse(&line, "gpucr restore -d -- -odd"), 0);
    assert_string_equal(line.options.job.image_dir, "-odd");
    assert_int_equal(parse(&line, "gpucr restore -D dir -F --pid-wait 1m"), 0);
    assert_string_equal(line.options.job.image_dir, "dir");
    assert_true(line.options.job.foreground);
    assert_int_equal(line.options.job.pid_wait_ms, 60000);
    assert_int_equal(parse(&line, "gpucr image verify dir --json"), 0);
    assert_ptr_equal(line.options.verb, &cli_verbs[CLI_IMAGE_VERIFY]);
    assert_int_equal(parse(&line, "gpucr list -a"), 0);
    assert_true(line.options.job.list_all);
    assert_int_equal(line.options.job.pid, 0);
}

static void test_usage_errors(void **state)
{
    (void)state;
    expect_refused("gpucr suspend", "suspend needs a process");
    expect_refused("gpucr checkpoint --pid 1", "-o DIR");
    expect_refused("gpucr restore", "needs the image");
    expect_refused("gpucr restore a b", "\"b\" is too many");
    expect_refused("gpucr suspend 1 2", "\"2\" is too many");
    expect_refused("gpucr suspend --pid 1 2", "too many");
    expect_refused("gpucr suspend 0", "not a process id");
    expect_refused("gpucr suspend --pid 99999999999", "option --pid: \"99999999999\" is not");
    expect_refused("gpucr suspend --pid", "--pid needs PID");
    expect_refused("gpucr suspend --pdi 1", "did you mean --pid?");
    expect_refused("gpucr suspend --leave-running 1", "has no option --leave-running");
    expect_refused("gpucr suspend --json=1 1", "--json takes no argument");
    expect_refused("gpucr suspend -Z 1", "has no option -Z");
    expect_refused("gpucr checkpoint --ti", "--timeout needs DURATION");
}

static void test_more_usage_errors(void **state)
{
    (void)state;
    expect_refused("gpucr suspend --s 1", "could be one of several");
    expect_refused("gpucr restore x -d -F", "contradict");
    expect_refused("gpucr list -q -v", "contradict");
    expect_refused("gpucr restore x --criu ''", "empty");
    expect_refused("gpucr restore ''", "empty");
    expect_refused("gpucr restore x --criu-option =v", "has no name");
    expect_refused("gpucr restore x --criu-option --", "has no name");
    expect_refused("gpucr restore x --timeout 0", "not a duration");
    expect_refused("gpucr susped 1", "did you mean \"suspend\"?");
    expect_refused("gpucr inspect x", "there is no command \"inspect\"");
    expect_refused("gpucr image", "what to do with the image");
    expect_refused("gpucr image insp x", "did you mean \"image inspect\"?");
    expect_refused("gpucr frobnicate", "there is no command \"frobnicate\"");
    expect_refused("gpucr --pid 1 suspend", "gpucr has no option --pid");
}

static void test_lists_have_limits(void **state)
{
    static struct line line;
    char text[LINE_BYTES];
    size_t used = (size_t)snprintf(text, sizeof(text), "gpucr restore x");

    (void)state;
    for (int i = 0; i < GPUCR_FORCED_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, " --force f");
    assert_int_equal(parse(&line, text), 0);
    assert_int_equal(line.options.job.forced_count, GPUCR_FORCED_MAX);
    (void)snprintf(text + used, sizeof(text) - used, " --force f");
    expect_refused(text, "32 times at most");
}

static void test_environment(void **state)
{
    static struct line line;

    (void)state;
    (void)setenv("GPUCR_DRIVER_ROOT", "/from-env", 1);
    (void)setenv("GPUCR_CRIU", "/criu-env", 1);
    (void)setenv("GPUCR_DEV_ROOT", "", 1);
    assert_int_equal(parse(&line, "gpucr restore x"), 0);
    assert_string_equal(line.options.job.driver_root, "/from-env");
    assert_string_equal(line.options.job.criu_path, "/criu-env");
    assert_null(line.options.job.dev_root);
    assert_int_equal(parse(&line, "gpucr restore x --criu /c"), 0);
    assert_string_equal(line.options.job.criu_path, "/c");
    assert_int_equal(parse(&line, "gpucr list"), 0);
    assert_null(line.options.job.criu_path);
    (void)unsetenv("GPUCR_DRIVER_ROOT");
    (void)unsetenv("GPUCR_CRIU");
    (void)unsetenv("GPUCR_DEV_ROOT");
}

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"1", 1},
        {"4096B", 4096},
        {"1k", 1024},
        {"2KiB", 2048},
        {"3M", 3 << 20},
        {"1G", UINT64_C(1) << 30},
        {"1TiB", UINT64_C(1) << 40},
        {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {"",
                                      "0",
                                      "0K",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 K",
                                      "1X",
                                      "K",
                                      "0x10",
                                      "1.5G",
                                      "18446744073709551616",
                                      "18014398509481984K"};
    struct gpucr_error err = GPUCR_ERROR_INIT;
    uint64_t bytes = 7;

    (void)state;
    for (size_t i = 0; i < CLI_ARRAY_SIZE(good); i++) {
        assert_int_equal(cli_value_size(good[i].text, &bytes, &err), 0);
        assert_true(bytes == good[i].bytes);
    }
    bytes = 7;
    for (size_t i = 0; i < CLI_ARRAY_SIZE(bad); i++) {
        assert_int_equal(cli_value_size(bad[i], &bytes, &err), GPUCR_ERR_USAGE);
        assert_int_equal(bytes, 7);
    }
}

static void test_durations(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    uint64_t ms = 0;

    (void)state;
    assert_int_equal(cli_value_duration("30", &ms, &err), 0);
    assert_int_equal(ms, 30000);
    assert_int_equal(cli_value_duration("250ms", &ms, &err), 0);
    assert_int_equal(ms, 250);
    assert_int_equal(cli_value_duration("2h", &ms, &err), 0);
    assert_int_equal(ms, 7200000);
    assert_int_equal(cli_value_duration("597h", &ms, &err), GPUCR_ERR_USAGE);
    assert_int_equal(cli_value_duration("1d", &ms, &err), GPUCR_ERR_USAGE);
    assert_int_equal(cli_value_duration("soon", &ms, &err), GPUCR_ERR_USAGE);
}

static void test_word_distance(void **state)
{
    static const char *const words[] = {"suspend", "resume", "restore"};

    (void)state;
    assert_int_equal(cli_word_distance("", "abc"), 3);
    assert_int_equal(cli_word_distance("abc", "abc"), 0);
    assert_int_equal(cli_word_distance("abdc", "abcd"), 1);
    assert_int_equal(cli_word_distance("kitten", "sitting"), 3);
    assert_string_equal(cli_word_nearest("restroe", words, 3), "restore");
    assert_string_equal(cli_word_nearest("resm", words, 3), "resume");
    assert_null(cli_word_nearest("xyz", words, 3));
    assert_null(
        cli_word_nearest("an-unreasonably-long-word-that-nobody-would-ever-type-at-all", words, 3));
}

/* Rules that every entry of the tables has to keep. */
static void test_tables_are_sound(void **state)
{
    (void)state;
    for (size_t v = 0; v < CLI_VERB_COUNT; v++) {
        assert_non_null(cli_verbs[v].name);
        for (size_t i = 0; i < cli_option_count; i++) {
            const struct cli_option *a = &cli_option_table[i];

            for (size_t k = i + 1; k < cli_option_count; k++) {
                const struct cli_option *b = &cli_option_table[k];

                assert_string_not_equal(a->name, b->name);
                if (a->short_name && a->verbs & b->verbs)
                    assert_int_not_equal(a->short_name, b->short_name);
            }
        }
    }
    for (size_t i = 0; i < cli_option_count; i++) {
        const struct cli_option *option = &cli_option_table[i];
        bool flag = option->type == CLI_FLAG || option->type == CLI_COUNT;

        assert_int_equal(flag, option->argument == NULL);
        assert_int_not_equal(option->help[strlen(option->help) - 1], '.');
        assert_true(option->offset < sizeof(struct cli_options));
    }
    assert_int_equal(cli_verbs[CLI_IMAGE_INSPECT].operand, cli_verbs[CLI_IMAGE_VERIFY].operand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint_with_everything),
        cmocka_unit_test(test_operands_and_aliases),
        cmocka_unit_test(test_usage_errors),
        cmocka_unit_test(test_more_usage_errors),
        cmocka_unit_test(test_lists_have_limits),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_word_distance),
        cmocka_unit_test(test_tables_are_sound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
