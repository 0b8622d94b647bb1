/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The group on the fake driver: real processes with a thread named like the driver's,
 * a real tracer; after each failure every process must be where it was.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/cuda_api.h"
#include "gpu/group.h"
#include "gpu_support.h"
#include "proc/procfs.h"

enum { CHILDREN = 3 };

struct bench {
    struct gpucr_driver *driver;
    struct gpucr_tracer *tracer;
    struct gpucr_group group;
    pid_t pids[CHILDREN];
    atomic_int waited;
    char waited_for[256];
};

static struct fake fake;

static int set_up(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));

    fake.reset();
    if (!b || gpucr_driver_open(FAKE_ROOT, &b->driver, NULL) != 0 ||
        gpucr_tracer_new(&b->tracer, NULL) != 0)
        return -1;
    b->group = (struct gpucr_group){.driver = b->driver, .tracer = b->tracer};
    for (size_t i = 0; i < CHILDREN; i++) {
        b->pids[i] = child_start(false);
        fake.set_state(b->pids[i], GPUCR_CUDA_RUNNING);
    }
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;

    for (size_t i = 0; i < CHILDREN; i++)
        child_end(b->pids[i]);
    gpucr_group_done(&b->group);
    (void)gpucr_tracer_free(b->tracer);
    (void)gpucr_driver_close(b->driver);
    free(b);
    return 0;
}

/* Add in the wrong order: the group sorts. */
static void add_all(struct bench *b)
{
    for (size_t i = CHILDREN; i > 0; i--)
        assert_int_equal(gpucr_group_add(&b->group, b->pids[i - 1], false, NULL), 0);
}

static void add_and_probe(struct bench *b)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_all(b);
    if (gpucr_group_probe(&b->group, &err) != 0)
        fail_msg("%s", err.text);
}

static void stop_all(struct bench *b)
{
    for (size_t i = 0; i < CHILDREN; i++)
        child_stop(b->pids[i]);
}

static int lock_all(struct bench *b, uint64_t ms, struct gpucr_error *err)
{
    return gpucr_group_lock(&b->group, gpucr_deadline_in_ms(ms), err);
}

/* To CHECKPOINTED, all T. */
static void suspend_all(struct bench *b)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_and_probe(b);
    assert_int_equal(lock_all(b, 5000, NULL), 0);
    stop_all(b);
    if (gpucr_group_checkpoint(&b->group, &err) != 0)
        fail_msg("%s", err.text);
}

static void assert_states(struct bench *b, int one, int two, int three)
{
    assert_int_equal(fake.state(b->pids[0]), one);
    assert_int_equal(fake.state(b->pids[1]), two);
    assert_int_equal(fake.state(b->pids[2]), three);
}

static void assert_says(const struct gpucr_error *err, const char *part)
{
    if (!strstr(err->text, part))
        fail_msg("\"%s\" does not say \"%s\"", err->text, part);
}

/* All threads T, no tracer, no window. */
static void assert_held(struct bench *b)
{
    for (size_t i = 0; i < CHILDREN; i++) {
        struct gpucr_proc_status status;
        struct gpucr_pids tids = {0};
        struct gpucr_member *member = gpucr_group_find(&b->group, b->pids[i]);

        assert_false(member && member->window_open);
        assert_int_equal(gpucr_proc_status_read(b->pids[i], &status, NULL), 0);
        assert_int_equal(status.tracer_pid, 0);
        assert_int_equal(gpucr_task_list(b->pids[i], &tids, NULL), 0);
        for (size_t n = 0; n < tids.count; n++) {
            struct gpucr_proc_stat st;

            assert_int_equal(gpucr_task_stat_read(b->pids[i], tids.ids[n], &st, NULL), 0);
            assert_int_equal(st.state, 'T');
        }
        gpucr_pids_done(&tids);
    }
}

