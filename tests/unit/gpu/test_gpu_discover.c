/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which processes may have CUDA state, found in /proc. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "gpu/discover.h"
#include "gpu_support.h"

static char dev_root[] = "/tmp/gpucr-test-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/%s", dev_root, name);
    return path;
}

static int open_node(const char *name)
{
    int fd = open(path_of(name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    return fd;
}

static struct gpucr_evidence look_at(pid_t pid)
{
    struct gpucr_evidence evidence;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_evidence_read(pid, dev_root, &evidence, &err) != 0)
        fail_msg("%s", err.text);
    return evidence;
}

static void nothing_in_an_ordinary_process(void **state)
{
    struct gpucr_evidence evidence = look_at(getpid());

    (void)state;
    assert_int_equal(evidence.flags, 0);
    assert_int_equal(evidence.example_fd, -1);
    assert_string_equal(evidence.example_path, "");
    assert_int_equal(evidence.restore_tid, 0);
}

static void names_of_device_files(void **state)
{
    static const struct {
        const char *name;
        bool is_device;
    } cases[] = {
        {"nvidia0", true},
        {"nvidia17", true},
        {"nvidiactl", true},
        {"nvidia-uvm", true},
        {"nvidia-uvm-tools", true},
        {"nvidia-modeset", true},
        {"nvidia-caps/nvidia-cap1", true},
        {"nvidia", false},
        {"nvidia0.bak", false},
        {"nvidia-smi.log", false},
        {"null", false},
        {"other/nvidia0", false},
    };

    (void)state;
    (void)mkdir(path_of("nvidia-caps"), 0700);
    (void)mkdir(path_of("other"), 0700);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int fd = open_node(cases[i].name);
        struct gpucr_evidence evidence = look_at(getpid());

        if ((evidence.flags == GPUCR_EVIDENCE_DESCRIPTOR) != cases[i].is_device)
            fail_msg("%s", cases[i].name);
        if (cases[i].is_device) {
            assert_int_equal(evidence.example_fd, fd);
            assert_string_equal(evidence.example_path, path_of(cases[i].name));
        }
        assert_int_equal(unlink(path_of(cases[i].name)), 0);
        /* still open, though the node is gone */
        assert_int_equal(look_at(getpid()).flags != 0, cases[i].is_device);
        (void)close(fd);
        assert_int_equal(look_at(getpid()).flags, 0);
    }
    (void)rmdir(path_of("nvidia-caps"));
    (void)rmdir(path_of("other"));
}

static void a_mapping_outlives_its_descriptor(void **state)
{
    int fd = open_node("nvidia3");
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    struct gpucr_evidence evidence;

    (void)state;
    assert_ptr_not_equal(mapped, MAP_FAILED);
    (void)close(fd);
    evidence = look_at(getpid());
    assert_int_equal(evidence.flags, GPUCR_EVIDENCE_MAPPING);
    assert_int_equal(evidence.example_fd, -1);
    assert_string_equal(evidence.example_path, path_of("nvidia3"));
    (void)munmap(mapped, 4096);
    (void)unlink(path_of("nvidia3"));
}

static int step_pipe[2];
static int done_pipe[2];

static void *own_table(void *arg)
{
    char byte = 'x';
    int fd;

    (void)arg;
    if (unshare(CLONE_FILES) != 0) {
        (void)!write(done_pipe[1], "e", 1);
        return NULL;
    }
    fd = open_node("nvidiactl");
    (void)!write(done_pipe[1], &byte, 1);
    (void)!read(step_pipe[0], &byte, 1);
    (void)close(fd);
    return NULL;
}

static void a_thread_with_a_table_of_its_own(void **state)
{
    pthread_t thread;
    char byte = 0;

    (void)state;
    assert_int_equal(pipe(step_pipe), 0);
    assert_int_equal(pipe(done_pipe), 0);
    assert_int_equal(pthread_create(&thread, NULL, own_table, NULL), 0);
    assert_int_equal(read(done_pipe[0], &byte, 1), 1);
    if (byte == 'x')
        assert_int_equal(look_at(getpid()).flags, GPUCR_EVIDENCE_DESCRIPTOR);
    (void)!write(step_pipe[1], "s", 1);
    (void)pthread_join(thread, NULL);
    (void)unlink(path_of("nvidiactl"));
    assert_int_equal(byte, 'x');
}

