/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024

__attribute__((format(printf, 2, 0))) static void write_line(const char *prefix, const char *format,
                                                             va_list args)
{
    char line[LINE_MAX_BYTES];
    size_t length, at = 0;

    snprintf(line, sizeof(line), "%s", prefix);
    length = strlen(line);
    vsnprintf(line + length, sizeof(line) - length - 1, format, args);
    length = strlen(line);
    line[length++] = '\n';
    while (at < length) {
        ssize_t put = write(STDOUT_FILENO, line + at, length - at);

        if (put < 0 && errno != EINTR && errno != EAGAIN)
            return;
        if (put > 0)
            at += (size_t)put;
    }
}

void sample_say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    write_line("", format, args);
    va_end(args);
}

void sample_die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    write_line("error ", format, args);
    va_end(args);
    _exit(3);
}

uint64_t sample_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void sample_sleep_until(uint64_t when_ns, const volatile int *stop)
{
    struct timespec when = {.tv_sec = (time_t)(when_ns / 1000000000ull),
                            .tv_nsec = (long)(when_ns % 1000000000ull)};

    while (!(stop && *stop) &&
           clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
        ;
}