static void probe_decides_who_is_a_member(void **state)
{
    struct bench *b = *state;
    pid_t plain = child_start(false);
    pid_t ended = child_start(false);

    add_all(b);
    assert_int_equal(gpucr_group_add(&b->group, b->pids[0], false, NULL), 0);
    assert_int_equal(gpucr_group_add(&b->group, plain, false, NULL), 0);
    assert_int_equal(gpucr_group_add(&b->group, ended, false, NULL), 0);
    child_end(ended);
    fake.set_state(b->pids[1], GPUCR_CUDA_LOCKED);
    assert_int_equal(gpucr_group_probe(&b->group, NULL), 0);
    assert_int_equal(b->group.count, CHILDREN + 1);
    for (size_t i = 1; i < b->group.count; i++)
        assert_true(b->group.members[i - 1].pid < b->group.members[i].pid);
    assert_null(gpucr_group_find(&b->group, plain));
    assert_true(gpucr_group_find(&b->group, ended)->ended);
    assert_int_equal(gpucr_group_find(&b->group, b->pids[1])->before, GPUCR_CUDA_LOCKED);
    assert_int_equal(gpucr_group_find(&b->group, b->pids[2])->state, GPUCR_CUDA_RUNNING);
    child_end(plain);
}

static void stopped_processes_are_probed_and_stay_stopped(void **state)
{
    struct bench *b = *state;

    stop_all(b);
    add_and_probe(b);
    assert_int_equal(b->group.count, CHILDREN);
    assert_held(b);
    b->group.tracer = NULL;
    assert_int_equal(gpucr_group_probe(&b->group, NULL), GPUCR_ERR_BUSY);
}

static void suspend_and_resume(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    suspend_all(b);
    assert_states(b, 2, 2, 2);
    assert_held(b);
    assert_int_equal(gpucr_group_verify(&b->group, GPUCR_CUDA_CHECKPOINTED, NULL), 0);
    assert_int_equal(gpucr_group_verify(&b->group, GPUCR_CUDA_RUNNING, &err), GPUCR_ERR_VERIFY);
    assert_int_equal(err.pid, b->group.members[0].pid);
    assert_int_equal(err.stage, GPUCR_STAGE_READBACK);
    if (gpucr_group_resume(&b->group, NULL, 0, &err) != 0)
        fail_msg("%s", err.text);
    assert_states(b, 0, 0, 0);
    assert_held(b);
    assert_int_equal(gpucr_group_verify_goals(&b->group, NULL), 0);
}

static void lock_gives_each_call_what_is_left(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_and_probe(b);
    b->group.sequential = true;
    fake.script(&(struct fake_script){
        .call = "lock", .code = -1, .times = -1, .sleep_ms = 60, .new_state = -1});
    assert_int_equal(lock_all(b, 100, &err), GPUCR_ERR_TIMEOUT);
    assert_says(&err, "deadline passed before process");
    assert_in_range(fake.seen().lock_timeout_ms, 1, 40);
    /* two were locked in time, the third was not begun */
    assert_states(b, 1, 1, 0);
    assert_int_equal(gpucr_group_rollback(&b->group, NULL), 0);
    assert_states(b, 0, 0, 0);
}

static void lock_failure_leaves_the_rest_to_rollback(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    const struct gpucr_member *member;

    add_and_probe(b);
    fake.script(&(struct fake_script){.call = "lock",
                                      .pid = b->pids[1],
                                      .code = GPUCR_CU_NOT_READY,
                                      .times = -1,
                                      .sleep_ms = 50,
                                      .new_state = -1});
    assert_int_equal(lock_all(b, 5000, &err), GPUCR_ERR_TIMEOUT);
    assert_int_equal(err.pid, b->pids[1]);
    assert_int_equal(err.stage, GPUCR_STAGE_LOCK);
    assert_int_equal(err.driver_code, GPUCR_CU_NOT_READY);
    assert_says(&err, "without pause");
    assert_states(b, 1, 0, 1);
    assert_int_equal(gpucr_group_rollback(&b->group, NULL), 0);
    assert_states(b, 0, 0, 0);
    member = gpucr_group_find(&b->group, b->pids[1]);
    assert_int_equal(member->error.code, GPUCR_ERR_TIMEOUT); /* the cause is still there */
    assert_int_equal(gpucr_group_find(&b->group, b->pids[0])->error.code, 0);
}

