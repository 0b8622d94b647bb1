/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "sim_vram.h"

#include "sim_sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOT_MAX          1024
#define INITIAL_PIDNS_INO 4026531836u
#define LOCK_PATIENCE_MS  5000

struct slot {
    int32_t pid; /* in the process's own pid namespace; 0: free */
    uint32_t pidns;
    uint64_t start_time;
    uint32_t seen_from; /* a pid namespace from which it was seen alive */
    uint32_t reserved;
    uint64_t bytes[SIM_GPU_MAX];
};

struct table {
    uint32_t slot_top; /* slots at and above were never used */
    uint32_t reserved;
    struct slot slot[SLOT_MAX];
};

struct access {
    int fd;
    struct table *table;
};

static uint32_t own_pidns(void)
{
    struct stat info;

    return stat("/proc/self/ns/pid", &info) == 0 ? (uint32_t)info.st_ino : 0;
}

struct foreign {
    const struct slot *slot;
};

static int match_foreign(const char *name, void *arg)
{
    const struct slot *slot = ((struct foreign *)arg)->slot;
    uint64_t pid;
    char path[64];
    struct stat info;

    if (!sim_parse_u64(name, &pid) || pid > INT32_MAX ||
        !sim_same_start(sim_start_time((int)pid), slot->start_time))
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
    if (stat(path, &info) != 0 || (uint32_t)info.st_ino != slot->pidns)
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    return sim_inner_pid(path) == slot->pid ? (int)pid : 0;
}

/* Whether /proc counts as we do: in a new pid namespace it may still be that of another one. */
static bool proc_is_ours(void)
{
    char link[16], own[16];
    ssize_t length = readlink("/proc/self", link, sizeof(link) - 1);

    if (length <= 0)
        return false;
    link[length] = '\0';
    snprintf(own, sizeof(own), "%d", getpid());
    return strcmp(link, own) == 0;
}

/* The pid under which the caller sees a slot's process: 0 when dead, -1 when it cannot be seen. */
static int slot_pid(struct slot *slot, uint32_t pidns)
{
    struct foreign foreign = {.slot = slot};
    int pid;

    if (slot->pidns == pidns && proc_is_ours())
        return sim_same_start(sim_start_time(slot->pid), slot->start_time) ? slot->pid : 0;
    pid = sim_each_entry("/proc", match_foreign, &foreign);
    if (pid > 0) {
        slot->seen_from = pidns;
        return pid;
    }
    /* Not to be seen is to be dead only for who would see it. */
    return pidns == INITIAL_PIDNS_INO || slot->seen_from == pidns ? 0 : -1;
}

/* A holder that somebody stopped must not stop everybody else: patience is limited. */
static void take_lock(int fd)
{
    uint64_t deadline = sim_now_ns() + LOCK_PATIENCE_MS * SIM_NS_PER_MS;

    while (flock(fd, LOCK_EX | LOCK_NB) != 0 && sim_now_ns() < deadline)
        sim_sleep_until_ns(sim_now_ns() + 200000);
}

static bool open_table(struct access *access)
{
    char path[SIM_PATH_MAX];
    struct stat info;
    void *map;

    if (!sim_root_path(path, sizeof(path), "state/vram"))
        return false;
    access->fd = sim_open_shared(path);
    if (access->fd < 0)
        return false;
    take_lock(access->fd);
    if (fstat(access->fd, &info) != 0 || ((size_t)info.st_size < sizeof(struct table) &&
                                          ftruncate(access->fd, sizeof(struct table)) != 0)) {
        close(access->fd);
        return false;
    }
    map = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, access->fd, 0);
    if (map == MAP_FAILED) {
        close(access->fd);
        return false;
    }
    access->table = map;
    return true;
}

static void close_table(struct access *access)
{
    munmap(access->table, sizeof(struct table));
    close(access->fd);
}

static void drop_dead(struct table *table)
{
    uint32_t pidns = own_pidns();
    uint32_t top = table->slot_top < SLOT_MAX ? table->slot_top : SLOT_MAX;

    for (uint32_t i = 0; i < top; i++) {
        if (table->slot[i].pid && slot_pid(&table->slot[i], pidns) == 0)
            table->slot[i] = (struct slot){0};
    }
}

