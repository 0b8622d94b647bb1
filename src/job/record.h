/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file record.h
 * What gpucr remembers of a suspended tree, in the state folder: who was stopped by
 * its owner before, which processes have CUDA state, how much device memory they
 * need. A record belongs to one boot and to processes by start time; one that does
 * not fit is ignored.
 */
#ifndef GPUCR_JOB_RECORD_H
#define GPUCR_JOB_RECORD_H

#include "job/job.h"

enum { GPUCR_RECORD_PROCESSES_MAX = GPUCR_TREE_MAX };

struct gpucr_record_process {
    int32_t pid;
    uint64_t start_ticks;
    bool was_stopped;
    bool is_cuda;
    uint32_t cuda_state; /* the state to end in */
    uint64_t device_bytes;
    uint32_t gpu_count;
    uint32_t gpus[GPUCR_GPUS_PER_PROCESS_MAX];
};

struct gpucr_record {
    int32_t root_pid;
    struct gpucr_record_process *processes;
    size_t count;
};

void gpucr_record_done(struct gpucr_record *record);

/** The record of the suspended tree that @p job holds. */
int gpucr_record_of_job(const struct gpucr_job *job, struct gpucr_record *ret,
                        struct gpucr_error *err);

/** Write it durably; an older record of the same root is replaced. */
int gpucr_record_write(const struct gpucr_job_options *options, const struct gpucr_record *record,
                       struct gpucr_error *err);

/** Read the record of @p root_pid. Returns 1 if there is one that fits this boot, 0 if not. */
int gpucr_record_read(const struct gpucr_job_options *options, int32_t root_pid,
                      struct gpucr_record *ret, struct gpucr_error *err);

/**
 * The record that names the process @p pid which began at @p start_ticks: its own, or that
 * of the tree with which it was suspended. Returns 1 if there is one, else 0.
 */
int gpucr_record_find(const struct gpucr_job_options *options, int32_t pid, uint64_t start_ticks,
                      struct gpucr_record *ret, struct gpucr_error *err);

/** Entry of that process, or NULL. */
const struct gpucr_record_process *gpucr_record_process(const struct gpucr_record *record,
                                                        int32_t pid, uint64_t start_ticks);

void gpucr_record_remove(const struct gpucr_job_options *options, int32_t root_pid);

/** Call @p fn for every record that fits this boot. */
int gpucr_record_walk(const struct gpucr_job_options *options,
                      void (*fn)(void *arg, const struct gpucr_record *record), void *arg,
                      struct gpucr_error *err);

/**
 * One gpucr per target: a lock that ends with the descriptor. GPUCR_ERR_BUSY names
 * the process that holds it. It is taken before the target is looked at: what was seen
 * while another one worked on it is not true any more.
 */
int gpucr_record_lock(const struct gpucr_job_options *options, int32_t pid, int *ret_fd,
                      struct gpucr_error *err);

/** Remove the lock's file and close it. Negative @p fd: nothing. */
void gpucr_record_unlock(const struct gpucr_job_options *options, int32_t pid, int fd);

#endif
