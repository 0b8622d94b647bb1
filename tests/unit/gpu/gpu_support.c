/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gpu_support.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "proc/procfs.h"

static void *symbol_of(void *handle, const char *name)
{
    void *symbol = dlsym(handle, name);

    if (!symbol) {
        (void)fprintf(stderr, "the fake driver has no %s\n", name);
        abort();
    }
    return symbol;
}

struct fake fake_load(const char *root)
{
    struct fake fake = {0};
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/libcuda.so.1", root);
    fake.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!fake.handle) {
        (void)fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    *(void **)&fake.reset = symbol_of(fake.handle, "fake_reset");
    *(void **)&fake.set_version = symbol_of(fake.handle, "fake_set_version");
    *(void **)&fake.set_self_code = symbol_of(fake.handle, "fake_set_self_code");
    *(void **)&fake.set_state = symbol_of(fake.handle, "fake_set_state");
    *(void **)&fake.state = symbol_of(fake.handle, "fake_state");
    *(void **)&fake.script = symbol_of(fake.handle, "fake_script");
    *(void **)&fake.seen = symbol_of(fake.handle, "fake_seen");
    return fake;
}

void fake_answer(const struct fake *fake, const char *call, int pid, int code)
{
    fake->script(&(struct fake_script){
        .call = call, .pid = pid, .code = code, .times = -1, .new_state = -1});
}

pid_t child_start(bool leader_ends)
{
    int ready[2];
    char byte = 0;
    char fd[16];
    pid_t pid;

    if (pipe(ready) != 0)
        abort();
    (void)snprintf(fd, sizeof(fd), "%d", ready[1]);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)execl(GPU_CHILD, GPU_CHILD, fd, leader_ends ? "leader-ends" : NULL, NULL);
        _exit(1);
    }
    (void)close(ready[1]);
    (void)!read(ready[0], &byte, 1);
    (void)close(ready[0]);
    if (pid < 0 || byte != 'r')
        abort();
    return pid;
}

void child_end(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

char child_state(pid_t pid)
{
    struct gpucr_proc_stat st;

    return gpucr_proc_stat_read(pid, &st, NULL) < 0 ? '?' : st.state;
}

static bool has_thread_in_state(pid_t pid, bool want_stopped)
{
    struct gpucr_pids tids = {0};
    bool found = false;

    if (gpucr_task_list(pid, &tids, NULL) < 0)
        return false;
    for (size_t i = 0; i < tids.count; i++) {
        struct gpucr_proc_stat st;

        if (gpucr_task_stat_read(pid, tids.ids[i], &st, NULL) == 0 &&
            (st.state == 'T') == want_stopped)
            found = true;
    }
    gpucr_pids_done(&tids);
    return found;
}

void child_stop(pid_t pid)
{
    (void)kill(pid, SIGSTOP);
    while (has_thread_in_state(pid, false))
        gpucr_sleep_us(200);
}

void child_continue(pid_t pid)
{
    (void)kill(pid, SIGCONT);
    while (has_thread_in_state(pid, true))
        gpucr_sleep_us(200);
}
