/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/text.h"
#include "image/digest.h"
#include "image/image_private.h"
#include "image/trust.h"
#include "image/writer.h"
#include "image/writer_private.h"

/** What a commit works with. */
struct commit {
    struct gpucr_image_writer *writer;
    struct gpucr_manifest *manifest;
    struct gpucr_image_tree tree; /* files and folders */
    struct gpucr_digest_item *items;
    size_t item_count;
    uint64_t bytes;
};

static int fail_entry(const struct gpucr_image_writer *w, int os_errno, const char *what,
                      const char *name, struct gpucr_error *err)
{
    int rc = gpucr_error_errno(err, os_errno, "cannot %s %s of the image %s", what, name, w->path);

    return gpucr_error_path(err, rc, w->path);
}

static bool is_in(const char *path, const char *folder)
{
    size_t n = strlen(folder);

    return strncmp(path, folder, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/** 0600 and 0700, whatever the engine chose. The mode of a link cannot be set: it is refused later.
 */
static int set_mode(struct gpucr_image_tree_visit *visit)
{
    unsigned mode = S_ISDIR(visit->st.stx_mode) ? 0700 : 0600;

    if (!S_ISREG(visit->st.stx_mode) && !S_ISDIR(visit->st.stx_mode))
        return 0;
    if ((visit->st.stx_mode & 07777) != mode &&
        fchmodat(visit->folder_fd, visit->name, mode, 0) != 0)
        return -errno;
    visit->st.stx_mode = (uint16_t)((visit->st.stx_mode & S_IFMT) | mode);
    return 0;
}

/** In logs/ nothing is worth a failed checkpoint: what a reader would refuse is removed. */
static int judge_log(const struct gpucr_image_tree_visit *visit)
{
    if (gpucr_trust_check(visit->path, &visit->st, NULL) == 0)
        return 0;
    gpucr_debug("%s is left out of the image", visit->path);
    if (unlinkat(visit->folder_fd, visit->name, 0) != 0)
        (void)gpucr_image_tree_remove(visit->folder_fd, visit->name);
    return 1;
}

static int judge_entry(void *arg, struct gpucr_image_tree_visit *visit, struct gpucr_error *err)
{
    const struct gpucr_image_writer *w = arg;
    char path[PATH_MAX];
    int rc;

    if (!is_in(visit->path, GPUCR_IMAGE_CRIU_NAME) && !is_in(visit->path, GPUCR_IMAGE_LOGS_NAME))
        return gpucr_image_fail(err, GPUCR_ERR_IMAGE_UNSAFE, w->path, visit->path,
                                "was not made by gpucr");
    rc = set_mode(visit);
    if (rc < 0)
        return fail_entry(w, -rc, "set the mode of", visit->path, err);
    if (is_in(visit->path, GPUCR_IMAGE_LOGS_NAME))
        return judge_log(visit);
    (void)snprintf(path, sizeof(path), "%s/%s", w->path, visit->path);
    return gpucr_trust_check(path, &visit->st, err);
}

/** What an earlier try of a commit has left. */
static void remove_manifest(const struct gpucr_image_writer *w)
{
    (void)unlinkat(w->fd, GPUCR_IMAGE_MANIFEST_NAME, 0);
    (void)unlinkat(w->fd, GPUCR_IMAGE_DIGEST_NAME, 0);
}

static int collect(struct commit *c, struct gpucr_error *err)
{
    struct gpucr_image_writer *w = c->writer;
    int rc;

    remove_manifest(w);
    rc = gpucr_image_tree_walk(w->fd, judge_entry, w, &c->tree, err);
    if (rc < 0)
        return rc;
    c->items = calloc(c->tree.count + 1, sizeof(*c->items));
    if (!c->items)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; i < c->tree.count; i++) {
        const struct gpucr_image_tree_entry *e = &c->tree.entries[i];

        if (e->is_folder || !is_in(e->path, GPUCR_IMAGE_CRIU_NAME))
            continue;
        c->items[c->item_count++] =
            (struct gpucr_digest_item){.path = e->path, .size_bytes = e->size_bytes};
        if (__builtin_add_overflow(c->bytes, e->size_bytes, &c->bytes) ||
            c->bytes > GPUCR_MANIFEST_IMAGE_BYTES_MAX)
            return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT, "the image %s is larger than 1 PiB",
                                   w->path);
    }
    if (c->item_count == 0)
        return gpucr_image_fail(err, GPUCR_ERR_INTERNAL, w->path, GPUCR_IMAGE_CRIU_NAME,
                                "is empty: the engine has written nothing");
    return 0;
}

