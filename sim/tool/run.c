/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Starts a program as a job of its own: new session, no inherited descriptors, default signals, its
 * output in a file. A process like this can be saved by CRIU without further ado.
 */
#define _GNU_SOURCE
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct job {
    const char *root;
    const char *log;
    const char *pidfile;
    bool wait;
    char **command;
};

static int parse(struct job *job, int argc, char **argv)
{
    int i;

    job->root = argv[0];
    for (i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (!strcmp(argv[i], "--log") && i + 1 < argc)
            job->log = argv[++i];
        else if (!strcmp(argv[i], "--pidfile") && i + 1 < argc)
            job->pidfile = argv[++i];
        else if (!strcmp(argv[i], "--wait"))
            job->wait = true;
        else
            return tool_error("run does not know %s", argv[i]);
    }
    if (i + 1 >= argc)
        return tool_error("run needs -- and a command");
    job->command = argv + i + 1;
    return 0;
}

static int set_environment(const struct job *job)
{
    char root[PATH_MAX], libs[2 * PATH_MAX + 16];
    const char *before = getenv("LD_LIBRARY_PATH");

    if (!realpath(job->root, root))
        return tool_error("%s: %s", job->root, strerror(errno));
    snprintf(libs, sizeof(libs), "%s/lib%s%.*s", root, before && *before ? ":" : "", PATH_MAX,
             before ? before : "");
    return setenv("GPUCR_SIM_ROOT", root, 1) || setenv("LD_LIBRARY_PATH", libs, 1)
               ? tool_error("cannot set the environment")
               : 0;
}

static void reset_signals(void)
{
    sigset_t none;

    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Runs in the child; status_fd (close-on-exec) carries errno when exec does not happen. */
static void become(const struct job *job, int status_fd)
{
    const char *log = job->log ? job->log : "/dev/null";
    int in, out, number;

    setsid();
    reset_signals();
    in = open("/dev/null", O_RDONLY);
    out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (in >= 0 && out >= 0 && dup2(status_fd, 9) == 9 && fcntl(9, F_SETFD, FD_CLOEXEC) == 0) {
        dup2(in, 0);
        dup2(out, 1);
        dup2(out, 2);
        for (int fd = 3; fd < 9; fd++)
            close(fd);
        syscall(SYS_close_range, 10u, ~0u, 0u);
        execvp(job->command[0], job->command);
    }
    number = errno;
    if (write(9, &number, sizeof(number)) < 0 && write(status_fd, &number, sizeof(number)) < 0)
        _exit(126);
    _exit(127);
}

static int write_pidfile(const struct job *job, pid_t pid)
{
    FILE *file = job->pidfile ? fopen(job->pidfile, "we") : NULL;
    bool written;

    if (!job->pidfile)
        return 0;
    written = file && fprintf(file, "%d\n", pid) > 0;
    if (file && fclose(file) != 0)
        written = false;
    if (!written)
        return tool_error("cannot write %s", job->pidfile);
    return 0;
}

static int wait_end(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return 1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int tool_run(int argc, char **argv)
{
    struct job job = {0};
    int status[2], number = 0;
    pid_t pid;

    if (parse(&job, argc, argv) || set_environment(&job))
        return 1;
    if (pipe2(status, O_CLOEXEC) != 0)
        return tool_error("no pipe: %s", strerror(errno));
    pid = fork();
    if (pid < 0)
        return tool_error("cannot fork: %s", strerror(errno));
    if (pid == 0)
        become(&job, status[1]);
    close(status[1]);
    if (read(status[0], &number, sizeof(number)) == sizeof(number)) {
        waitpid(pid, NULL, 0);
        return tool_error("cannot start %s: %s", job.command[0], strerror(number));
    }
    printf("%d\n", pid);
    fflush(stdout);
    if (write_pidfile(&job, pid))
        return 1;
    return job.wait ? wait_end(pid) : 0;
}
