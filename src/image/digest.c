/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "image/digest.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "image/manifest.h"
#include "image/tree_walk.h"

enum {
    BLOCK_BYTES = 1 << 20, /* stays in the second-level cache between the read and the hash */
    BLOCK_ALIGN = 4096,
    THREADS_MIN = 8,
    THREADS_MAX = 48,
    DIGEST_BYTES = 16,
    PROGRESS_NS = 100000000,
    /* A thread is worth starting for so much work. */
    PIECES_PER_THREAD = 8,
    BYTES_PER_THREAD = 8 << 20,
};

static_assert(sizeof(XXH128_canonical_t) == DIGEST_BYTES, "the canonical form has 16 bytes");

/** What a thread needs for a piece; kept for the next one. */
struct slot {
    unsigned char *buffer;
    XXH3_state_t *state;
};

struct piece {
    uint32_t item;
    uint32_t index;
};

struct work {
    struct gpucr_digest_job *job;
    struct piece *pieces;
    XXH128_canonical_t *digests; /* one per piece */
    size_t piece_count;
    struct slot slots[THREADS_MAX];
    size_t slot_count; /* all */
    size_t free_count; /* the first ones are free */
    pthread_mutex_t slot_mutex;
    pthread_mutex_t progress_mutex;
    uint64_t progress_at_ns;
    atomic_uint_fast64_t done_bytes;
    uint64_t total_bytes;
    size_t block_bytes; /* of the buffers: BLOCK_BYTES, or BLOCK_ALIGN when no file is larger */
};

size_t gpucr_digest_threads(void)
{
    size_t n = gpucr_cpu_count();

    return n < THREADS_MIN ? THREADS_MIN : n > THREADS_MAX ? THREADS_MAX : n;
}

static void print_digest(XXH128_hash_t hash, char ret[GPUCR_DIGEST_TEXT_BYTES])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, hash);
    for (size_t i = 0; i < DIGEST_BYTES; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", canonical.digest[i]);
}

void gpucr_digest_buffer(const void *data, size_t size_bytes, char ret[GPUCR_DIGEST_TEXT_BYTES])
{
    print_digest(XXH3_128bits(data, size_bytes), ret);
}

static struct slot take_slot(struct work *w)
{
    GPUCR_SCOPED_LOCK(lock, &w->slot_mutex);

    assert(w->free_count > 0);
    return w->slots[--w->free_count];
}

static void give_slot(struct work *w, struct slot slot)
{
    GPUCR_SCOPED_LOCK(lock, &w->slot_mutex);

    w->slots[w->free_count++] = slot;
}

/** Tell the caller how far it is, at most ten times a second; who comes meanwhile goes on. */
static void report(struct work *w, uint64_t bytes)
{
    uint64_t now;

    atomic_fetch_add(&w->done_bytes, bytes);
    if (!w->job->progress || pthread_mutex_trylock(&w->progress_mutex) != 0)
        return;
    now = gpucr_now_ns();
    if (now - w->progress_at_ns >= PROGRESS_NS) {
        w->progress_at_ns = now;
        w->job->progress(w->job->arg, atomic_load(&w->done_bytes), w->total_bytes);
    }
    (void)pthread_mutex_unlock(&w->progress_mutex);
}

