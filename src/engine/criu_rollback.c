/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_rollback.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/criu_descriptors.h"
#include "engine/criu_engine.h"
#include "engine/criu_helpers.h"
#include "engine/criu_litter.h"
#include "engine/criu_netlock.h"
#include "engine/criu_options.h"
#include "engine/criu_remap.h"
#include "proc/engine_kill.h"
#include "proc/snapshot.h"

enum { EXIT_MS = 2000, STOP_MS = 10000, POLL_US = 1000, FREEZER_BYTES = 32 };

struct process {
    uint64_t start_ticks;
    struct gpucr_snapshot *snapshot; /* NULL: it was a zombie */
};

struct gpucr_criu_rollback {
    const struct gpucr_engine_dump *request;
    struct process *processes; /* as request->pids */
    struct gpucr_criu_descriptors *descriptors;
    struct gpucr_criu_netlock *netlock;
    struct gpucr_criu_remap *remap;
    struct gpucr_criu_litter *litter;
    /* with the extra option freeze-cgroup: the file and what was in it */
    char freezer[GPUCR_ERROR_PATH_BYTES];
    char freezer_state[FREEZER_BYTES];
};

static int record_process(struct gpucr_criu_rollback *rollback, size_t i, struct gpucr_error *err)
{
    pid_t pid = rollback->request->pids->ids[i];
    struct process *process = &rollback->processes[i];
    struct gpucr_proc_stat stat;
    int rc = gpucr_proc_stat_read(pid, &stat, err);

    if (rc != 0)
        return rc;
    process->start_ticks = stat.start_ticks;
    if (stat.state == 'Z')
        return 0;
    return gpucr_snapshot_take(rollback->request->tracer, pid, &process->snapshot, err);
}

/* criu freezes the cgroup of that option and lets it go; both versions' files. */
static void record_freezer(struct gpucr_criu_rollback *rollback)
{
    static const char *const files[] = {"cgroup.freeze", "freezer.state"};
    const struct gpucr_engine_options *options = &rollback->request->options;

    for (size_t i = 0; i < options->extra_count; i++) {
        if (strcmp(options->extra[i].name, "freeze-cgroup") != 0 || !options->extra[i].value)
            continue;
        for (size_t k = 0; k < GPUCR_ARRAY_SIZE(files); k++) {
            (void)snprintf(rollback->freezer, sizeof(rollback->freezer), "%s/%s",
                           options->extra[i].value, files[k]);
            if (gpucr_file_read_small(AT_FDCWD, rollback->freezer, rollback->freezer_state,
                                      sizeof(rollback->freezer_state)) > 0)
                return;
        }
        rollback->freezer[0] = '\0';
    }
}

static int record(struct gpucr_criu_rollback *rollback, struct gpucr_error *err)
{
    const struct gpucr_engine_dump *request = rollback->request;
    int rc = gpucr_criu_descriptors_record(request->pids, &rollback->descriptors, err);

    if (rc == 0 && gpucr_criu_options_wants_tcp(&request->options))
        rc = gpucr_criu_netlock_record(request->root, &rollback->netlock, err);
    if (rc == 0)
        rc = gpucr_criu_remap_record(request->pids, &rollback->remap, err);
    if (rc == 0)
        rc = gpucr_criu_litter_record(&rollback->litter, err);
    if (rc == 0)
        record_freezer(rollback);
    /* The snapshots come last: nothing but criu may touch the processes after them. */
    for (size_t i = 0; rc == 0 && i < request->pids->count; i++)
        rc = record_process(rollback, i, err);
    return rc;
}

int gpucr_criu_rollback_new(const struct gpucr_engine_dump *request,
                            struct gpucr_criu_rollback **ret, struct gpucr_error *err)
{
    struct gpucr_criu_rollback *rollback = calloc(1, sizeof(*rollback));
    int rc;

    if (!rollback)
        return gpucr_error_no_memory(err);
    rollback->request = request;
    rollback->processes = calloc(request->pids->count, sizeof(*rollback->processes));
    rc = rollback->processes ? record(rollback, err) : gpucr_error_no_memory(err);
    if (rc == 0)
        *ret = rollback;
    else
        gpucr_criu_rollback_free(rollback);
    return rc;
}

