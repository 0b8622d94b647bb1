/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One table for everything that has a place: memory of a GPU, addresses, mappings. */
#define _GNU_SOURCE
#include "driver.h"

#include <sys/mman.h>

/* Two kinds of places: an arena for each GPU, and the address space that all of them share. */
static bool same_space(const struct sim_object *object, enum sim_object_kind kind, unsigned gpu)
{
    if (kind == SIM_OBJECT_PHYSICAL)
        return object->kind == SIM_OBJECT_PHYSICAL && object->gpu == gpu;
    return object->kind == SIM_OBJECT_DEVICE || object->kind == SIM_OBJECT_PINNED ||
           object->kind == SIM_OBJECT_MANAGED || object->kind == SIM_OBJECT_RESERVED;
}

static bool is_free(enum sim_object_kind kind, unsigned gpu, uint64_t start, uint64_t bytes)
{
    for (uint32_t i = 0; i < sim.object_top; i++) {
        const struct sim_object *object = &sim.object[i];

        if (same_space(object, kind, gpu) && start < object->start + object->bytes &&
            object->start < start + bytes)
            return false;
    }
    return true;
}

int sim_object_new(enum sim_object_kind kind)
{
    for (uint32_t i = 0; i < SIM_OBJECT_MAX; i++) {
        if (sim.object[i].kind != SIM_OBJECT_FREE)
            continue;
        sim.object[i] = (struct sim_object){.kind = kind};
        if (i >= sim.object_top)
            sim.object_top = i + 1;
        return (int)i;
    }
    return -1;
}

static uint64_t align_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

static bool try_place(struct sim_object *wish, uint64_t start, uint64_t alignment, uint64_t end)
{
    start = align_up(start, alignment);
    if (start > end || wish->bytes > end - start ||
        !is_free(wish->kind, wish->gpu, start, wish->bytes))
        return false;
    wish->start = start;
    return true;
}

int sim_object_place(enum sim_object_kind kind, unsigned gpu, uint64_t bytes, uint64_t alignment)
{
    bool physical = kind == SIM_OBJECT_PHYSICAL;
    uint64_t first = physical ? 0 : (uint64_t)(uintptr_t)sim.addresses;
    uint64_t end = first + (physical ? sim.gpu[gpu].arena_bytes : sim.addresses_bytes);
    struct sim_object wish = {.kind = kind, .gpu = gpu, .bytes = bytes};
    bool placed = try_place(&wish, first, alignment, end);
    int index;

    /* A free place that is of use begins where another object ends. */
    for (uint32_t i = 0; i < sim.object_top && !placed; i++) {
        const struct sim_object *object = &sim.object[i];

        if (same_space(object, kind, gpu))
            placed = try_place(&wish, object->start + object->bytes, alignment, end);
    }
    index = placed ? sim_object_new(kind) : -1;
    if (index >= 0)
        sim.object[index] = wish;
    return index;
}

int sim_object_find(enum sim_object_kind kind, uint64_t start)
{
    for (uint32_t i = 0; i < sim.object_top; i++) {
        if (sim.object[i].kind == kind && sim.object[i].start == start)
            return (int)i;
    }
    return -1;
}

void sim_object_drop(int index)
{
    sim.object[index] = (struct sim_object){0};
    while (sim.object_top && sim.object[sim.object_top - 1].kind == SIM_OBJECT_FREE)
        sim.object_top--;
}

bool sim_addresses_reserve(void)
{
    uint64_t bytes = 8ull << 30;
    uint8_t *area;

    if (sim.addresses)
        return true;
    for (unsigned i = 0; i < sim.gpu_count; i++)
        bytes += 2 * sim.gpu[i].vram_bytes;
    bytes = align_up(bytes, SIM_GRANULE_BYTES);
    area = mmap(NULL, bytes + SIM_GRANULE_BYTES, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED)
        return false;
    sim.addresses = (uint8_t *)(uintptr_t)align_up((uint64_t)(uintptr_t)area, SIM_GRANULE_BYTES);
    sim.addresses_bytes = bytes;
    return true;
}
