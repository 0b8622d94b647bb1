/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The process that get-criu dumps and restores to see whether a criu works on
 * this kernel, and the test for hardware breakpoints, which tells why one hangs.
 *
 *   criu-smoke run DIR NONCE   count up for ever; DIR/count holds "NONCE COUNT"
 *   criu-smoke breakpoints     print "fire" or "dead: REASON"
 *
 * The count lives in memory only and the file is opened anew for every tick, so
 * a file that was deleted after the dump comes back with the old nonce and a
 * higher count only if the memory was restored and the process runs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int pause_ms(long ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};

    /* criu's stop interrupts the call: go on with what is left. */
    while (nanosleep(&left, &left) != 0) {
        if (errno != EINTR)
            return -1;
    }
    return 0;
}

/* Only /dev/null as fd 0, 1, 2: an fd that came from elsewhere (another mount
 * namespace, a pipe to a test runner) would fail the dump for a reason that has
 * nothing to do with criu. */
static int clean_fds(void)
{
    int fd = open("/dev/null", O_RDWR);

    if (fd < 0)
        return -1;
    for (int target = 0; target <= 2; target++) {
        if (dup2(fd, target) < 0)
            return -1;
    }
    if (syscall(SYS_close_range, 3U, ~0U, 0U) == 0)
        return 0;
    for (int other = 3; other < 1024; other++) /* before Linux 5.9 */
        close(other);
    return 0;
}

static int write_count(const char *nonce, uint64_t count)
{
    char line[128];
    int length = snprintf(line, sizeof(line), "%s %llu\n", nonce, (unsigned long long)count);
    int fd = open("count.new", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int ok;

    if (fd < 0)
        return -1;
    ok = length > 0 && (size_t)length < sizeof(line) && write(fd, line, (size_t)length) == length;
    close(fd);
    return ok ? rename("count.new", "count") : -1;
}

static int run(const char *dir, const char *nonce)
{
    if (chdir(dir) != 0 || setsid() < 0 || clean_fds() != 0)
        return 1;
    for (uint64_t count = 1;; count++) {
        if (write_count(nonce, count) != 0 || pause_ms(5) != 0)
            return 1;
    }
}

__attribute__((noinline)) static void breakpoint_target(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Waits for the tracee's next stop for at most two seconds; 0 if it came. */
static int wait_for_stop(pid_t pid, int *status)
{
    for (int tries = 0; tries < 400; tries++) {
        if (waitpid(pid, status, WNOHANG) == pid)
            return 0;
        if (pause_ms(5) != 0)
            return -1;
    }
    return -1;
}

static int set_debug_register(pid_t pid, size_t index, uintptr_t value)
{
    size_t offset = offsetof(struct user, u_debugreg) + index * sizeof(long);

    return ptrace(PTRACE_POKEUSER, pid, (void *)offset, (void *)value) == 0 ? 0 : -1;
}

/* Sets an execution breakpoint (DR0, local enable bit 0 of DR7) on a function of
 * the stopped child and lets it go: a stop means that it fired, an exit that the
 * child ran over it unseen. NULL if it fired, else what happened. */
static const char *try_breakpoint(pid_t pid)
{
    int status = 0;

    if (wait_for_stop(pid, &status) != 0 || !WIFSTOPPED(status))
        return "the child could not be traced";
    if (set_debug_register(pid, 0, (uintptr_t)breakpoint_target) != 0 ||
        set_debug_register(pid, 7, 1) != 0)
        return "the kernel refused to set one";
    if (ptrace(PTRACE_CONT, pid, NULL, NULL) != 0)
        return "the child could not be continued";
    if (wait_for_stop(pid, &status) != 0)
        return "the child did not go on";
    if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP)
        return NULL;
    return "one was set and the child ran over it unseen";
}

static int breakpoints(void)
{
    const char *reason;
    pid_t pid = fork();

    if (pid < 0)
        return 1;
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0)
            _exit(1);
        breakpoint_target();
        _exit(0);
    }
    reason = try_breakpoint(pid);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (reason == NULL)
        puts("fire");
    else
        printf("dead: %s\n", reason);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "run") == 0)
        return run(argv[2], argv[3]);
    if (argc == 2 && strcmp(argv[1], "breakpoints") == 0)
        return breakpoints();
    fputs("usage: criu-smoke run DIR NONCE | criu-smoke breakpoints\n", stderr);
    return 2;
}
