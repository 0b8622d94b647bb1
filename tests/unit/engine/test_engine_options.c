/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From our options to criu's: fields, configuration lines, and what is refused. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "engine/criu_options.h"
#include "engine/trusted_path.h"
#include "engine_support.h"

static int config(const struct gpucr_name_value *extra, size_t count, char *ret, size_t size)
{
    struct gpucr_engine_options options = {.extra = extra, .extra_count = count};
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int fd = -1;
    int rc = gpucr_criu_options_config(&options, &fd, &err);
    ssize_t n;

    if (rc != 0)
        return rc;
    n = pread(fd, ret, size - 1, 0);
    assert_true(n > 0);
    ret[n] = '\0';
    (void)close(fd);
    return 0;
}

static void test_fields(void **state)
{
    struct gpucr_engine_options options = {
        .shell_job = true, .file_locks = true, .ghost_limit_bytes = UINT64_C(1) << 40};
    GpucrCriu__Options fields = GPUCR_CRIU__OPTIONS__INIT;

    (void)state;
    gpucr_criu_options_apply(&options, GPUCR_CRIU_VERB_DUMP, &fields);
    assert_true(fields.has_shell_job && fields.shell_job);
    assert_true(fields.has_file_locks && fields.file_locks);
    assert_false(fields.has_tcp_established);
    assert_false(fields.has_link_remap);
    assert_false(fields.has_ext_unix_sk);
    assert_true(fields.has_ghost_limit);
    assert_int_equal(fields.ghost_limit, UINT32_MAX); /* criu's number has 32 bits */
}

static void test_network_lock(void **state)
{
    struct gpucr_engine_options options = {0};
    GpucrCriu__Options fields = GPUCR_CRIU__OPTIONS__INIT;

    (void)state;
    gpucr_criu_options_network_lock(&options, &fields);
    assert_int_equal(fields.network_lock, GPUCR_CRIU__NETWORK_LOCK__SKIP);
    fields = (GpucrCriu__Options)GPUCR_CRIU__OPTIONS__INIT;
    options.tcp_established = true;
    gpucr_criu_options_network_lock(&options, &fields);
    assert_true(!fields.has_network_lock ||
                fields.network_lock == GPUCR_CRIU__NETWORK_LOCK__NFTABLES);
}

static void test_config(void **state)
{
    static const struct gpucr_name_value extra[] = {
        {"external", "mnt[]"}, {"no-weak-sysctls", NULL}, {"cgroup-root", "/a-b_c.d"}};
    char text[512];

    (void)state;
    assert_int_equal(config(extra, 3, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "\nexternal mnt[]\nno-weak-sysctls\ncgroup-root /a-b_c.d\n"));
    assert_non_null(strstr(text, "libdir no-plugins\n"));
    assert_int_equal(config(NULL, 0, text, sizeof(text)), 0);
    assert_non_null(strstr(text, "libdir no-plugins\n")); /* always */
}

static void test_refused(void **state)
{
    static const struct gpucr_name_value bad[] = {
        {"", NULL},
        {"--external", "x"},
        {"Upper", NULL},
        {"with space", NULL},
        {"new\nline", NULL},
        {"external", ""},
        {"external", "a b"},
        {"external", "a\nlibdir /evil"},
        {"external", "a#b"},
        {"external", "\"a"},
        {"external", "a\\"},
        {"libdir", "/evil"},
        {"images-dir", "/elsewhere"},
        {"work-dir", "/elsewhere"},
        {"log-file", "x"},
        {"leave-running", NULL},
        {"no-restore-detached", NULL},
        {"lazy-pages", NULL},
        {"prev-images-dir", "x"},
        {"auto-dedup", NULL},
        {"config", "/etc/evil"},
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (config(&bad[i], 1, text, sizeof(text)) != GPUCR_ERR_USAGE)
            fail_msg("%s=%s was not refused", bad[i].name, bad[i].value ? bad[i].value : "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_network_lock),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
