/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "tree.h"

#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN_MAX 64
#define ANSWER_MS    60000
#define ARGUMENT_MAX 32

struct child {
    pid_t pid;
    int out; /* our end of its standard output */
};

static struct child children[CHILDREN_MAX];
static unsigned child_count;

/* The program of that name beside this one. */
static void sibling(char *path, size_t capacity, const char *name)
{
    char self[512];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (length <= 0)
        sample_die("call=readlink");
    self[length] = '\0';
    slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    snprintf(path, capacity, "%s/%s", self, name);
}

static void start(const char *program, char *const arguments[])
{
    struct child *child = &children[child_count++];
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        sample_die("call=pipe");
    child->pid = fork();
    if (child->pid < 0)
        sample_die("call=fork");
    if (child->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], STDOUT_FILENO);
        execv(program, arguments);
        _exit(127);
    }
    close(ends[1]);
    child->out = ends[0];
}

static void start_cuda(const struct sample_options *options)
{
    char program[600], bytes[32], period[32], timer[32], devices[256] = "";
    char *arguments[ARGUMENT_MAX] = {program, "--bytes", bytes, "--period-ms", period};
    int count = 5;

    sibling(program, sizeof(program), "counter");
    snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)options->bytes);
    snprintf(period, sizeof(period), "%llu", (unsigned long long)options->period_ms);
    snprintf(timer, sizeof(timer), "%llu", (unsigned long long)options->timer_us);
    for (int i = 0; i < options->device_count; i++) {
        size_t length = strlen(devices);

        snprintf(devices + length, sizeof(devices) - length, "%s%d", i ? "," : "",
                 options->devices[i]);
    }
    arguments[count++] = "--devices";
    arguments[count++] = options->device_count < 0 ? "all" : devices;
    if (options->timer_us) {
        arguments[count++] = "--timer-us";
        arguments[count++] = timer;
    }
    if (options->memory == GPU_MEMORY_VMM)
        arguments[count++] = "--vmm";
    if (options->count_term)
        arguments[count++] = "--term-counter";
    start(program, arguments);
}

static void start_cpu(void)
{
    char program[600];
    char *arguments[] = {program, "--threads", "4", NULL};

    sibling(program, sizeof(program), "cpuonly");
    start(program, arguments);
}

/* Reads a line of a child; false when it does not come, or the child is gone. */
static bool read_line(const struct child *child, char *line, size_t capacity)
{
    uint64_t deadline = sample_now_ns() + ANSWER_MS * 1000000ull;
    size_t length = 0;

    while (length + 1 < capacity) {
        struct pollfd wait = {.fd = child->out, .events = POLLIN};
        int ready = poll(&wait, 1, 100);
        ssize_t got;

        if (sample_now_ns() > deadline)
            return false;
        if (ready <= 0)
            continue;
        got = read(child->out, line + length, 1);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        if (got == 1 && line[length] == '\n') {
            line[length] = '\0';
            return true;
        }
        length += got == 1;
    }
    return false;
}

void tree_start(const struct sample_options *options)
{
    unsigned cuda = 0, cpu = 0;
    char line[1024];

    if (!options->fork_tree || !sample_tree_parse(options->fork_tree, &cuda, &cpu))
        return;
    for (unsigned i = 0; i < cuda; i++)
        start_cuda(options);
    for (unsigned i = 0; i < cpu; i++)
        start_cpu();
    for (unsigned i = 0; i < child_count; i++) {
        if (!read_line(&children[i], line, sizeof(line)) || strncmp(line, "ready ", 6) != 0)
            sample_die("call=child pid=%d", children[i].pid);
        sample_say("child %s", line);
    }
}

void tree_verify(bool end)
{
    unsigned answered = 0;
    char line[1024];

    if (!child_count)
        return;
    for (unsigned i = 0; i < child_count; i++)
        kill(children[i].pid, end ? SIGUSR2 : SIGUSR1);
    for (unsigned i = 0; i < child_count; i++) {
        int status = 0;

        if (read_line(&children[i], line, sizeof(line))) {
            answered++;
            sample_say("child %s", line);
        } else {
            sample_say("child-missing pid=%d", children[i].pid);
        }
        if (end && waitpid(children[i].pid, &status, 0) == children[i].pid)
            sample_say("child-end pid=%d status=%d", children[i].pid, status);
    }
    sample_say("tree processes=%u answered=%u", child_count + 1, answered + 1);
}
