/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_channel.h
 * A criu that serves one request ("criu swrk"), and the socket over which it is
 * asked and asks back.
 */
#ifndef GPUCR_ENGINE_CRIU_CHANNEL_H
#define GPUCR_ENGINE_CRIU_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "criu_rpc.pb-c.h"

enum {
    GPUCR_CRIU_MESSAGE_BYTES_MAX = 1 << 20,
    GPUCR_CRIU_OUTPUT_BYTES_MAX = 64 << 10,
    GPUCR_CRIU_ENVIRONMENT_MAX = 4,
};

/* Where criu finds the descriptors that it is given; the channel puts them there. */
#define GPUCR_CRIU_CONFIG_PATH "/proc/self/fd/4"
#define GPUCR_CRIU_IMAGES_PATH "/proc/self/fd/5"
#define GPUCR_CRIU_WORK_PATH   "/proc/self/fd/6"

/** How to start it. Descriptors may be -1 where the request does not need them. */
struct gpucr_criu_start {
    const char *path;
    bool hardware_breakpoints; /* false: criu is told not to use them */
    bool block_sigchld;        /* criu gets no SIGCHLD (a dump waits for its tracees anyway) */
    int terminal_fd;           /* becomes its standard input: criu gives the terminal on */
    int config_fd;
    int images_fd;
    int work_fd;
};

struct gpucr_criu_channel {
    pid_t pid;       /* 0 when it has been reaped */
    int pidfd;       /* of pid */
    int socket;      /* RPC */
    int output_fd;   /* what it prints: complaints before it has a log */
    bool is_foreign; /* the child of a keeper: not ours to reap */
};

#define GPUCR_CRIU_CHANNEL_INIT                                                                    \
    {                                                                                              \
        .pidfd = -1, .socket = -1, .output_fd = -1                                                 \
    }

/** Is the program in criu's PATH? Its path goes to @p ret (may be NULL). */
bool gpucr_criu_program(const char *name, char *ret, size_t size);

/** The socket and the memory file; criu's end of the socket goes to @p ret_theirs. */
int gpucr_criu_channel_prepare(struct gpucr_criu_channel *ret, int *ret_theirs,
                               struct gpucr_error *err);

/** The whole environment of criu, terminated by NULL. */
void gpucr_criu_environment(const struct gpucr_criu_start *start,
                            const char *ret[GPUCR_CRIU_ENVIRONMENT_MAX]);

/** Start criu. */
int gpucr_criu_channel_open(const struct gpucr_criu_start *start, struct gpucr_criu_channel *ret,
                            struct gpucr_error *err);

/** End criu if it still lives (SIGKILL), reap it, close everything. */
void gpucr_criu_channel_done(struct gpucr_criu_channel *channel);

/** Send one request or answer. */
int gpucr_criu_channel_send(const struct gpucr_criu_channel *channel,
                            const GpucrCriu__Request *request, struct gpucr_error *err);

/**
 * Wait for the next message. Returns 1 with the message (free it with
 * gpucr_criu__response__free_unpacked()), 0 when none came within @p timeout_ms,
 * GPUCR_ERR_ENGINE when criu closed the socket or ended.
 */
int gpucr_criu_channel_receive(struct gpucr_criu_channel *channel, int timeout_ms,
                               GpucrCriu__Response **ret, struct gpucr_error *err);

/** The last line that criu printed, "" if none. */
void gpucr_criu_channel_output(const struct gpucr_criu_channel *channel, char *ret, size_t size);

#endif