static struct slot *own_slot(struct table *table, bool create)
{
    uint32_t pidns = own_pidns();
    int32_t pid = getpid();
    uint64_t start_time = sim_start_time(0);
    uint32_t top = table->slot_top < SLOT_MAX ? table->slot_top : SLOT_MAX;
    struct slot *empty = NULL;

    for (uint32_t i = 0; i < top; i++) {
        struct slot *slot = &table->slot[i];

        if (slot->pid == pid && slot->pidns == pidns &&
            sim_same_start(slot->start_time, start_time))
            return slot;
        if (!slot->pid && !empty)
            empty = slot;
    }
    if (!create)
        return NULL;
    if (!empty && top < SLOT_MAX) {
        empty = &table->slot[top];
        table->slot_top = top + 1;
    }
    if (empty)
        *empty = (struct slot){.pid = pid, .pidns = pidns, .start_time = start_time};
    return empty;
}

static void sum_used(const struct table *table, uint64_t used[SIM_GPU_MAX])
{
    uint32_t top = table->slot_top < SLOT_MAX ? table->slot_top : SLOT_MAX;

    memset(used, 0, SIM_GPU_MAX * sizeof(used[0]));
    for (uint32_t i = 0; i < top; i++) {
        for (unsigned gpu = 0; table->slot[i].pid && gpu < SIM_GPU_MAX; gpu++)
            used[gpu] += table->slot[i].bytes[gpu];
    }
}

bool sim_vram_claim(const struct sim_config *config, const uint64_t bytes[SIM_GPU_MAX])
{
    uint64_t used[SIM_GPU_MAX];
    struct access access;
    struct slot *slot;
    bool fits = true;

    if (!open_table(&access))
        return false;
    drop_dead(access.table);
    sum_used(access.table, used);
    for (unsigned gpu = 0; gpu < SIM_GPU_MAX; gpu++) {
        uint64_t capacity = gpu < config->gpu_count ? config->gpu[gpu].vram_bytes : 0;

        if (bytes[gpu] && (used[gpu] > capacity || bytes[gpu] > capacity - used[gpu]))
            fits = false;
    }
    slot = fits ? own_slot(access.table, true) : NULL;
    for (unsigned gpu = 0; slot && gpu < SIM_GPU_MAX; gpu++)
        slot->bytes[gpu] += bytes[gpu];
    close_table(&access);
    return slot != NULL;
}

void sim_vram_return(unsigned gpu, uint64_t bytes)
{
    struct access access;
    struct slot *slot;

    if (!open_table(&access))
        return;
    slot = own_slot(access.table, false);
    if (slot)
        slot->bytes[gpu] -= bytes < slot->bytes[gpu] ? bytes : slot->bytes[gpu];
    close_table(&access);
}

void sim_vram_return_all(void)
{
    struct access access;
    struct slot *slot;

    if (!open_table(&access))
        return;
    slot = own_slot(access.table, false);
    if (slot)
        *slot = (struct slot){0};
    close_table(&access);
}

void sim_vram_used(uint64_t used[SIM_GPU_MAX])
{
    struct access access;

    memset(used, 0, SIM_GPU_MAX * sizeof(used[0]));
    if (!open_table(&access))
        return;
    drop_dead(access.table);
    sum_used(access.table, used);
    close_table(&access);
}

unsigned sim_vram_users(unsigned gpu, struct sim_vram_use *users, unsigned capacity)
{
    struct access access;
    unsigned count = 0;
    uint32_t pidns = own_pidns();

    if (!open_table(&access))
        return 0;
    drop_dead(access.table);
    for (uint32_t i = 0; i < access.table->slot_top && i < SLOT_MAX; i++) {
        struct slot *slot = &access.table->slot[i];
        int pid = slot->pid && slot->bytes[gpu] ? slot_pid(slot, pidns) : 0;

        if (pid <= 0)
            continue;
        if (count < capacity)
            users[count] = (struct sim_vram_use){.pid = pid, .bytes = slot->bytes[gpu]};
        count++;
    }
    close_table(&access);
    return count;
}
