/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How one process asks the driver of another. The mailbox is a variable in the library's data in
 * the target; an ELF note of the library says where, so that a caller needs only the target's
 * memory and mappings. Two eventfds of the target wake its restore thread and the caller. All of
 * this is ordinary memory and ordinary descriptors: CRIU saves and restores it.
 */
#ifndef SIM_MAILBOX_H
#define SIM_MAILBOX_H

#include "../common/sim_root.h"
#include "sim_cuda.h"

#include <stdatomic.h>
#include <stdint.h>

#define SIM_MAILBOX_VERSION 3
#define SIM_NOTE_NAME       "gpucr-sim"
#define SIM_NOTE_TYPE       SIM_MAILBOX_VERSION
#define SIM_TEXT(x)         #x
#define SIM_STRING(x)       SIM_TEXT(x)

struct sim_request {
    uint32_t call; /* enum sim_call */
    int32_t pid;   /* as the caller named the target */
    uint32_t timeout_ms;
    uint32_t pair_count;
    CUcheckpointGpuPair pair[SIM_GPU_MAX];
};

struct sim_answer {
    int32_t result;
    int32_t value; /* state or thread */
};

struct sim_mailbox {
    uint32_t version;
    uint32_t ready;
    uint64_t id;        /* of the target: names the lock of its callers */
    int32_t server_pid; /* as the target sees itself: differs in a fork() child */
    int32_t server_tid;
    int32_t wake_fd;
    int32_t answer_fd;
    struct sim_request request;
    struct sim_answer answer;
    _Atomic uint64_t asked; /* requests written */
    _Atomic uint64_t done;  /* requests answered */
    char root[SIM_PATH_MAX];
};

/*
 * Finds the mailbox of a process and reads it.
 * 0: *address and *mailbox are set; else a CUresult that says why there is none.
 */
CUresult sim_mailbox_locate(int pid, uint64_t *address, struct sim_mailbox *mailbox);

/* Read and write another process's memory; false when it is not (wholly) there. */
bool sim_remote_read(int pid, uint64_t address, void *buffer, size_t bytes);
bool sim_remote_write(int pid, uint64_t address, const void *buffer, size_t bytes);

#endif