void gpucr_criu_rollback_free(struct gpucr_criu_rollback *rollback)
{
    if (!rollback)
        return;
    for (size_t i = 0; rollback->processes && i < rollback->request->pids->count; i++)
        (void)gpucr_snapshot_free(rollback->processes[i].snapshot);
    gpucr_criu_descriptors_free(rollback->descriptors);
    gpucr_criu_netlock_free(rollback->netlock);
    gpucr_criu_remap_free(rollback->remap);
    gpucr_criu_litter_free(rollback->litter);
    free(rollback->processes);
    free(rollback);
}

bool gpucr_criu_rollback_is_same(const struct gpucr_criu_rollback *rollback, size_t index,
                                 const struct gpucr_proc_stat *stat)
{
    return rollback->processes[index].start_ticks == stat->start_ticks;
}

static int say_state(pid_t pid, const char *what, struct gpucr_error *err)
{
    return gpucr_error_pid(
        err, gpucr_error_set(err, GPUCR_ERR_VERIFY, "process %d %s", (int)pid, what), pid);
}

/* Every thread in state T (t would be a thread that somebody traces). */
static bool is_stopped(pid_t pid)
{
    struct gpucr_proc_status status;
    struct gpucr_pids tids = {0};
    bool stopped = gpucr_proc_status_read(pid, &status, NULL) == 0 && status.tracer_pid == 0 &&
                   gpucr_task_list(pid, &tids, NULL) == 0;

    for (size_t i = 0; stopped && i < tids.count; i++) {
        struct gpucr_proc_stat stat;

        stopped = gpucr_task_stat_read(pid, tids.ids[i], &stat, NULL) == 0 && stat.state == 'T';
    }
    gpucr_pids_done(&tids);
    return stopped;
}

static bool has_gone(const struct gpucr_criu_rollback *rollback, size_t i)
{
    struct gpucr_proc_stat stat;

    return gpucr_proc_stat_read(rollback->request->pids->ids[i], &stat, NULL) != 0 ||
           stat.state == 'Z' || stat.state == 'X' ||
           !gpucr_criu_rollback_is_same(rollback, i, &stat);
}

static int verify_process(const struct gpucr_criu_rollback *rollback, size_t i,
                          struct gpucr_error *err)
{
    pid_t pid = rollback->request->pids->ids[i];
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(STOP_MS);

    if (!rollback->processes[i].snapshot)
        return 0; /* was a zombie before */
    /* The last threads that were let go may still be on their way to the stop. */
    while (!is_stopped(pid)) {
        if (has_gone(rollback, i))
            return say_state(pid, "has ended", err);
        if (gpucr_deadline_passed(deadline))
            return say_state(pid, "is not stopped and untraced as it was", err);
        gpucr_sleep_us(POLL_US);
    }
    return 0;
}

int gpucr_criu_rollback_verify(const struct gpucr_criu_rollback *rollback, struct gpucr_error *err)
{
    for (size_t i = 0; i < rollback->request->pids->count; i++) {
        int rc = verify_process(rollback, i, err);

        if (rc != 0)
            return rc;
    }
    return 0;
}

void gpucr_criu_rollback_kill(const struct gpucr_criu_rollback *rollback)
{
    for (size_t i = 0; i < rollback->request->pids->count; i++) {
        if (!has_gone(rollback, i))
            (void)kill(rollback->request->pids->ids[i], SIGKILL);
    }
}

static bool has_ended(const struct gpucr_criu_channel *channel, int timeout_ms)
{
    struct pollfd ended = {.fd = channel->pidfd, .events = POLLIN};

    return channel->pid == 0 || (poll(&ended, 1, timeout_ms) > 0 && ended.revents != 0);
}

/* A criu that refused or was refused has put everything back and is about to exit. */
static int end_criu(struct gpucr_criu_rollback *rollback, struct gpucr_criu_channel *channel,
                    bool answered, struct gpucr_error *err)
{
    struct gpucr_criu_helpers helpers = {0};
    int rc = 0;

    if (!has_ended(channel, answered ? EXIT_MS : 0)) {
        gpucr_criu_helpers_collect(&helpers, channel->pid);
        rc = gpucr_engine_kill(rollback->request->tracer, channel->pid, rollback->request->pids,
                               err);
    }
    gpucr_criu_channel_done(channel);
    gpucr_criu_helpers_end(&helpers);
    gpucr_criu_helpers_done(&helpers);
    return rc;
}

/* A thread that the dying criu let go of stops again by itself: the stop is still in
 * effect. Where it is not (criu had continued the process), it is stopped now. */