/** What happened to the first item that failed. */
static int judge_items(const struct commit *c, struct gpucr_error *err)
{
    const struct gpucr_image_writer *w = c->writer;

    for (size_t i = 0; i < c->item_count; i++) {
        const struct gpucr_digest_item *item = &c->items[i];

        switch ((enum gpucr_digest_failure)item->failure) {
        case GPUCR_DIGEST_OK:
            break;
        case GPUCR_DIGEST_OPEN:
            return fail_entry(w, item->os_errno, "open", item->path, err);
        case GPUCR_DIGEST_READ:
            return fail_entry(w, item->os_errno, "read back", item->path, err);
        case GPUCR_DIGEST_FLUSH:
            return fail_entry(w, item->os_errno, "write to the disk", item->path, err);
        case GPUCR_DIGEST_SIZE:
            return gpucr_image_fail(err, GPUCR_ERR_ENGINE, w->path, item->path,
                                    "is still being written by the engine");
        }
    }
    return 0;
}

/** Item @p index is made durable; and its size must still be the one that was digested. */
static void sync_item(void *arg, size_t index)
{
    struct commit *c = arg;
    struct gpucr_digest_item *item = &c->items[index];
    GPUCR_AUTO_FD int fd = gpucr_image_tree_open(c->writer->fd, item->path, O_RDONLY | O_NONBLOCK);
    struct stat st;

    if (fd < 0) {
        item->failure = GPUCR_DIGEST_OPEN;
        item->os_errno = -fd;
    } else if (fdatasync(fd) != 0) {
        item->failure = GPUCR_DIGEST_FLUSH;
        item->os_errno = errno;
    } else if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != item->size_bytes) {
        item->failure = GPUCR_DIGEST_SIZE;
    }
}

static int sync_files(struct commit *c, gpucr_image_progress_fn progress, void *arg,
                      struct gpucr_error *err)
{
    struct gpucr_digest_job job = {.root_fd = c->writer->fd,
                                   .items = c->items,
                                   .count = c->item_count,
                                   .flush = true,
                                   .progress = progress,
                                   .arg = arg};
    int rc = gpucr_digest_files(&job, err);

    if (rc == 0)
        rc = judge_items(c, err);
    if (rc < 0)
        return rc;
    gpucr_parallel_for(c->item_count, gpucr_digest_threads(), sync_item, c);
    return judge_items(c, err);
}

static int sync_folder(const struct gpucr_image_writer *w, const char *path,
                       struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = gpucr_image_tree_open(w->fd, path, O_RDONLY | O_DIRECTORY);

    if (fd < 0 || fsync(fd) != 0)
        return fail_entry(w, fd < 0 ? -fd : errno, "write to the disk the folder", path, err);
    return 0;
}

/** From the inside out: descending paths have what is in a folder before the folder. */
static int sync_folders(const struct commit *c, struct gpucr_error *err)
{
    for (size_t i = c->tree.count; i > 0; i--) {
        int rc = 0;

        if (c->tree.entries[i - 1].is_folder)
            rc = sync_folder(c->writer, c->tree.entries[i - 1].path, err);
        if (rc < 0)
            return rc;
    }
    return sync_folder(c->writer, ".", err);
}

static bool list_file(const struct gpucr_digest_item *item, struct gpucr_manifest_file *file)
{
    file->path = strdup(item->path);
    file->size_bytes = item->size_bytes;
    (void)gpucr_copy_text(file->digest, sizeof(file->digest), item->digest);
    return file->path != NULL;
}

