/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The binding of libcuda: loading it, binding it, what its failures are called. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/cuda_api.h"
#include "gpu/driver.h"
#include "gpu/driver_library.h"
#include "gpu_support.h"

static struct fake fake;

static int set_up(void **state)
{
    struct gpucr_driver *driver = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    fake.reset();
    if (gpucr_driver_open(FAKE_ROOT, &driver, &err) != 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    *state = driver;
    return 0;
}

static int tear_down(void **state)
{
    (void)gpucr_driver_close(*state);
    return 0;
}

static void assert_says(const struct gpucr_error *err, const char *part)
{
    if (!strstr(err->text, part))
        fail_msg("\"%s\" does not say \"%s\"", err->text, part);
}

static void opens_and_tells_what_it_is(void **state)
{
    struct gpucr_driver *driver = *state;

    assert_int_equal(driver->cuda_version, 13000);
    assert_true(driver->can_remap);
    assert_non_null(strstr(driver->library_path, "libcuda.so.1"));
}

static void library_missing(void **state)
{
    struct gpucr_driver *driver = (void *)1;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_int_equal(gpucr_driver_open("/usr/share", &driver, &err), GPUCR_ERR_DRIVER_MISSING);
    assert_ptr_equal(driver, (void *)1);
    assert_says(&err, "no libcuda.so.1 below the driver root /usr/share");
    assert_int_equal(gpucr_driver_open("/nowhere", &driver, &err), GPUCR_ERR_NOT_FOUND);
    assert_string_equal(err.path, "/nowhere");
}

static void version_below_minimum(void **state)
{
    struct gpucr_driver *driver = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    fake.reset();
    fake.set_version(12070);
    assert_int_equal(gpucr_driver_open(FAKE_ROOT, &driver, &err), GPUCR_ERR_UNSUPPORTED);
    assert_says(&err, "driver 570 (CUDA 12.8) or newer");
    assert_says(&err, "CUDA 12.7");
    fake.set_version(12080);
    assert_int_equal(gpucr_driver_open(FAKE_ROOT, &driver, &err), 0);
    assert_false(driver->can_remap);
    (void)gpucr_driver_close(driver);
}

static void calls_missing(void **state)
{
    struct gpucr_driver *driver = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)state;
    assert_int_equal(gpucr_driver_open(FAKE_OLD_ROOT, &driver, &err), GPUCR_ERR_UNSUPPORTED);
    assert_says(&err, "it has no cuCheckpointProcessGetState");
    assert_says(&err, "driver 570");
}

/* "No CUDA state" and "gpucr does not work" must never be mixed up. */
static void broken_binding_is_not_taken_for_no_cuda(void **state)
{
    struct gpucr_driver *driver = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    enum gpucr_cuda_state cuda_state = GPUCR_CUDA_FAILED;
    pid_t child = child_start(false);

    fake.set_self_code(GPUCR_CU_OPERATING_SYSTEM);
    assert_int_equal(driver->ops->get_state(driver, child, &cuda_state, &err), GPUCR_ERR_DRIVER);
    assert_says(&err, "gpucr's own process");
    assert_int_equal(err.driver_code, GPUCR_CU_OPERATING_SYSTEM);
    assert_int_equal(cuda_state, GPUCR_CUDA_FAILED);
    child_end(child);
}

static void self_test_passes_in_a_cuda_program(void **state)
{
    struct gpucr_driver *driver = *state;
    enum gpucr_cuda_state cuda_state;
    pid_t child = child_start(false);

    fake.set_self_code(GPUCR_CU_SUCCESS);
    fake.set_state(child, 2);
    assert_int_equal(driver->ops->get_state(driver, child, &cuda_state, NULL), 0);
    assert_int_equal(cuda_state, GPUCR_CUDA_CHECKPOINTED);
    child_end(child);
}

