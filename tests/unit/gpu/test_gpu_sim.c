/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The gpu layer on the simulated driver, with programs that hold memory on its GPUs and
 * verify it: whatever happens to the calls, no program loses data.
 */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "gpu/discover.h"
#include "gpu/group.h"
#include "gpu/nvml.h"
#include "gpu_support.h"

enum { PROGRAMS_MAX = 4, GPU_MIB = 256 };

struct program {
    pid_t pid;
    FILE *out;
};

struct bench {
    char root[64];
    char dev[80];
    struct gpucr_driver *driver;
    struct gpucr_tracer *tracer;
    struct gpucr_nvml *nvml;
    struct gpucr_group group;
    struct program programs[PROGRAMS_MAX];
    size_t count;
    atomic_int waited;
};

/* ---- the simulated machine and its programs ---- */

static int run_tool(const char *root, const char *gpus)
{
    char vram[32];
    int status = -1;
    pid_t pid;

    (void)snprintf(vram, sizeof(vram), "%dMiB", GPU_MIB);
    pid = fork();
    if (pid == 0) {
        (void)execl(SIM_TOOL, SIM_TOOL, "create", root, "--gpus", gpus, "--vram", vram, NULL);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

static int set_up(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (!b)
        return -1;
    (void)snprintf(b->root, sizeof(b->root), "/tmp/gpucr-test-XXXXXX");
    if (!mkdtemp(b->root) || run_tool(b->root, "2") != 0)
        return -1;
    (void)snprintf(b->dev, sizeof(b->dev), "%s/dev", b->root);
    (void)setenv("GPUCR_SIM_ROOT", b->root, 1);
    if (gpucr_driver_open(b->root, &b->driver, &err) != 0 ||
        gpucr_driver_start_init(b->driver, &err) != 0 || gpucr_tracer_new(&b->tracer, &err) != 0 ||
        gpucr_nvml_open(b->root, &b->nvml, &err) != 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    b->group = (struct gpucr_group){.driver = b->driver, .tracer = b->tracer};
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;
    char command[128];

    for (size_t i = 0; i < b->count; i++) {
        child_end(b->programs[i].pid);
        (void)fclose(b->programs[i].out);
    }
    gpucr_group_done(&b->group);
    (void)gpucr_tracer_free(b->tracer);
    (void)gpucr_nvml_close(b->nvml);
    (void)gpucr_driver_close(b->driver);
    (void)snprintf(command, sizeof(command), "%s", b->root);
    if (fork() == 0) {
        (void)execlp("rm", "rm", "-rf", "--", command, NULL);
        _exit(127);
    }
    (void)wait(NULL);
    free(b);
    return 0;
}

/* Read lines until one begins with @p word; fails the test after ten seconds without one. */
static void expect_line(struct program *program, const char *word, char *line, size_t size)
{
    for (;;) {
        struct pollfd ready = {.fd = fileno(program->out), .events = POLLIN};

        if (poll(&ready, 1, 10000) != 1 || !fgets(line, (int)size, program->out))
            fail_msg("process %d says nothing instead of \"%s\"", program->pid, word);
        if (strncmp(line, word, strlen(word)) == 0)
            return;
    }
}

static struct program *start(struct bench *b, const char *const *arguments)
{
    struct program *program = &b->programs[b->count++];
    char libraries[96];
    char line[512];
    int out[2];

    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    (void)snprintf(libraries, sizeof(libraries), "%s/lib", b->root);
    program->pid = fork();
    if (program->pid == 0) {
        char sample[512];

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setenv("LD_LIBRARY_PATH", libraries, 1);
        (void)dup2(out[1], STDOUT_FILENO);
        (void)snprintf(sample, sizeof(sample), "%s/%s", SIM_SAMPLES, arguments[0]);
        (void)execv(sample, (char *const *)arguments);
        _exit(127);
    }
    (void)close(out[1]);
    program->out = fdopen(out[0], "re");
    assert_non_null(program->out);
    (void)setvbuf(program->out, NULL, _IONBF, 0);
    expect_line(program, "ready", line, sizeof(line));
    return program;
}

static struct program *start_counter(struct bench *b)
{
    static const char *const arguments[] = {"counter", "--mib", "8", "--period-ms", "1", NULL};

    return start(b, arguments);
}

static uint64_t number_in(const char *line, const char *name)
{
    const char *at = strstr(line, name);

    return at ? strtoull(at + strlen(name), NULL, 10) : UINT64_MAX;
}

/* The program runs, its memory is right and its counter is what it launched. Returns it. */
static uint64_t assert_works(struct program *program)
{
    char line[512];

    assert_int_equal(kill(program->pid, SIGUSR1), 0);
    expect_line(program, "verify", line, sizeof(line));
    if (number_in(line, " bad=") != 0 || number_in(line, " pinned_bad=") != 0 ||
        number_in(line, " counter=") != number_in(line, " expected="))
        fail_msg("%s", line);
    return number_in(line, " counter=");
}

static void script(struct bench *b, const char *format, int pid)
{
    char path[96];
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s/state/faults", b->root);
    f = fopen(path, "we");
    assert_non_null(f);
    (void)fprintf(f, format, pid);
    assert_int_equal(fclose(f), 0);
}

/* ---- steps ---- */

static void must(int rc, const struct gpucr_error *err)
{
    if (rc != 0)
        fail_msg("%s", err->text);
}

static void add_and_probe(struct bench *b)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    for (size_t i = 0; i < b->count; i++)
        must(gpucr_group_add(&b->group, b->programs[i].pid, false, &err), &err);
    must(gpucr_group_probe(&b->group, &err), &err);
}

static void lock_and_hold(struct bench *b)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    must(gpucr_group_lock(&b->group, gpucr_deadline_in_ms(10000), &err), &err);
    for (size_t i = 0; i < b->count; i++)
        child_stop(b->programs[i].pid);
}

static void suspend_all(struct bench *b)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_and_probe(b);
    lock_and_hold(b);
    must(gpucr_group_checkpoint(&b->group, &err), &err);
}

