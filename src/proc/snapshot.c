/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What CRIU (read in 4.2) changes in a task between seizing and curing it:
 *  - registers and signal mask of each thread, by ptrace: the leader runs CRIU's
 *    code as a daemon, the others run it one after another up to an int3;
 *  - 8 bytes of code (syscall, int3) and 8 bytes of a file name at the start of the
 *    first executable mapping;
 *  - mappings: its own code and stacks, as a shared memfd, and a test page for
 *    rseq; PROT_READ is added to mappings without it;
 *  - descriptors: the memfd while it is mapped, a socket for commands, the log
 *    file, pipes for pages, /proc;
 *  - the file creation mask, for the moment of reading it (umask(0) and back);
 *  - the pointer to a restartable sequence: the kernel clears it when it sees the
 *    thread outside of its sequence;
 *  - what a killed tracer leaves behind in the kernel: a SIGTRAP of the int3 that
 *    was raised but not yet taken;
 *  - an additional pending SIGSTOP, which the next SIGCONT removes.
 * Not changed: signal handlers, timers, credentials, dumpable, sigaltstack, the
 * registration of rseq, robust lists, memory contents. A system call with a relative
 * timeout that CRIU's code interrupted ends early with EINTR as after any CRIU dump:
 * the kernel forgets its restart information at rt_sigreturn.
 */
#include "proc/snapshot.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/text.h"
#include "proc/ptrace_op.h"
#include "proc/snapshot_state.h"

enum { STATUS_BYTES_MAX = 8 << 20 }; /* the list of groups can be long */

/* ---- descriptors ---- */

void gpucr_snapshot_fds_done(struct gpucr_snapshot_fds *fds)
{
    for (size_t i = 0; i < fds->count; i++)
        free(fds->items[i].target);
    free(fds->items);
    *fds = (struct gpucr_snapshot_fds){0};
}

static int add_fd(void *arg, int fd, const char *target)
{
    struct gpucr_snapshot_fds *fds = arg;

    if (fds->count == fds->capacity) {
        size_t capacity = fds->capacity ? 2 * fds->capacity : 64;
        struct gpucr_snapshot_fd *items = reallocarray(fds->items, capacity, sizeof(*items));
        if (!items)
            return GPUCR_ERR_NO_MEMORY;
        fds->items = items;
        fds->capacity = capacity;
    }
    char *copy = strdup(target);
    if (!copy)
        return GPUCR_ERR_NO_MEMORY;
    fds->items[fds->count++] = (struct gpucr_snapshot_fd){.fd = fd, .target = copy};
    return 0;
}

static int compare_fds(const void *a, const void *b)
{
    const struct gpucr_snapshot_fd *x = a, *y = b;

    return (x->fd > y->fd) - (x->fd < y->fd);
}

int gpucr_snapshot_fds_read(pid_t pid, pid_t tid, struct gpucr_snapshot_fds *ret,
                            struct gpucr_error *err)
{
    struct gpucr_snapshot_fds fds = {0};
    int rc = gpucr_fds_walk(pid, tid, add_fd, &fds, err);

    if (rc == GPUCR_ERR_NO_MEMORY)
        rc = gpucr_error_no_memory(err);
    if (rc) {
        gpucr_snapshot_fds_done(&fds);
        return rc;
    }
    if (fds.count)
        qsort(fds.items, fds.count, sizeof(fds.items[0]), compare_fds);
    *ret = fds;
    return 0;
}

/* ---- /proc/PID/status ---- */

static int status_number(const char *path, const char *name, int base, uint64_t *ret,
                         struct gpucr_error *err)
{
    GPUCR_AUTO_FREE char *text = NULL;
    const char *end;
    int rc = gpucr_file_read(AT_FDCWD, path, STATUS_BYTES_MAX, &text, err);

    if (rc)
        return rc;
    const char *line = strstr(text, name);
    if (line) {
        line += strlen(name);
        line += strspn(line, " \t");
    }
    if (!line || !gpucr_scan_u64(line, base, ret, &end))
        return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED, "%s has no line \"%s\"", path, name + 1);
    return 0;
}

int gpucr_snapshot_umask_read(pid_t pid, uint64_t *ret, struct gpucr_error *err)
{
    char path[64];
    uint64_t digits = 0, value = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
    /* Octal digits, read as decimal ones. */
    int rc = status_number(path, "\nUmask:", 10, &digits, err);
    if (rc)
        return rc;
    for (unsigned shift = 0; digits; digits /= 10, shift += 3)
        value |= (digits % 10) << shift;
    *ret = value;
    return 0;
}

int gpucr_snapshot_faults_read(pid_t pid, pid_t tid, uint64_t *ret, struct gpucr_error *err)
{
    static const int faults[] = {SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
    char path[64];
    uint64_t pending = 0, mask = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
    int rc = status_number(path, "\nSigPnd:", 16, &pending, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(faults); i++)
        mask |= 1ull << (faults[i] - 1);
    *ret = pending & mask;
    return 0;
}

/* ---- taking ---- */

static int read_threads(const struct gpucr_pids *tids, struct gpucr_snapshot *snapshot,
                        struct gpucr_error *err)
{
    int rc = 0;

    snapshot->threads = calloc(tids->count, sizeof(snapshot->threads[0]));
    if (!snapshot->threads)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; !rc && i < tids->count; i++) {
        struct gpucr_snapshot_thread *thread = &snapshot->threads[i];
        rc = gpucr_thread_regs_get(tids->ids[i], &thread->regs, err);
        if (rc)
            break;
        thread->tid = tids->ids[i];
        snapshot->thread_count++;
        rc = gpucr_snapshot_faults_read(snapshot->pid, thread->tid, &thread->faults_pending, err);
    }
    return rc;
}