static void process_without_cuda(void **state)
{
    struct gpucr_driver *driver = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    enum gpucr_cuda_state cuda_state;
    pid_t child = child_start(false);
    char name[64];

    assert_int_equal(driver->ops->get_state(driver, child, &cuda_state, &err), GPUCR_ERR_NOT_CUDA);
    assert_int_equal(err.pid, child);
    assert_int_equal(err.driver_code, GPUCR_CU_NOT_INITIALIZED);
    (void)snprintf(name, sizeof(name), "process %d (gpu_child)", child);
    assert_says(&err, name);
    child_end(child);
    assert_int_equal(driver->ops->get_state(driver, child, &cuda_state, &err),
                     GPUCR_ERR_TARGET_DIED);
    assert_says(&err, "has ended");
}

/* The driver says of a zombie that it has no CUDA state. */
static void a_zombie_has_ended(void **state)
{
    struct gpucr_driver *driver = *state;
    enum gpucr_cuda_state cuda_state;
    pid_t child = child_start(false);

    (void)kill(child, SIGKILL);
    while (child_state(child) != 'Z')
        (void)usleep(1000);
    fake_answer(&fake, "get_state", child, GPUCR_CU_NOT_INITIALIZED);
    assert_int_equal(driver->ops->get_state(driver, child, &cuda_state, NULL),
                     GPUCR_ERR_TARGET_DIED);
    child_end(child);
}

/* In a child, which becomes another user: 0 if the error is as it must be. */
static int look_as_nobody(pid_t target)
{
    struct gpucr_driver *driver = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    enum gpucr_cuda_state cuda_state;

    if (setgid(65534) != 0 || setuid(65534) != 0)
        return 1;
    if (gpucr_driver_open(FAKE_ROOT, &driver, &err) != 0)
        return 2;
    if (driver->ops->get_state(driver, target, &cuda_state, &err) != GPUCR_ERR_PERMISSION)
        return 3;
    return strstr(err.text, "belongs to uid 0") ? 0 : 4;
}