static void continue_all(struct bench *b)
{
    for (size_t i = 0; i < b->count; i++)
        child_continue(b->programs[i].pid);
}

static uint64_t bytes_of(struct bench *b, const struct program *program)
{
    struct gpucr_gpu_uses uses = {0};
    uint64_t bytes;

    assert_int_equal(gpucr_nvml_uses(b->nvml, &uses, NULL), 0);
    bytes = gpucr_gpu_uses_bytes(&uses, program->pid);
    gpucr_gpu_uses_done(&uses);
    return bytes;
}

/* ---- tests ---- */

static void evidence_and_the_drivers_answer(void **state)
{
    static const char *const nvml_only[] = {"nvmlonly", NULL};
    static const char *const cpu_only[] = {"cpuonly", NULL};
    struct bench *b = *state;
    struct program *cuda = start_counter(b);
    struct program *nvml = start(b, nvml_only);
    struct program *cpu = start(b, cpu_only);
    struct gpucr_evidence evidence;
    pid_t tid = 0;

    assert_int_equal(gpucr_evidence_read(cuda->pid, b->dev, &evidence, NULL), 0);
    assert_int_equal(evidence.flags, GPUCR_EVIDENCE_DESCRIPTOR | GPUCR_EVIDENCE_MAPPING |
                                         GPUCR_EVIDENCE_RESTORE_THREAD);
    assert_int_equal(b->driver->ops->get_restore_thread(b->driver, cuda->pid, &tid, NULL), 0);
    assert_int_equal(evidence.restore_tid, tid);
    assert_int_equal(gpucr_evidence_quick(cuda->pid, 3), tid);
    assert_int_equal(gpucr_evidence_read(nvml->pid, b->dev, &evidence, NULL), 0);
    assert_true(evidence.flags & GPUCR_EVIDENCE_DESCRIPTOR);
    assert_int_equal(gpucr_evidence_read(cpu->pid, b->dev, &evidence, NULL), 0);
    assert_int_equal(evidence.flags, 0);
    add_and_probe(b);
    assert_int_equal(b->group.count, 1);
    assert_int_equal(b->group.members[0].pid, cuda->pid);
}

