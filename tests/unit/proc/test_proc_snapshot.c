/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A stopped process is disturbed by hand, in each way that CRIU does it; each time
 * the repair must leave a process that goes on as if nothing had been.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <elf.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "proc/engine_kill.h"
#include "proc/ptrace_op.h"
#include "proc/remote.h"
#include "proc_snapshot_child.h"

/* ---- nothing to do ---- */

static void test_untouched(void **state)
{
    static const struct gpucr_repair nothing;
    struct target *target = *state;

    for (int i = 0; i < 20; i++) {
        snapshot_target_stop(target);
        struct gpucr_snapshot *snapshot = take_snapshot(target);
        struct gpucr_repair done = repair_snapshot(target, snapshot);
        assert_memory_equal(&done, &nothing, sizeof(done));
        assert_snapshot_target_goes_on(target);
        assert_null(gpucr_snapshot_free(snapshot));
    }
}

/* ---- disturbed by hand ---- */

struct disturb {
    const struct target *target;
    int (*fn)(struct disturb *disturb, struct gpucr_pids *tids, struct gpucr_error *err);
};

static int disturb_call(void *arg, struct gpucr_error *err)
{
    struct disturb *disturb = arg;
    GPUCR_CLEANUP(gpucr_pids_done) struct gpucr_pids tids = {0};
    int rc = gpucr_ptrace_seize_all(disturb->target->pid, &tids, err);

    if (rc)
        return rc;
    rc = disturb->fn(disturb, &tids, err);
    gpucr_ptrace_detach_all(&tids);
    return rc;
}

static int disturb_threads(struct disturb *disturb, struct gpucr_pids *tids,
                           struct gpucr_error *err)
{
    static unsigned char area[65536];

    (void)disturb;
    (void)err;
    for (size_t i = 0; i < tids->count; i++) {
        struct user_regs_struct regs;
        struct iovec io = {.iov_base = &regs, .iov_len = sizeof(regs)};
        if (ptrace(PTRACE_GETREGSET, tids->ids[i], (void *)NT_PRSTATUS, &io))
            return -1;
        regs.rip = 0x1000;
        regs.rsp = 0x2000;
        regs.rax = 7;
        regs.orig_rax = UINT64_MAX;
        regs.rbx = ~regs.rbx;
        if (ptrace(PTRACE_SETREGSET, tids->ids[i], (void *)NT_PRSTATUS, &io) ||
            gpucr_ptrace_mask_set(tids->ids[i], UINT64_MAX, err))
            return -1;
        io = (struct iovec){.iov_base = area, .iov_len = sizeof(area)};
        if (ptrace(PTRACE_GETREGSET, tids->ids[i], (void *)NT_X86_XSTATE, &io))
            return -1;
        for (int j = 160; j < 416; j++) /* the sixteen SSE registers */
            area[j] ^= 0x5a;
        area[512] |= 3; /* XSTATE_BV: x87 and SSE are in use */
        if (ptrace(PTRACE_SETREGSET, tids->ids[i], (void *)NT_X86_XSTATE, &io))
            return -1;
    }
    return 0;
}

static void disturb_by(const struct target *target,
                       int (*fn)(struct disturb *, struct gpucr_pids *, struct gpucr_error *))
{
    struct disturb disturb = {.target = target, .fn = fn};
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_tracer_call(target->tracer, disturb_call, &disturb, &err))
        fail_msg("%s", err.text);
}

static void test_threads_are_put_back(void **state)
{
    struct target *target = *state;

    for (int i = 0; i < 10; i++) {
        snapshot_target_stop(target);
        struct gpucr_snapshot *snapshot = take_snapshot(target);
        disturb_by(target, disturb_threads);
        struct gpucr_repair done = repair_snapshot(target, snapshot);
        assert_int_equal(done.threads_repaired, target->board->thread_count);
        assert_int_equal(done.code_bytes_repaired, 0);
        assert_snapshot_target_goes_on(target);
        (void)gpucr_snapshot_free(snapshot);
    }
}

static const struct gpucr_mapping *find_mapping(const struct gpucr_maps *maps, const char *rights)
{
    for (size_t i = 0; i < maps->count; i++) {
        const struct gpucr_mapping *map = &maps->items[i];
        if (map->shared || map->readable != (rights[0] == 'r') ||
            map->executable != (rights[1] == 'x') || (rights[1] != 'x' && map->inode))
            continue;
        return map;
    }
    return NULL;
}

static int64_t call(const struct target *target, pid_t tid, struct gpucr_remote_call call_,
                    struct gpucr_error *err)
{
    int64_t result = INT64_MIN;

