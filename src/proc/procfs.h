/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file procfs.h
 * What /proc says of processes, threads, descriptors and mappings.
 *
 * All readers tolerate that the process changes or ends meanwhile: a vanished
 * process is GPUCR_ERR_NOT_FOUND, a vanished thread or descriptor is left out.
 * The limits below bound every list; passing one is an error, never a cut.
 */
#ifndef GPUCR_PROC_PROCFS_H
#define GPUCR_PROC_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum {
    GPUCR_PROC_COMM_BYTES = 65, /* kernel threads have longer names than 15 */
    GPUCR_PROC_NS_LEVELS_MAX = 32,
    GPUCR_PROC_PIDS_MAX = 4194304,
    GPUCR_PROC_THREADS_MAX = 131072,
    GPUCR_PROC_FDS_MAX = 1048576,
    GPUCR_PROC_MAPS_BYTES_MAX = 256 << 20,
};

/** From /proc/PID/stat (or /proc/PID/task/TID/stat). */
struct gpucr_proc_stat {
    pid_t pid;
    pid_t parent_pid;
    pid_t group; /* process group */
    pid_t session;
    int32_t tty;
    char state; /* R S D T t Z X I */
    char comm[GPUCR_PROC_COMM_BYTES];
    uint32_t thread_count;
    uint64_t start_ticks;
    uint64_t rss_bytes;
    bool kernel_thread;
};

int gpucr_proc_stat_read(pid_t pid, struct gpucr_proc_stat *ret, struct gpucr_error *err);
int gpucr_task_stat_read(pid_t pid, pid_t tid, struct gpucr_proc_stat *ret,
                         struct gpucr_error *err);

/** From /proc/PID/status. */
struct gpucr_proc_status {
    uid_t uid[4]; /* real, effective, saved, fs */
    gid_t gid[4];
    pid_t tracer_pid; /* of the very thread that traces, not of its process */
    pid_t ns_pids[GPUCR_PROC_NS_LEVELS_MAX]; /* NSpid: outermost first, as this /proc shows it */
    uint32_t ns_level_count;
    uint64_t rss_bytes;
    uint64_t locked_bytes;
    uint64_t signals_caught;  /* SigCgt */
    uint64_t signals_blocked; /* SigBlk */
    uint32_t seccomp;         /* 0 none, 1 strict, 2 filter */
    pid_t pid;                /* Tgid: of the process, also when a thread was asked for */
    uint64_t switches;        /* context switches so far: it grows when the thread ran */
};

int gpucr_proc_status_read(pid_t pid, struct gpucr_proc_status *ret, struct gpucr_error *err);
int gpucr_task_status_read(pid_t pid, pid_t tid, struct gpucr_proc_status *ret,
                           struct gpucr_error *err);

/** A list of pids or tids. */
struct gpucr_pids {
    pid_t *ids;
    size_t count;
    size_t capacity;
};

void gpucr_pids_done(struct gpucr_pids *pids);
int gpucr_pids_add(struct gpucr_pids *pids, pid_t id, struct gpucr_error *err);
bool gpucr_pids_contain(const struct gpucr_pids *pids, pid_t id);

/** All processes of this /proc, ascending. */
int gpucr_proc_list(struct gpucr_pids *ret, struct gpucr_error *err);

/** All threads of a process, ascending. */
int gpucr_task_list(pid_t pid, struct gpucr_pids *ret, struct gpucr_error *err);

/** One line of /proc/PID/maps. */
struct gpucr_mapping {
    uint64_t start;
    uint64_t end;
    bool readable, writable, executable, shared;
    uint64_t offset;
    uint32_t dev_major, dev_minor;
    uint64_t inode;
    const char *path; /* in the list's text; "" for anonymous; as the kernel says it, so that
                         " (deleted)" may follow the name; \012 is turned into a newline */
    bool deleted;     /* the path ends so: the file has no name any more */
};

struct gpucr_maps {
    struct gpucr_mapping *items;
    size_t count;
    char *text;
};

int gpucr_maps_read(pid_t pid, struct gpucr_maps *ret, struct gpucr_error *err);
void gpucr_maps_done(struct gpucr_maps *maps);

/**
 * Call @p fn for each descriptor of a thread with what its link says; a non-zero
 * return ends the walk and is returned. Descriptors that vanish are left out.
 */
typedef int (*gpucr_fd_fn)(void *arg, int fd, const char *target);
int gpucr_fds_walk(pid_t pid, pid_t tid, gpucr_fd_fn fn, void *arg, struct gpucr_error *err);

/** Kernel function in which the thread waits, "" if unknown. */
void gpucr_wchan_read(pid_t pid, pid_t tid, char *ret, size_t size);

/** First words of the command line with spaces, or "[comm]"; control characters become '?'. */
void gpucr_cmdline_read(pid_t pid, char *ret, size_t size);

/** Does the name have the form of the driver's restore thread ("cuda" + 11 hex digits)? */
bool gpucr_comm_is_restore_thread(const char *comm);

/** Is it any of the driver's own threads that must run while the driver works? */
bool gpucr_comm_is_driver_thread(const char *comm);

/** Value of /proc/sys/kernel/random/boot_id (36 characters). */
int gpucr_boot_id_read(char ret[37], struct gpucr_error *err);

#endif