static void somebody_elses_process(void **state)
{
    pid_t target = child_start(false);
    int status = 0;
    pid_t pid;

    (void)state;
    if (geteuid() != 0) {
        child_end(target);
        print_message("not root: cannot become another user\n");
        skip();
    }
    fake_answer(&fake, "get_state", target, GPUCR_CU_OPERATING_SYSTEM);
    pid = fork();
    if (pid == 0)
        _exit(look_as_nobody(target));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    child_end(target);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) {
        print_message("the build folder cannot be read by other users\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void lost_process_is_told_from_a_dead_one(void **state)
{
    struct gpucr_driver *driver = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    pid_t child = child_start(false);

    fake_answer(&fake, "unlock", child, GPUCR_CU_OPERATING_SYSTEM);
    assert_int_equal(driver->ops->unlock(driver, child, &err), GPUCR_ERR_POISONED);
    assert_says(&err, "the process is alive");
    child_end(child);
}

static void a_process_with_an_ended_first_thread_is_alive(void **state)
{
    struct gpucr_driver *driver = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    pid_t child = child_start(true);

    while (child_state(child) != 'Z')
        (void)usleep(1000);
    fake_answer(&fake, "checkpoint", child, GPUCR_CU_OPERATING_SYSTEM);
    assert_int_equal(driver->ops->checkpoint(driver, child, &err), GPUCR_ERR_POISONED);
    child_end(child);
}

static void codes_have_meanings(void **state)
{
    static const struct {
        const char *call;
        int code;
        int result;
        const char *says;
    } cases[] = {
        {"lock", 600, GPUCR_ERR_TIMEOUT, "did not drain within 250 ms"},
        {"lock", 401, GPUCR_ERR_DRIVER, "; it is checkpointed"},
        {"checkpoint", 801, GPUCR_ERR_DRIVER, "managed memory"},
        {"checkpoint", 2, GPUCR_ERR_DRIVER, "host memory"},
        {"restore", 2, GPUCR_ERR_POISONED, "lost"},
        {"restore", 1, GPUCR_ERR_DRIVER, "every GPU that the driver sees"},
        {"restore", 801, GPUCR_ERR_DRIVER, "NCCL"},
        {"restore", 999, GPUCR_ERR_DRIVER, "no reason"},
        {"unlock", 401, GPUCR_ERR_DRIVER, "CUDA_ERROR_ILLEGAL_STATE (401)"},
        {"unlock", 12345, GPUCR_ERR_DRIVER, "(12345): the code is newer than this gpucr"},
    };
    struct gpucr_driver *driver = *state;
    pid_t child = child_start(false);

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct gpucr_error err = GPUCR_ERROR_INIT;
        int rc;

        fake.reset();
        fake.set_state(child, 2);
        fake_answer(&fake, cases[i].call, child, cases[i].code);
        if (strcmp(cases[i].call, "lock") == 0)
            rc = driver->ops->lock(driver, child, 250, &err);
        else if (strcmp(cases[i].call, "checkpoint") == 0)
            rc = driver->ops->checkpoint(driver, child, &err);
        else if (strcmp(cases[i].call, "restore") == 0)
            rc = driver->ops->restore(driver, child, NULL, 0, &err);
        else
            rc = driver->ops->unlock(driver, child, &err);
        assert_int_equal(rc, cases[i].result);
        assert_int_equal(err.code, cases[i].result);
        assert_int_equal(err.driver_code, cases[i].code);
        assert_int_equal(err.pid, child);
        assert_says(&err, cases[i].says);
        assert_says(&err, "cuCheckpointProcess");
    }
    child_end(child);
}

static void all_states_of_the_driver(void **state)
{
    struct gpucr_driver *driver = *state;
    pid_t child = child_start(false);
    enum gpucr_cuda_state cuda_state;
    pid_t tid = 0;

    fake.set_state(child, 0);
    assert_int_equal(driver->ops->get_restore_thread(driver, child, &tid, NULL), 0);
    assert_int_equal(tid, child + 1);
    assert_int_equal(driver->ops->lock(driver, child, 0, NULL), 0); /* never 0 to the driver */
    assert_int_equal(fake.seen().lock_timeout_ms, 1);
    assert_int_equal(driver->ops->checkpoint(driver, child, NULL), 0);
    assert_int_equal(driver->ops->get_state(driver, child, &cuda_state, NULL), 0);
    assert_int_equal(cuda_state, GPUCR_CUDA_CHECKPOINTED);
    assert_int_equal(driver->ops->restore(driver, child, NULL, 0, NULL), 0);
    assert_int_equal(driver->ops->unlock(driver, child, NULL), 0);
    assert_int_equal(fake.state(child), 0);
    child_end(child);
}

static void restore_passes_the_device_map(void **state)
{
    struct gpucr_driver *driver = *state;
    struct gpucr_gpu_pair pairs[2] = {{{{7}}, {{1}}}, {{{2}}, {{3}}}};
    pid_t child = child_start(false);

    pairs[1].to.bytes[15] = 9;
    fake.set_state(child, 2);
    assert_int_equal(driver->ops->restore(driver, child, pairs, 2, NULL), 0);
    assert_int_equal(fake.seen().pair_count, 2);
    assert_int_equal(fake.seen().pair_first, 7);
    assert_int_equal(fake.seen().pair_last, 9);
    assert_int_equal(fake.seen().inits, 1); /* Restore saw to it */
    child_end(child);
}

static void own_process_is_refused(void **state)
{
    struct gpucr_driver *driver = *state;

    assert_int_equal(driver->ops->lock(driver, getpid(), 10, NULL), GPUCR_ERR_USAGE);
    assert_int_equal(driver->ops->unlock(driver, 0, NULL), GPUCR_ERR_USAGE);
    assert_int_equal(driver->ops->unlock(driver, -1, NULL), GPUCR_ERR_USAGE);
}

static void init_runs_once_beside_other_work(void **state)
{
    struct gpucr_driver *driver = *state;

    assert_int_equal(gpucr_driver_start_init(driver, NULL), 0);
    assert_int_equal(gpucr_driver_start_init(driver, NULL), 0);
    assert_int_equal(gpucr_driver_wait_init(driver, NULL), 0);
    assert_int_equal(gpucr_driver_wait_init(driver, NULL), 0);
    assert_int_equal(fake.seen().inits, 1);
}

static void failed_init_is_explained_each_time(void **state)
{
    static const struct {
        int code;
        const char *says;
    } cases[] = {
        {100, "/dev/nvidia*"}, {803, "different versions"}, {999, "nvidia_uvm"}, {34, "stand-in"}};

    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct gpucr_driver *driver = NULL;
        struct gpucr_error err = GPUCR_ERROR_INIT;

        fake.reset();
        fake_answer(&fake, "init", 0, cases[i].code);
        assert_int_equal(gpucr_driver_open(FAKE_ROOT, &driver, NULL), 0);
        assert_int_equal(gpucr_driver_start_init(driver, NULL), 0);
        for (int n = 0; n < 2; n++) {
            assert_int_equal(gpucr_driver_wait_init(driver, &err), GPUCR_ERR_DRIVER);
            assert_int_equal(err.driver_code, cases[i].code);
            assert_says(&err, cases[i].says);
        }
        (void)gpucr_driver_close(driver);
    }
    (void)state;
}