static void suspended_and_resumed_again_and_again(void **state)
{
    static const char *const pinned[] = {"counter", "--mib",         "8",       "--period-ms",
                                         "1",       "--pinned-poll", "1048576", NULL};
    struct bench *b = *state;
    struct program *first = start_counter(b);
    struct program *second = start(b, pinned);
    struct gpucr_error err = GPUCR_ERROR_INIT;

    assert_true(bytes_of(b, first) > 0);
    for (int i = 0; i < 3; i++) {
        uint64_t before = assert_works(first);

        suspend_all(b);
        assert_int_equal(bytes_of(b, first), 0);
        assert_int_equal(bytes_of(b, second), 0);
        must(gpucr_group_resume(&b->group, NULL, 0, &err), &err);
        must(gpucr_group_verify_goals(&b->group, &err), &err);
        continue_all(b);
        assert_true(assert_works(first) > before);
        (void)assert_works(second);
        gpucr_group_done(&b->group);
    }
}

static void a_refusal_takes_everybody_back(void **state)
{
    struct bench *b = *state;
    struct program *first = start_counter(b);
    struct program *second = start_counter(b);
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_and_probe(b);
    lock_and_hold(b);
    script(b, "checkpoint pid=%d refuse\n", second->pid);
    assert_int_equal(gpucr_group_checkpoint(&b->group, &err), GPUCR_ERR_DRIVER);
    assert_int_equal(err.driver_code, 801);
    assert_int_equal(err.pid, second->pid);
    assert_int_equal(gpucr_group_find(&b->group, first->pid)->state, GPUCR_CUDA_CHECKPOINTED);
    must(gpucr_group_rollback(&b->group, &err), &err);
    continue_all(b);
    (void)assert_works(first);
    (void)assert_works(second);
}

static void a_crash_takes_the_others_back(void **state)
{
    struct bench *b = *state;
    struct program *first = start_counter(b);
    struct program *second = start_counter(b);
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_and_probe(b);
    lock_and_hold(b);
    script(b, "checkpoint pid=%d crash\n", first->pid);
    assert_int_equal(gpucr_group_checkpoint(&b->group, &err), GPUCR_ERR_TARGET_DIED);
    assert_int_equal(err.pid, first->pid);
    assert_int_equal(gpucr_group_rollback(&b->group, &err), GPUCR_ERR_TARGET_DIED);
    child_continue(second->pid);
    (void)assert_works(second);
}

static void no_memory_at_restore(void **state)
{
    struct bench *b = *state;
    struct program *first = start_counter(b);
    struct program *second = start_counter(b);
    struct gpucr_error err = GPUCR_ERROR_INIT;

    suspend_all(b);
    assert_int_equal(gpucr_group_probe(&b->group, NULL), 0);
    script(b, "restore pid=%d oom\n", first->pid);
    assert_int_equal(gpucr_group_resume(&b->group, NULL, 0, &err), GPUCR_ERR_POISONED);
    assert_int_equal(err.pid, first->pid);
    assert_int_equal(err.driver_code, 2);
    assert_int_equal(gpucr_group_rollback(&b->group, &err), GPUCR_ERR_POISONED);
    assert_int_equal(gpucr_group_find(&b->group, second->pid)->state, GPUCR_CUDA_CHECKPOINTED);
    /* the good one can still be brought back by itself */
    gpucr_group_done(&b->group);
    must(gpucr_group_add(&b->group, second->pid, false, &err), &err);
    must(gpucr_group_probe(&b->group, &err), &err);
    must(gpucr_group_resume(&b->group, NULL, 0, &err), &err);
    child_continue(second->pid);
    (void)assert_works(second);
}

static void work_that_does_not_drain(void **state)
{
    static const char *const busy[] = {"counter", "--mib", "8", "--spin-ms", "1500", NULL};
    struct bench *b = *state;
    struct program *program = start(b, busy);
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_and_probe(b);
    gpucr_sleep_us(100000);
    assert_int_equal(gpucr_group_lock(&b->group, gpucr_deadline_in_ms(200), &err),
                     GPUCR_ERR_TIMEOUT);
    assert_int_equal(err.driver_code, 600);
    must(gpucr_group_rollback(&b->group, &err), &err);
    must(gpucr_group_verify(&b->group, GPUCR_CUDA_RUNNING, &err), &err);
    must(gpucr_group_lock(&b->group, gpucr_deadline_in_ms(10000), &err), &err);
    must(gpucr_group_rollback(&b->group, &err), &err);
    (void)assert_works(program);
}