int gpucr_snapshot_memory_open(pid_t pid, int *ret_fd, struct gpucr_error *err)
{
    char path[32];

    (void)snprintf(path, sizeof(path), "/proc/%d/mem", pid);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return gpucr_error_errno(err, errno, "cannot open the memory of process %d", pid);
    *ret_fd = fd;
    return 0;
}

static bool holds_code(const struct gpucr_mapping *map)
{
    return map->executable && !map->shared && strcmp(map->path, "[vsyscall]") != 0;
}

static int read_code(pid_t alive, struct gpucr_snapshot *snapshot, struct gpucr_error *err)
{
    size_t count = 0;
    GPUCR_AUTO_FD int fd = -1;

    for (size_t i = 0; i < snapshot->maps.count; i++)
        count += holds_code(&snapshot->maps.items[i]);
    if (count > GPUCR_SNAPSHOT_CODES_MAX)
        count = GPUCR_SNAPSHOT_CODES_MAX;
    snapshot->codes = calloc(count ? count : 1, sizeof(snapshot->codes[0]));
    if (!snapshot->codes)
        return gpucr_error_no_memory(err);
    int rc = gpucr_snapshot_memory_open(alive, &fd, err);
    for (size_t i = 0; !rc && i < snapshot->maps.count && snapshot->code_count < count; i++) {
        const struct gpucr_mapping *map = &snapshot->maps.items[i];
        struct gpucr_snapshot_code *code = &snapshot->codes[snapshot->code_count];
        if (!holds_code(map))
            continue;
        size_t size = map->end - map->start;
        if (size > sizeof(code->bytes))
            size = sizeof(code->bytes);
        ssize_t got = pread(fd, code->bytes, size, (off_t)map->start);
        /* Unreadable: device memory, or behind the end of its file. Nobody writes there either. */
        if (got <= 0)
            continue;
        code->address = map->start;
        code->size_bytes = (size_t)got;
        snapshot->code_count++;
    }
    return rc;
}

static int read_all(const struct gpucr_pids *tids, struct gpucr_snapshot *snapshot,
                    struct gpucr_error *err)
{
    struct gpucr_proc_stat stat;
    pid_t pid = snapshot->pid;
    /* The leader may be a zombie, without memory and descriptors; all threads share them. */
    pid_t alive = tids->ids[0];
    int rc = gpucr_proc_stat_read(pid, &stat, err);

    if (!rc)
        snapshot->start_ticks = stat.start_ticks;
    if (!rc)
        rc = read_threads(tids, snapshot, err);
    if (!rc)
        rc = gpucr_maps_read(alive, &snapshot->maps, err);
    if (!rc)
        rc = read_code(alive, snapshot, err);
    if (!rc)
        rc = gpucr_snapshot_fds_read(pid, alive, &snapshot->fds, err);
    if (!rc)
        rc = gpucr_snapshot_umask_read(alive, &snapshot->umask, err);
    return rc;
}

static int take_call(void *arg, struct gpucr_error *err)
{
    struct gpucr_snapshot *snapshot = arg;
    GPUCR_CLEANUP(gpucr_pids_done) struct gpucr_pids tids = {0};
    int rc = gpucr_fault("snapshot.take", err);

    if (!rc)
        rc = gpucr_stopped_wait(snapshot->pid, gpucr_deadline_in_ms(0), err);
    if (!rc)
        rc = gpucr_ptrace_seize_all(snapshot->pid, &tids, err);
    if (rc)
        return rc;
    rc = read_all(&tids, snapshot, err);
    gpucr_ptrace_detach_all(&tids);
    struct gpucr_error stopped = GPUCR_ERROR_INIT;
    int stopped_rc =
        gpucr_stopped_wait(snapshot->pid, gpucr_deadline_in_ms(GPUCR_PTRACE_VERIFY_MS), &stopped);
    /* That it died explains every other failure. */
    if (stopped_rc && (!rc || stopped_rc == GPUCR_ERR_TARGET_DIED)) {
        rc = stopped_rc;
        if (err)
            *err = stopped;
    }
    return rc;
}

struct gpucr_snapshot *gpucr_snapshot_free(struct gpucr_snapshot *snapshot)
{
    if (!snapshot)
        return NULL;
    for (size_t i = 0; i < snapshot->thread_count; i++)
        gpucr_thread_regs_done(&snapshot->threads[i].regs);
    free(snapshot->threads);
    gpucr_maps_done(&snapshot->maps);
    free(snapshot->codes);
    gpucr_snapshot_fds_done(&snapshot->fds);
    free(snapshot);
    return NULL;
}

int gpucr_snapshot_take(struct gpucr_tracer *tracer, pid_t pid, struct gpucr_snapshot **ret,
                        struct gpucr_error *err)
{
    struct gpucr_snapshot *snapshot = calloc(1, sizeof(*snapshot));

    if (!snapshot)
        return gpucr_error_no_memory(err);
    snapshot->pid = pid;
    int rc = gpucr_tracer_call(tracer, take_call, snapshot, err);
    if (rc) {
        (void)gpucr_snapshot_free(snapshot);
        return gpucr_error_wrap(err, rc, "cannot record the state of process %d", pid);
    }
    *ret = snapshot;
    return 0;
}
