/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program to be dumped and restored: counts in several threads, in private memory,
 * and shows the counts in a file that it shares with the test.
 *
 *   engine_target FILE [THREADS [MIB [tcp|lock|deleted|tree]]]
 *
 * It starts a session of its own with /dev/null as its only descriptors, as a
 * descriptor from elsewhere (a pipe of the test runner) would fail the dump. With
 * "tcp" it keeps a TCP connection over the loopback to itself and sends a byte for
 * every count of thread 0; with "lock" it holds a lock on FILE; with "deleted" it has
 * FILE.gone open, which has a second name FILE.other; with "tree" it has a child that
 * counts in the place behind the threads, and a zombie.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine_target.h"

static struct engine_target_page *page;
static unsigned char *memory;
static size_t memory_bytes;
static int tcp_ends[2] = {-1, -1};

static void pause_ms(long ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static void *count(void *arg)
{
    size_t index = (size_t)(uintptr_t)arg;
    uint64_t mine = 0; /* private: lost if the memory is not restored */

    for (;;) {
        mine++;
        __atomic_store_n(&page->counts[index], mine, __ATOMIC_SEQ_CST);
        pause_ms(1);
    }
    return NULL;
}

/* A stop interrupts a call that has a time limit. */
static int receive_byte(unsigned char *byte)
{
    ssize_t size;

    do {
        size = recv(tcp_ends[1], byte, 1, 0);
    } while (size < 0 && errno == EINTR);
    return size == 1 ? 0 : -1;
}

/* A byte there and back; the count of bytes that arrived as they were sent is shown. */
static void exchange(uint64_t round)
{
    unsigned char sent = (unsigned char)round;
    unsigned char got = 0;

    errno = 0;
    if (send(tcp_ends[0], &sent, 1, MSG_NOSIGNAL) == 1 && receive_byte(&got) == 0 && got == sent)
        __atomic_add_fetch(&page->exchanged, 1, __ATOMIC_SEQ_CST);
    else
        __atomic_store_n(&page->broken, errno ? errno : -1, __ATOMIC_SEQ_CST);
}

static int connect_self(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    struct timeval limit = {.tv_sec = 20};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;

    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        return -1;
    tcp_ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(tcp_ends[0], (struct sockaddr *)&address, size) != 0)
        return -1;
    tcp_ends[1] = accept(listener, NULL, NULL);
    close(listener);
    return setsockopt(tcp_ends[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

/* A lock that criu does not dump unasked. */
static int lock_file(const char *path)
{
    int fd = open(path, O_RDWR);

    return fd < 0 ? -1 : flock(fd, LOCK_EX);
}

/* A file without the name under which it was opened, but with another. */
static int open_deleted(const char *path)
{
    char gone[256];
    char other[256];

    snprintf(gone, sizeof(gone), "%s.gone", path);
    snprintf(other, sizeof(other), "%s.other", path);
    if (open(gone, O_RDWR | O_CREAT, 0600) < 0 || link(gone, other) != 0)
        return -1;
    return unlink(gone);
}

static int make_tree(size_t index)
{
    pid_t child = fork();

    if (child == 0)
        count((void *)(uintptr_t)index);
    if (child < 0)
        return -1;
    child = fork();
    if (child == 0)
        _exit(7);
    return child < 0 ? -1 : 0;
}

static int prepare(const char *what, const char *path, size_t threads)
{
    if (strcmp(what, "tree") == 0)
        return make_tree(threads);
    if (strcmp(what, "tcp") == 0)
        return connect_self();
    if (strcmp(what, "lock") == 0)
        return lock_file(path);
    if (strcmp(what, "deleted") == 0)
        return open_deleted(path);
    return -1;
}

static int clean_fds(void)
{
    int fd = open("/dev/null", O_RDWR);

    for (int i = 0; i < 3; i++) {
        if (fd < 0 || dup2(fd, i) < 0)
            return -1;
    }
    return syscall(SYS_close_range, 3U, ~0U, 0U) == 0 ? 0 : -1;
}

static int map_page(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    if (fd < 0 || ftruncate(fd, sizeof(*page)) != 0)
        return -1;
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return page == MAP_FAILED ? -1 : 0;
}

static int fill_memory(size_t mib)
{
    uint32_t value = 1;

    memory_bytes = mib << 20;
    if (memory_bytes == 0)
        return 0;
    memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -1;
    for (size_t i = 0; i < memory_bytes; i += 4) {
        value = value * 1664525u + 1013904223u;
        memcpy(memory + i, &value, 4);
    }
    return 0;
}

static int memory_is_good(void)
{
    uint32_t value = 1;

    for (size_t i = 0; i < memory_bytes; i += 4) {
        value = value * 1664525u + 1013904223u;
        if (memcmp(memory + i, &value, 4) != 0)
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    size_t threads = argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : 1;
    size_t mib = argc > 3 ? (size_t)strtoul(argv[3], NULL, 10) : 0;

    if (argc < 2 || threads > ENGINE_TARGET_THREADS_MAX || setsid() < 0 || chdir("/") != 0 ||
        clean_fds() != 0 || map_page(argv[1]) != 0 || fill_memory(mib) != 0)
        return 1;
    if (argc > 4 && prepare(argv[4], argv[1], threads) != 0)
        return 1;
    for (size_t i = 1; i < threads; i++) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, count, (void *)(uintptr_t)i) != 0)
            return 1;
    }
    __atomic_store_n(&page->pid, getpid(), __ATOMIC_SEQ_CST);
    for (uint64_t mine = 1;; mine++) {
        if (tcp_ends[0] >= 0)
            exchange(mine);
        __atomic_store_n(&page->counts[0], mine, __ATOMIC_SEQ_CST);
        if (page->verify_wanted != page->verify_done) {
            page->memory_good = memory_is_good();
            __atomic_store_n(&page->verify_done, page->verify_wanted, __ATOMIC_SEQ_CST);
        }
        pause_ms(1);
    }
}