static void stopped_inside_a_call_is_named(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    stop_all(b);
    assert_int_equal(gpucr_group_add(&b->group, b->pids[0], true, NULL), 0);
    assert_int_equal(gpucr_group_probe(&b->group, NULL), 0);
    fake_answer(&fake, "lock", b->pids[0], GPUCR_CU_NOT_READY);
    assert_int_equal(lock_all(b, 100, &err), GPUCR_ERR_TIMEOUT);
    assert_says(&err, "was stopped by its owner inside a CUDA call; continue it first");
    assert_int_equal(err.driver_code, GPUCR_CU_NOT_READY);
    assert_held(b);
}

static void states_without_a_way_are_refused(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    fake.set_state(b->pids[1], GPUCR_CUDA_FAILED);
    add_and_probe(b);
    assert_int_equal(lock_all(b, 100, &err), GPUCR_ERR_POISONED);
    assert_int_equal(err.pid, b->pids[1]);
    assert_states(b, 0, 3, 0); /* nobody was touched */
    fake.set_state(b->pids[1], GPUCR_CUDA_RESTORING);
    assert_int_equal(gpucr_group_probe(&b->group, NULL), 0);
    assert_int_equal(lock_all(b, 100, &err), GPUCR_ERR_BUSY);
    assert_says(&err, "is restoring");
}

static void checkpoint_failure_goes_back_entirely(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_and_probe(b);
    assert_int_equal(lock_all(b, 5000, NULL), 0);
    stop_all(b);
    fake_answer(&fake, "checkpoint", b->pids[2], GPUCR_CU_NOT_SUPPORTED);
    assert_int_equal(gpucr_group_checkpoint(&b->group, &err), GPUCR_ERR_DRIVER);
    assert_int_equal(err.pid, b->pids[2]);
    assert_int_equal(err.stage, GPUCR_STAGE_CHECKPOINT);
    assert_says(&err, "managed memory");
    assert_says(&err, "the process is locked now");
    assert_states(b, 2, 2, 1);
    assert_held(b);
    assert_int_equal(gpucr_group_rollback(&b->group, NULL), 0);
    assert_states(b, 0, 0, 0);
    assert_held(b);
}

static void target_killed_by_the_driver(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_and_probe(b);
    assert_int_equal(lock_all(b, 5000, NULL), 0);
    stop_all(b);
    fake.script(&(struct fake_script){.call = "checkpoint",
                                      .pid = b->pids[0],
                                      .code = GPUCR_CU_OPERATING_SYSTEM,
                                      .times = 1,
                                      .signal = SIGKILL,
                                      .new_state = -1});
    assert_int_equal(gpucr_group_checkpoint(&b->group, &err), GPUCR_ERR_TARGET_DIED);
    assert_int_equal(err.pid, b->pids[0]);
    assert_true(gpucr_group_find(&b->group, b->pids[0])->ended);
    /* the others go back, the dead one is reported */
    assert_int_equal(gpucr_group_rollback(&b->group, &err), GPUCR_ERR_TARGET_DIED);
    assert_int_equal(err.pid, b->pids[0]);
    assert_int_equal(fake.state(b->pids[1]), 0);
    assert_int_equal(fake.state(b->pids[2]), 0);
}

static void success_is_not_believed(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_and_probe(b);
    assert_int_equal(lock_all(b, 5000, NULL), 0);
    stop_all(b);
    fake_answer(&fake, "checkpoint", b->pids[1], GPUCR_CU_SUCCESS); /* but does nothing */
    assert_int_equal(gpucr_group_checkpoint(&b->group, &err), GPUCR_ERR_VERIFY);
    assert_int_equal(err.pid, b->pids[1]);
    assert_says(&err, "is locked where it must be checkpointed");
    assert_int_equal(gpucr_group_rollback(&b->group, NULL), 0);
    assert_states(b, 0, 0, 0);
}

