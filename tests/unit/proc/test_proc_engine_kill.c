/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A real CRIU is ended in the middle of a dump, at moments spread over its work; each
 * time the process must be as before, go on, and be dumped in the end.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "proc/engine_kill.h"
#include "proc_snapshot_child.h"

static const char *criu_path(void)
{
    static char path[512];
    const char *criu = getenv("GPUCR_CRIU"), *source = getenv("GPUCR_SOURCE");

    if (!criu && source) {
        (void)snprintf(path, sizeof(path), "%s/build/criu/criu", source);
        criu = path;
    }
    return criu && !access(criu, X_OK) ? criu : NULL;
}

static pid_t start_criu(const char *criu, const struct target *target, const char *images)
{
    char pid_text[16], log[128];

    (void)snprintf(pid_text, sizeof(pid_text), "%d", target->pid);
    (void)snprintf(log, sizeof(log), "%s/criu.log", images);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        (void)dup2(null, fd);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)execl(criu, "criu", "dump", "-t", pid_text, "--images-dir", images, "--leave-running",
                "-v4", "-o", log, NULL);
    _exit(127);
}

static void print_log(const char *images)
{
    char path[128], line[512];

    (void)snprintf(path, sizeof(path), "%s/criu.log", images);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        if (strstr(line, "Error") || strstr(line, "Warn"))
            print_message("%s", line);
    }
    if (f)
        (void)fclose(f);
}

/* Exit status, or -1 after @p limit_ms. */
static int await(pid_t pid, uint64_t limit_ms)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(limit_ms);
    int status = 0;

    while (!gpucr_deadline_passed(deadline)) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
        gpucr_sleep_us(1000);
    }
    return -1;
}

/* CRIU spends most of its time before it touches the process and after it is done with it. */
static void await_tracer(const struct target *target, pid_t criu)
{
    struct gpucr_proc_status status = {0};
    siginfo_t info = {0};

    while (!gpucr_proc_status_read(target->pid, &status, NULL) && !status.tracer_pid) {
        if (waitid(P_PID, (id_t)criu, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
            return;
        gpucr_sleep_us(50);
    }
}

static void images_dir(const struct target *target, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s-images", target->dir);
    remove_flat_dir(ret);
    assert_int_equal(mkdir(ret, 0700), 0);
}

static void test_criu_is_killed(void **state)
{
    enum { RUNS = 30, DELAY_US_MAX = 20000 };
    struct target *target = *state;
    const char *criu = criu_path();
    char images[96];
    unsigned seed = 20, touched = 0, killed = 0;
    struct gpucr_repair sum = {0};

    assert_non_null(criu);
    for (int i = 0; i < RUNS; i++) {
        struct gpucr_error err = GPUCR_ERROR_INIT;
        struct gpucr_pids targets = {0};
        snapshot_target_stop(target);
        struct gpucr_snapshot *snapshot = take_snapshot(target);
        images_dir(target, images, sizeof(images));
        pid_t pid = start_criu(criu, target, images);
        await_tracer(target, pid);
        gpucr_sleep_us((uint64_t)rand_r(&seed) % DELAY_US_MAX);
        assert_int_equal(gpucr_pids_add(&targets, target->pid, NULL), 0);
        if (gpucr_engine_kill(target->tracer, pid, &targets, &err))
            fail_msg("%s", err.text);
        gpucr_pids_done(&targets);
        killed += await(pid, 5000) == 256 + SIGKILL;
        struct gpucr_repair done = repair_snapshot(target, snapshot);
        touched += done.threads_repaired + done.code_bytes_repaired + done.mappings_removed +
                       done.descriptors_closed >
                   0;
        sum.threads_repaired += done.threads_repaired;
        sum.code_bytes_repaired += done.code_bytes_repaired;
        sum.mappings_removed += done.mappings_removed;
        sum.protections_repaired += done.protections_repaired;
        sum.descriptors_closed += done.descriptors_closed;
        sum.faults_dropped += done.faults_dropped;
        sum.umasks_repaired += done.umasks_repaired;
        assert_snapshot_target_goes_on(target);
        (void)gpucr_snapshot_free(snapshot);
    }
    print_message("%u of %d dumps were cut short, %u left something: threads %u, code bytes %u, "
                  "mappings %u, protections %u, descriptors %u, umasks %u, faults %u\n",
                  killed, RUNS, touched, sum.threads_repaired, sum.code_bytes_repaired,
                  sum.mappings_removed, sum.protections_repaired, sum.descriptors_closed,
                  sum.umasks_repaired, sum.faults_dropped);
    assert_true(touched > 0);

    /* And then an ordinary dump works, and leaves nothing to repair but what it always leaves. */
    snapshot_target_stop(target);
    images_dir(target, images, sizeof(images));
    int status = await(start_criu(criu, target, images), 20000);
    if (status) {
        print_log(images);
        fail_msg("criu dump ended with %d", status);
    }
    assert_snapshot_target_goes_on(target);
    remove_flat_dir(images);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_criu_is_killed, snapshot_target_setup,
                                        snapshot_target_teardown),
    };

    if (geteuid() || !criu_path()) {
        print_message("skipped: needs root and a criu (GPUCR_CRIU, or build/criu/criu below "
                      "GPUCR_SOURCE)\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
