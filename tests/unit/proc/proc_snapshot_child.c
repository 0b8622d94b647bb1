/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc_snapshot_child.h"

#include <errno.h>
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
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "proc/ptrace_op.h"

#ifndef PROC_SNAPSHOT_TARGET
#define PROC_SNAPSHOT_TARGET "./proc_snapshot_target"
#endif

/* ---- the target ---- */

/* Its own session and no descriptor of ours: what CRIU wants of a tree. */
static _Noreturn void exec_target(const char *file)
{
    const char *program = getenv("GPUCR_PROC_TARGET");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)setsid();
    for (int fd = 0; fd < 3; fd++)
        (void)dup2(null, fd);
    (void)close_range(3, ~0u, 0);
    (void)execl(program ? program : PROC_SNAPSHOT_TARGET, "proc_snapshot_target", file, NULL);
    _exit(1);
}

int snapshot_target_setup(void **state)
{
    struct target *target = calloc(1, sizeof(*target));
    char file[80];

    assert_non_null(target);
    (void)snprintf(target->dir, sizeof(target->dir), "/tmp/gpucr-snapshot-XXXXXX");
    assert_non_null(mkdtemp(target->dir));
    (void)snprintf(file, sizeof(file), "%s/board", target->dir);
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(*target->board)), 0);
    target->board = mmap(NULL, sizeof(*target->board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(target->board, MAP_FAILED);
    (void)close(fd);
    target->pid = fork();
    assert_true(target->pid >= 0);
    if (!target->pid)
        exec_target(file);
    for (int i = 0; i < 10000 && !target->board->ready; i++)
        gpucr_sleep_us(1000);
    assert_int_equal(target->board->ready, 1);
    assert_int_equal(gpucr_tracer_new(&target->tracer, NULL), 0);
    *state = target;
    return 0;
}

void remove_flat_dir(const char *dir)
{
    GPUCR_AUTO_DIR DIR *handle = opendir(dir);
    const struct dirent *entry;

    while (handle && (entry = readdir(handle)))
        (void)unlinkat(dirfd(handle), entry->d_name, 0);
    (void)rmdir(dir);
}

int snapshot_target_teardown(void **state)
{
    struct target *target = *state;

    (void)gpucr_tracer_free(target->tracer);
    (void)kill(target->pid, SIGKILL);
    (void)waitpid(target->pid, NULL, 0);
    (void)munmap(target->board, sizeof(*target->board));
    remove_flat_dir(target->dir);
    free(target);
    return 0;
}

void snapshot_target_stop(const struct target *target)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;

    assert_int_equal(kill(target->pid, SIGSTOP), 0);
    if (gpucr_stopped_wait(target->pid, gpucr_deadline_in_ms(5000), &err))
        fail_msg("%s", err.text);
}

/* All threads go on, and none has seen what may not be. */
void assert_snapshot_target_goes_on(const struct target *target)
{
    struct target_board *board = target->board;
    uint64_t before[TARGET_SLOTS];

    for (int i = 0; i < TARGET_SLOTS; i++)
        before[i] = board->rounds[i];
    assert_int_equal(kill(target->pid, SIGCONT), 0);
    for (unsigned i = board->leader_ends ? 1 : 0; i < board->thread_count; i++) {
        for (int j = 0; i != TARGET_READ_SLOT && j < 10000 && board->rounds[i] == before[i]; j++) {
            /* More than once: it may not have been waiting yet. */
            board->word++;
            (void)syscall(SYS_futex, &board->word, FUTEX_WAKE, 1, NULL, NULL, 0);
            gpucr_sleep_us(1000);
        }
        if (i != TARGET_READ_SLOT && board->rounds[i] == before[i])
            fail_msg("thread %u does not go on", i);
    }
    gpucr_sleep_us(3000);
    for (unsigned i = 0; i < board->thread_count; i++) {
        if (board->wrong[i])
            fail_msg("thread %u counted %lu failures", i, (unsigned long)board->wrong[i]);
    }
    assert_int_equal(waitpid(target->pid, NULL, WNOHANG), 0);
}

struct gpucr_snapshot *take_snapshot(const struct target *target)
{
    struct gpucr_snapshot *snapshot = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_snapshot_take(target->tracer, target->pid, &snapshot, &err))
        fail_msg("%s", err.text);
    assert_int_equal(gpucr_stopped_wait(target->pid, gpucr_deadline_in_ms(0), NULL), 0);
    return snapshot;
}

struct gpucr_repair repair_snapshot(const struct target *target,
                                    const struct gpucr_snapshot *snapshot)
{
    struct gpucr_repair done = {0};
    struct gpucr_error err = GPUCR_ERROR_INIT;

    if (gpucr_snapshot_repair(target->tracer, snapshot, &done, &err))
        fail_msg("%s", err.text);
    assert_int_equal(gpucr_stopped_wait(target->pid, gpucr_deadline_in_ms(0), NULL), 0);
    return done;
}