/* A node under any name is known by its number; it need not be opened for work. */
static void a_node_is_known_by_its_number(void **state)
{
    int fd;

    (void)state;
    if (mknod(path_of("renamed"), S_IFCHR | 0600, makedev(195, 255)) != 0) {
        print_message("device nodes cannot be made here: errno %d\n", errno);
        skip();
    }
    fd = open(path_of("renamed"), O_PATH | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(look_at(getpid()).flags, GPUCR_EVIDENCE_DESCRIPTOR);
    (void)close(fd);
    (void)unlink(path_of("renamed"));
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(look_at(getpid()).flags, 0);
    (void)close(fd);
}

static void the_restore_thread_by_its_name(void **state)
{
    pid_t child = child_start(false);
    struct gpucr_evidence evidence;
    pid_t tid;

    (void)state;
    evidence = look_at(child);
    assert_int_equal(evidence.flags, GPUCR_EVIDENCE_RESTORE_THREAD);
    assert_true(evidence.restore_tid > child);
    assert_int_equal(gpucr_evidence_quick(child, 2), evidence.restore_tid);
    assert_int_equal(gpucr_evidence_quick(child, 1), 0);
    assert_int_equal(gpucr_evidence_quick(getpid(), 8), 0);
    child_stop(child);
    tid = evidence.restore_tid;
    assert_int_equal(look_at(child).restore_tid, tid); /* a stopped one as well */
    child_end(child);
    assert_int_equal(gpucr_evidence_quick(child, 2), 0);
}

static void a_process_whose_first_thread_ended(void **state)
{
    pid_t child = child_start(true);

    (void)state;
    while (child_state(child) != 'Z')
        (void)usleep(1000);
    assert_int_equal(look_at(child).flags, GPUCR_EVIDENCE_RESTORE_THREAD);
    child_end(child);
}

static void a_process_that_is_not_there(void **state)
{
    struct gpucr_evidence evidence = {.flags = 77};
    struct gpucr_error err = GPUCR_ERROR_INIT;
    pid_t child = child_start(false);

    (void)state;
    (void)kill(child, SIGKILL);
    while (child_state(child) != 'Z')
        (void)usleep(1000);
    assert_int_equal(look_at(child).flags & ~(uint32_t)GPUCR_EVIDENCE_RESTORE_THREAD, 0);
    child_end(child);
    assert_int_equal(gpucr_evidence_read(child, dev_root, &evidence, &err), GPUCR_ERR_NOT_FOUND);
    assert_int_equal(evidence.flags, 77);
}

/* 300 processes within a listing's budget: generous, since the machine may be busy. */
static void quick_is_quick(void **state)
{
    pid_t child = child_start(false);
    uint64_t best_ns = UINT64_MAX;

    (void)state;
    for (int round = 0; round < 10; round++) {
        uint64_t start_ns = gpucr_now_ns();

        for (int i = 0; i < 100; i++)
            assert_true(gpucr_evidence_quick(child, 2) > 0);
        if (gpucr_now_ns() - start_ns < best_ns)
            best_ns = gpucr_now_ns() - start_ns;
    }
    print_message("%llu ns per process\n", (unsigned long long)(best_ns / 100));
    assert_true(best_ns / 100 < 200000);
    child_end(child);
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(dev_root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return rmdir(dev_root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_in_an_ordinary_process),
        cmocka_unit_test(names_of_device_files),
        cmocka_unit_test(a_mapping_outlives_its_descriptor),
        cmocka_unit_test(a_thread_with_a_table_of_its_own),
        cmocka_unit_test(a_node_is_known_by_its_number),
        cmocka_unit_test(the_restore_thread_by_its_name),
        cmocka_unit_test(a_process_whose_first_thread_ended),
        cmocka_unit_test(a_process_that_is_not_there),
        cmocka_unit_test(quick_is_quick),
    };

    return cmocka_run_group_tests_name("gpu_discover", tests, make_root, remove_root);
}