static int list_files(struct commit *c, struct gpucr_error *err)
{
    struct gpucr_manifest_file *files = calloc(c->item_count + 1, sizeof(*files));

    if (!files)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; i < c->item_count; i++) {
        if (!list_file(&c->items[i], &files[i])) {
            gpucr_manifest_files_free(files, i);
            return gpucr_error_no_memory(err);
        }
    }
    gpucr_manifest_files_free(c->manifest->files, c->manifest->file_count);
    c->manifest->files = files;
    c->manifest->file_count = c->item_count;
    return 0;
}

static int write_file(const struct gpucr_image_writer *w, const char *name, const void *data,
                      size_t size_bytes, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = openat(w->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                  S_IRUSR | S_IWUSR);
    int rc;

    if (fd < 0 || fchmod(fd, S_IRUSR | S_IWUSR) != 0)
        return fail_entry(w, errno, "create", name, err);
    rc = gpucr_fd_write_all(fd, data, size_bytes, err);
    if (rc < 0) {
        rc = gpucr_error_wrap(err, rc, "%s/%s", w->path, name);
        return gpucr_error_path(err, rc, w->path);
    }
    return fsync(fd) == 0 ? 0 : fail_entry(w, errno, "write to the disk", name, err);
}

/** An image that cannot be read again is worse than none: the text is tried before it counts. */
static int print_manifest(const struct commit *c, char **ret, struct gpucr_error *err)
{
    GPUCR_AUTO_FREE char *json = NULL;
    struct gpucr_manifest again = {0};
    int rc = gpucr_manifest_to_json(c->manifest, &json, err);

    if (rc == 0)
        rc = gpucr_manifest_from_json(json, strlen(json), &again, err);
    gpucr_manifest_done(&again);
    if (rc < 0) {
        rc = gpucr_error_wrap(err, rc, "the manifest of the image %s cannot be written",
                              c->writer->path);
        return gpucr_error_path(err, rc, c->writer->path);
    }
    *ret = gpucr_steal_ptr(&json);
    return 0;
}

static int write_manifest(struct commit *c, struct gpucr_error *err)
{
    GPUCR_AUTO_FREE char *json = NULL;
    char digest[GPUCR_DIGEST_TEXT_BYTES];
    int rc = list_files(c, err);
    size_t n;

    if (rc == 0)
        rc = print_manifest(c, &json, err);
    if (rc < 0)
        return rc;
    assert(json);
    n = strlen(json);
    c->bytes += n + GPUCR_DIGEST_TEXT_BYTES;
    gpucr_digest_buffer(json, n, digest);
    digest[GPUCR_DIGEST_TEXT_BYTES - 1] = '\n';
    rc = write_file(c->writer, GPUCR_IMAGE_MANIFEST_NAME, json, n, err);
    if (rc == 0)
        rc = gpucr_fault("image.commit.before-manifest-digest", err);
    if (rc == 0)
        rc = write_file(c->writer, GPUCR_IMAGE_DIGEST_NAME, digest, sizeof(digest), err);
    return rc;
}

/**
 * Rename without replacing anything. Where the file system lacks RENAME_NOREPLACE, an
 * ordinary rename() of a folder is nearly as good: onto a file it fails with ENOTDIR, onto
 * a folder that is not empty with ENOTEMPTY; only an empty folder that appears after the
 * look-up would be replaced.
 */
