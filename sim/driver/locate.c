/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "mailbox.h"

#include "../common/sim_sys.h"
#include "driver.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define HEADERS_MAX 64
#define NOTES_MAX   4096

bool sim_remote_read(int pid, uint64_t address, void *buffer, size_t bytes)
{
    struct iovec local = {.iov_base = buffer, .iov_len = bytes};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = bytes};

    return process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)bytes;
}

bool sim_remote_write(int pid, uint64_t address, const void *buffer, size_t bytes)
{
    union {
        const void *from;
        void *base;
    } source = {.from = buffer};
    struct iovec local = {.iov_base = source.base, .iov_len = bytes};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = bytes};

    return process_vm_writev(pid, &local, 1, &remote, 1, 0) == (ssize_t)bytes;
}

static uint64_t align_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

/* Our note in a segment of notes: returns its contents' place in the segment, -1 without. */
static int64_t find_note(const uint8_t *notes, uint64_t bytes, uint64_t alignment)
{
    uint64_t at = 0;

    while (at + sizeof(Elf64_Nhdr) <= bytes) {
        Elf64_Nhdr note;
        uint64_t name = at + sizeof(note), contents;

        memcpy(&note, notes + at, sizeof(note));
        contents = align_up(name + note.n_namesz, alignment);
        if (note.n_namesz > bytes || note.n_descsz > bytes || contents + note.n_descsz > bytes)
            return -1;
        if (note.n_type == SIM_NOTE_TYPE && note.n_descsz == sizeof(int64_t) &&
            note.n_namesz == sizeof(SIM_NOTE_NAME) &&
            memcmp(notes + name, SIM_NOTE_NAME, sizeof(SIM_NOTE_NAME)) == 0)
            return (int64_t)contents;
        at = align_up(contents + note.n_descsz, alignment);
    }
    return -1;
}

static uint64_t mailbox_in_segment(int pid, uint64_t address, const Elf64_Phdr *segment)
{
    uint8_t notes[NOTES_MAX];
    uint64_t bytes = segment->p_memsz < NOTES_MAX ? segment->p_memsz : NOTES_MAX;
    int64_t contents, distance;

    if (!sim_remote_read(pid, address, notes, bytes))
        return 0;
    contents = find_note(notes, bytes, segment->p_align == 8 ? 8 : 4);
    if (contents < 0)
        return 0;
    memcpy(&distance, notes + contents, sizeof(distance));
    return address + (uint64_t)contents + (uint64_t)distance;
}

/* The mailbox of the library that is mapped at base, 0 when it is another library. */
static uint64_t mailbox_of_library(int pid, uint64_t base)
{
    Elf64_Phdr segments[HEADERS_MAX];
    Elf64_Ehdr elf;

    if (!sim_remote_read(pid, base, &elf, sizeof(elf)) ||
        memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0 || elf.e_phentsize != sizeof(segments[0]) ||
        elf.e_phnum > HEADERS_MAX ||
        !sim_remote_read(pid, base + elf.e_phoff, segments, elf.e_phnum * sizeof(segments[0])))
        return 0;
    for (int i = 0; i < elf.e_phnum; i++) {
        uint64_t found = segments[i].p_type == PT_NOTE
                             ? mailbox_in_segment(pid, base + segments[i].p_vaddr, &segments[i])
                             : 0;

        if (found)
            return found;
    }
    return 0;
}

/* The start of a line's mapping when it is the beginning of a file named libcuda*. */
static uint64_t library_base(const char *line)
{
    uint64_t start, end, offset;
    const char *slash = strrchr(line, '/');
    char mode[8];

    if (!slash || strncmp(slash, "/libcuda.so", 11) != 0 ||
        sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64, &start, &end, mode, &offset) != 4 ||
        offset != 0)
        return 0;
    return start;
}

static CUresult search_maps(int pid, FILE *maps, uint64_t *address)
{
    CUresult result = CUDA_ERROR_NOT_INITIALIZED;
    bool has_memory = false;
    char *line = NULL;
    size_t capacity = 0;

    while (result == CUDA_ERROR_NOT_INITIALIZED && getline(&line, &capacity, maps) > 0) {
        uint64_t base = library_base(line);
        char probe;

        has_memory = true;
        if (!base)
            continue;
        errno = 0;
        if (!sim_remote_read(pid, base, &probe, 1)) {
            if (errno == EPERM)
                result = CUDA_ERROR_NOT_PERMITTED;
            continue;
        }
        *address = mailbox_of_library(pid, base);
        if (*address)
            result = CUDA_SUCCESS;
    }
    free(line);
    /* A process that is dying has no memory any more, some time before its end can be polled. */
    return has_memory ? result : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult sim_mailbox_locate(int pid, uint64_t *address, struct sim_mailbox *mailbox)
{
    char path[64];
    FILE *maps;
    CUresult result;

    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    maps = fopen(path, "re");
    if (!maps)
        return errno == EACCES || errno == EPERM ? CUDA_ERROR_NOT_PERMITTED
                                                 : CUDA_ERROR_OPERATING_SYSTEM;
    result = search_maps(pid, maps, address);
    fclose(maps);
    if (result)
        return result;
    if (!sim_remote_read(pid, *address, mailbox, sizeof(*mailbox)))
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (!mailbox->ready || mailbox->version != SIM_MAILBOX_VERSION)
        return CUDA_ERROR_NOT_INITIALIZED;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    /* A child by fork or vfork has the memory, but not the thread. */
    return sim_inner_pid(path) == mailbox->server_pid ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}
