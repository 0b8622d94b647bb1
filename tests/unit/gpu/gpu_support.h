/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file gpu_support.h
 * For the tests of the gpu layer: the fake driver, and child processes that look
 * like CUDA processes to /proc.
 */
#ifndef GPUCR_TEST_GPU_SUPPORT_H
#define GPUCR_TEST_GPU_SUPPORT_H

#include <stddef.h>
#include <sys/types.h>

#include "fake_cuda.h"
#include "gpu/driver.h"

/** The fake library's own functions. */
struct fake {
    void *handle;
    void (*reset)(void);
    void (*set_version)(int value);
    void (*set_self_code)(int code);
    void (*set_state)(int pid, int state);
    int (*state)(int pid);
    void (*script)(const struct fake_script *script);
    struct fake_seen (*seen)(void);
};

/** Load the fake from the folder @p root; ends the test program if it cannot. */
struct fake fake_load(const char *root);

/** Answer @p code to each @p call on @p pid from now on. */
void fake_answer(const struct fake *fake, const char *call, int pid, int code);

/**
 * Start a child that does nothing, with a thread named like the driver's. With
 * @p leader_ends its first thread ends while the others go on.
 */
pid_t child_start(bool leader_ends);

/** End and reap it. */
void child_end(pid_t pid);

/** Stop or continue it, and wait until /proc shows it. */
void child_stop(pid_t pid);
void child_continue(pid_t pid);

/** State letter of /proc/PID/stat. */
char child_state(pid_t pid);

#endif