    (void)gpucr_remote_syscall(target->pid, tid, &call_, &result, err);
    return result;
}

/* What CRIU leaves: code at the start of the first executable mapping, a mapping, descriptors. */
static int disturb_process(struct disturb *disturb, struct gpucr_pids *tids,
                           struct gpucr_error *err)
{
    static const unsigned char code[] = {0x0f, 0x05, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc};
    GPUCR_CLEANUP(gpucr_maps_done) struct gpucr_maps maps = {0};
    const struct target *target = disturb->target;
    pid_t tid = tids->ids[0];
    char path[32];

    if (gpucr_maps_read(tid, &maps, err))
        return -1;
    const struct gpucr_mapping *text = find_mapping(&maps, "rx"), *hidden = NULL;
    hidden = find_mapping(&maps, "--");
    (void)snprintf(path, sizeof(path), "/proc/%d/mem", tid);
    GPUCR_AUTO_FD int mem = open(path, O_RDWR | O_CLOEXEC);
    if (!text || !hidden || pwrite(mem, code, sizeof(code), (off_t)text->start) != sizeof(code))
        return -1;
    int64_t fd = call(
        target, tid,
        (struct gpucr_remote_call){.number = SYS_memfd_create, .args = {text->start + 2, 0}}, err);
    if (fd < 3 ||
        call(target, tid,
             (struct gpucr_remote_call){.number = SYS_ftruncate, .args = {(uint64_t)fd, 8192}},
             err) != 0)
        return -1;
    int64_t map = call(target, tid,
                       (struct gpucr_remote_call){
                           .number = SYS_mmap,
                           .args = {0, 8192, PROT_READ | PROT_EXEC, MAP_SHARED, (uint64_t)fd, 0}},
                       err);
    int64_t socket_fd =
        call(target, tid, (struct gpucr_remote_call){.number = SYS_socket, .args = {1, 5, 0}}, err);
    /* The middle of the hidden mapping: its row is split. */
    int64_t prot = call(target, tid,
                        (struct gpucr_remote_call){.number = SYS_mprotect,
                                                   .args = {hidden->start + 8192, 8192, PROT_READ}},
                        err);
    int64_t mask =
        call(target, tid, (struct gpucr_remote_call){.number = SYS_umask, .args = {0}}, err);
    return map > 0 && socket_fd > 2 && !prot && mask == 027 ? 0 : -1;
}

static void test_process_is_put_back(void **state)
{
    struct target *target = *state;

    for (int i = 0; i < 10; i++) {
        snapshot_target_stop(target);
        struct gpucr_snapshot *snapshot = take_snapshot(target);
        disturb_by(target, disturb_process);
        struct gpucr_repair done = repair_snapshot(target, snapshot);
        assert_in_range(done.code_bytes_repaired, 4, 8);
        assert_int_equal(done.mappings_removed, 1);
        assert_int_equal(done.protections_repaired, 1);
        assert_int_equal(done.descriptors_closed, 2);
        assert_int_equal(done.umasks_repaired, 1);
        assert_int_equal(done.threads_repaired, 0);
        assert_snapshot_target_goes_on(target);
        (void)gpucr_snapshot_free(snapshot);
    }
}

/* A SIGTRAP raised in CRIU's code and not taken yet would end the process at SIGCONT. */
static void test_pending_faults_are_dropped(void **state)
{
    struct target *target = *state;

    snapshot_target_stop(target);
    struct gpucr_snapshot *snapshot = take_snapshot(target);
    assert_int_equal(syscall(SYS_tgkill, target->pid, target->pid, SIGTRAP), 0);
    assert_int_equal(syscall(SYS_tgkill, target->pid, target->pid, SIGSEGV), 0);
    struct gpucr_repair done = repair_snapshot(target, snapshot);
    assert_int_equal(done.faults_dropped, 2);
    assert_snapshot_target_goes_on(target);
    (void)gpucr_snapshot_free(snapshot);
}

/* A zombie as leader has neither memory nor descriptors; its threads have. */
static void test_leader_has_ended(void **state)
{
    struct target *target = *state;
    struct gpucr_proc_stat stat = {0};

    target->board->leader_ends = 1;
    for (int i = 0; i < 5000 && stat.state != 'Z'; i++) {
        gpucr_sleep_us(500);
        assert_int_equal(gpucr_task_stat_read(target->pid, target->pid, &stat, NULL), 0);
    }
    assert_int_equal(stat.state, 'Z');
    snapshot_target_stop(target);
    struct gpucr_snapshot *snapshot = take_snapshot(target);
    disturb_by(target, disturb_threads);
    disturb_by(target, disturb_process);
    struct gpucr_repair done = repair_snapshot(target, snapshot);
    assert_int_equal(done.threads_repaired, target->board->thread_count - 1);
    assert_int_equal(done.mappings_removed, 1);
    assert_int_equal(done.descriptors_closed, 2);
    assert_snapshot_target_goes_on(target);
    (void)gpucr_snapshot_free(snapshot);
}