static void hidden_gpus_are_named(void **state)
{
    struct gpucr_driver *driver = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    (void)setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    fake_answer(&fake, "init", 0, 100);
    assert_int_equal(gpucr_driver_wait_init(driver, &err), GPUCR_ERR_DRIVER);
    assert_says(&err, "CUDA_VISIBLE_DEVICES is \"-1\"");
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
}

static void write_file(const char *path, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    (void)close(fd);
}

/* What others can write is not loaded: the file, a folder above it, behind a link. */
static void library_that_others_can_change_is_refused(void **state)
{
    char root[] = "/tmp/gpucr-test-XXXXXX";
    struct gpucr_error err = GPUCR_ERROR_INIT;
    char folder[64];
    char file[128];
    char link[128];

    (void)state;
    assert_non_null(mkdtemp(root));
    (void)snprintf(folder, sizeof(folder), "%s/lib", root);
    (void)snprintf(file, sizeof(file), "%s/libx.so", folder);
    (void)snprintf(link, sizeof(link), "%s/link.so", root);
    assert_int_equal(mkdir(folder, 0755), 0);
    write_file(file, 0644);
    assert_int_equal(symlink(file, link), 0);
    if (geteuid() == 0) {
        assert_int_equal(gpucr_driver_library_check(link, &err), 0);
        assert_int_equal(chmod(folder, 0777), 0);
        assert_int_equal(gpucr_driver_library_check(link, &err), GPUCR_ERR_PERMISSION);
        assert_string_equal(err.path, folder);
        assert_says(&err, "mode 0777");
        assert_int_equal(chmod(folder, 01777), 0);
        assert_int_equal(gpucr_driver_library_check(link, &err), 0);
        assert_int_equal(chmod(file, 0664), 0);
        assert_int_equal(gpucr_driver_library_check(link, &err), GPUCR_ERR_PERMISSION);
        assert_string_equal(err.path, file);
        assert_int_equal(chmod(file, 0644), 0);
        assert_int_equal(chown(file, 1234, 0), 0);
    }
    assert_int_equal(gpucr_driver_library_check(link, &err), GPUCR_ERR_PERMISSION);
    assert_says(&err, "belongs to uid");
    (void)unlink(link);
    (void)unlink(file);
    (void)rmdir(folder);
    (void)rmdir(root);
}

static void root_does_not_load_it(void **state)
{
    char root[] = "/tmp/gpucr-test-XXXXXX";
    struct gpucr_driver *driver = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    char file[64];

    (void)state;
    if (geteuid() != 0) {
        print_message("not root: the rule does not apply\n");
        skip();
    }
    assert_non_null(mkdtemp(root));
    (void)snprintf(file, sizeof(file), "%s/libcuda.so.1", root);
    write_file(file, 0666);
    assert_int_equal(gpucr_driver_open(root, &driver, &err), GPUCR_ERR_PERMISSION);
    assert_string_equal(err.path, file);
    assert_int_equal(chmod(file, 0644), 0);
    assert_int_equal(gpucr_driver_open(root, &driver, &err), GPUCR_ERR_DRIVER_MISSING);
    assert_says(&err, "cannot be loaded");
    (void)unlink(file);
    (void)rmdir(root);
}

