/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The sample programs in all their ways, each put away and brought back. */
#define _GNU_SOURCE
#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int children(pid_t parent, pid_t *list, int capacity)
{
    char path[64], text[512] = "";
    int count = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", parent, parent);
    file = fopen(path, "re");
    CHECK(file);
    if (!fgets(text, sizeof(text), file))
        text[0] = '\0';
    fclose(file);
    for (char *at = text, *end; count < capacity; at = end) {
        long pid = strtol(at, &end, 10);

        if (end == at)
            break;
        list[count++] = (pid_t)pid;
    }
    return count;
}

static void check_tree(void)
{
    struct test_program program =
        test_program_start("counter --mib 16 --fork-tree cuda=2,cpu=1 --timer-us 2000");
    pid_t pids[8] = {program.pid};
    int count = 1 + children(program.pid, pids + 1, 7), cuda = 0;

    CHECK_EQUAL(4, count);
    for (int i = 0; i < count; i++) {
        CUprocessState state;

        if (test_driver()->get_state(pids[i], &state) != 0)
            continue;
        cuda++;
        CHECK_EQUAL(0, test_lock(pids[i], 5000));
        CHECK_EQUAL(0, test_checkpoint(pids[i]));
    }
    CHECK_EQUAL(3, cuda);
    CHECK_EQUAL(0, test_vram_used(0));
    for (int i = 0; i < cuda; i++) {
        CHECK_EQUAL(0, test_restore(pids[i]));
        CHECK_EQUAL(0, test_unlock(pids[i]));
    }
    kill(program.pid, SIGUSR1);
    for (int i = 0; i < 3; i++) {
        CHECK(test_program_expect(&program, "child verify ", 20000));
        CHECK_EQUAL(0, test_program_field(&program, "bad"));
        CHECK_EQUAL(test_program_field(&program, "expected"),
                    test_program_field(&program, "counter"));
    }
    CHECK(test_program_expect(&program, "tree processes=4", 1000));
    CHECK_EQUAL(4, test_program_field(&program, "answered"));
    CHECK(test_program_expect(&program, "verify ", 1000));
    CHECK_EQUAL(0, test_program_field(&program, "bad"));
    test_program_end(&program);
}

/* The tick file shows from outside that a process stands still. */
static void check_ticks(void)
{
    char command[400], path[300];
    struct test_program program;
    volatile uint64_t *ticks;
    uint64_t before;
    int fd;

    snprintf(path, sizeof(path), "%s/ticks", test_root());
    snprintf(command, sizeof(command), "counter --mib 4 --threads 8 --tick-file %s", path);
    program = test_program_start(command);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    ticks = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(ticks != MAP_FAILED);
    before = *ticks;
    test_sleep_ms(50);
    CHECK(*ticks > before);
    CHECK_EQUAL(0, test_lock(program.pid, 5000));
    test_hold_begin(program.pid);
    before = *ticks;
    CHECK_EQUAL(0, test_hold_call(test_checkpoint, program.pid));
    test_sleep_ms(50);
    CHECK_EQUAL(0, test_hold_call(test_restore, program.pid));
    CHECK_EQUAL(0, test_hold_call(test_unlock, program.pid));
    test_hold_end();
    CHECK_EQUAL(before, *ticks);
    kill(program.pid, SIGCONT);
    test_sleep_ms(50);
    CHECK(*ticks > before);
    test_program_verify(&program);
    test_program_end(&program);
}

/* What the application opened itself stays open, as it does with the real driver. */
static void check_leftover(void)
{
    char command[400];
    struct test_program program;

    snprintf(command, sizeof(command),
             "counter --mib 4 --host 1048576 --leftover-fd %s/dev/nvidiactl", test_root());
    program = test_program_start(command);
    CHECK_EQUAL(0, test_lock(program.pid, 5000));
    CHECK_EQUAL(0, test_checkpoint(program.pid));
    CHECK_EQUAL(1, test_look(program.pid).device_fds);
    CHECK_EQUAL(0, test_restore(program.pid));
    CHECK_EQUAL(0, test_unlock(program.pid));
    test_program_verify(&program);
    CHECK_EQUAL(0, test_program_field(&program, "host_bad"));
    test_program_end(&program);
}

static void check_signals(void)
{
    struct test_program program =
        test_program_start("cpuonly --threads 4 --timer-us 1000 --term-counter");

    kill(program.pid, SIGTERM);
    test_sleep_ms(100);
    test_program_verify(&program);
    CHECK_EQUAL(1, test_program_field(&program, "term"));
    CHECK(test_program_field(&program, "timer") > 10);
    CHECK(test_program_field(&program, "threads") > 10);
    CHECK_EQUAL(0, test_program_field(&program, "thread_bad"));
    test_program_end(&program);
}

int main(void)
{
    test_root_create(1, "2GiB");
    CHECK_EQUAL(0, test_driver()->init(0));
    check_tree();
    check_ticks();
    check_leftover();
    check_signals();
    return 0;
}
