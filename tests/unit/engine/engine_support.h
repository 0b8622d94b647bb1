/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file engine_support.h
 * What the tests of the CRIU engine share: a folder with an empty image, a target
 * process that counts, and looking at both.
 */
#ifndef TESTS_UNIT_ENGINE_ENGINE_SUPPORT_H
#define TESTS_UNIT_ENGINE_ENGINE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine_target.h"

enum { FDS_TEXT_BYTES = 4096 };

/** A test's folder with img/ and work/, and the process that it handles. */
struct fixture {
    char dir[64];
    int images_fd;
    int work_fd;
    struct engine_target_page *page;
    pid_t pid; /* of the target, 0 none */
    struct gpucr_pids pids;
    struct gpucr_tracer *tracer;
    struct gpucr_engine *engine;
    struct gpucr_engine_log log;
    struct gpucr_error err;
    char fds[FDS_TEXT_BYTES]; /* the target's descriptors before */
};

/** Make the folder, bind criu at @p criu (NULL: none). */
void fixture_open(struct fixture *fixture, const char *criu);

/** Start the target with @p arguments behind the page's path, wait until it counts. */
void fixture_start(struct fixture *fixture, const char *const *arguments);

/** SIGSTOP and wait for T. */
void fixture_stop(struct fixture *fixture);

/** Empty img/ and work/. */
void fixture_empty(struct fixture *fixture);

/** Kill the target, close and remove everything. */
void fixture_close(struct fixture *fixture);

struct gpucr_engine_dump fixture_dump_request(struct fixture *fixture);
struct gpucr_engine_restore fixture_restore_request(struct fixture *fixture);

/** The state letter of a process, '-' if there is none. */
char state_of(pid_t pid);

/** All threads are T and nobody traces it; no mapping and no descriptor of criu is left. */
void assert_untouched(struct fixture *fixture);

/** SIGCONT @p pid: all its threads count on, its memory is right. */
void assert_goes_on(struct fixture *fixture, pid_t pid, size_t threads);

/** No process other than the target is a child of ours; the pid is free if @p gone. */
void assert_no_children(pid_t expected);

/** No table of criu is in the packet filter. */
void assert_no_tables(void);

/** A path of criu for tests with the real one, or NULL (the reason is printed). */
const char *real_criu(void);

void sleep_ms(unsigned ms);

#endif
