/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "cpu_threads.h"

#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256
#define SPIN_TURNS  20000

struct worker {
    _Atomic uint64_t count;
    _Atomic uint64_t bad;
    _Atomic uint32_t futex;
    int pipe[2];
};

static struct worker workers[THREADS_MAX];
static uint64_t worker_count;

/* Each thread counts twice: a difference means that its stack or registers were damaged. */
static void count_one(struct worker *worker, volatile uint64_t *mine)
{
    (*mine)++;
    if (atomic_fetch_add(&worker->count, 1) + 1 != *mine)
        atomic_fetch_add(&worker->bad, 1);
}

static void pause_ms(uint64_t ms)
{
    sample_sleep_until(sample_now_ns() + ms * 1000000, NULL);
}

static void *run_spin(void *arg)
{
    volatile uint64_t mine = 0;

    for (;;) {
        for (volatile int i = 0; i < SPIN_TURNS; i++)
            ;
        count_one(arg, &mine);
        pause_ms(1);
    }
    return NULL;
}

static void *run_futex(void *arg)
{
    struct worker *worker = arg;
    struct timespec limit = {.tv_nsec = 5000000};
    volatile uint64_t mine = 0;

    for (;;) {
        syscall(SYS_futex, &worker->futex, FUTEX_WAIT_PRIVATE, 0, &limit, NULL, 0);
        count_one(worker, &mine);
    }
    return NULL;
}

static void *run_sleep(void *arg)
{
    volatile uint64_t mine = 0;

    for (;;) {
        pause_ms(10);
        count_one(arg, &mine);
    }
    return NULL;
}

/* Blocks in a read until the next one of its kind has written; the first write is its own. */
static void *run_read(void *arg)
{
    struct worker *worker = arg;
    volatile uint64_t mine = 0;
    char byte = 'x';

    for (;;) {
        ssize_t done;

        pause_ms(5);
        do
            done = write(worker->pipe[1], &byte, 1);
        while (done < 0 && errno == EINTR);
        do
            done = read(worker->pipe[0], &byte, 1);
        while (done < 0 && errno == EINTR);
        if (done != 1)
            sample_die("call=read");
        count_one(worker, &mine);
    }
    return NULL;
}

static void *run_tick(void *arg)
{
    _Atomic uint64_t *ticks = arg;

    for (;;) {
        atomic_fetch_add(ticks, 1);
        sample_sleep_until(sample_now_ns() + 200000, NULL);
    }
    return NULL;
}

static void start(void *(*run)(void *arg), void *arg)
{
    pthread_t thread;
    pthread_attr_t attributes;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    if (pthread_create(&thread, &attributes, run, arg) != 0)
        sample_die("call=pthread_create");
    pthread_attr_destroy(&attributes);
    pthread_detach(thread);
}

static void start_ticks(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    void *map;

    if (fd < 0 || ftruncate(fd, 4096) != 0)
        sample_die("call=open path=%s", path);
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        sample_die("call=mmap path=%s", path);
    start(run_tick, map);
}

void cpu_threads_start(uint64_t count, const char *tick_file)
{
    static void *(*const kinds[])(void *arg) = {run_spin, run_futex, run_sleep, run_read};

    if (count > THREADS_MAX)
        sample_die("call=threads count=%llu", (unsigned long long)count);
    worker_count = count;
    for (uint64_t i = 0; i < count; i++) {
        if (kinds[i % 4] == run_read && pipe2(workers[i].pipe, O_CLOEXEC) != 0)
            sample_die("call=pipe");
        start(kinds[i % 4], &workers[i]);
    }
    if (tick_file)
        start_ticks(tick_file);
}

uint64_t cpu_threads_progress(void)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < worker_count; i++)
        sum += atomic_load(&workers[i].count);
    return sum;
}

uint64_t cpu_threads_bad(void)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < worker_count; i++)
        sum += atomic_load(&workers[i].bad) != 0;
    return sum;
}
