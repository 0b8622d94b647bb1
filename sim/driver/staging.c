/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The move of device memory and pinned memory into one private anonymous mapping and back. A header
 * in the mapping says what lies where; it is the only record, so what comes back is what the
 * mapping holds.
 */
#define _GNU_SOURCE
#include "driver.h"

#include "../common/sim_sys.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STAGING_MAGIC   0x31474e4947415453ull
#define STAGING_FDS_MAX 512
#define PIECE_BYTES     (16ull << 20)

struct item {
    uint32_t object;
    uint32_t kind;
    uint64_t offset; /* into the mapping */
    uint64_t bytes;
};

struct header {
    uint64_t magic;
    uint64_t bytes;
    uint64_t checksum; /* of everything below */
    uint32_t item_count;
    uint32_t fd_count;
    struct sim_device_fd fd[STAGING_FDS_MAX];
    struct item item[];
};

struct mover {
    atomic_flag busy;
    uint32_t item;
    uint64_t at;
    bool out;
    uint64_t start_ns;
    _Atomic uint64_t done_bytes;
};

static struct header *header(void)
{
    return (struct header *)sim.staging;
}

static uint64_t header_bytes(uint32_t items)
{
    uint64_t bytes = sizeof(struct header) + items * sizeof(struct item);

    return (bytes + SIM_PAGE_BYTES - 1) & ~(SIM_PAGE_BYTES - 1);
}

static uint64_t checksum(const struct header *head)
{
    const uint8_t *from = (const uint8_t *)&head->item_count;
    const uint8_t *end = (const uint8_t *)&head->item[head->item_count];
    uint64_t sum = 14695981039346656037ull;

    for (; from < end; from++)
        sum = (sum ^ *from) * 1099511628211ull;
    return sum;
}

static bool moves(const struct sim_object *object)
{
    return object->kind == SIM_OBJECT_PHYSICAL || object->kind == SIM_OBJECT_PINNED;
}

static bool staging_create(void)
{
    uint32_t items = 0;
    uint64_t bytes = 0;
    void *map;

    for (uint32_t i = 0; i < sim.object_top; i++) {
        if (moves(&sim.object[i])) {
            items++;
            bytes += sim.object[i].bytes;
        }
    }
    bytes += header_bytes(items);
    map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return false;
    sim.staging = map;
    sim.staging_bytes = bytes;
    header()->magic = STAGING_MAGIC;
    header()->bytes = bytes;
    return true;
}

static void list_items(void)
{
    struct header *head = header();
    uint64_t offset = 0;

    for (uint32_t i = 0; i < sim.object_top; i++) {
        if (!moves(&sim.object[i]))
            continue;
        head->item[head->item_count++] = (struct item){.object = i,
                                                       .kind = sim.object[i].kind,
                                                       .offset = offset,
                                                       .bytes = sim.object[i].bytes};
        offset += sim.object[i].bytes;
    }
    for (uint32_t i = 0; i < head->item_count; i++)
        head->item[i].offset += header_bytes(head->item_count);
}

/* Memory that was never written stays what it is, a hole, on both sides. */
static void take_physical(const struct sim_object *object, uint64_t at, uint8_t *to, uint64_t bytes)
{
    const struct sim_gpu *gpu = &sim.gpu[object->gpu];
    off_t from = (off_t)(object->start + at);
    off_t end = from + (off_t)bytes;

    for (off_t data = from; data < end;) {
        off_t hole;

        data = lseek(gpu->arena_fd, data, SEEK_DATA);
        if (data < 0 || data >= end)
            break;
        hole = lseek(gpu->arena_fd, data, SEEK_HOLE);
        if (hole < 0 || hole > end)
            hole = end;
        memcpy(to + (data - from), gpu->arena + data, (size_t)(hole - data));
        data = hole;
    }
    /* Gone at once, so that the data is never in memory twice. */
    fallocate(gpu->arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, (off_t)bytes);
}

static bool is_zero_page(const uint8_t *page)
{
    return page[0] == 0 && memcmp(page, page + 1, SIM_PAGE_BYTES - 1) == 0;
}

static void copy_pages(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += SIM_PAGE_BYTES) {
        if (!is_zero_page(from + at))
            memcpy(to + at, from + at, SIM_PAGE_BYTES);
    }
}

