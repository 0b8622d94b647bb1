/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "sim_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t sim_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void sim_sleep_until_ns(uint64_t when_ns)
{
    struct timespec when = {.tv_sec = (time_t)(when_ns / 1000000000ull),
                            .tv_nsec = (long)(when_ns % 1000000000ull)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
        ;
}

void sim_sleep_ms(uint64_t ms)
{
    if (ms)
        sim_sleep_until_ns(sim_now_ns() + ms * SIM_NS_PER_MS);
}

void sim_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000ull),
                             .tv_nsec = (long)(timeout_ns % 1000000000ull)};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout_ns ? &limit : NULL, NULL, 0);
}

void sim_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7fffffff, NULL, NULL, 0);
}

ssize_t sim_read_file(const char *path, char *buffer, size_t capacity)
{
    size_t have = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    while (have + 1 < capacity) {
        ssize_t got = read(fd, buffer + have, capacity - 1 - have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    close(fd);
    buffer[have] = '\0';
    return (ssize_t)have;
}

int sim_open_shared(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    if (fd >= 0 && fchmod(fd, 0666) != 0) {
        /* Not its owner: then the owner has undone the effect of the umask already. */
    }
    return fd;
}

static int64_t parse_signed(const char **at)
{
    bool negative;
    int64_t value = 0;

    *at += strspn(*at, " \t");
    negative = **at == '-';
    for (*at += negative; **at >= '0' && **at <= '9'; (*at)++)
        value = value * 10 + (**at - '0');
    return negative ? -value : value;
}

/* How far the clocks of our time namespace are ahead of the machine's, in ticks of 10 ms. */
static int64_t clock_offset_ticks(void)
{
    char text[256];
    const char *at;
    int64_t seconds;

    if (sim_read_file("/proc/self/timens_offsets", text, sizeof(text)) <= 0)
        return 0;
    at = strstr(text, "boottime");
    if (!at)
        return 0;
    at += strlen("boottime");
    seconds = parse_signed(&at);
    return seconds * 100 + parse_signed(&at) / 10000000;
}

bool sim_same_start(uint64_t left, uint64_t right)
{
    /* Offsets have nanoseconds, start times ticks: the last digits are rounded. */
    return left && right && left - right + 2 <= 4;
}

uint64_t sim_start_time(int pid)
{
    char path[64], text[1024];
    const char *at;

    if (pid)
        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    else
        snprintf(path, sizeof(path), "/proc/self/stat");
    if (sim_read_file(path, text, sizeof(text)) <= 0)
        return 0;
    /* The name may hold spaces and parentheses: fields are counted from the last one. */
    at = strrchr(text, ')');
    /* A zombie has let its memory go: it counts as dead. */
    if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
        return 0;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return 0;

    uint64_t value = 0;
    for (at++; *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    return value - (uint64_t)clock_offset_ticks();
}

int sim_inner_pid(const char *status_path)
{
    char text[4096];
    const char *line;
    int last = -1;

    if (sim_read_file(status_path, text, sizeof(text)) <= 0)
        return -1;
    line = strstr(text, "\nNSpid:");
    if (!line)
        return -1;
    for (line += 7; *line && *line != '\n';) {
        if (*line < '0' || *line > '9') {
            line++;
            continue;
        }
        for (last = 0; *line >= '0' && *line <= '9'; line++)
            last = last * 10 + (*line - '0');
    }
    return last;
}

struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

int sim_each_entry(const char *path, int (*visit)(const char *name, void *arg), void *arg)
{
    _Alignas(8) char buffer[8192];
    int found = -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    for (;;) {
        long got = syscall(SYS_getdents64, fd, buffer, sizeof(buffer));

        if (got <= 0)
            break;
        for (long at = 0; at < got;) {
            const struct entry *entry = (const struct entry *)(buffer + at);

            found = visit(entry->name, arg);
            if (found) {
                close(fd);
                return found;
            }
            at += entry->size;
        }
    }
    close(fd);
    return found ? found : -1;
}

bool sim_parse_u64(const char *text, uint64_t *value)
{
    uint64_t result = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(result, 10, &result) ||
            __builtin_add_overflow(result, (uint64_t)(*text - '0'), &result))
            return false;
    }
    *value = result;
    return true;
}
