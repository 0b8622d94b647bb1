/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The driver's descriptors and mappings of the device nodes. Descriptors that the driver's own
 * libraries open carry O_DSYNC: this is how Checkpoint tells them, also those of libnvidia-ml, from
 * one that the application opened itself, which stays behind as it does with the real driver.
 */
#define _GNU_SOURCE
#include "driver.h"

#include "../common/sim_sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODE_CONTROL (-1)
#define NODE_UVM     (-2)

#define WINDOW_BYTES       (64ull << 10)
#define WINDOW_STRIDE      (128ull << 10)
#define SHARED_PAGES_BYTES (64ull << 10)
#define SHARED_PAGES_COUNT 2

#define CONTROL_FDS_PROCESS 2
#define UVM_FDS_PROCESS     2
#define CONTROL_FDS_GPU     3
#define GPU_FDS             12
#define GPU_WINDOWS         28
#define UVM_WINDOWS         4

static bool node_path(int node, char *path, size_t capacity)
{
    char tail[32];

    if (node == NODE_CONTROL)
        snprintf(tail, sizeof(tail), "dev/nvidiactl");
    else if (node == NODE_UVM)
        snprintf(tail, sizeof(tail), "dev/nvidia-uvm");
    else
        snprintf(tail, sizeof(tail), "dev/nvidia%u", sim.gpu[node].physical);
    return sim_root_path(path, capacity, tail);
}

static int open_node(int node)
{
    char path[SIM_PATH_MAX];

    if (!node_path(node, path, sizeof(path)))
        return -1;
    return open(path, O_RDWR | O_CLOEXEC | O_DSYNC);
}

static bool open_nodes(int node, int count)
{
    for (int i = 0; i < count; i++) {
        if (open_node(node) < 0)
            return false;
    }
    return true;
}

static bool map_window(const struct sim_window *window)
{
    int fd = open_node(window->gpu == SIM_GPU_MAX ? NODE_UVM : (int)window->gpu);
    void *map;

    if (fd < 0)
        return false;
    /* Private: a shared mapping of a node with the numbers of /dev/zero loses the node's name. */
    map =
        mmap(window->address, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0);
    close(fd);
    return map != MAP_FAILED;
}

static bool add_windows(unsigned gpu, unsigned count)
{
    for (unsigned i = 0; i < count && sim.window_count < SIM_WINDOW_MAX; i++) {
        struct sim_window *window = &sim.window[sim.window_count];

        window->address = sim.window_area + sim.window_count * WINDOW_STRIDE;
        window->gpu = gpu;
        if (!map_window(window))
            return false;
        sim.window_count++;
    }
    return true;
}

bool sim_device_open_process(void)
{
    if (!sim.window_area) {
        void *area = mmap(NULL, SIM_WINDOW_MAX * WINDOW_STRIDE, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (area == MAP_FAILED)
            return false;
        sim.window_area = area;
    }
    /* These stay through a checkpoint, as some of the real driver's do. */
    for (int i = 0; i < SHARED_PAGES_COUNT; i++) {
        uint8_t *pages = mmap(NULL, SHARED_PAGES_BYTES, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        if (pages == MAP_FAILED)
            return false;
        pages[0] = 1;
    }
    if (!open_nodes(NODE_CONTROL, CONTROL_FDS_PROCESS) || !open_nodes(NODE_UVM, UVM_FDS_PROCESS))
        return false;
    for (unsigned i = 0; i < sim.visible_count; i++) {
        if (!open_nodes((int)sim.visible[i], 1))
            return false;
    }
    return add_windows(SIM_GPU_MAX, UVM_WINDOWS);
}

bool sim_device_open_gpu(unsigned gpu)
{
    return open_nodes(NODE_CONTROL, CONTROL_FDS_GPU) && open_nodes((int)gpu, GPU_FDS) &&
           add_windows(gpu, GPU_WINDOWS);
}

void sim_device_windows_unmap(void)
{
    for (unsigned i = 0; i < sim.window_count; i++)
        mmap(sim.window[i].address, WINDOW_BYTES, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

bool sim_device_windows_map(void)
{
    for (unsigned i = 0; i < sim.window_count; i++) {
        if (!map_window(&sim.window[i]))
            return false;
    }
    return true;
}

struct fd_scan {
    struct sim_device_fd *list;
    unsigned capacity;
    unsigned count;
};

static int find_physical(unsigned physical)
{
    for (unsigned i = 0; i < sim.gpu_count; i++) {
        if (sim.gpu[i].physical == physical)
            return (int)i;
    }
    return -1;
}

static bool node_of(const char *name, int *node)
{
    uint64_t physical;

    if (strcmp(name, "nvidiactl") == 0) {
        *node = NODE_CONTROL;
    } else if (strcmp(name, "nvidia-uvm") == 0) {
        *node = NODE_UVM;
    } else {
        if (strncmp(name, "nvidia", 6) != 0 || !sim_parse_u64(name + 6, &physical) ||
            physical >= SIM_GPU_MAX)
            return false;
        *node = find_physical((unsigned)physical);
        return *node >= 0;
    }
    return true;
}

static int scan_fd(const char *name, void *arg)
{
    struct fd_scan *scan = arg;
    char path[64], target[SIM_PATH_MAX];
    const char *slash;
    uint64_t fd;
    int flags, node;
    ssize_t length;

    if (!sim_parse_u64(name, &fd) || fd > INT32_MAX || scan->count == scan->capacity)
        return 0;
    flags = fcntl((int)fd, F_GETFL);
    if (flags < 0 || !(flags & O_DSYNC))
        return 0;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", (int)fd);
    length = readlink(path, target, sizeof(target) - 1);
    if (length <= 0)
        return 0;
    target[length] = '\0';
    slash = strrchr(target, '/');
    if (slash && node_of(slash + 1, &node))
        scan->list[scan->count++] = (struct sim_device_fd){.fd = (int)fd, .node = node};
    return 0;
}

unsigned sim_device_fds_close(struct sim_device_fd *list, unsigned capacity)
{
    struct fd_scan scan = {.list = list, .capacity = capacity};

    sim_each_entry("/proc/self/fd", scan_fd, &scan);
    for (unsigned i = 0; i < scan.count; i++) {
        int event = eventfd(0, EFD_CLOEXEC);

        if (event < 0)
            continue;
        dup3(event, list[i].fd, O_CLOEXEC);
        close(event);
    }
    return scan.count;
}

bool sim_device_fds_reopen(const struct sim_device_fd *list, unsigned count)
{
    bool complete = true;

    for (unsigned i = 0; i < count; i++) {
        int fd = open_node(list[i].node);

        if (fd < 0 || dup3(fd, list[i].fd, O_CLOEXEC) < 0)
            complete = false;
        if (fd >= 0)
            close(fd);
    }
    return complete;
}