static void move_piece(const struct item *item, uint64_t at, uint64_t bytes, bool out)
{
    const struct sim_object *object = &sim.object[item->object];
    bool pinned = item->kind == SIM_OBJECT_PINNED;
    uint8_t *staged = sim.staging + item->offset + at;
    uint8_t *home = pinned ? (uint8_t *)(uintptr_t)object->start + at
                           : sim.gpu[object->gpu].arena + object->start + at;

    if (out && pinned) {
        copy_pages(staged, home, bytes);
    } else if (out) {
        take_physical(object, at, staged, bytes);
    } else {
        copy_pages(home, staged, bytes);
        madvise(staged, bytes, MADV_DONTNEED);
    }
}

static bool next_piece(struct mover *mover, const struct item **item, uint64_t *at, uint64_t *bytes)
{
    bool found = false;

    while (atomic_flag_test_and_set(&mover->busy))
        ;
    while (mover->item < header()->item_count && !found) {
        const struct item *current = &header()->item[mover->item];

        if (mover->at >= current->bytes) {
            mover->item++;
            mover->at = 0;
            continue;
        }
        *item = current;
        *at = mover->at;
        *bytes = current->bytes - *at < PIECE_BYTES ? current->bytes - *at : PIECE_BYTES;
        mover->at += *bytes;
        found = true;
    }
    atomic_flag_clear(&mover->busy);
    return found;
}

/* copy_gbps: the copy takes as long as at that rate, whatever the machine can do. */
static void keep_pace(struct mover *mover, uint64_t bytes)
{
    uint64_t rate = sim.config.copy_bytes_per_s;
    uint64_t done = atomic_fetch_add(&mover->done_bytes, bytes) + bytes;

    if (rate)
        sim_sleep_until_ns(mover->start_ns + (uint64_t)((double)done * 1e9 / (double)rate));
}

static void move_all(void *arg)
{
    struct mover *mover = arg;
    const struct item *item;
    uint64_t at, bytes;

    while (next_piece(mover, &item, &at, &bytes)) {
        move_piece(item, at, bytes, mover->out);
        keep_pace(mover, bytes);
    }
}

static void run_mover(bool out)
{
    struct mover mover = {.busy = ATOMIC_FLAG_INIT, .out = out, .start_ns = sim_now_ns()};

    sim_helpers_run(move_all, &mover);
}

CUresult sim_staging_out(void)
{
    struct header *head;

    if (!staging_create())
        return CUDA_ERROR_OUT_OF_MEMORY;
    list_items();
    run_mover(true);
    for (uint32_t i = 0; i < sim.object_top; i++) {
        if (sim.object[i].kind == SIM_OBJECT_PINNED)
            sim_pinned_unmap(&sim.object[i]);
    }
    for (unsigned i = 0; i < sim.gpu_count; i++)
        sim_arena_close(&sim.gpu[i]);
    sim_device_windows_unmap();
    /* From here a thread that touches pinned memory dies; give it the time it has in reality. */
    sim_sleep_ms(sim.config.checkpoint_floor_ms);
    head = header();
    head->fd_count = sim_device_fds_close(head->fd, STAGING_FDS_MAX);
    head->checksum = checksum(head);
    return CUDA_SUCCESS;
}

static bool item_valid(const struct item *item, uint64_t first)
{
    return item->object < sim.object_top && sim.object[item->object].kind == item->kind &&
           sim.object[item->object].bytes == item->bytes && item->offset >= first &&
           item->offset <= sim.staging_bytes && item->bytes <= sim.staging_bytes - item->offset;
}

bool sim_staging_valid(void)
{
    const struct header *head = header();

    if (!head || head->magic != STAGING_MAGIC || head->bytes != sim.staging_bytes ||
        head->item_count > SIM_OBJECT_MAX || head->fd_count > STAGING_FDS_MAX ||
        header_bytes(head->item_count) > head->bytes || head->checksum != checksum(head))
        return false;
    for (uint32_t i = 0; i < head->item_count; i++) {
        if (!item_valid(&head->item[i], header_bytes(head->item_count)))
            return false;
    }
    return true;
}

bool sim_staging_in(void)
{
    const struct header *head = header();
    bool complete = sim_device_fds_reopen(head->fd, head->fd_count) && sim_device_windows_map();

    for (unsigned i = 0; i < sim.gpu_count; i++) {
        if (sim.gpu[i].arena_bytes)
            complete = complete && sim_arena_open(&sim.gpu[i]);
    }
    for (uint32_t i = 0; i < sim.object_top; i++) {
        if (sim.object[i].kind == SIM_OBJECT_PINNED)
            complete = complete && sim_pinned_map(&sim.object[i]);
    }
    if (!complete)
        return false;
    run_mover(false);
    munmap(sim.staging, sim.staging_bytes);
    sim.staging = NULL;
    sim.staging_bytes = 0;
    return true;
}
