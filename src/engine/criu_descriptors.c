/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_descriptors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum { RECORDS_MAX = 1 << 20 };

/* An option that was read; present is false where the file has no such option. */
struct option_value {
    bool present;
    int value;
};

struct record {
    pid_t pid;
    int fd;
    bool is_terminal;
    bool is_connection;
    int file_flags;                  /* of a terminal */
    struct option_value repair;      /* TCP_REPAIR */
    struct option_value reuse;       /* SO_REUSEADDR */
    struct option_value peek_offset; /* SO_PEEK_OFF */
    struct gpucr_criu_connection connection;
};

struct gpucr_criu_descriptors {
    struct record *records;
    size_t count;
    size_t capacity;
};

/* While the descriptors of one process are walked. */
struct walk {
    struct gpucr_criu_descriptors *descriptors;
    pid_t pid;
    int pidfd;
};

static struct option_value get_option(int fd, int level, int name)
{
    struct option_value option = {0};
    socklen_t size = sizeof(option.value);

    option.present = getsockopt(fd, level, name, &option.value, &size) == 0;
    return option;
}

static bool is_tcp(int fd)
{
    struct option_value domain = get_option(fd, SOL_SOCKET, SO_DOMAIN);
    struct option_value protocol = get_option(fd, SOL_SOCKET, SO_PROTOCOL);

    return (domain.value == AF_INET || domain.value == AF_INET6) && protocol.value == IPPROTO_TCP;
}

static void read_socket(int fd, struct record *record)
{
    socklen_t local_size = sizeof(record->connection.local);
    socklen_t peer_size = sizeof(record->connection.peer);

    record->peek_offset = get_option(fd, SOL_SOCKET, SO_PEEK_OFF);
    if (!is_tcp(fd))
        return;
    record->repair = get_option(fd, IPPROTO_TCP, TCP_REPAIR);
    record->reuse = get_option(fd, SOL_SOCKET, SO_REUSEADDR);
    record->connection.pid = record->pid;
    record->is_connection =
        getsockname(fd, (struct sockaddr *)&record->connection.local, &local_size) == 0 &&
        getpeername(fd, (struct sockaddr *)&record->connection.peer, &peer_size) == 0;
}

static struct record *new_record(struct gpucr_criu_descriptors *descriptors)
{
    if (descriptors->count == descriptors->capacity) {
        size_t capacity = descriptors->capacity ? descriptors->capacity * 2 : 64;
        struct record *records;

        if (capacity > RECORDS_MAX)
            return NULL;
        records = realloc(descriptors->records, capacity * sizeof(*records));
        if (!records)
            return NULL;
        descriptors->records = records;
        descriptors->capacity = capacity;
    }
    return &descriptors->records[descriptors->count];
}

static bool is_wanted(const char *target, bool *ret_terminal)
{
    *ret_terminal = gpucr_starts_with(target, "/dev/pts/") ||
                    gpucr_starts_with(target, "/dev/tty") || strcmp(target, "/dev/ptmx") == 0;
    return *ret_terminal || gpucr_starts_with(target, "socket:");
}

static int record_fd(void *arg, int fd, const char *target)
{
    struct walk *walk = arg;
    struct record record = {.pid = walk->pid, .fd = fd};
    GPUCR_AUTO_FD int copy = -1;
    struct record *slot;

    if (!is_wanted(target, &record.is_terminal))
        return 0;
    copy = (int)syscall(SYS_pidfd_getfd, walk->pidfd, fd, 0U);
    if (copy < 0)
        return errno == EBADF ? 0 : -errno;
    if (record.is_terminal)
        record.file_flags = fcntl(copy, F_GETFL);
    else
        read_socket(copy, &record);
    slot = new_record(walk->descriptors);
    if (!slot)
        return -ENOMEM;
    *slot = record;
    walk->descriptors->count++;
    return 0;
}

static int record_process(struct gpucr_criu_descriptors *descriptors, pid_t pid,
                          struct gpucr_error *err)
{
    GPUCR_AUTO_FD int pidfd = (int)syscall(SYS_pidfd_open, pid, 0U);
    struct walk walk = {.descriptors = descriptors, .pid = pid, .pidfd = pidfd};
    struct gpucr_error local = GPUCR_ERROR_INIT;
    int rc;

