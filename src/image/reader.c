/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "image/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "image/digest.h"
#include "image/image_private.h"
#include "image/image_text.h"
#include "image/trust.h"

GPUCR_DEFINE_CLEANUP(struct gpucr_image, image, (void)gpucr_image_close)

#define AUTO_IMAGE GPUCR_CLEANUP(gpucr_cleanup_image)

/** A slash at the end would make open() follow a link in spite of O_NOFOLLOW. */
static char *without_slashes(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return strndup(path, n);
}

/** What open() refused: O_DIRECTORY with O_NOFOLLOW gives ENOTDIR for a link, too. */
static int fail_open(const char *path, int os_errno, struct gpucr_error *err)
{
    struct stat st;
    int rc;

    if ((os_errno == ENOTDIR || os_errno == ELOOP) && lstat(path, &st) == 0) {
        if (S_ISLNK(st.st_mode))
            rc = gpucr_error_set(err, GPUCR_ERR_IMAGE_UNSAFE,
                                 "%s is a symbolic link, not an image; name the folder that it "
                                 "leads to",
                                 path);
        else
            rc = gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT, "%s is not a folder, so no image",
                                 path);
    } else {
        rc = gpucr_error_errno(err, os_errno, "cannot open the image %s", path);
    }
    return gpucr_error_path(err, rc, path);
}

int gpucr_image_fail(struct gpucr_error *err, int code, const char *image_path, const char *name,
                     const char *format, ...)
{
    char text[GPUCR_ERROR_TEXT_BYTES];
    char whole[GPUCR_ERROR_TEXT_BYTES];
    char shown[GPUCR_ERROR_TEXT_BYTES / 2];
    va_list args;
    int rc;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    (void)snprintf(whole, sizeof(whole), "%s/%s", image_path, name);
    (void)gpucr_image_text_show(shown, sizeof(shown), whole);
    rc = gpucr_error_set(err, code, "%s %s", shown, text);
    return gpucr_error_path(err, rc, shown);
}

/** A file at the top of the image, with what its absence and its excess mean. */
struct top_file {
    const char *name;
    size_t limit_bytes;
    int code_missing;
    int code_large;
};

static int read_top_file(const struct gpucr_image *image, const struct top_file *file, char **ret,
                         size_t *ret_bytes, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = gpucr_image_tree_open(image->fd, file->name, O_RDONLY | O_NONBLOCK);
    struct stat st;
    int rc;

    if (fd == -ENOENT)
        return gpucr_image_fail(err, file->code_missing, image->path, file->name,
                                "is missing: this is not a complete image");
    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = gpucr_error_errno(err, fd < 0 ? -fd : errno, "cannot open %s/%s", image->path,
                               file->name);
        return gpucr_error_path(err, rc, image->path);
    }
    if (!S_ISREG(st.st_mode))
        return gpucr_image_fail(err, GPUCR_ERR_IMAGE_DAMAGED, image->path, file->name,
                                "is not a file");
    if ((uint64_t)st.st_size > file->limit_bytes)
        return gpucr_image_fail(err, file->code_large, image->path, file->name,
                                "has %lld bytes, more than %zu", (long long)st.st_size,
                                file->limit_bytes);
    rc = gpucr_fd_read_all(fd, file->limit_bytes, ret, ret_bytes, err);
    return rc < 0 ? gpucr_error_wrap(err, rc, "%s/%s", image->path, file->name) : 0;
}

/** Compare manifest.json, as read, with the digest beside it: before anything is parsed. */
static int check_manifest_digest(const struct gpucr_image *image, struct gpucr_error *err)
{
    static const struct top_file file = {GPUCR_IMAGE_DIGEST_NAME, GPUCR_DIGEST_TEXT_BYTES,
                                         GPUCR_ERR_IMAGE_DAMAGED, GPUCR_ERR_IMAGE_DAMAGED};
    GPUCR_AUTO_FREE char *text = NULL;
    char found[GPUCR_DIGEST_TEXT_BYTES];
    size_t n = 0;
    int rc = read_top_file(image, &file, &text, &n, err);

    if (rc < 0)
        return rc;
    if (n != GPUCR_DIGEST_TEXT_BYTES || text[n - 1] != '\n' ||
        strspn(text, "0123456789abcdef") != n - 1)
        return gpucr_image_fail(err, GPUCR_ERR_IMAGE_DAMAGED, image->path, file.name,
                                "is not 32 hexadecimal digits and a newline");
    text[n - 1] = '\0';
    gpucr_digest_buffer(image->json, image->json_bytes, found);
    if (strcmp(text, found) != 0)
        return gpucr_image_fail(err, GPUCR_ERR_IMAGE_DAMAGED, image->path,
                                GPUCR_IMAGE_MANIFEST_NAME,
                                "is damaged: its digest should be %s and is %s", text, found);
    return 0;
}

