/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Short-lived threads of the restore thread. They are made by clone() on stacks that are kept, not
 * by pthread_create(): an application thread may be stopped while it holds a lock of the C library,
 * and the restore thread must get through all the same.
 *
 * They share the thread-local storage of the restore thread, which does nothing but wait meanwhile.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_BYTES (256u << 10)

static uint8_t *stacks;

struct job {
    void (*work)(void *arg);
    void *arg;
};

bool sim_helpers_prepare(void)
{
    void *area;

    if (stacks)
        return true;
    area = mmap(NULL, (size_t)SIM_HELPER_COUNT * STACK_BYTES, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (area == MAP_FAILED)
        return false;
    stacks = area;
    return true;
}

static int helper_main(void *arg)
{
    const struct job *job = arg;

    job->work(job->arg);
    return 0;
}

static void join(_Atomic int *tid)
{
    int value;

    while ((value = atomic_load(tid)) != 0)
        syscall(SYS_futex, tid, FUTEX_WAIT, value, NULL, NULL, 0);
}

void sim_helpers_run(void (*work)(void *arg), void *arg)
{
    const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                      CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    struct job job = {.work = work, .arg = arg};
    _Atomic int tid[SIM_HELPER_COUNT] = {0};
    int started = 0;

    for (int i = 0; i < SIM_HELPER_COUNT; i++) {
        uint8_t *top = stacks + (size_t)(i + 1) * STACK_BYTES;

        if (clone(helper_main, top, flags, &job, &tid[i], NULL, &tid[i]) >= 0)
            started++;
    }
    for (int i = 0; i < SIM_HELPER_COUNT; i++)
        join(&tid[i]);
    if (!started)
        work(arg);
}