static void one_failed_restore_unlocks_nobody(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    suspend_all(b);
    assert_int_equal(gpucr_group_probe(&b->group, NULL), 0); /* as a later program would */
    fake_answer(&fake, "restore", b->pids[1], GPUCR_CU_INVALID_VALUE);
    assert_int_equal(gpucr_group_resume(&b->group, NULL, 0, &err), GPUCR_ERR_DRIVER);
    assert_int_equal(err.pid, b->pids[1]);
    assert_int_equal(err.stage, GPUCR_STAGE_RESTORE);
    assert_states(b, 1, 2, 1);
    assert_int_equal(fake.seen().unlocks, 0);
    assert_held(b);
    /* back to suspended, all of them, so that it can be tried again */
    assert_int_equal(gpucr_group_rollback(&b->group, NULL), 0);
    assert_states(b, 2, 2, 2);
    assert_held(b);
}

static void out_of_memory_at_restore_is_final(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    const struct gpucr_member *member;

    suspend_all(b);
    assert_int_equal(gpucr_group_probe(&b->group, NULL), 0);
    fake_answer(&fake, "restore", b->pids[1], GPUCR_CU_OUT_OF_MEMORY);
    fake.script(&(struct fake_script){.call = "get_state",
                                      .pid = b->pids[1],
                                      .code = GPUCR_CU_OPERATING_SYSTEM,
                                      .times = -1,
                                      .new_state = -1});
    assert_int_equal(gpucr_group_resume(&b->group, NULL, 0, &err), GPUCR_ERR_POISONED);
    assert_says(&err, "device memory ran out");
    member = gpucr_group_find(&b->group, b->pids[1]);
    assert_int_equal(member->state, GPUCR_CUDA_FAILED);
    assert_int_equal(gpucr_group_rollback(&b->group, &err), GPUCR_ERR_POISONED);
    assert_says(&member->error, "before that");
    assert_says(&member->error, "device memory ran out");
    assert_int_equal(fake.state(b->pids[0]), 2);
    assert_int_equal(fake.state(b->pids[2]), 2);
}

static void a_driver_that_survives_it_is_believed(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    suspend_all(b);
    fake_answer(&fake, "restore", b->pids[1], GPUCR_CU_OUT_OF_MEMORY);
    assert_int_equal(gpucr_group_resume(&b->group, NULL, 0, &err), GPUCR_ERR_DRIVER);
    assert_says(&err, "the process is checkpointed now");
}

static void owners_states_are_kept(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    fake.set_state(b->pids[0], GPUCR_CUDA_LOCKED);
    fake.set_state(b->pids[1], GPUCR_CUDA_CHECKPOINTED);
    add_and_probe(b);
    for (size_t i = 0; i < b->group.count; i++)
        b->group.members[i].goal = b->group.members[i].before;
    assert_int_equal(lock_all(b, 5000, NULL), 0);
    stop_all(b);
    assert_int_equal(gpucr_group_checkpoint(&b->group, NULL), 0);
    assert_states(b, 2, 2, 2);
    if (gpucr_group_resume(&b->group, NULL, 0, &err) != 0)
        fail_msg("%s", err.text);
    assert_states(b, 1, 2, 0);
    assert_int_equal(gpucr_group_verify_goals(&b->group, NULL), 0);
    /* and so by rollback */
    assert_int_equal(lock_all(b, 5000, NULL), 0);
    assert_int_equal(gpucr_group_checkpoint(&b->group, NULL), 0);
    assert_int_equal(gpucr_group_rollback(&b->group, NULL), 0);
    assert_states(b, 1, 2, 0);
}

static void rollback_does_not_checkpoint_what_runs(void **state)
{
    struct bench *b = *state;

    suspend_all(b);
    assert_int_equal(gpucr_group_probe(&b->group, NULL), 0);
    assert_int_equal(gpucr_group_resume(&b->group, NULL, 0, NULL), 0);
    child_continue(b->pids[0]);
    assert_int_equal(gpucr_group_rollback(&b->group, NULL), GPUCR_ERR_VERIFY);
    assert_states(b, 0, 2, 2);
}

static void rollback_leaves_the_unprobed_alone(void **state)
{
    struct bench *b = *state;

    fake.set_state(b->pids[0], GPUCR_CUDA_CHECKPOINTED);
    add_all(b);
    assert_int_equal(gpucr_group_rollback(&b->group, NULL), 0);
    assert_states(b, 2, 0, 0);
    assert_int_equal(fake.seen().calls, 0);
}