static int read_manifest(struct gpucr_image *image, struct gpucr_error *err)
{
    static const struct top_file file = {GPUCR_IMAGE_MANIFEST_NAME, GPUCR_MANIFEST_BYTES_MAX,
                                         GPUCR_ERR_IMAGE_FORMAT, GPUCR_ERR_IMAGE_FORMAT};
    int rc = read_top_file(image, &file, &image->json, &image->json_bytes, err);

    if (rc == 0)
        rc = check_manifest_digest(image, err);
    if (rc < 0)
        return rc;
    rc = gpucr_manifest_from_json(image->json, image->json_bytes, &image->manifest, err);
    if (rc < 0) {
        rc = gpucr_error_wrap(err, rc, "the manifest of the image %s is not valid", image->path);
        return gpucr_error_path(err, rc, image->path);
    }
    image->size_bytes = image->json_bytes + GPUCR_DIGEST_TEXT_BYTES;
    for (size_t i = 0; i < image->manifest.file_count; i++)
        image->size_bytes += image->manifest.files[i].size_bytes;
    return 0;
}

static int open_criu(struct gpucr_image *image, struct gpucr_error *err)
{
    int fd = gpucr_image_tree_open(image->fd, GPUCR_IMAGE_CRIU_NAME, O_RDONLY | O_DIRECTORY);

    if (fd == -ENOENT || fd == -ENOTDIR)
        return gpucr_image_fail(err, GPUCR_ERR_IMAGE_DAMAGED, image->path, GPUCR_IMAGE_CRIU_NAME,
                                fd == -ENOENT ? "is missing" : "is not a folder");
    if (fd < 0)
        return gpucr_error_errno(err, -fd, "cannot open %s/%s", image->path, GPUCR_IMAGE_CRIU_NAME);
    image->criu_fd = fd;
    return 0;
}

static int open_image(const char *path, struct gpucr_image **ret, struct gpucr_error *err)
{
    AUTO_IMAGE struct gpucr_image *image = calloc(1, sizeof(*image));
    int rc;

    if (!image)
        return gpucr_error_no_memory(err);
    image->fd = -1;
    image->criu_fd = -1;
    image->path = without_slashes(path);
    if (!image->path)
        return gpucr_error_no_memory(err);
    image->fd = open(image->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (image->fd < 0)
        return fail_open(image->path, errno, err);
    rc = gpucr_trust_walk(image->fd, image->path, NULL, err);
    if (rc == 0)
        rc = read_manifest(image, err);
    if (rc == 0)
        rc = open_criu(image, err);
    if (rc == 0)
        *ret = gpucr_steal_ptr(&image);
    return rc;
}

int gpucr_image_open(const char *path, struct gpucr_image **ret, struct gpucr_error *err)
{
    int rc = open_image(path, ret, err);

    return rc < 0 ? gpucr_error_stage(err, rc, GPUCR_STAGE_VERIFY) : 0;
}

struct gpucr_image *gpucr_image_close(struct gpucr_image *image)
{
    if (!image)
        return NULL;
    gpucr_manifest_done(&image->manifest);
    if (image->criu_fd >= 0)
        (void)close(image->criu_fd);
    if (image->fd >= 0)
        (void)close(image->fd);
    free(image->json);
    free(image->path);
    free(image);
    return NULL;
}

const char *gpucr_image_manifest_json(const struct gpucr_image *image)
{
    return image->json;
}

uint64_t gpucr_image_size_bytes(const struct gpucr_image *image)
{
    return image->size_bytes;
}

const struct gpucr_manifest *gpucr_image_manifest(const struct gpucr_image *image)
{
    return &image->manifest;
}

int gpucr_image_criu_fd(const struct gpucr_image *image)
{
    return image->criu_fd;
}
