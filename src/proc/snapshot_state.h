/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file snapshot_state.h
 * What a snapshot holds; only for snapshot.c and snapshot_repair.c.
 */
#ifndef GPUCR_PROC_SNAPSHOT_STATE_H
#define GPUCR_PROC_SNAPSHOT_STATE_H

#include "proc/regs.h"
#include "proc/snapshot.h"

enum {
    GPUCR_SNAPSHOT_CODE_BYTES = 4096, /* of each executable mapping */
    GPUCR_SNAPSHOT_CODES_MAX = 512,   /* the lowest ones: CRIU takes the first */
};

struct gpucr_snapshot_thread {
    pid_t tid;
    struct gpucr_thread_regs regs;
    uint64_t faults_pending; /* signals of its own faults that wait to be taken */
};

struct gpucr_snapshot_code {
    uint64_t address;
    size_t size_bytes;
    unsigned char bytes[GPUCR_SNAPSHOT_CODE_BYTES];
};

struct gpucr_snapshot_fd {
    int fd;
    char *target;
};

struct gpucr_snapshot_fds {
    struct gpucr_snapshot_fd *items;
    size_t count, capacity;
};

struct gpucr_snapshot {
    pid_t pid;
    uint64_t start_ticks;
    uint64_t umask;
    struct gpucr_snapshot_thread *threads;
    size_t thread_count;
    struct gpucr_maps maps;
    struct gpucr_snapshot_code *codes;
    size_t code_count;
    struct gpucr_snapshot_fds fds;
};

/** Descriptors of a thread, ascending. */
int gpucr_snapshot_fds_read(pid_t pid, pid_t tid, struct gpucr_snapshot_fds *ret,
                            struct gpucr_error *err);
void gpucr_snapshot_fds_done(struct gpucr_snapshot_fds *fds);

/** The file creation mask, from /proc/PID/status (Linux 4.7). */
int gpucr_snapshot_umask_read(pid_t pid, uint64_t *ret, struct gpucr_error *err);

/** Signals of its own faults (SIGTRAP, SIGSEGV…) pending for a thread. */
int gpucr_snapshot_faults_read(pid_t pid, pid_t tid, uint64_t *ret, struct gpucr_error *err);

/** /proc/PID/mem, for code that is not readable too. */
int gpucr_snapshot_memory_open(pid_t pid, int *ret_fd, struct gpucr_error *err);

#endif
