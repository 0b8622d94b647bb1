/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What can be seen of a process from outside: /proc and NVML. */
#define _GNU_SOURCE
#include "../../sim/nvml/sim_nvml.h"
#include "support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void look_fds(pid_t pid, struct test_look *look)
{
    char path[64], name[400], target[512];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    dir = opendir(path);
    CHECK(dir);
    while ((entry = readdir(dir))) {
        ssize_t length;

        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        length = readlink(name, target, sizeof(target) - 1);
        if (length <= 0)
            continue;
        target[length] = '\0';
        look->device_fds += strstr(target, "/dev/nvidia") != NULL;
        look->event_fds += strstr(target, "eventfd") != NULL;
    }
    closedir(dir);
}

struct test_look test_look(pid_t pid)
{
    struct test_look look = {0};
    char path[64], line[1024];
    FILE *maps;

    look_fds(pid, &look);
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    maps = fopen(path, "re");
    CHECK(maps);
    while (fgets(line, sizeof(line), maps)) {
        uint64_t start, end;
        char mode[8];
        int inode, name = 0;

        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*x %*s %d %n", &start, &end, mode, &inode,
                   &name) != 4)
            continue;
        look.device_maps += strstr(line, "/dev/nvidia") != NULL;
        look.arena_maps += strstr(line, "device-memory") != NULL;
        if (!strcmp(mode, "rw-p") && inode == 0 && !line[name])
            look.private_bytes += end - start;
    }
    fclose(maps);
    return look;
}

static void *nvml_symbol(const char *name)
{
    static void *library;
    void *found;

    if (!library) {
        char path[300];

        snprintf(path, sizeof(path), "%s/lib/libnvidia-ml.so.1", test_root());
        library = dlopen(path, RTLD_NOW);
        CHECK(library);
    }
    found = dlsym(library, name);
    CHECK(found);
    return found;
}

static nvmlDevice_t nvml_device(unsigned gpu)
{
    nvmlReturn_t (*init)(void) = (nvmlReturn_t(*)(void))nvml_symbol("nvmlInit_v2");
    nvmlReturn_t (*get)(unsigned, nvmlDevice_t *) =
        (nvmlReturn_t(*)(unsigned, nvmlDevice_t *))nvml_symbol("nvmlDeviceGetHandleByIndex_v2");
    static bool ready;
    nvmlDevice_t device;

    if (!ready)
        CHECK_EQUAL(0, init());
    ready = true;
    CHECK_EQUAL(0, get(gpu, &device));
    return device;
}

uint64_t test_vram_used(unsigned gpu)
{
    nvmlReturn_t (*get)(nvmlDevice_t, nvmlMemory_t *) =
        (nvmlReturn_t(*)(nvmlDevice_t, nvmlMemory_t *))nvml_symbol("nvmlDeviceGetMemoryInfo");
    nvmlMemory_t memory;

    CHECK_EQUAL(0, get(nvml_device(gpu), &memory));
    CHECK_EQUAL(memory.total, memory.free + memory.used);
    return memory.used;
}

bool test_vram_has(unsigned gpu, pid_t pid)
{
    nvmlReturn_t (*get)(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *) =
        (nvmlReturn_t(*)(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *))nvml_symbol(
            "nvmlDeviceGetComputeRunningProcesses_v3");
    nvmlProcessInfo_t infos[64];
    unsigned count = 64;

    CHECK_EQUAL(0, get(nvml_device(gpu), &count, infos));
    for (unsigned i = 0; i < count; i++) {
        if (infos[i].pid == (unsigned)pid)
            return true;
    }
    return false;
}