/** The first failure of an item counts; pieces of one item are worked on by several threads. */
static void fail_item(struct gpucr_digest_item *item, enum gpucr_digest_failure failure,
                      int os_errno)
{
    int none = GPUCR_DIGEST_OK;

    if (__atomic_compare_exchange_n(&item->failure, &none, (int)failure, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        item->os_errno = os_errno;
}

static uint64_t pieces_of(uint64_t size_bytes)
{
    return size_bytes / GPUCR_DIGEST_PIECE_BYTES + (size_bytes % GPUCR_DIGEST_PIECE_BYTES != 0);
}

/** Hash the range; 0 or the failure, with errno. */
static int hash_range(struct work *w, int fd, uint64_t offset, uint64_t size_bytes,
                      struct slot *slot)
{
    if (XXH3_128bits_reset(slot->state) != XXH_OK)
        return GPUCR_DIGEST_READ;
    while (size_bytes > 0) {
        size_t want = size_bytes < w->block_bytes ? (size_t)size_bytes : w->block_bytes;
        ssize_t n = pread(fd, slot->buffer, want, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return GPUCR_DIGEST_READ;
        if (n == 0) {
            errno = 0;
            return GPUCR_DIGEST_SIZE;
        }
        (void)XXH3_128bits_update(slot->state, slot->buffer, (size_t)n);
        offset += (uint64_t)n;
        size_bytes -= (uint64_t)n;
        report(w, (uint64_t)n);
    }
    return GPUCR_DIGEST_OK;
}

/**
 * Write the range back and wait for it. It makes nothing durable by itself, the
 * fdatasync() after it does; but an error of the disk is reported once per open
 * file, so it must not be passed over here. File systems that lack the call say so.
 */
static int flush_range(int fd, uint64_t offset, uint64_t size_bytes)
{
    const unsigned flags =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

    if (sync_file_range(fd, (off_t)offset, (off_t)size_bytes, flags) == 0)
        return GPUCR_DIGEST_OK;
    return errno == EIO || errno == ENOSPC || errno == EDQUOT ? GPUCR_DIGEST_FLUSH
                                                              : GPUCR_DIGEST_OK;
}

/** Every piece opens its file: an image may have more files than descriptors are allowed. */
static int open_item(const struct work *w, const struct gpucr_digest_item *item, int *ret)
{
    GPUCR_AUTO_FD int fd =
        gpucr_image_tree_open(w->job->root_fd, item->path, O_RDONLY | O_NONBLOCK);
    struct stat st;

    if (fd < 0) {
        errno = -fd;
        return GPUCR_DIGEST_OPEN;
    }
    if (fstat(fd, &st) != 0)
        return GPUCR_DIGEST_OPEN;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != item->size_bytes) {
        errno = 0;
        return GPUCR_DIGEST_SIZE;
    }
    *ret = gpucr_steal_fd(&fd);
    return GPUCR_DIGEST_OK;
}

static int digest_piece(struct work *w, size_t number, struct slot *slot)
{
    const struct piece *piece = &w->pieces[number];
    const struct gpucr_digest_item *item = &w->job->items[piece->item];
    uint64_t offset = (uint64_t)piece->index * GPUCR_DIGEST_PIECE_BYTES;
    uint64_t size_bytes = item->size_bytes - offset;
    GPUCR_AUTO_FD int fd = -1;
    int failure = open_item(w, item, &fd);

    if (failure != GPUCR_DIGEST_OK)
        return failure;
    if (size_bytes > GPUCR_DIGEST_PIECE_BYTES)
        size_bytes = GPUCR_DIGEST_PIECE_BYTES;
    (void)posix_fadvise(fd, (off_t)offset, (off_t)size_bytes, POSIX_FADV_SEQUENTIAL);
    failure = hash_range(w, fd, offset, size_bytes, slot);
    if (failure == GPUCR_DIGEST_OK) {
        XXH128_canonicalFromHash(&w->digests[number], XXH3_128bits_digest(slot->state));
        if (w->job->flush && size_bytes > 0)
            failure = flush_range(fd, offset, size_bytes);
    }
    return failure;
}

static void work_on_piece(void *arg, size_t number)
{
    struct work *w = arg;
    struct gpucr_digest_item *item = &w->job->items[w->pieces[number].item];
    struct slot slot;
    int failure;

    if (__atomic_load_n(&item->failure, __ATOMIC_RELAXED) != GPUCR_DIGEST_OK)
        return;
    slot = take_slot(w);
    failure = digest_piece(w, number, &slot);
    if (failure != GPUCR_DIGEST_OK)
        fail_item(item, failure, errno);
    give_slot(w, slot);
}

static void done_work(struct work *w)
{
    for (size_t i = 0; i < w->slot_count; i++) {
        free(w->slots[i].buffer);
        (void)XXH3_freeState(w->slots[i].state);
    }
    free(w->pieces);
    free(w->digests);
    (void)pthread_mutex_destroy(&w->slot_mutex);
    (void)pthread_mutex_destroy(&w->progress_mutex);
}

/** A file without bytes gets a piece, too: it is opened, its size is compared. */
static uint64_t tasks_of(const struct gpucr_digest_item *item)
{
    return item->size_bytes == 0 ? 1 : pieces_of(item->size_bytes);
}

static int make_pieces(struct work *w, struct gpucr_error *err)
{
    struct gpucr_digest_job *job = w->job;
    uint64_t count = 0;
    size_t k = 0;

    w->block_bytes = BLOCK_ALIGN;
    for (size_t i = 0; i < job->count; i++) {
        count += tasks_of(&job->items[i]);
        w->total_bytes += job->items[i].size_bytes;
        assert(w->total_bytes <= GPUCR_MANIFEST_IMAGE_BYTES_MAX);
        if (job->items[i].size_bytes > BLOCK_ALIGN)
            w->block_bytes = BLOCK_BYTES;
    }
    w->pieces = calloc(count + 1, sizeof(*w->pieces));
    w->digests = calloc(count + 1, sizeof(*w->digests));
    if (!w->pieces || !w->digests)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; i < job->count; i++) {
        uint64_t n = tasks_of(&job->items[i]);

        for (uint64_t p = 0; p < n; p++)
            w->pieces[k++] = (struct piece){(uint32_t)i, (uint32_t)p};
    }
    w->piece_count = k;
    return 0;
}

static int make_slots(struct work *w, struct gpucr_error *err)
{
    size_t most = gpucr_digest_threads();
    size_t n = 1 + w->piece_count / PIECES_PER_THREAD + w->total_bytes / BYTES_PER_THREAD;

    if (n > most)
        n = most;
    if (n > w->piece_count)
        n = w->piece_count;
    while (w->slot_count < n) {
        struct slot *slot = &w->slots[w->slot_count++];

        slot->buffer = aligned_alloc(BLOCK_ALIGN, w->block_bytes);
        slot->state = XXH3_createState();
        if (!slot->buffer || !slot->state)
            return gpucr_error_no_memory(err);
    }
    w->free_count = w->slot_count;
    return 0;
}

int gpucr_digest_files(struct gpucr_digest_job *job, struct gpucr_error *err)
{
    struct work w = {.job = job,
                     .slot_mutex = PTHREAD_MUTEX_INITIALIZER,
                     .progress_mutex = PTHREAD_MUTEX_INITIALIZER};
    int rc = make_pieces(&w, err);
    size_t k = 0;

    if (rc == 0)
        rc = make_slots(&w, err);
    if (rc == 0) {
        gpucr_parallel_for(w.piece_count, w.slot_count, work_on_piece, &w);
        for (size_t i = 0; i < job->count; i++) {
            struct gpucr_digest_item *item = &job->items[i];

            print_digest(XXH3_128bits(&w.digests[k], pieces_of(item->size_bytes) * DIGEST_BYTES),
                         item->digest);
            k += tasks_of(item);
        }
        if (job->progress)
            job->progress(job->arg, atomic_load(&w.done_bytes), w.total_bytes);
    }
    done_work(&w);
    return rc;
}
