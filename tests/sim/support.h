/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the tests of the simulated driver share: a root, programs in it, and the driver's calls. */
#ifndef SIM_TEST_SUPPORT_H
#define SIM_TEST_SUPPORT_H

#include "../../sim/driver/sim_cuda.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* Ends the test with a message when the condition does not hold. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            test_fail(__FILE__, __LINE__, #condition);                                             \
    } while (0)
#define CHECK_EQUAL(wanted, got)                                                                   \
    test_check_equal(__FILE__, __LINE__, #got, (long long)(wanted), (long long)(got))

__attribute__((noreturn)) void test_fail(const char *file, int line, const char *what);
void test_check_equal(const char *file, int line, const char *what, long long wanted,
                      long long got);

/* Makes a simulated root, removed at the end of the test, and enters its environment. */
void test_root_create(unsigned gpus, const char *vram);
const char *test_root(void);
/* Appends a line to the root's configuration. */
void test_config_add(const char *line);
/* Replaces the fault rules; NULL: none. */
void test_faults_set(const char *rules);

struct test_program {
    pid_t pid;
    int out;
    char line[1024]; /* the last line read */
};

/* Starts a sample (arguments split at spaces) and waits until it is ready. */
struct test_program test_program_start(const char *command);
/* Reads lines until one begins with prefix; false after the time-out or the end. */
bool test_program_expect(struct test_program *program, const char *prefix, unsigned timeout_ms);
/* Has it verify and checks that all is well; returns the counter. */
uint64_t test_program_verify(struct test_program *program);
/* The number after "name=" in the last line. */
uint64_t test_program_field(const struct test_program *program, const char *name);
/* Ends it by SIGUSR2 and checks that it ends well. */
void test_program_end(struct test_program *program);
/* Kills it; returns the status of wait(). */
int test_program_kill(struct test_program *program);
/* Waits for its death; -1 when it lives on after the time-out. */
int test_program_wait(struct test_program *program, unsigned timeout_ms);

/* The driver as a caller binds it. */
struct test_driver {
    CUresult (*init)(unsigned flags);
    CUresult (*get_state)(int pid, CUprocessState *state);
    CUresult (*get_tid)(int pid, int *tid);
    CUresult (*lock)(int pid, CUcheckpointLockArgs *args);
    CUresult (*checkpoint)(int pid, CUcheckpointCheckpointArgs *args);
    CUresult (*restore)(int pid, CUcheckpointRestoreArgs *args);
    CUresult (*unlock)(int pid, CUcheckpointUnlockArgs *args);
};

const struct test_driver *test_driver(void);
/* Any symbol of the library. */
void *test_symbol(const char *name);
int test_state(int pid);
CUresult test_lock(int pid, unsigned timeout_ms);
CUresult test_checkpoint(int pid);
CUresult test_restore(int pid);
CUresult test_unlock(int pid);

/* What /proc shows of a process. */
struct test_look {
    unsigned device_fds;
    unsigned device_maps;
    unsigned event_fds;
    unsigned arena_maps;
    uint64_t private_bytes; /* private anonymous rw-p mappings */
};
struct test_look test_look(pid_t pid);

/* Bytes in use on a GPU as NVML says, and whether the pid is among its processes. */
uint64_t test_vram_used(unsigned gpu);
bool test_vram_has(unsigned gpu, pid_t pid);

/*
 * The hold: stops the process, then lets only the driver's threads run under a tracer with all
 * signals blocked. The calling thread is the tracer; run makes the driver call on another thread.
 */
void test_hold_begin(pid_t pid);
CUresult test_hold_call(CUresult (*run)(int pid), pid_t pid);
/* Leaves every thread stopped. Returns how many threads were created meanwhile. */
unsigned test_hold_end(void);
bool test_all_stopped(pid_t pid);

uint64_t test_now_ms(void);
void test_sleep_ms(unsigned ms);

#endif