/* ---- what cannot be put back is named ---- */

static int lose_mapping(struct disturb *disturb, struct gpucr_pids *tids, struct gpucr_error *err)
{
    GPUCR_CLEANUP(gpucr_maps_done) struct gpucr_maps maps = {0};

    if (gpucr_maps_read(disturb->target->pid, &maps, err))
        return -1;
    const struct gpucr_mapping *hidden = find_mapping(&maps, "--");
    return hidden && !call(disturb->target, tids->ids[0],
                           (struct gpucr_remote_call){.number = SYS_munmap,
                                                      .args = {hidden->start, 4096}},
                           err)
               ? 0
               : -1;
}

static int lose_fd(struct disturb *disturb, struct gpucr_pids *tids, struct gpucr_error *err)
{
    return call(disturb->target, tids->ids[0],
                (struct gpucr_remote_call){.number = SYS_close, .args = {3}}, err)
               ? -1
               : 0;
}

static void assert_unrepairable(struct target *target, const struct gpucr_snapshot *snapshot,
                                const char *word)
{
    struct gpucr_repair done = {0};
    struct gpucr_error err = GPUCR_ERROR_INIT;

    assert_int_equal(gpucr_snapshot_repair(target->tracer, snapshot, &done, &err),
                     GPUCR_ERR_VERIFY);
    if (!strstr(err.text, word))
        fail_msg("no \"%s\" in: %s", word, err.text);
    assert_int_equal(err.pid, target->pid);
    assert_int_equal(gpucr_stopped_wait(target->pid, gpucr_deadline_in_ms(0), NULL), 0);
}

static void test_losses_are_named(void **state)
{
    struct target *target = *state;

    snapshot_target_stop(target);
    struct gpucr_snapshot *snapshot = take_snapshot(target);
    disturb_by(target, lose_mapping);
    assert_unrepairable(target, snapshot, "is gone");
    (void)gpucr_snapshot_free(snapshot);
    snapshot = take_snapshot(target);
    disturb_by(target, lose_fd);
    assert_unrepairable(target, snapshot, "descriptor 3");
    (void)gpucr_snapshot_free(snapshot);
}

static void test_refusals(void **state)
{
    struct target *target = *state;
    struct gpucr_snapshot *snapshot = NULL, *none = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_repair done = {0};

    assert_int_equal(gpucr_snapshot_take(target->tracer, target->pid, &none, &err),
                     GPUCR_ERR_VERIFY);
    assert_null(none);
    snapshot_target_stop(target);
    snapshot = take_snapshot(target);
    (void)kill(target->pid, SIGKILL);
    for (int i = 0; i < 2000 && gpucr_stopped_wait(target->pid, gpucr_deadline_in_ms(0), NULL) !=
                                    GPUCR_ERR_TARGET_DIED;
         i++)
        gpucr_sleep_us(1000);
    assert_int_equal(gpucr_snapshot_repair(target->tracer, snapshot, &done, &err),
                     GPUCR_ERR_TARGET_DIED);
    (void)gpucr_snapshot_free(snapshot);
}

/* ---- the end of an engine ---- */

enum trick { LEAVE_TRAP, LEAVE_RUNNING };

/* Traces the leader, as CRIU does, and dies with a report of it not fetched, or with it running. */
static pid_t start_engine(const struct target *target, enum trick trick)
{
    int status = 0, fds[2];
    char byte;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) {
        (void)close(fds[1]);
        assert_int_equal(read(fds[0], &byte, 1), 1);
        (void)close(fds[0]);
        return pid;
    }
    if (ptrace(PTRACE_SEIZE, target->pid, NULL, NULL) ||
        waitpid(target->pid, &status, __WALL) != target->pid ||
        ptrace(PTRACE_CONT, target->pid, NULL, NULL))
        _exit(1);
    if (trick == LEAVE_TRAP)
        (void)syscall(SYS_tgkill, target->pid, target->pid, SIGTRAP);
    if (write(fds[1], "x", 1) != 1)
        _exit(1);
    for (;;)
        (void)pause();
}

