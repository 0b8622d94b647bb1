/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "tool.h"

#include "../common/sim_root.h"
#include "../common/sim_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct plan {
    char root[SIM_PATH_MAX];
    char libs[SIM_PATH_MAX];
    uint64_t gpus;
    uint64_t vram_bytes;
    char **keys; /* further lines of the configuration */
    int key_count;
};

static bool join(char path[SIM_PATH_MAX], const char *root, const char *tail)
{
    return (size_t)snprintf(path, SIM_PATH_MAX, "%s/%s", root, tail) < SIM_PATH_MAX;
}

static int make_dir(const struct plan *plan, const char *tail, mode_t mode)
{
    char path[SIM_PATH_MAX];

    if (!join(path, plan->root, tail))
        return tool_error("the path of %s is too long", plan->root);
    if (mkdir(path, mode) != 0 && errno != EEXIST)
        return tool_error("cannot make %s: %s", path, strerror(errno));
    /* The umask is the caller's; programs of other users count memory here too. */
    return chmod(path, mode) == 0 ? 0 : tool_error("cannot set the mode of %s", path);
}

static int make_node(const struct plan *plan, const char *name, unsigned minor_number)
{
    char path[SIM_PATH_MAX], tail[64];
    int fd;

    snprintf(tail, sizeof(tail), "dev/%s", name);
    if (!join(path, plan->root, tail))
        return tool_error("the path of %s is too long", plan->root);
    if (mknod(path, S_IFCHR | 0666, makedev(1, minor_number)) == 0)
        return chmod(path, 0666);
    if (errno != EPERM)
        return tool_error("cannot make the device node %s: %s", path, strerror(errno));
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return tool_error("cannot make %s: %s", path, strerror(errno));
    close(fd);
    tool_error("no right to make device nodes: %s is an ordinary file", path);
    return 0;
}

static int make_nodes(const struct plan *plan)
{
    char name[32];

    /* Minor 3 is /dev/null, 5 is /dev/zero, which can be mapped. */
    if (make_node(plan, "nvidiactl", 3) || make_node(plan, "nvidia-uvm", 5))
        return 1;
    for (unsigned i = 0; i < plan->gpus; i++) {
        snprintf(name, sizeof(name), "nvidia%u", i);
        if (make_node(plan, name, 5))
            return 1;
    }
    return 0;
}

static int copy_library(const struct plan *plan, const char *name)
{
    char from[SIM_PATH_MAX], to[SIM_PATH_MAX], tail[64];
    struct stat info;
    ssize_t copied = 1;
    int in, out;

    snprintf(tail, sizeof(tail), "lib/%s", name);
    if (!join(from, plan->libs, name) || !join(to, plan->root, tail))
        return tool_error("a path is too long");
    in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0 || fstat(in, &info) != 0)
        return tool_error("cannot read %s: %s", from, strerror(errno));
    out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    if (out < 0)
        return tool_error("cannot write %s: %s", to, strerror(errno));
    for (off_t left = info.st_size; left > 0 && copied > 0; left -= copied) {
        char buffer[65536];

        copied = read(in, buffer, sizeof(buffer));
        if (copied > 0 && write(out, buffer, (size_t)copied) != copied)
            copied = -1;
    }
    close(in);
    if (close(out) != 0 || copied <= 0)
        return tool_error("cannot copy %s to %s", from, to);
    return 0;
}

static int make_links(const struct plan *plan)
{
    static const char *const names[][2] = {{"libcuda.so.1", "lib/libcuda.so"},
                                           {"libnvidia-ml.so.1", "lib/libnvidia-ml.so"},
                                           {"../../lib", "usr/lib/x86_64-linux-gnu"}};
    char path[SIM_PATH_MAX];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!join(path, plan->root, names[i][1]) || symlink(names[i][0], path) != 0)
            return tool_error("cannot make the link %s: %s", path, strerror(errno));
    }
    return 0;
}

