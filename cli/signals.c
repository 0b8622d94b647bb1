/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A signal never ends gpucr in the middle of an operation: the first one asks the
 * library to roll back, later ones say what is going on. Once a program restored
 * in the foreground runs, signals are passed on to it instead.
 */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>

#include "cli.h"
#include "out.h"

static volatile int cancel;
static atomic_uint early; /* bits of signals that came before there was a program for them */
static atomic_int forward_fd = -1; /* pidfd: a pid could be somebody else's by now */
static atomic_int forward_pid;

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const int program_signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                      SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};

/* Only async-signal-safe calls. */
static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return;
}

static void on_stop_signal(int number)
{
    int saved = errno;
    const char *phase = cli_progress_phase();

    if (!cancel) {
        atomic_fetch_or(&early, 1U << number);
        cancel = 1;
        say("\ngpucr: stopping; what was begun is undone first\n");
    } else {
        say("\ngpucr: still undoing, so that nothing is lost");
        if (*phase) {
            say("; at work: ");
            say(phase);
        }
        say("\n");
    }
    errno = saved;
}

/* The terminal has already sent its signals to everybody in the foreground group. */
static bool program_has_it(const siginfo_t *info)
{
    return info->si_code == SI_KERNEL && getpgid(atomic_load(&forward_pid)) == getpgrp();
}

static void on_program_signal(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    int fd = atomic_load(&forward_fd);

    (void)context;
    if (fd >= 0 && !program_has_it(info))
        (void)syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
    errno = saved;
}

static void on_early_signal(int number)
{
    atomic_fetch_or(&early, 1U << number);
}

static void on_pipe(int number)
{
    (void)number;
}

void cli_signals_init(void)
{
    /* a handler, not SIG_IGN: programs that gpucr starts shall not inherit it */
    const struct sigaction action = {.sa_handler = on_pipe, .sa_flags = SA_RESTART};

    (void)sigaction(SIGPIPE, &action, NULL);
}

/* nohup and shells ignore signals for us; that stays so. */
static void install(int number, const struct sigaction *action)
{
    struct sigaction old;

    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        (void)sigaction(number, action, NULL);
}

void cli_signals_catch(void)
{
    const struct sigaction action = {.sa_handler = on_stop_signal, .sa_flags = SA_RESTART};

    /* These would end gpucr in the middle; they are meant for the program. */
    const struct sigaction keep = {.sa_handler = on_early_signal, .sa_flags = SA_RESTART};

    for (size_t i = 0; i < CLI_ARRAY_SIZE(stop_signals); i++)
        install(stop_signals[i], &action);
    install(SIGUSR1, &keep);
    install(SIGUSR2, &keep);
}

const volatile int *cli_signals_cancel(void)
{
    return &cancel;
}

void cli_signals_forward(int32_t pid)
{
    const struct sigaction action = {
        .sa_sigaction = on_program_signal,
        .sa_flags = SA_RESTART | SA_SIGINFO,
    };

    atomic_store(&forward_pid, pid);
    atomic_store(&forward_fd, (int)syscall(SYS_pidfd_open, pid, 0));
    for (size_t i = 0; i < CLI_ARRAY_SIZE(program_signals); i++)
        install(program_signals[i], &action);
    /* Those that came when the restore could not be stopped any more are the program's. */
    for (size_t i = 0; i < CLI_ARRAY_SIZE(program_signals); i++) {
        if (atomic_load(&early) & 1U << program_signals[i])
            (void)syscall(SYS_pidfd_send_signal, atomic_load(&forward_fd), program_signals[i], NULL,
                          0);
    }
}

void cli_signals_done(void)
{
    int fd = atomic_exchange(&forward_fd, -1);

    if (fd >= 0)
        (void)close(fd);
}