    if (pidfd < 0)
        return errno == ESRCH ? 0
                              : gpucr_error_errno(err, errno, "cannot open process %d", (int)pid);
    rc = gpucr_fds_walk(pid, pid, record_fd, &walk, &local);
    if (local.code == GPUCR_ERR_NOT_FOUND)
        return 0;                   /* a zombie has no descriptors */
    if (rc != 0 && local.code == 0) /* record_fd()'s */
        rc = gpucr_error_pid(
            err, gpucr_error_errno(err, -rc, "cannot look at the sockets of process %d", (int)pid),
            pid);
    else if (rc != 0 && err)
        *err = local;
    return rc;
}

int gpucr_criu_descriptors_record(const struct gpucr_pids *pids,
                                  struct gpucr_criu_descriptors **ret, struct gpucr_error *err)
{
    struct gpucr_criu_descriptors *descriptors = calloc(1, sizeof(*descriptors));
    int rc = 0;

    if (!descriptors)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; rc == 0 && i < pids->count; i++)
        rc = record_process(descriptors, pids->ids[i], err);
    if (rc == 0)
        *ret = descriptors;
    else
        gpucr_criu_descriptors_free(descriptors);
    return rc;
}

void gpucr_criu_descriptors_free(struct gpucr_criu_descriptors *descriptors)
{
    if (descriptors)
        free(descriptors->records);
    free(descriptors);
}

/* Put one option back if it differs. Returns 1 if it did, 0 if not, -1 if it stays. */
static int put_option(int fd, int level, int name, const struct option_value *wanted)
{
    struct option_value now = get_option(fd, level, name);

    if (!wanted->present || !now.present || now.value == wanted->value)
        return 0;
    if (setsockopt(fd, level, name, &wanted->value, sizeof(wanted->value)) != 0)
        return -1;
    now = get_option(fd, level, name);
    return now.value == wanted->value ? 1 : -1;
}

static int put_socket(int fd, const struct record *record)
{
    /* Leaving repair mode clears SO_REUSEADDR, so in this order. */
    int repair = put_option(fd, IPPROTO_TCP, TCP_REPAIR, &record->repair);
    int reuse = put_option(fd, SOL_SOCKET, SO_REUSEADDR, &record->reuse);
    int peek = put_option(fd, SOL_SOCKET, SO_PEEK_OFF, &record->peek_offset);

    if (repair < 0 || reuse < 0 || peek < 0)
        return -1;
    return repair | reuse | peek;
}

static int put_terminal(int fd, const struct record *record)
{
    int now = fcntl(fd, F_GETFL);

    if (now == record->file_flags || record->file_flags < 0)
        return 0;
    return fcntl(fd, F_SETFL, record->file_flags) == 0 ? 1 : -1;
}

static int restore_record(const struct record *record, size_t *count, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int pidfd = (int)syscall(SYS_pidfd_open, record->pid, 0U);
    GPUCR_AUTO_FD int fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, record->fd, 0U);
    int rc;

    if (fd < 0)
        rc = -1;
    else
        rc = record->is_terminal ? put_terminal(fd, record) : put_socket(fd, record);
    if (rc < 0)
        return gpucr_error_pid(err,
                               gpucr_error_set(err, GPUCR_ERR_VERIFY,
                                               "descriptor %d of process %d cannot be put back "
                                               "into the state in which it was: %s",
                                               record->fd, (int)record->pid, strerror(errno)),
                               record->pid);
    *count += (size_t)rc;
    return 0;
}

int gpucr_criu_descriptors_restore(const struct gpucr_criu_descriptors *descriptors,
                                   size_t *ret_count, struct gpucr_error *err)
{
    struct gpucr_error first = GPUCR_ERROR_INIT;
    size_t count = 0;

    for (size_t i = 0; i < descriptors->count; i++) {
        struct gpucr_error local = GPUCR_ERROR_INIT;

        if (restore_record(&descriptors->records[i], &count, &local) != 0 && first.code == 0)
            first = local;
    }
    *ret_count = count;
    if (first.code != 0 && err)
        *err = first;
    return first.code;
}

void gpucr_criu_descriptors_walk(const struct gpucr_criu_descriptors *descriptors,
                                 void (*fn)(void *arg, const struct gpucr_criu_connection *c),
                                 void *arg)
{
    for (size_t i = 0; i < descriptors->count; i++) {
        if (descriptors->records[i].is_connection)
            fn(arg, &descriptors->records[i].connection);
    }
}
