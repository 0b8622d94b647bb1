/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The caller's side of the checkpoint calls. A caller waits as long as the target lives: a stopped
 * target answers nothing and its callers hang, as with the real driver.
 */
#define _GNU_SOURCE
#include "mailbox.h"

#include "../common/sim_sys.h"
#include "driver.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_AGAIN_MS 200

struct line {
    int pid;
    int pidfd;
    int lock_fd;
    int wake_fd;
    int answer_fd;
    uint64_t address;
    struct sim_mailbox mailbox;
};

static void hang_up(struct line *line)
{
    int fds[] = {line->wake_fd, line->answer_fd, line->lock_fd, line->pidfd};

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

static bool is_dead(const struct line *line)
{
    struct pollfd wait = {.fd = line->pidfd, .events = POLLIN};

    return poll(&wait, 1, 0) > 0;
}

/* One caller at a time: a lock on a file that carries the name of the target. */
static bool take_turn(struct line *line)
{
    char tail[64], path[SIM_PATH_MAX];

    snprintf(tail, sizeof(tail), "state/locks/%016llx", (unsigned long long)line->mailbox.id);
    if (!sim_root_path(path, sizeof(path), tail))
        snprintf(path, sizeof(path), "%.400s/%s", line->mailbox.root, tail);
    line->lock_fd = sim_open_shared(path);
    if (line->lock_fd < 0)
        return false;
    while (flock(line->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK || is_dead(line))
            return false;
        sim_sleep_until_ns(sim_now_ns() + SIM_NS_PER_MS / 2);
    }
    return true;
}

static CUresult dial(struct line *line)
{
    CUresult result;

    line->pidfd = (int)syscall(SYS_pidfd_open, line->pid, 0);
    if (line->pidfd < 0 || is_dead(line))
        return CUDA_ERROR_OPERATING_SYSTEM;
    result = sim_mailbox_locate(line->pid, &line->address, &line->mailbox);
    if (result)
        return is_dead(line) ? CUDA_ERROR_OPERATING_SYSTEM : result;
    line->wake_fd = (int)syscall(SYS_pidfd_getfd, line->pidfd, line->mailbox.wake_fd, 0);
    line->answer_fd = (int)syscall(SYS_pidfd_getfd, line->pidfd, line->mailbox.answer_fd, 0);
    if (line->wake_fd < 0 || line->answer_fd < 0)
        return errno == EPERM ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_OPERATING_SYSTEM;
    return take_turn(line) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

/* Reads the mailbox anew; false when the target is no more what it was (it may have exec'ed). */
static bool look(struct line *line)
{
    uint64_t id = line->mailbox.id;

    return sim_remote_read(line->pid, line->address, &line->mailbox, sizeof(line->mailbox)) &&
           line->mailbox.id == id;
}

/* Waits until everything that was asked is answered. */
static bool wait_answered(struct line *line)
{
    struct pollfd wait[2] = {{.fd = line->answer_fd, .events = POLLIN},
                             {.fd = line->pidfd, .events = POLLIN}};
    uint64_t count;

    for (;;) {
        if (!look(line))
            return false;
        if (line->mailbox.done == line->mailbox.asked)
            return true;
        if (poll(wait, 2, LOOK_AGAIN_MS) < 0 && errno != EINTR)
            return false;
        if (wait[1].revents)
            return false;
        if ((wait[0].revents & POLLIN) && read(line->answer_fd, &count, sizeof(count)) < 0)
            continue;
    }
}

static bool ask(struct line *line, const struct sim_request *request)
{
    uint64_t asked = line->mailbox.asked + 1;
    uint64_t one = 1;

    return sim_remote_write(line->pid, line->address + offsetof(struct sim_mailbox, request),
                            request, sizeof(*request)) &&
           sim_remote_write(line->pid, line->address + offsetof(struct sim_mailbox, asked), &asked,
                            sizeof(asked)) &&
           write(line->wake_fd, &one, sizeof(one)) == sizeof(one);
}

static CUresult call_target(struct sim_request *request, int *value)
{
    struct line line = {
        .pid = request->pid, .pidfd = -1, .lock_fd = -1, .wake_fd = -1, .answer_fd = -1};
    CUresult result = dial(&line);

    if (!result) {
        /* A caller that was killed may have left a request that is still being worked on. */
        if (!wait_answered(&line) || !ask(&line, request) || !wait_answered(&line))
            result = CUDA_ERROR_OPERATING_SYSTEM;
        else
            result = line.mailbox.answer.result;
    }
    if (!result && value)
        *value = line.mailbox.answer.value;
    hang_up(&line);
    return result;
}

static bool all_zero(const void *from, size_t bytes)
{
    const uint8_t *at = from;

    for (size_t i = 0; i < bytes; i++) {
        if (at[i])
            return false;
    }
    return true;
}

SIM_EXPORT CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
    struct sim_request request = {.call = SIM_CALL_GET_STATE, .pid = pid};
    CUresult result;
    int value;

    if (pid <= 0 || !state)
        return CUDA_ERROR_INVALID_VALUE;
    result = call_target(&request, &value);
    if (!result)
        *state = (CUprocessState)value;
    return result;
}

struct tid_search {
    int pid;
    int inner;
};

static int match_tid(const char *name, void *arg)
{
    const struct tid_search *search = arg;
    char path[96];
    uint64_t tid;

    if (!sim_parse_u64(name, &tid) || tid > INT32_MAX)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/status", search->pid, (int)tid);
    return sim_inner_pid(path) == search->inner ? (int)tid : 0;
}

SIM_EXPORT CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
    struct sim_request request = {.call = SIM_CALL_GET_TID, .pid = pid};
    struct tid_search search = {.pid = pid};
    char path[64];
    CUresult result;
    int found;

    if (pid <= 0 || !tid)
        return CUDA_ERROR_INVALID_VALUE;
    result = call_target(&request, &search.inner);
    if (result)
        return result;
    /* The target knows its number in its own pid namespace, the caller wants its own. */
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    found = sim_each_entry(path, match_tid, &search);
    if (found <= 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *tid = found;
    return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    struct sim_request request = {.call = SIM_CALL_LOCK, .pid = pid};

    if (pid <= 0 || (args && !all_zero(&args->reserved0, sizeof(*args) - sizeof(args->timeoutMs))))
        return CUDA_ERROR_INVALID_VALUE;
    request.timeout_ms = args ? args->timeoutMs : 0;
    return call_target(&request, NULL);
}

SIM_EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    struct sim_request request = {.call = SIM_CALL_CHECKPOINT, .pid = pid};

    if (pid <= 0 || (args && !all_zero(args, sizeof(*args))))
        return CUDA_ERROR_INVALID_VALUE;
    return call_target(&request, NULL);
}

