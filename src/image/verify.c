/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"
#include "image/digest.h"
#include "image/image_private.h"
#include "image/image_text.h"
#include "image/reader.h"
#include "image/trust.h"

/** Every fault goes to the log, the first one to the caller. */
struct faults {
    const char *image_path;
    struct gpucr_error first;
    size_t count;
};

static void add_fault(struct faults *faults, const struct gpucr_error *one)
{
    gpucr_log(GPUCR_LOG_ERROR, "%s", one->text);
    if (faults->count++ == 0)
        faults->first = *one;
}

static int end_faults(const struct faults *faults, struct gpucr_error *err)
{
    if (faults->count == 0)
        return 0;
    if (err) {
        size_t used;

        *err = faults->first;
        used = strlen(err->text);
        if (faults->count > 1)
            (void)snprintf(err->text + used, sizeof(err->text) - used,
                           " (and %zu more faults in this image, see the log)", faults->count - 1);
    }
    return faults->first.code;
}

static void fault_size(struct faults *faults, const struct gpucr_manifest_file *file,
                       uint64_t found)
{
    struct gpucr_error one = GPUCR_ERROR_INIT;

    (void)gpucr_image_fail(&one, GPUCR_ERR_IMAGE_DAMAGED, faults->image_path, file->path,
                           "is %s: it should have %" PRIu64 " bytes and has %" PRIu64,
                           found < file->size_bytes ? "truncated" : "too long", file->size_bytes,
                           found);
    add_fault(faults, &one);
}

static void fault_entry(struct faults *faults, const char *path, const char *what)
{
    struct gpucr_error one = GPUCR_ERROR_INIT;

    (void)gpucr_image_fail(&one, GPUCR_ERR_IMAGE_DAMAGED, faults->image_path, path, "%s", what);
    add_fault(faults, &one);
}

/** The first listed file whose path is not before @p path. */
static size_t lower_bound(const struct gpucr_manifest *m, const char *path)
{
    size_t low = 0;
    size_t high = m->file_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(m->files[middle].path, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_listed_folder(const struct gpucr_manifest *m, const char *path)
{
    char prefix[GPUCR_IMAGE_PATH_BYTES];
    size_t i;

    if (strcmp(path, GPUCR_IMAGE_CRIU_NAME) == 0)
        return true;
    if (snprintf(prefix, sizeof(prefix), "%s/", path) >= (int)sizeof(prefix))
        return false;
    i = lower_bound(m, prefix);
    return i < m->file_count && gpucr_starts_with(m->files[i].path, prefix);
}

/** Is it part of every image, whatever the list says? */
static bool is_own(const struct gpucr_image_tree_entry *e)
{
    if (e->is_folder)
        return strcmp(e->path, GPUCR_IMAGE_LOGS_NAME) == 0 ||
               gpucr_starts_with(e->path, GPUCR_IMAGE_LOGS_NAME "/");
    return gpucr_starts_with(e->path, GPUCR_IMAGE_LOGS_NAME "/") ||
           strcmp(e->path, GPUCR_IMAGE_MANIFEST_NAME) == 0 ||
           strcmp(e->path, GPUCR_IMAGE_DIGEST_NAME) == 0;
}

static void compare_extra(struct faults *faults, const struct gpucr_manifest *m,
                          const struct gpucr_image_tree_entry *e)
{
    if (is_own(e) || (e->is_folder && is_listed_folder(m, e->path)))
        return;
    fault_entry(faults, e->path,
                e->is_folder ? "is a folder that the manifest does not know"
                             : "is a file that the manifest does not know");
}

static void compare_file(struct faults *faults, const struct gpucr_manifest_file *file,
                         const struct gpucr_image_tree_entry *e)
{
    if (e->is_folder)
        fault_entry(faults, e->path, "is a folder where the manifest has a file");
    else if (e->size_bytes != file->size_bytes)
        fault_size(faults, file, e->size_bytes);
}

/** Names and sizes. Both lists are ascending, so that they are walked side by side. */
static void compare_tree(struct faults *faults, const struct gpucr_manifest *m,
                         const struct gpucr_image_tree *tree)
{
    size_t f = 0;
    size_t e = 0;

    while (f < m->file_count || e < tree->count) {
        int order = f == m->file_count ? 1
                    : e == tree->count ? -1
                                       : strcmp(m->files[f].path, tree->entries[e].path);

        if (order < 0)
            fault_entry(faults, m->files[f++].path, "is missing");
        else if (order > 0)
            compare_extra(faults, m, &tree->entries[e++]);
        else
            compare_file(faults, &m->files[f++], &tree->entries[e++]);
    }
}

static void judge_item(struct faults *faults, const struct gpucr_manifest_file *file,
                       const struct gpucr_digest_item *item)
{
    struct gpucr_error one = GPUCR_ERROR_INIT;

    switch ((enum gpucr_digest_failure)item->failure) {
    case GPUCR_DIGEST_OK:
        if (strcmp(item->digest, file->digest) == 0)
            return;
        (void)gpucr_image_fail(&one, GPUCR_ERR_IMAGE_DAMAGED, faults->image_path, file->path,
                               "is damaged: its digest should be %s and is %s", file->digest,
                               item->digest);
        break;
    case GPUCR_DIGEST_SIZE:
        (void)gpucr_image_fail(&one, GPUCR_ERR_IMAGE_DAMAGED, faults->image_path, file->path,
                               "was changed while it was read");
        break;
    case GPUCR_DIGEST_OPEN:
    case GPUCR_DIGEST_READ:
    case GPUCR_DIGEST_FLUSH: {
        int rc = gpucr_error_errno(&one, item->os_errno, "cannot read %s/%s", faults->image_path,
                                   file->path);

        (void)gpucr_error_path(&one, rc, file->path);
        break;
    }
    }
    add_fault(faults, &one);
}

static int compare_digests(struct gpucr_image *image, struct faults *faults,
                           struct gpucr_digest_job *job, struct gpucr_error *err)
{
    const struct gpucr_manifest *m = &image->manifest;
    GPUCR_AUTO_FREE struct gpucr_digest_item *items = calloc(m->file_count + 1, sizeof(*items));
    int rc;

    if (!items)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; i < m->file_count; i++) {
        items[i].path = m->files[i].path;
        items[i].size_bytes = m->files[i].size_bytes;
    }
    job->items = items;
    job->count = m->file_count;
    rc = gpucr_digest_files(job, err);
    for (size_t i = 0; rc == 0 && i < m->file_count; i++)
        judge_item(faults, &m->files[i], &items[i]);
    return rc;
}

static int verify(struct gpucr_image *image, struct gpucr_digest_job *job, struct gpucr_error *err)
{
    struct faults faults = {.image_path = image->path};
    struct gpucr_image_tree tree = {0};
    int rc = gpucr_trust_walk(image->fd, image->path, &tree, err);

    if (rc < 0)
        return rc;
    compare_tree(&faults, &image->manifest, &tree);
    gpucr_image_tree_done(&tree);
    /* A truncated image is known by now, in milliseconds. */
    if (faults.count == 0)
        rc = compare_digests(image, &faults, job, err);
    return rc < 0 ? rc : end_faults(&faults, err);
}

int gpucr_image_verify(struct gpucr_image *image, gpucr_image_progress_fn progress, void *arg,
                       struct gpucr_error *err)
{
    struct gpucr_digest_job job = {.root_fd = image->fd, .progress = progress, .arg = arg};
    int rc = verify(image, &job, err);

    return rc < 0 ? gpucr_error_stage(err, rc, GPUCR_STAGE_VERIFY) : 0;
}