static void device_map_needs_a_driver_that_has_it(void **state)
{
    struct bench *b = *state;
    struct gpucr_gpu_pair pair = {{{1}}, {{2}}};

    suspend_all(b);
    b->driver->can_remap = false;
    assert_int_equal(gpucr_group_resume(&b->group, &pair, 1, NULL), GPUCR_ERR_UNSUPPORTED);
    assert_states(b, 2, 2, 2);
    b->driver->can_remap = true;
    assert_int_equal(gpucr_group_resume(&b->group, &pair, 1, NULL), 0);
    assert_int_equal(fake.seen().pair_count, 1);
}

/* Restore needs cuInit: without it nobody is locked, let alone checkpointed. */
static void failed_init_stops_everything_before_it_begins(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    fake_answer(&fake, "init", 0, GPUCR_CU_NO_DEVICE);
    add_and_probe(b);
    assert_int_equal(lock_all(b, 1000, &err), GPUCR_ERR_DRIVER);
    assert_says(&err, "cuInit");
    assert_states(b, 0, 0, 0);
    for (size_t i = 0; i < CHILDREN; i++) {
        fake.set_state(b->pids[i], GPUCR_CUDA_LOCKED);
        b->group.members[i].state = GPUCR_CUDA_LOCKED;
    }
    assert_int_equal(gpucr_group_checkpoint(&b->group, &err), GPUCR_ERR_DRIVER);
    assert_states(b, 1, 1, 1);
    assert_int_equal(gpucr_group_resume(&b->group, NULL, 0, &err), GPUCR_ERR_DRIVER);
    assert_states(b, 1, 1, 1);
}

static void members_work_at_the_same_time_unless_sequential(void **state)
{
    struct bench *b = *state;

    add_and_probe(b);
    fake.script(&(struct fake_script){
        .call = "lock", .code = -1, .times = -1, .sleep_ms = 100, .new_state = -1});
    assert_int_equal(lock_all(b, 5000, NULL), 0);
    assert_int_equal(fake.seen().in_flight_max, CHILDREN);
    assert_int_equal(gpucr_group_rollback(&b->group, NULL), 0);
    fake.reset();
    for (size_t i = 0; i < CHILDREN; i++)
        fake.set_state(b->pids[i], GPUCR_CUDA_RUNNING);
    b->group.sequential = true;
    assert_int_equal(lock_all(b, 5000, NULL), 0);
    assert_int_equal(fake.seen().in_flight_max, 1);
}

static void note_waiting(void *arg, pid_t pid, const char *what, uint64_t waited_ms)
{
    struct bench *b = arg;

    assert_true(waited_ms >= 900);
    if (atomic_fetch_add(&b->waited, 1) == 0)
        (void)snprintf(b->waited_for, sizeof(b->waited_for), "%s", what);
    (void)kill(pid, SIGCONT);
}

static void long_calls_are_reported_and_not_cut_off(void **state)
{
    struct bench *b = *state;

    add_and_probe(b);
    b->group.waiting = note_waiting;
    b->group.waiting_arg = b;
    fake.script(&(struct fake_script){.call = "get_state",
                                      .pid = b->pids[0],
                                      .code = -1,
                                      .times = 1,
                                      .sleep_ms = 2200,
                                      .new_state = -1});
    assert_int_equal(gpucr_group_verify(&b->group, GPUCR_CUDA_RUNNING, NULL), 0);
    assert_in_range(b->waited, 1, 2);
    assert_string_equal(b->waited_for, "GetState");
}

static void somebody_stops_it_in_the_middle(void **state)
{
    struct bench *b = *state;

    add_and_probe(b);
    b->group.waiting = note_waiting;
    b->group.waiting_arg = b;
    fake.script(&(struct fake_script){.call = "lock",
                                      .pid = b->pids[1],
                                      .code = -1,
                                      .times = 1,
                                      .signal = SIGSTOP,
                                      .new_state = -1});
    assert_int_equal(lock_all(b, 30000, NULL), 0);
    assert_int_equal(b->waited, 1);
    assert_non_null(strstr(b->waited_for, "Lock: the process was stopped meanwhile"));
    assert_states(b, 1, 1, 1);
}

