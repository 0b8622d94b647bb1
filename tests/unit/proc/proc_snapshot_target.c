/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program that checks itself: threads that compute and wait in several ways and
 * count what may not happen. Its counters are in the file given as argument. A
 * program of its own, without sanitizers, as CRIU cannot dump their terabytes.
 */
#include "proc_snapshot_target.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct target_board *board;

static void check(int slot, int right)
{
    board->rounds[slot]++;
    if (!right)
        board->wrong[slot]++;
}

static void *compute(void *arg)
{
    int slot = (int)(intptr_t)arg;
    uint64_t first_hash = 0;
    double first_sum = 0;

    for (;;) {
        uint64_t hash = 1;
        double sum = 0;
        for (int i = 1; i <= 20000; i++) {
            hash = hash * 6364136223846793005ull + (uint64_t)i;
            sum += 1.0 / (double)i;
        }
        if (!first_hash) {
            first_hash = hash;
            first_sum = sum;
        }
        check(slot, hash == first_hash && sum == first_sum);
    }
    return NULL;
}

/* 4 MiB that are rewritten and read back. */
static void *use_memory(void *arg)
{
    enum { WORDS = 512 * 1024 };
    int slot = (int)(intptr_t)arg;
    uint64_t *words = malloc(WORDS * sizeof(words[0]));

    for (uint64_t round = 1; words; round++) {
        int right = 1;
        for (uint64_t i = 0; i < WORDS; i++)
            words[i] = i * round;
        for (uint64_t i = 0; i < WORDS; i++)
            right &= words[i] == i * round;
        check(slot, right);
    }
    return NULL;
}

static void *sleep_often(void *arg)
{
    int slot = (int)(intptr_t)arg;

    for (;;) {
        struct timespec t = {.tv_nsec = 2000000};
        int rc = nanosleep(&t, NULL);
        /* EINTR is what CRIU's own dump leaves behind in a relative sleep. */
        check(slot, !rc || errno == EINTR);
    }
    return NULL;
}

/* The red zone below the stack pointer. */
static void *use_red_zone(void *arg)
{
    int slot = (int)(intptr_t)arg;

    for (;;) {
        uint64_t got = 0;
        __asm__ volatile("movq $0x1234567, -8(%%rsp)\n"
                         "movq $0x89abcde, -120(%%rsp)\n"
                         "movl $20000, %%ecx\n"
                         "1: decl %%ecx\n"
                         "jnz 1b\n"
                         "movq -8(%%rsp), %0\n"
                         "addq -120(%%rsp), %0\n"
                         : "=&r"(got)
                         :
                         : "rcx", "memory", "cc");
        check(slot, got == 0x1234567ull + 0x89abcdeull);
    }
    return NULL;
}

static void *wait_for_word(void *arg)
{
    int slot = (int)(intptr_t)arg;

    for (;;) {
        uint32_t value = board->word;
        long rc = syscall(SYS_futex, &board->word, FUTEX_WAIT, value, NULL, NULL, 0);
        check(slot, (!rc && board->word != value) || (rc < 0 && errno == EAGAIN));
    }
    return NULL;
}

static void *read_for_ever(void *arg)
{
    int slot = (int)(intptr_t)arg;
    int fds[2];
    char byte;

    if (pipe(fds))
        abort();
    for (;;) {
        ssize_t rc = read(fds[0], &byte, 1);
        (void)rc;
        check(slot, 0);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static void *(*const bodies[])(void *) = {compute,      use_memory,    sleep_often,
                                              use_red_zone, wait_for_word, read_for_ever};
    int count = (int)(sizeof(bodies) / sizeof(bodies[0]));
    pthread_t thread;

    int fd = argc == 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return 1;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (board == MAP_FAILED)
        return 1;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup(0) != 3)
        return 1;
    /* Mappings that CRIU makes readable for a moment, with something in them. */
    char *hidden = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (hidden == MAP_FAILED)
        return 1;
    hidden[0] = hidden[40960] = 'x';
    (void)mprotect(hidden, 65536, PROT_NONE);
    (void)umask(027);
    for (int i = 0; i < count; i++)
        (void)pthread_create(&thread, NULL, bodies[i], (void *)(intptr_t)(i + 1));
    board->thread_count = (uint32_t)count + 1;
    board->ready = 1;
    for (;;) {
        struct timespec t = {.tv_nsec = 1000000};
        (void)nanosleep(&t, NULL);
        check(0, umask(027) == 027);
        if (board->leader_ends)
            pthread_exit(NULL);
    }
}
