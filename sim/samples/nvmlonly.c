/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* nvmlonly: holds device nodes open through NVML, and uses no CUDA. */
#define _GNU_SOURCE
#include "output.h"
#include "signals.h"

#include <dlfcn.h>
#include <unistd.h>

int main(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*init)(void);
    int (*count)(unsigned *number);
    unsigned devices = 0;
    uint64_t turns = 0;

    if (!library)
        sample_die("call=dlopen text=\"%s\"", dlerror());
    init = (int (*)(void))dlsym(library, "nvmlInit_v2");
    count = (int (*)(unsigned *))dlsym(library, "nvmlDeviceGetCount_v2");
    if (!init || !count || init() != 0 || count(&devices) != 0)
        sample_die("call=nvmlInit");
    signals_install(false);
    sample_say("ready pid=%d devices=%u", getpid(), devices);
    while (!signals_end) {
        turns++;
        sample_sleep_until(sample_now_ns() + 10000000, &signals_woken);
        signals_woken = 0;
        if (signals_verify) {
            signals_verify = 0;
            sample_say("verify counter=%llu bad=0 pid=%d", (unsigned long long)turns, getpid());
        }
    }
    return 0;
}