/* Processes with shared device memory: a Lock that hangs because the others are locked. */
static void a_lock_that_never_returns_is_freed(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_and_probe(b);
    fake.script(&(struct fake_script){.call = "lock",
                                      .pid = b->pids[2],
                                      .code = -1,
                                      .times = 1,
                                      .sleep_ms = 20,
                                      .new_state = -1,
                                      .hangs_while_others_locked = true});
    assert_int_equal(lock_all(b, 100, &err), GPUCR_ERR_TIMEOUT);
    assert_int_equal(err.pid, b->pids[2]);
    assert_says(&err, "share device memory");
    assert_states(b, 0, 0, 1);
    assert_int_equal(gpucr_group_rollback(&b->group, NULL), 0);
    assert_states(b, 0, 0, 0);
}

static void a_debugger_is_named(void **state)
{
    struct bench *b = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    add_and_probe(b);
    assert_int_equal(ptrace(PTRACE_SEIZE, b->pids[0], NULL, NULL), 0);
    assert_int_equal(ptrace(PTRACE_INTERRUPT, b->pids[0], NULL, NULL), 0);
    while (child_state(b->pids[0]) != 't')
        (void)usleep(1000);
    assert_int_equal(lock_all(b, 1000, &err), GPUCR_ERR_BUSY);
    assert_says(&err, "debugger");
    assert_int_equal(fake.state(b->pids[0]), 0);
    assert_int_equal(waitpid(b->pids[0], NULL, __WALL), b->pids[0]);
    assert_int_equal(ptrace(PTRACE_DETACH, b->pids[0], NULL, NULL), 0);
    assert_int_equal(gpucr_group_rollback(&b->group, NULL), 0);
    assert_states(b, 0, 0, 0);
}

static void ended_members_are_left_out(void **state)
{
    struct bench *b = *state;

    suspend_all(b);
    (void)kill(b->pids[1], SIGKILL);
    while (child_state(b->pids[1]) != 'Z')
        (void)usleep(1000);
    assert_int_equal(gpucr_group_probe(&b->group, NULL), 0);
    assert_int_equal(gpucr_group_resume(&b->group, NULL, 0, NULL), 0);
    assert_states(b, 0, 2, 0);
    assert_true(gpucr_group_find(&b->group, b->pids[1])->ended);
}

#define GROUP_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GROUP_TEST(probe_decides_who_is_a_member),
        GROUP_TEST(stopped_processes_are_probed_and_stay_stopped),
        GROUP_TEST(suspend_and_resume),
        GROUP_TEST(lock_gives_each_call_what_is_left),
        GROUP_TEST(lock_failure_leaves_the_rest_to_rollback),
        GROUP_TEST(stopped_inside_a_call_is_named),
        GROUP_TEST(states_without_a_way_are_refused),
        GROUP_TEST(checkpoint_failure_goes_back_entirely),
        GROUP_TEST(target_killed_by_the_driver),
        GROUP_TEST(success_is_not_believed),
        GROUP_TEST(one_failed_restore_unlocks_nobody),
        GROUP_TEST(out_of_memory_at_restore_is_final),
        GROUP_TEST(a_driver_that_survives_it_is_believed),
        GROUP_TEST(owners_states_are_kept),
        GROUP_TEST(rollback_does_not_checkpoint_what_runs),
        GROUP_TEST(rollback_leaves_the_unprobed_alone),
        GROUP_TEST(device_map_needs_a_driver_that_has_it),
        GROUP_TEST(failed_init_stops_everything_before_it_begins),
        GROUP_TEST(members_work_at_the_same_time_unless_sequential),
        GROUP_TEST(long_calls_are_reported_and_not_cut_off),
        GROUP_TEST(somebody_stops_it_in_the_middle),
        GROUP_TEST(a_lock_that_never_returns_is_freed),
        GROUP_TEST(a_debugger_is_named),
        GROUP_TEST(ended_members_are_left_out),
    };

    fake = fake_load(FAKE_ROOT);
    return cmocka_run_group_tests_name("gpu_group", tests, NULL, NULL);
}
