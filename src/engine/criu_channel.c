/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "engine/criu_spawn.h"

enum { EXIT_MS = 1000 };

/* criu runs tar, ip, iptables and action scripts by name. */
#define PATH_FOLDERS  "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define PATH_VARIABLE "PATH=" PATH_FOLDERS

bool gpucr_criu_program(const char *name, char *ret, size_t size)
{
    const char *folder = PATH_FOLDERS;
    const char *end;

    for (; *folder; folder = *end ? end + 1 : end) {
        char path[256];

        end = strchrnul(folder, ':');
        (void)snprintf(path, sizeof(path), "%.*s/%s", (int)(end - folder), folder, name);
        if (access(path, X_OK) == 0)
            return !ret || gpucr_copy_text(ret, size, path);
    }
    return false;
}

int gpucr_criu_channel_prepare(struct gpucr_criu_channel *ret, int *ret_theirs,
                               struct gpucr_error *err)
{
    GPUCR_AUTO_FD int output_fd = memfd_create("gpucr-criu-output", MFD_CLOEXEC);
    int pair[2];

    if (output_fd < 0)
        return gpucr_error_errno(err, errno, "cannot create a memory file");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return gpucr_error_errno(err, errno, "cannot create a socket pair for criu");
    *ret = (struct gpucr_criu_channel){
        .pidfd = -1, .socket = pair[0], .output_fd = gpucr_steal_fd(&output_fd)};
    *ret_theirs = pair[1];
    return 0;
}

void gpucr_criu_environment(const struct gpucr_criu_start *start,
                            const char *ret[GPUCR_CRIU_ENVIRONMENT_MAX])
{
    ret[0] = PATH_VARIABLE;
    ret[1] = "LC_ALL=C";
    /* Fault 130 is criu's switch for "no hardware breakpoints". */
    ret[2] = start->hardware_breakpoints ? NULL : "CRIU_FAULT=130";
    ret[3] = NULL;
}

int gpucr_criu_channel_open(const struct gpucr_criu_start *start, struct gpucr_criu_channel *ret,
                            struct gpucr_error *err)
{
    /* /etc/criu and HOME hold settings for other users of criu: ours are all explicit. */
    const char *argv[] = {"criu", "--no-default-config", "swrk", "3", NULL};
    const char *envp[GPUCR_CRIU_ENVIRONMENT_MAX];
    struct gpucr_criu_channel channel = GPUCR_CRIU_CHANNEL_INIT;
    GPUCR_AUTO_FD int theirs = -1;
    int rc = gpucr_criu_channel_prepare(&channel, &theirs, err);

    if (rc == 0) {
        struct gpucr_spawn spawn = {.path = start->path,
                                    .argv = argv,
                                    .envp = envp,
                                    .fds = {start->terminal_fd, channel.output_fd,
                                            channel.output_fd, theirs, start->config_fd,
                                            start->images_fd, start->work_fd},
                                    .fd_count = 7,
                                    .block_sigchld = start->block_sigchld,
                                    .own_group = start->terminal_fd < 0};

        gpucr_criu_environment(start, envp);
        rc = gpucr_spawn(&spawn, &channel.pid, &channel.pidfd, err);
    }
    if (rc == 0)
        *ret = channel;
    else
        gpucr_criu_channel_done(&channel);
    return rc;
}

void gpucr_criu_channel_done(struct gpucr_criu_channel *channel)
{
    if (channel->socket >= 0)
        (void)close(channel->socket);
    if (channel->pid > 0) {
        if (channel->is_foreign)
            (void)syscall(SYS_pidfd_send_signal, channel->pidfd, SIGKILL, NULL, 0);
        else
            gpucr_spawn_end(channel->pid, channel->pidfd);
    }
    if (channel->pidfd >= 0)
        (void)close(channel->pidfd);
    if (channel->output_fd >= 0)
        (void)close(channel->output_fd);
    *channel = (struct gpucr_criu_channel)GPUCR_CRIU_CHANNEL_INIT;
}