static int stop_process(const struct gpucr_criu_rollback *rollback, size_t i,
                        struct gpucr_error *err)
{
    pid_t pid = rollback->request->pids->ids[i];
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(STOP_MS);

    for (bool signalled = false; !is_stopped(pid); signalled = true) {
        if (has_gone(rollback, i))
            return say_state(pid, "has ended", err);
        if (gpucr_deadline_passed(deadline))
            return say_state(pid, "does not stop again", err);
        if (!signalled)
            (void)kill(pid, SIGSTOP);
        gpucr_sleep_us(POLL_US);
    }
    return 0;
}

static int repair_process(struct gpucr_criu_rollback *rollback, size_t i, struct gpucr_error *err)
{
    pid_t pid = rollback->request->pids->ids[i];
    struct gpucr_repair repair = {0};
    int rc;

    if (!rollback->processes[i].snapshot)
        return 0;
    rc = stop_process(rollback, i, err);
    if (rc == 0)
        rc = gpucr_snapshot_repair(rollback->request->tracer, rollback->processes[i].snapshot,
                                   &repair, err);
    if (rc == 0)
        gpucr_debug("process %d after criu: %u threads, %u bytes of code, %u protections and %u "
                    "masks put back, %u mappings and %u descriptors of criu removed",
                    (int)pid, repair.threads_repaired, repair.code_bytes_repaired,
                    repair.protections_repaired, repair.umasks_repaired, repair.mappings_removed,
                    repair.descriptors_closed);
    return rc;
}

static int restore_freezer(const struct gpucr_criu_rollback *rollback, struct gpucr_error *err)
{
    char now[FREEZER_BYTES];
    const char *wanted = rollback->freezer_state;
    GPUCR_AUTO_FD int fd = -1;

    if (!rollback->freezer[0] ||
        (gpucr_file_read_small(AT_FDCWD, rollback->freezer, now, sizeof(now)) > 0 &&
         strcmp(now, wanted) == 0))
        return 0;
    fd = open(rollback->freezer, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || gpucr_fd_write_all(fd, wanted, strcspn(wanted, "\n"), NULL) != 0)
        return gpucr_error_errno(err, errno, "cannot put %s back", rollback->freezer);
    return 0;
}

/* Keep the first failure; every step is tried. */
static void note(struct gpucr_error *first, const struct gpucr_error *failure, int rc)
{
    if (rc != 0 && first->code == 0)
        *first = *failure;
    else if (rc != 0)
        gpucr_warn("after criu: %s", failure->text);
}

static void put_world_back(struct gpucr_criu_rollback *rollback, struct gpucr_error *first)
{
    struct gpucr_error failure = GPUCR_ERROR_INIT;
    size_t changed = 0;

    note(first, &failure, restore_freezer(rollback, &failure));
    /* The filters go before the connections leave repair mode, as in criu. */
    if (rollback->netlock)
        note(first, &failure,
             gpucr_criu_netlock_remove(rollback->netlock, rollback->descriptors,
                                       rollback->request->work_fd, GPUCR_CRIU_DUMP_LOG, &failure));
    note(first, &failure,
         gpucr_criu_descriptors_restore(rollback->descriptors, &changed, &failure));
    if (changed > 0)
        gpucr_debug("after criu: %zu descriptors put back into their state", changed);
    note(first, &failure, gpucr_criu_remap_remove(rollback->remap, &failure));
    note(first, &failure, gpucr_criu_litter_remove(rollback->litter, &failure));
}

int gpucr_criu_rollback_run(struct gpucr_criu_rollback *rollback,
                            struct gpucr_criu_channel *channel, bool answered,
                            struct gpucr_error *err)
{
    struct gpucr_error first = GPUCR_ERROR_INIT;
    struct gpucr_error failure = GPUCR_ERROR_INIT;

    /* That criu could not be made to let go is harmless if the processes survived. */
    if (end_criu(rollback, channel, answered, &failure) != 0)
        gpucr_debug("ending criu: %s", failure.text);
    for (size_t i = 0; i < rollback->request->pids->count; i++)
        note(&first, &failure, repair_process(rollback, i, &failure));
    put_world_back(rollback, &first);
    if (first.code == 0)
        note(&first, &failure, gpucr_criu_rollback_verify(rollback, &failure));
    if (first.code != 0 && err)
        *err = first;
    return first.code;
}
