/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/keeper.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "engine/criu_spawn.h"
#include "engine/keeper/keeper_protocol.h"
#include "engine/keeper_image.h"
#include "proc/procfs.h"
#include "proc/tree.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

enum { ANSWER_MS = 10000, END_MS = 30000 };

/* The keeper's program as a descriptor. Since 6.3 the kernel wants to be told that a
 * memory file is to be executed; before, it does not know the flag. */
static int open_program(int *ret_fd, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = memfd_create("gpucr-keeper", MFD_CLOEXEC | MFD_EXEC);
    int rc;

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("gpucr-keeper", MFD_CLOEXEC);
    if (fd < 0 && errno == EACCES)
        return gpucr_error_set(
            err, GPUCR_ERR_UNSUPPORTED,
            "this machine forbids executable memory files (sysctl "
            "vm.memfd_noexec=2), which a restore in a fresh pid namespace needs");
    if (fd < 0)
        return gpucr_error_errno(err, errno, "cannot create a memory file");
    rc = gpucr_fd_write_all(fd, gpucr_keeper_image, gpucr_keeper_image_bytes(), err);
    if (rc == 0)
        *ret_fd = gpucr_steal_fd(&fd);
    return rc;
}

static int receive(const struct gpucr_keeper *keeper, struct gpucr_keeper_message *ret,
                   struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(ANSWER_MS);
    struct pollfd ready = {.fd = keeper->control, .events = POLLIN};
    ssize_t size;
    int rc;

    do {
        rc = poll(&ready, 1, gpucr_deadline_left_ms(deadline));
    } while (rc < 0 && errno == EINTR);
    size = rc > 0 ? recv(keeper->control, ret, sizeof(*ret), MSG_DONTWAIT) : -1;
    if (size == (ssize_t)sizeof(*ret))
        return 0;
    return gpucr_error_set(err, GPUCR_ERR_SYSTEM,
                           rc > 0 ? "the keeper of the pid namespace ended"
                                  : "the keeper of the pid namespace does not answer");
}

static int say_failed(const struct gpucr_keeper_message *message, struct gpucr_error *err)
{
    static const char *const steps[] = {
        [GPUCR_KEEPER_STEP_NONE] = "start",
        [GPUCR_KEEPER_STEP_PROPAGATION] = "make its mounts its own",
        [GPUCR_KEEPER_STEP_PROC] = "mount its /proc",
        [GPUCR_KEEPER_STEP_JOIN] = "enter the namespaces of the process",
        [GPUCR_KEEPER_STEP_START] = "start criu",
    };
    size_t step = (size_t)message->step;

    return gpucr_error_errno(err, message->value, "the helper for another pid namespace cannot %s",
                             step < GPUCR_ARRAY_SIZE(steps) ? steps[step] : "start");
}

/* criu is the keeper's only child at this time. */
static int find_criu(const struct gpucr_keeper *keeper, struct gpucr_criu_channel *channel,
                     struct gpucr_error *err)
{
    struct gpucr_tree tree = {0};
    int rc = gpucr_tree_read(keeper->pid, &tree, err);

    if (rc != 0)
        return rc;
    for (size_t i = 0; i < tree.count; i++) {
        if (tree.items[i].parent_pid == keeper->pid)
            channel->pid = tree.items[i].pid;
    }
    gpucr_tree_done(&tree);
    if (channel->pid > 0)
        channel->pidfd = (int)syscall(SYS_pidfd_open, channel->pid, 0);
    if (channel->pidfd < 0)
        return gpucr_error_set(err, GPUCR_ERR_ENGINE, "criu ended at once in its pid namespace");
    return 0;
}

/* A keeper about to be started: for whom, and with which ends of the sockets. */
struct plan {
    const struct gpucr_criu_start *start;
    int target_fd; /* pidfd, or -1 to make a namespace */
    int rpc;
    int control;
    int output_fd;
};

static int spawn_keeper(const struct plan *plan, struct gpucr_keeper *keeper,
                        struct gpucr_error *err)
{
    const struct gpucr_criu_start *start = plan->start;
    bool join = plan->target_fd >= 0;
    const char *argv[] = {"gpucr-keeper",
                          join ? GPUCR_KEEPER_JOIN : GPUCR_KEEPER_MAKE,
                          start->path,
                          "criu",
                          "--no-default-config",
                          "swrk",
                          "3",
                          NULL};
    const char *envp[GPUCR_CRIU_ENVIRONMENT_MAX];
    GPUCR_AUTO_FD int program = -1;
    /* In the order in which the keeper hands them to criu, its own at the end. */
    struct gpucr_spawn spawn = {
        .argv = argv,
        .envp = envp,
        .fds = {start->terminal_fd, plan->output_fd, plan->output_fd, plan->rpc, start->config_fd,
                start->images_fd, start->work_fd, plan->control, plan->target_fd},
        .fd_count = join ? GPUCR_KEEPER_TARGET_FD + 1 : GPUCR_KEEPER_CONTROL_FD + 1,
        .namespaces = join ? 0 : CLONE_NEWPID | CLONE_NEWNS,
        .own_group = start->terminal_fd < 0};
    int rc = open_program(&program, err);

    if (rc != 0)
        return rc;
    gpucr_criu_environment(start, envp);
    spawn.exec_fd = program;
    rc = gpucr_spawn(&spawn, &keeper->pid, &keeper->pidfd, err);
    return rc == 0 || join ? rc : gpucr_error_wrap(err, rc, "cannot make a fresh pid namespace");
}

static int meet(struct gpucr_keeper *keeper, struct gpucr_criu_channel *channel,
                struct gpucr_error *err)
{
    struct gpucr_keeper_message message = {0};
    int rc = receive(keeper, &message, err);

