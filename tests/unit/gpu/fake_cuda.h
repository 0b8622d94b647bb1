/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file fake_cuda.h
 * How a test controls the fake driver library it has loaded; the functions are found
 * by dlsym in the library.
 */
#ifndef GPUCR_TEST_FAKE_CUDA_H
#define GPUCR_TEST_FAKE_CUDA_H

#include <stdbool.h>

#define FAKE_EXPORT __attribute__((visibility("default")))

/** What a call answers instead of what the rules say. */
struct fake_script {
    const char *call; /* "lock" */
    int pid;          /* 0: any */
    int code;         /* CUresult, -1: by the rules, after the side effects */
    int times;        /* how often; -1: always */
    unsigned sleep_ms;
    int signal;    /* sent to the process first; 0: none */
    int new_state; /* state the process gets, -1: none */
    bool hangs_while_others_locked;
};

/** What the library saw. */
struct fake_seen {
    int calls;
    int in_flight;
    int in_flight_max;
    int inits;
    int unlocks;
    unsigned lock_timeout_ms;
    unsigned pair_count;
    unsigned char pair_first;
    unsigned char pair_last;
};

FAKE_EXPORT void fake_reset(void);
FAKE_EXPORT void fake_set_version(int value);
FAKE_EXPORT void fake_set_self_code(int code);
FAKE_EXPORT void fake_set_state(int pid, int state);
FAKE_EXPORT int fake_state(int pid);
FAKE_EXPORT void fake_script(const struct fake_script *script);
FAKE_EXPORT struct fake_seen fake_seen(void);

FAKE_EXPORT int cuDriverGetVersion(int *ret);
FAKE_EXPORT int cuInit(unsigned flags);

struct gpucr_cu_lock_args;
struct gpucr_cu_checkpoint_args;
struct gpucr_cu_restore_args;
struct gpucr_cu_unlock_args;
FAKE_EXPORT int cuCheckpointProcessGetState(int pid, int *ret);
FAKE_EXPORT int cuCheckpointProcessGetRestoreThreadId(int pid, int *ret);
FAKE_EXPORT int cuCheckpointProcessLock(int pid, struct gpucr_cu_lock_args *args);
FAKE_EXPORT int cuCheckpointProcessCheckpoint(int pid, struct gpucr_cu_checkpoint_args *args);
FAKE_EXPORT int cuCheckpointProcessRestore(int pid, struct gpucr_cu_restore_args *args);
FAKE_EXPORT int cuCheckpointProcessUnlock(int pid, struct gpucr_cu_unlock_args *args);

#endif