static void await_state(const struct target *target, char state)
{
    struct gpucr_proc_stat stat = {0};
    struct gpucr_proc_status status = {0};

    for (int i = 0; i < 5000; i++) {
        if (!gpucr_task_stat_read(target->pid, target->pid, &stat, NULL) && stat.state == state &&
            !gpucr_proc_status_read(target->pid, &status, NULL) && status.tracer_pid)
            return;
        gpucr_sleep_us(500);
    }
    fail_msg("the leader is in state %c", stat.state);
}

static void end_engine(const struct target *target, pid_t engine)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_pids targets = {0};
    int status = 0;

    assert_int_equal(gpucr_pids_add(&targets, target->pid, NULL), 0);
    if (gpucr_engine_kill(target->tracer, engine, &targets, &err))
        fail_msg("%s", err.text);
    gpucr_pids_done(&targets);
    assert_int_equal(waitpid(engine, &status, 0), engine); /* left for us to reap */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_engine_with_a_running_tracee(void **state)
{
    struct target *target = *state;

    for (int i = 0; i < 10; i++) {
        snapshot_target_stop(target);
        pid_t engine = start_engine(target, LEAVE_RUNNING);
        await_state(target, 'S');
        end_engine(target, engine);
        assert_int_equal(gpucr_stopped_wait(target->pid, gpucr_deadline_in_ms(2000), NULL), 0);
        assert_snapshot_target_goes_on(target);
    }
}

static void test_engine_with_an_unfetched_trap(void **state)
{
    struct target *target = *state;
    int status = 0;

    for (int i = 0; i < 10; i++) {
        snapshot_target_stop(target);
        struct gpucr_snapshot *snapshot = take_snapshot(target);
        pid_t engine = start_engine(target, LEAVE_TRAP);
        if (i % 2) /* else the signal may not have been taken yet */
            await_state(target, 't');
        end_engine(target, engine);
        (void)repair_snapshot(target, snapshot);
        assert_snapshot_target_goes_on(target);
        (void)gpucr_snapshot_free(snapshot);
    }
    /* What it is for: the plain way ends the process. */
    snapshot_target_stop(target);
    pid_t engine = start_engine(target, LEAVE_TRAP);
    await_state(target, 't');
    assert_int_equal(kill(engine, SIGKILL), 0);
    assert_int_equal(waitpid(engine, NULL, 0), engine);
    assert_int_equal(waitpid(target->pid, &status, 0), target->pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP);
}

/* The engine is ended all the same, and the other tracer left alone. */
static void test_engine_is_not_the_tracer(void **state)
{
    struct target *target = *state;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_pids targets = {0};

    snapshot_target_stop(target);
    pid_t debugger = start_engine(target, LEAVE_RUNNING);
    await_state(target, 'S');
    pid_t engine = fork();
    if (!engine) {
        for (;;)
            (void)pause();
    }
    assert_int_equal(gpucr_pids_add(&targets, target->pid, NULL), 0);
    assert_int_equal(gpucr_engine_kill(target->tracer, engine, &targets, &err), GPUCR_ERR_BUSY);
    gpucr_pids_done(&targets);
    assert_int_equal(waitpid(engine, NULL, 0), engine);
    await_state(target, 'S');
    end_engine(target, debugger);
    assert_snapshot_target_goes_on(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_untouched, snapshot_target_setup,
                                        snapshot_target_teardown),
        cmocka_unit_test_setup_teardown(test_threads_are_put_back, snapshot_target_setup,
                                        snapshot_target_teardown),
        cmocka_unit_test_setup_teardown(test_process_is_put_back, snapshot_target_setup,
                                        snapshot_target_teardown),
        cmocka_unit_test_setup_teardown(test_pending_faults_are_dropped, snapshot_target_setup,
                                        snapshot_target_teardown),
        cmocka_unit_test_setup_teardown(test_leader_has_ended, snapshot_target_setup,
                                        snapshot_target_teardown),
        cmocka_unit_test_setup_teardown(test_losses_are_named, snapshot_target_setup,
                                        snapshot_target_teardown),
        cmocka_unit_test_setup_teardown(test_refusals, snapshot_target_setup,
                                        snapshot_target_teardown),
        cmocka_unit_test_setup_teardown(test_engine_with_a_running_tracee, snapshot_target_setup,
                                        snapshot_target_teardown),
        cmocka_unit_test_setup_teardown(test_engine_with_an_unfetched_trap, snapshot_target_setup,
                                        snapshot_target_teardown),
        cmocka_unit_test_setup_teardown(test_engine_is_not_the_tracer, snapshot_target_setup,
                                        snapshot_target_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