int gpucr_criu_channel_send(const struct gpucr_criu_channel *channel,
                            const GpucrCriu__Request *request, struct gpucr_error *err)
{
    size_t size = gpucr_criu__request__get_packed_size(request);
    GPUCR_AUTO_FREE uint8_t *data = malloc(size > 0 ? size : 1);
    ssize_t sent;

    if (!data)
        return gpucr_error_no_memory(err);
    (void)gpucr_criu__request__pack(request, data);
    do {
        sent = send(channel->socket, data, size, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return gpucr_error_set(err, GPUCR_ERR_ENGINE, "criu does not take a request: %s",
                               strerror(errno));
    return 0;
}

static int say_ended(const struct gpucr_criu_channel *channel, struct gpucr_error *err)
{
    struct pollfd ended = {.fd = channel->pidfd, .events = POLLIN};
    siginfo_t info = {0};

    /* A process closes its files a little before it has ended. */
    (void)poll(&ended, 1, EXIT_MS);
    /* Without reaping it: clean-up still wants its pid. (CLD_TRAPPED: it is being traced.) */
    if (channel->pid <= 0 ||
        waitid(P_PID, (id_t)channel->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
        info.si_code = 0;
    if (info.si_code == CLD_EXITED)
        return gpucr_error_set(err, GPUCR_ERR_ENGINE, "criu ended with status %d without an answer",
                               info.si_status);
    if (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED)
        return gpucr_error_set(err, GPUCR_ERR_ENGINE, "criu was killed by signal %d (%s)",
                               info.si_status, strsignal(info.si_status));
    return gpucr_error_set(err, GPUCR_ERR_ENGINE, "criu closed its socket without an answer");
}

/* Read the message that is waiting. */
static int take_message(const struct gpucr_criu_channel *channel, GpucrCriu__Response **ret,
                        struct gpucr_error *err)
{
    GPUCR_AUTO_FREE uint8_t *data = NULL;
    GpucrCriu__Response *response;
    ssize_t size, got;

    do {
        size = recv(channel->socket, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    } while (size < 0 && errno == EINTR);
    if (size <= 0)
        return say_ended(channel, err);
    if (size > GPUCR_CRIU_MESSAGE_BYTES_MAX)
        return gpucr_error_set(err, GPUCR_ERR_ENGINE, "criu sent a message of %zd bytes", size);
    data = malloc((size_t)size);
    if (!data)
        return gpucr_error_no_memory(err);
    /* A descriptor that comes along (an orphaned terminal) is dropped by the kernel. */
    do {
        got = recv(channel->socket, data, (size_t)size, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    response = got == size ? gpucr_criu__response__unpack(NULL, (size_t)size, data) : NULL;
    if (!response)
        return gpucr_error_set(err, GPUCR_ERR_ENGINE, "criu sent a message that makes no sense");
    *ret = response;
    return 1;
}

int gpucr_criu_channel_receive(struct gpucr_criu_channel *channel, int timeout_ms,
                               GpucrCriu__Response **ret, struct gpucr_error *err)
{
    struct pollfd fds[] = {{.fd = channel->socket, .events = POLLIN},
                           {.fd = channel->pidfd, .events = POLLIN}};
    int rc = poll(fds, 2, timeout_ms);

    if (rc < 0 && errno != EINTR)
        return gpucr_error_errno(err, errno, "cannot wait for criu");
    if (rc <= 0)
        return 0;
    if (fds[0].revents != 0)
        return take_message(channel, ret, err);
    /* criu is dead; a child of it may still hold the other end of the socket. */
    fds[0].revents = 0;
    if (poll(fds, 1, 0) > 0)
        return take_message(channel, ret, err);
    return say_ended(channel, err);
}

void gpucr_criu_channel_output(const struct gpucr_criu_channel *channel, char *ret, size_t size)
{
    GPUCR_AUTO_FREE char *text = NULL;
    char path[64];
    size_t length;
    char *line;

    *ret = '\0';
    /* Opened anew, for a position of our own. */
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", channel->output_fd);
    if (channel->output_fd < 0 ||
        gpucr_file_read(AT_FDCWD, path, GPUCR_CRIU_OUTPUT_BYTES_MAX, &text, NULL) != 0)
        return;
    length = strlen(text);
    while (length > 0 && text[length - 1] == '\n')
        text[--length] = '\0';
    line = strrchr(text, '\n');
    (void)gpucr_copy_text(ret, size, line ? line + 1 : text);
}