static void a_link_does_not_lead_out_of_the_driver_root(void **state)
{
    char root[] = "/tmp/gpucr-test-XXXXXX";
    struct gpucr_driver *driver = NULL;
    char link[64];

    (void)state;
    assert_non_null(mkdtemp(root));
    (void)snprintf(link, sizeof(link), "%s/libcuda.so.1", root);
    assert_int_equal(symlink(FAKE_ROOT "/libcuda.so.1", link), 0);
    assert_int_equal(gpucr_driver_open(root, &driver, NULL), GPUCR_ERR_DRIVER_MISSING);
    (void)unlink(link);
    (void)rmdir(root);
}

static void uuids_as_text(void **state)
{
    static const char *const wrong[] = {
        "",
        "GPU-",
        "42138af8-a726-72eb-c941-0f336e3fafce",
        "GPU-42138af8-a726-72eb-c941-0f336e3fafc",
        "GPU-42138af8-a726-72eb-c941-0f336e3fafcee",
        "GPU-42138af8-a726-72eb-c9410-f336e3fafce",
        "GPU-42138af8-a726-72eb-c941-0f336e3fafcg",
        "GPU-42138af8_a726-72eb-c941-0f336e3fafce",
        "MIG-42138af8-a726-72eb-c941-0f336e3fafce",
    };
    static const char text[] = "GPU-42138af8-a726-72eb-c941-0f336e3fafce";
    struct gpucr_uuid uuid = {.bytes = {9}};
    char back[GPUCR_UUID_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_false(gpucr_uuid_parse(wrong[i], &uuid));
    assert_int_equal(uuid.bytes[0], 9);
    assert_true(gpucr_uuid_parse(text, &uuid));
    assert_int_equal(uuid.bytes[0], 0x42);
    assert_int_equal(uuid.bytes[15], 0xce);
    gpucr_uuid_format(&uuid, back);
    assert_string_equal(back, text);
}

static void names_are_never_null(void **state)
{
    (void)state;
    assert_string_equal(gpucr_cuda_error_name(600), "CUDA_ERROR_NOT_READY");
    assert_non_null(gpucr_cuda_error_name(-5));
    assert_non_null(gpucr_cuda_error_hint(424242));
    assert_string_equal(gpucr_cuda_state_name(GPUCR_CUDA_RESTORING), "restoring");
    assert_string_equal(gpucr_cuda_state_name((enum gpucr_cuda_state)99), "unknown");
    assert_string_equal(gpucr_cuda_state_name((enum gpucr_cuda_state)(-1)), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opens_and_tells_what_it_is, set_up, tear_down),
        cmocka_unit_test(library_missing),
        cmocka_unit_test(version_below_minimum),
        cmocka_unit_test(calls_missing),
        cmocka_unit_test_setup_teardown(broken_binding_is_not_taken_for_no_cuda, set_up, tear_down),
        cmocka_unit_test_setup_teardown(self_test_passes_in_a_cuda_program, set_up, tear_down),
        cmocka_unit_test_setup_teardown(process_without_cuda, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_zombie_has_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(somebody_elses_process, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lost_process_is_told_from_a_dead_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_process_with_an_ended_first_thread_is_alive, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(codes_have_meanings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_states_of_the_driver, set_up, tear_down),
        cmocka_unit_test_setup_teardown(restore_passes_the_device_map, set_up, tear_down),
        cmocka_unit_test_setup_teardown(own_process_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(init_runs_once_beside_other_work, set_up, tear_down),
        cmocka_unit_test(failed_init_is_explained_each_time),
        cmocka_unit_test_setup_teardown(hidden_gpus_are_named, set_up, tear_down),
        cmocka_unit_test(library_that_others_can_change_is_refused),
        cmocka_unit_test(root_does_not_load_it),
        cmocka_unit_test(a_link_does_not_lead_out_of_the_driver_root),
        cmocka_unit_test(uuids_as_text),
        cmocka_unit_test(names_are_never_null),
    };

    fake = fake_load(FAKE_ROOT);
    return cmocka_run_group_tests_name("gpu_driver", tests, NULL, NULL);
}