static void stopped_by_its_owner(void **state)
{
    static const char *const idle[] = {"counter", "--mib", "8", "--period-ms", "200", NULL};
    struct bench *b = *state;
    struct program *program = start(b, idle);
    struct gpucr_error err = GPUCR_ERROR_INIT;

    must(gpucr_group_add(&b->group, program->pid, true, &err), &err);
    /* It is outside of CUDA calls most of the time: where it is not, Lock says so. */
    for (int i = 0; i < 10; i++) {
        child_stop(program->pid);
        must(gpucr_group_probe(&b->group, &err), &err);
        assert_int_equal(b->group.count, 1);
        if (gpucr_group_lock(&b->group, gpucr_deadline_in_ms(500), &err) == 0)
            break;
        assert_int_equal(err.code, GPUCR_ERR_TIMEOUT);
        child_continue(program->pid);
        gpucr_sleep_us(70000);
    }
    must(gpucr_group_checkpoint(&b->group, &err), &err);
    assert_int_equal(bytes_of(b, program), 0);
    must(gpucr_group_resume(&b->group, NULL, 0, &err), &err);
    assert_int_equal(child_state(program->pid), 'T');
    child_continue(program->pid);
    (void)assert_works(program);
}

static void note_waiting(void *arg, pid_t pid, const char *what, uint64_t waited_ms)
{
    struct bench *b = arg;

    (void)pid;
    (void)waited_ms;
    if (strncmp(what, "Checkpoint", 10) == 0)
        (void)atomic_fetch_add(&b->waited, 1);
}

static void a_slow_call_is_waited_for(void **state)
{
    struct bench *b = *state;
    struct program *program = start_counter(b);
    struct gpucr_error err = GPUCR_ERROR_INIT;

    b->group.waiting = note_waiting;
    b->group.waiting_arg = b;
    add_and_probe(b);
    lock_and_hold(b);
    script(b, "checkpoint pid=%d latency=7000\n", program->pid);
    must(gpucr_group_checkpoint(&b->group, &err), &err);
    assert_in_range(b->waited, 1, 4);
    must(gpucr_group_resume(&b->group, NULL, 0, &err), &err);
    continue_all(b);
    (void)assert_works(program);
}

static void moved_to_the_other_gpu(void **state)
{
    struct bench *b = *state;
    struct program *program = start_counter(b);
    struct gpucr_gpu gpus[GPUCR_GPUS_PER_PROCESS_MAX];
    struct gpucr_gpu_uses uses = {0};
    struct gpucr_gpu_pair pairs[2];
    struct gpucr_error err = GPUCR_ERROR_INIT;
    uint32_t count = 0;

    assert_int_equal(gpucr_nvml_gpus(b->nvml, gpus, GPUCR_GPUS_PER_PROCESS_MAX, &count, NULL), 0);
    assert_int_equal(count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_true(gpucr_uuid_parse(gpus[i].uuid, &pairs[i].from));
        assert_true(gpucr_uuid_parse(gpus[1 - i].uuid, &pairs[i].to));
    }
    suspend_all(b);
    /* a map that leaves a GPU out changes nothing */
    assert_int_equal(gpucr_group_resume(&b->group, pairs, 1, &err), GPUCR_ERR_DRIVER);
    assert_int_equal(err.driver_code, 1);
    assert_int_equal(b->group.members[0].state, GPUCR_CUDA_CHECKPOINTED);
    must(gpucr_group_resume(&b->group, pairs, 2, &err), &err);
    continue_all(b);
    (void)assert_works(program);
    assert_int_equal(gpucr_nvml_uses(b->nvml, &uses, NULL), 0);
    assert_int_equal(uses.count, 1);
    assert_int_equal(uses.items[0].gpu, 1);
    gpucr_gpu_uses_done(&uses);
}

#define SIM_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(evidence_and_the_drivers_answer),
        SIM_TEST(suspended_and_resumed_again_and_again),
        SIM_TEST(a_refusal_takes_everybody_back),
        SIM_TEST(a_crash_takes_the_others_back),
        SIM_TEST(no_memory_at_restore),
        SIM_TEST(work_that_does_not_drain),
        SIM_TEST(stopped_by_its_owner),
        SIM_TEST(a_slow_call_is_waited_for),
        SIM_TEST(moved_to_the_other_gpu),
    };

    return cmocka_run_group_tests_name("gpu_sim", tests, NULL, NULL);
}