static int rename_new(int folder_fd, const char *from, const char *to)
{
    struct stat st;

    if (renameat2(folder_fd, from, folder_fd, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
        return -errno;
    if (fstatat(folder_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    if (errno != ENOENT)
        return -errno;
    if (renameat(folder_fd, from, folder_fd, to) == 0)
        return 0;
    return errno == ENOTEMPTY || errno == ENOTDIR ? -EEXIST : -errno;
}

static int give_name(const struct gpucr_image_writer *w, struct gpucr_error *err)
{
    int rc = rename_new(w->parent_fd, w->temp_name, w->name);

    if (rc == -EEXIST) {
        rc = gpucr_error_set(err, GPUCR_ERR_EXISTS,
                             "somebody else has put something at %s while the image was written; "
                             "it stays as it is",
                             w->path);
        return gpucr_error_path(err, rc, w->path);
    }
    return rc < 0 ? fail_entry(w, -rc, "rename", "the folder", err) : 0;
}

/** After the rename: make the name durable, or take it back. */
static int keep_name(const struct gpucr_image_writer *w, struct gpucr_error *err)
{
    int rc = gpucr_fault("image.commit.after-rename", err);
    int back;

    if (rc == 0 && fsync(w->parent_fd) != 0)
        rc = fail_entry(w, errno, "write to the disk", "the name", err);
    if (rc == 0)
        return 0;
    back = rename_new(w->parent_fd, w->name, w->temp_name);
    if (back < 0)
        gpucr_warn("the image %s is complete, but may not survive a power cut; it cannot be "
                   "renamed back: %s",
                   w->path, strerror(-back));
    return rc;
}

/**
 * The commit: nothing may be visible before it is complete, and nothing may be
 * promised before it is durable. The order, and why it is this one:
 *
 * 1. Collect: modes are set and every entry is judged as a reader will judge it, so that
 *    no image is made that cannot be opened.
 * 2. Files: digested and fdatasync()ed. Their data must be on the disk before the name is,
 *    for a journal may write the later rename first.
 * 3. Manifest, then its digest, each fsync()ed: they describe files that are durable.
 * 4. Folders, inner ones first: fsync() of a file does not cover its name.
 * 5. Rename: the one step that makes the image visible; it is atomic and replaces nothing.
 * 6. fsync() of the parent: the rename itself survives a power cut. If that cannot be had,
 *    the rename is taken back, since a failed commit leaves nothing under the name.
 */
static int commit_steps(struct commit *c, gpucr_image_progress_fn progress, void *arg,
                        struct gpucr_error *err)
{
    int rc = collect(c, err);

    if (rc == 0)
        rc = sync_files(c, progress, arg, err);
    if (rc == 0)
        rc = gpucr_fault("image.commit.before-manifest", err);
    if (rc == 0)
        rc = write_manifest(c, err);
    if (rc == 0)
        rc = sync_folders(c, err);
    if (rc == 0)
        rc = gpucr_fault("image.commit.before-rename", err);
    if (rc == 0)
        rc = give_name(c->writer, err);
    if (rc == 0)
        rc = keep_name(c->writer, err);
    return rc;
}

/** A full disk: how much it would take, how much there is. */
static int explain_space(const struct commit *c, struct gpucr_error *err)
{
    uint64_t free_bytes = 0;
    int rc;

    (void)gpucr_image_writer_free_bytes(c->writer, &free_bytes, NULL);
    rc = gpucr_error_wrap(err, GPUCR_ERR_NO_SPACE,
                          "the image %s needs %" PRIu64 " bytes in all, and %" PRIu64
                          " bytes are free beside what is written",
                          c->writer->path, c->bytes, free_bytes);
    return gpucr_error_path(err, rc, c->writer->path);
}

int gpucr_image_writer_commit(struct gpucr_image_writer *writer, struct gpucr_manifest *manifest,
                              gpucr_image_progress_fn progress, void *arg, struct gpucr_error *err)
{
    struct commit c = {.writer = writer, .manifest = manifest};
    int rc;

    assert(!writer->committed);
    rc = commit_steps(&c, progress, arg, err);
    if (rc == GPUCR_ERR_NO_SPACE)
        rc = explain_space(&c, err);
    free(c.items);
    gpucr_image_tree_done(&c.tree);
    if (rc < 0)
        return gpucr_error_stage(err, rc, GPUCR_STAGE_COMMIT);
    writer->committed = true;
    writer->size_bytes = c.bytes;
    return 0;
}
