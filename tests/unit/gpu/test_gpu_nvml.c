/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/nvml.h"

static void gpus_with_names_and_memory(void **state)
{
    struct gpucr_nvml *nvml = NULL;
    struct gpucr_gpu gpus[GPUCR_GPUS_PER_PROCESS_MAX];
    char name[32] = "";
    uint32_t count = 0;

    (void)state;
    assert_int_equal(gpucr_nvml_open(FAKE_ROOT, &nvml, NULL), 0);
    assert_int_equal(gpucr_nvml_driver_name(nvml, name, sizeof(name), NULL), 0);
    assert_string_equal(name, "580.0.1");
    assert_int_equal(gpucr_nvml_gpus(nvml, gpus, GPUCR_GPUS_PER_PROCESS_MAX, &count, NULL), 0);
    assert_int_equal(count, 3);
    assert_string_equal(gpus[1].uuid, "GPU-00000000-0000-0000-0000-000000000001");
    assert_string_equal(gpus[0].name, "Fake 0");
    assert_true(gpus[0].memory_bytes == 80ull << 30 && gpus[1].free_bytes == 71ull << 30);
    /* the lost one keeps its place */
    assert_string_equal(gpus[2].uuid, "");
    assert_int_equal(gpus[2].memory_bytes, 0);
    assert_int_equal(gpucr_nvml_gpus(nvml, gpus, 2, &count, NULL), GPUCR_ERR_UNSUPPORTED);
    (void)gpucr_nvml_close(nvml);
}

static void uses_of_all_gpus(void **state)
{
    struct gpucr_nvml *nvml = NULL;
    struct gpucr_gpu_uses uses = {0};

    (void)state;
    (void)setenv("FAKE_NVML_PROCESSES", "1000", 1);
    assert_int_equal(gpucr_nvml_open(FAKE_ROOT, &nvml, NULL), 0);
    assert_int_equal(gpucr_nvml_uses(nvml, &uses, NULL), 0);
    assert_int_equal(uses.count, 2 + 999); /* without those of other pid namespaces */
    assert_int_equal(gpucr_gpu_uses_bytes(&uses, 100), 2000);
    assert_int_equal(gpucr_gpu_uses_bytes(&uses, 101), 0); /* not told */
    assert_int_equal(gpucr_gpu_uses_bytes(&uses, 99), 0);
    gpucr_gpu_uses_done(&uses);
    (void)setenv("FAKE_NVML_PROCESSES", "10000", 1);
    assert_true(gpucr_nvml_uses(nvml, &uses, NULL) < 0);
    assert_null(uses.items);
    (void)unsetenv("FAKE_NVML_PROCESSES");
    (void)gpucr_nvml_close(nvml);
}

static void failures_are_told_apart(void **state)
{
    struct gpucr_nvml *nvml = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_int_equal(gpucr_nvml_open("/usr/share", &nvml, &err), GPUCR_ERR_DRIVER_MISSING);
    (void)setenv("FAKE_NVML_INIT", "9", 1);
    assert_int_equal(gpucr_nvml_open(FAKE_ROOT, &nvml, &err), GPUCR_ERR_DRIVER_MISSING);
    assert_non_null(strstr(err.text, "Driver Not Loaded"));
    (void)setenv("FAKE_NVML_INIT", "18", 1);
    assert_int_equal(gpucr_nvml_open(FAKE_ROOT, &nvml, &err), GPUCR_ERR_DRIVER);
    assert_non_null(strstr(err.text, "updated"));
    (void)unsetenv("FAKE_NVML_INIT");
    assert_null(nvml);
    assert_null(gpucr_nvml_close(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_with_names_and_memory),
        cmocka_unit_test(uses_of_all_gpus),
        cmocka_unit_test(failures_are_told_apart),
    };

    return cmocka_run_group_tests_name("gpu_nvml", tests, NULL, NULL);
}
