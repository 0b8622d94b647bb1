/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * forker: a CUDA process and its child by fork() without exec, which inherits descriptors and
 * mappings but has no driver, as the workers of data loaders do.
 */
#define _GNU_SOURCE
#include "gpu_work.h"
#include "options.h"
#include "output.h"
#include "signals.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t launched;

static void verify(pid_t child)
{
    sample_say("verify counter=%llu bad=%llu pinned_bad=0 timer=0 term=0 pid=%d expected=%llu "
               "child=%d child_alive=%d",
               (unsigned long long)gpu_counter(), (unsigned long long)gpu_bad(), getpid(),
               (unsigned long long)launched, child, waitpid(child, NULL, WNOHANG) == 0);
}

static void run_child(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!signals_end)
        sample_sleep_until(sample_now_ns() + 10000000, &signals_end);
    _exit(0);
}

int main(int argc, char **argv)
{
    struct sample_options options;
    pid_t child;

    sample_options_parse(&options, argc, argv);
    signals_install(false);
    if (gpu_init() < 1)
        sample_die("call=devices");
    gpu_add(0, options.bytes, options.memory);
    child = fork();
    if (child < 0)
        sample_die("call=fork");
    if (child == 0)
        run_child();
    sample_say("ready pid=%d child=%d devices=1 bytes=%llu", getpid(), child,
               (unsigned long long)options.bytes);
    while (!signals_end) {
        gpu_increment();
        launched++;
        sample_sleep_until(sample_now_ns() + options.period_ms * 1000000, &signals_woken);
        signals_woken = 0;
        if (signals_verify) {
            signals_verify = 0;
            verify(child);
        }
    }
    verify(child);
    kill(child, SIGUSR2);
    waitpid(child, NULL, 0);
    return 0;
}