/* The caller needs a driver that is up: its own cuInit, or persistence mode. */
static bool may_restore(void)
{
    struct sim_config config;

    if (atomic_load(&sim.initialized) && !atomic_load(&sim.forked))
        return true;
    return sim_config_read(&config) && config.persistence;
}

SIM_EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    struct sim_request request = {.call = SIM_CALL_RESTORE, .pid = pid};

    if (pid <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (args) {
        size_t used = offsetof(CUcheckpointRestoreArgs, reserved0);

        if (!all_zero(&args->reserved0, sizeof(*args) - used) ||
            (args->gpuPairsCount && !args->gpuPairs) || args->gpuPairsCount > SIM_GPU_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        request.pair_count = args->gpuPairsCount;
        if (args->gpuPairsCount)
            memcpy(request.pair, args->gpuPairs, args->gpuPairsCount * sizeof(request.pair[0]));
    }
    if (!may_restore())
        return CUDA_ERROR_NOT_INITIALIZED;
    return call_target(&request, NULL);
}

SIM_EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    struct sim_request request = {.call = SIM_CALL_UNLOCK, .pid = pid};

    if (pid <= 0 || (args && !all_zero(args, sizeof(*args))))
        return CUDA_ERROR_INVALID_VALUE;
    return call_target(&request, NULL);
}
