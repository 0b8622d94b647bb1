/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What CRIU would refuse in the middle of a dump, found before the GPU is paused.
 * CRIU stays the judge: what is not seen here it still refuses, and that is undone.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "job/preflight.h"

enum { SOCKETS_MAX = 65536, NET_FILE_BYTES_MAX = 64 << 20, TCP_ESTABLISHED_STATE = 1 };

/* Majors of character devices that CRIU dumps by path: mem, tty, console, misc pts. */
static const unsigned plain_majors[] = {1, 4, 5, 136, 137, 138, 139, 140, 141, 142, 143};

struct dump_walk {
    struct gpucr_job *job;
    const struct gpucr_process_result *process;
    struct gpucr_error *err;
    uint64_t *sockets; /* inodes */
    size_t socket_count;
};

static int note_socket(struct dump_walk *walk, const char *target)
{
    uint64_t inode;
    const char *end;
    uint64_t *grown;

    if (!gpucr_scan_u64(target + strlen("socket:["), 10, &inode, &end) ||
        walk->socket_count == SOCKETS_MAX)
        return 0;
    grown = reallocarray(walk->sockets, walk->socket_count + 1, sizeof(*grown));
    if (!grown)
        return gpucr_error_no_memory(walk->err);
    walk->sockets = grown;
    grown[walk->socket_count++] = inode;
    return 0;
}

static bool major_is_plain(unsigned device_major)
{
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(plain_majors); i++) {
        if (plain_majors[i] == device_major)
            return true;
    }
    return false;
}

static int note_device(struct dump_walk *walk, int fd, const char *target)
{
    const struct gpucr_process_result *p = walk->process;
    char path[64];
    struct stat st;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", p->pid, fd);
    if (stat(path, &st) < 0 || !S_ISCHR(st.st_mode) || major_is_plain(major(st.st_rdev)) ||
        major(st.st_rdev) == 10)
        return 0;
    /* The GPU's own files of a CUDA process are taken away by the driver's Checkpoint. */
    if (p->is_cuda && strstr(target, "/nvidia"))
        return 0;
    return gpucr_preflight_add(walk->job, GPUCR_FINDING_DEVICE_FILE, p->pid, walk->err,
                               "process %d (%s) has the device %s (character device %u:%u) open "
                               "as descriptor %d, which CRIU cannot dump",
                               p->pid, p->name, target, major(st.st_rdev), minor(st.st_rdev), fd);
}

static int note_descriptor(void *arg, int fd, const char *target)
{
    struct dump_walk *walk = arg;
    const struct gpucr_process_result *p = walk->process;

    if (strcmp(target, "anon_inode:[io_uring]") == 0)
        return gpucr_preflight_add(walk->job, GPUCR_FINDING_IO_URING, p->pid, walk->err,
                                   "process %d (%s) uses io_uring (descriptor %d), which CRIU "
                                   "cannot dump",
                                   p->pid, p->name, fd);
    if (gpucr_starts_with(target, "socket:["))
        return note_socket(walk, target);
    if (gpucr_starts_with(target, "/dev/") && !p->holds_device)
        return note_device(walk, fd, target);
    return 0;
}

static bool socket_is_ours(const struct dump_walk *walk, uint64_t inode)
{
    for (size_t i = 0; i < walk->socket_count; i++) {
        if (walk->sockets[i] == inode)
            return true;
    }
    return false;
}

/* One line of /proc/PID/net/tcp: "  0: local remote state tx:rx tr:when retr uid timeout inode …"
 */
static bool line_is_established(const struct dump_walk *walk, char *line, char **ret_remote)
{
    char *save = NULL;
    char *field = strtok_r(line, " ", &save);
    uint64_t state = 0;
    uint64_t inode = 0;

    for (int i = 0; field && i <= 9; i++, field = strtok_r(NULL, " ", &save)) {
        if (i == 2)
            *ret_remote = field;
        if (i == 3 && !gpucr_parse_u64(field, 16, &state))
            return false;
        if (i == 9 && !gpucr_parse_u64(field, 10, &inode))
            return false;
    }
    return state == TCP_ESTABLISHED_STATE && inode && socket_is_ours(walk, inode);
}

static int check_tcp(struct dump_walk *walk, const char *table)
{
    GPUCR_AUTO_FREE char *text = NULL;
    char path[64];
    char *save = NULL;
    char *remote = NULL;

    (void)snprintf(path, sizeof(path), "/proc/%d/net/%s", walk->process->pid, table);
    if (gpucr_file_read(AT_FDCWD, path, NET_FILE_BYTES_MAX, &text, NULL) < 0)
        return 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (!line_is_established(walk, line, &remote))
            continue;
        return gpucr_preflight_add(walk->job, GPUCR_FINDING_TCP_ESTABLISHED, walk->process->pid,
                                   walk->err,
                                   "process %d (%s) has an established TCP connection (peer %s, "
                                   "in the notation of %s)",
                                   walk->process->pid, walk->process->name, remote, path);
    }
    return 0;
}

static int check_descriptors(struct gpucr_job *job, const struct gpucr_process_result *p,
                             struct gpucr_error *err)
{
    struct dump_walk walk = {.job = job, .process = p, .err = err};
    int rc = gpucr_fds_walk(p->pid, p->pid, note_descriptor, &walk, err);

    if (rc == GPUCR_ERR_NOT_FOUND)
        rc = 0;
    if (rc == 0 && walk.socket_count > 0 && !job->options->tcp_established)
        rc = check_tcp(&walk, "tcp");
    if (rc == 0 && walk.socket_count > 0 && !job->options->tcp_established)
        rc = check_tcp(&walk, "tcp6");
    free(walk.sockets);
    return rc;
}

/* CRIU restores sessions by their leaders; one outside the tree needs --shell-job. */
static int check_session(struct gpucr_job *job, struct gpucr_error *err)
{
    const struct gpucr_proc_stat *root = &job->tree.items[0];
    struct gpucr_proc_stat leader;

    if (job->options->shell_job || gpucr_tree_contains(&job->tree, root->session))
        return 0;
    return gpucr_preflight_add(
        job, GPUCR_FINDING_OUTSIDE_SESSION, root->pid, err,
        "process %d (%s) belongs to the session of process %d (%s), which is not part of the tree",
        root->pid, root->comm, root->session,
        gpucr_proc_stat_read(root->session, &leader, NULL) == 0 ? leader.comm : "gone");
}

int gpucr_preflight_dump(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = check_session(job, err);

    for (size_t i = 0; rc == 0 && i < job->result->process_count; i++)
        rc = check_descriptors(job, &job->result->processes[i], err);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
}

int gpucr_preflight_disk(struct gpucr_job *job, uint64_t free_bytes, struct gpucr_error *err)
{
    uint64_t need = gpucr_job_device_bytes(job) + gpucr_job_host_bytes(job);

    if (free_bytes >= need)
        return 0;
    return gpucr_preflight_add(job, GPUCR_FINDING_DISK_SPACE, 0, err,
                               "the image needs up to %llu MiB and its file system has %llu MiB "
                               "free",
                               (unsigned long long)(need >> 20),
                               (unsigned long long)(free_bytes >> 20));
}