static int write_config(const struct plan *plan)
{
    char path[SIM_PATH_MAX], text[48];
    uint8_t uuid[SIM_UUID_SIZE];
    FILE *file;

    if (!join(path, plan->root, "state/config"))
        return tool_error("the path of %s is too long", plan->root);
    file = fopen(path, "wxe");
    if (!file)
        return tool_error("cannot write %s: %s", path, strerror(errno));
    fprintf(file, "gpus=%llu\nvram=%llu\n", (unsigned long long)plan->gpus,
            (unsigned long long)plan->vram_bytes);
    for (unsigned i = 0; i < plan->gpus; i++) {
        if (getrandom(uuid, sizeof(uuid), 0) != sizeof(uuid))
            memset(uuid, (int)i + 1, sizeof(uuid));
        sim_uuid_format(uuid, text, sizeof(text));
        fprintf(file, "uuid%u=%s\n", i, text);
    }
    for (int i = 0; i < plan->key_count; i++)
        fprintf(file, "%s\n", plan->keys[i]);
    return fclose(file) == 0 ? 0 : tool_error("cannot write %s", path);
}

/* The libraries lie beside this program: BUILD/sim/bin and BUILD/sim/lib. */
static void find_libs(struct plan *plan)
{
    char self[SIM_PATH_MAX - 8];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (length <= 0)
        return;
    self[length] = '\0';
    for (int i = 0; i < 2; i++) {
        slash = strrchr(self, '/');
        if (slash)
            *slash = '\0';
    }
    snprintf(plan->libs, sizeof(plan->libs), "%s/lib", self);
}

static int parse(struct plan *plan, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool has_next = i + 1 < argc;

        if (!strcmp(argv[i], "--gpus") && has_next) {
            if (!sim_parse_u64(argv[++i], &plan->gpus) || plan->gpus > SIM_GPU_MAX)
                return tool_error("--gpus takes a number up to %d", SIM_GPU_MAX);
        } else if (!strcmp(argv[i], "--vram") && has_next) {
            if (!tool_parse_bytes(argv[++i], &plan->vram_bytes))
                return tool_error("--vram takes bytes, as 4096 or 4GiB");
        } else if (!strcmp(argv[i], "--libs") && has_next) {
            snprintf(plan->libs, sizeof(plan->libs), "%s", argv[++i]);
        } else if (argv[i][0] != '-' && strchr(argv[i], '=')) {
            plan->keys[plan->key_count++] = argv[i];
        } else {
            return tool_error("create does not know %s", argv[i]);
        }
    }
    return 0;
}

static int make_root(struct plan *plan, const char *named)
{
    char *resolved;

    if (mkdir(named, 0755) != 0 && errno != EEXIST)
        return tool_error("cannot make %s: %s", named, strerror(errno));
    resolved = realpath(named, NULL);
    if (!resolved || strlen(resolved) + 64 > SIM_PATH_MAX) {
        free(resolved);
        return tool_error("the path of %s is too long", named);
    }
    memcpy(plan->root, resolved, strlen(resolved) + 1);
    free(resolved);
    if (access(plan->root, W_OK) != 0)
        return tool_error("%s is not writable", plan->root);
    return 0;
}

int tool_print_env(const char *root)
{
    char path[PATH_MAX];

    if (!realpath(root, path))
        return tool_error("%s: %s", root, strerror(errno));
    printf("GPUCR_SIM_ROOT=%s\nLD_LIBRARY_PATH=%s/lib\n", path, path);
    return 0;
}

static int fill_root(const struct plan *plan)
{
    return make_dir(plan, "dev", 0755) || make_dir(plan, "lib", 0755) ||
           make_dir(plan, "usr", 0755) || make_dir(plan, "usr/lib", 0755) ||
           make_dir(plan, "state", 0777) || make_dir(plan, "state/locks", 0777) ||
           make_nodes(plan) || copy_library(plan, "libcuda.so.1") ||
           copy_library(plan, "libnvidia-ml.so.1") || make_links(plan) || write_config(plan);
}

int tool_create(int argc, char **argv)
{
    struct plan plan = {.gpus = 1, .vram_bytes = 4ull << 30};
    int result;

    plan.keys = calloc((size_t)argc, sizeof(plan.keys[0]));
    if (!plan.keys)
        return tool_error("out of memory");
    find_libs(&plan);
    result = parse(&plan, argc, argv) || make_root(&plan, argv[0]) || fill_root(&plan);
    free(plan.keys);
    return result ? 1 : tool_print_env(plan.root);
}