    if (rc == 0 && message.kind != GPUCR_KEEPER_STARTED)
        rc = say_failed(&message, err);
    return rc == 0 ? find_criu(keeper, channel, err) : rc;
}

static int start_keeper(const struct gpucr_criu_start *start, int target_fd,
                        struct gpucr_keeper *ret, struct gpucr_criu_channel *ret_channel,
                        struct gpucr_error *err)
{
    struct gpucr_criu_channel channel = GPUCR_CRIU_CHANNEL_INIT;
    struct gpucr_keeper keeper = GPUCR_KEEPER_INIT;
    GPUCR_AUTO_FD int rpc = -1;
    GPUCR_AUTO_FD int control = -1;
    int rc = gpucr_criu_channel_prepare(&channel, &rpc, err);
    int pair[2];

    if (rc == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        rc = gpucr_error_errno(err, errno, "cannot create a socket pair");
    if (rc == 0) {
        keeper.control = pair[0];
        control = pair[1];
        rc = spawn_keeper(&(struct plan){.start = start,
                                         .target_fd = target_fd,
                                         .rpc = rpc,
                                         .control = control,
                                         .output_fd = channel.output_fd},
                          &keeper, err);
    }
    if (rc == 0) {
        /* Ours must be the only other ends, so that end of file is seen. */
        (void)close(gpucr_steal_fd(&rpc));
        (void)close(gpucr_steal_fd(&control));
        channel.is_foreign = true;
        rc = meet(&keeper, &channel, err);
    }
    if (rc != 0) {
        gpucr_criu_channel_done(&channel);
        gpucr_keeper_done(&keeper);
        return rc;
    }
    *ret = keeper;
    *ret_channel = channel;
    return 0;
}

int gpucr_keeper_start(const struct gpucr_criu_start *start, struct gpucr_keeper *ret,
                       struct gpucr_criu_channel *ret_channel, struct gpucr_error *err)
{
    return start_keeper(start, -1, ret, ret_channel, err);
}

int gpucr_keeper_join(const struct gpucr_criu_start *start, pid_t target, struct gpucr_keeper *ret,
                      struct gpucr_criu_channel *ret_channel, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int target_fd = (int)syscall(SYS_pidfd_open, target, 0U);

    if (target_fd < 0)
        return gpucr_error_errno(err, errno, "cannot open process %d", (int)target);
    return start_keeper(start, target_fd, ret, ret_channel, err);
}

/* The keeper's child that has this pid in the keeper's namespace. */
static int find_outside(const struct gpucr_keeper *keeper, pid_t inside, pid_t *ret,
                        struct gpucr_error *err)
{
    struct gpucr_proc_status status;
    struct gpucr_tree tree = {0};
    uint32_t level;
    pid_t found = 0;
    int rc = gpucr_proc_status_read(keeper->pid, &status, err);

    if (rc != 0)
        return rc;
    level = status.ns_level_count;
    rc = gpucr_tree_read(keeper->pid, &tree, err);
    for (size_t i = 0; rc == 0 && found == 0 && i < tree.count; i++) {
        if (tree.items[i].parent_pid == keeper->pid &&
            gpucr_proc_status_read(tree.items[i].pid, &status, NULL) == 0 &&
            status.ns_level_count >= level && level > 0 && status.ns_pids[level - 1] == inside)
            found = tree.items[i].pid;
    }
    gpucr_tree_done(&tree);
    if (rc == 0 && found == 0)
        rc = gpucr_error_set(err, GPUCR_ERR_TARGET_DIED,
                             "the restored root, process %d of its pid namespace, has ended",
                             (int)inside);
    if (rc == 0)
        *ret = found;
    return rc;
}

int gpucr_keeper_adopt(struct gpucr_keeper *keeper, pid_t root, pid_t *ret_outside,
                       struct gpucr_error *err)
{
    struct gpucr_keeper_message message = {.kind = GPUCR_KEEPER_KEEP, .value = root};
    pid_t outside = 0;
    int rc = find_outside(keeper, root, &outside, err);

    if (rc != 0)
        return rc;
    if (send(keeper->control, &message, sizeof(message), MSG_NOSIGNAL) < 0)
        return gpucr_error_errno(err, errno, "cannot talk to the keeper of the pid namespace");
    rc = receive(keeper, &message, err);
    if (rc == 0 && message.kind != GPUCR_KEEPER_KEPT)
        rc = gpucr_error_set(err, GPUCR_ERR_INTERNAL, "the keeper gave an unknown answer");
    if (rc != 0)
        return rc;
    keeper->kept = true;
    *ret_outside = outside;
    return 0;
}

int gpucr_keeper_end(struct gpucr_keeper *keeper, struct gpucr_error *err)
{
    pid_t pid = keeper->pid;

    if (pid == 0)
        return 0;
    keeper->kept = false;
    (void)syscall(SYS_pidfd_send_signal, keeper->pidfd, SIGKILL, NULL, 0);
    /* A namespace's first process ends only when all others in it are gone. */
    if (!gpucr_spawn_reap(pid, keeper->pidfd, END_MS, NULL))
        return gpucr_error_pid(err,
                               gpucr_error_set(err, GPUCR_ERR_VERIFY,
                                               "the pid namespace of process %d does not end",
                                               (int)pid),
                               pid);
    keeper->pid = 0;
    return 0;
}

void gpucr_keeper_done(struct gpucr_keeper *keeper)
{
    if (!keeper->kept)
        (void)gpucr_keeper_end(keeper, NULL);
    if (keeper->control >= 0)
        (void)close(keeper->control);
    if (keeper->pidfd >= 0)
        (void)close(keeper->pidfd);
    *keeper = (struct gpucr_keeper)GPUCR_KEEPER_INIT;
}
