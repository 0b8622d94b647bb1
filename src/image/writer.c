/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "image/writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/text.h"
#include "image/image_private.h"
#include "image/tree_walk.h"
#include "image/writer_private.h"

/* The hidden folder is called ".NAME.gpucr-" and six random characters. */
#define TEMP_INFIX ".gpucr-"

enum {
    TEMP_RANDOM = 6,
    TEMP_TRIES = 100,
    FINAL_NAME_MAX = NAME_MAX - 1 - (int)sizeof(TEMP_INFIX) + 1 - TEMP_RANDOM,
};

GPUCR_DEFINE_CLEANUP(struct gpucr_image_writer, image_writer, gpucr_image_writer_free)

#define AUTO_WRITER GPUCR_CLEANUP(gpucr_cleanup_image_writer)

static int fail_begin(const struct gpucr_image_writer *w, int os_errno, const char *what,
                      struct gpucr_error *err)
{
    int rc = gpucr_error_errno(err, os_errno, "cannot create the image %s: %s", w->path, what);

    return gpucr_error_path(err, rc, w->path);
}

/** "a/b/NAME/" becomes parent "a/b" and name "NAME". */
static int split_path(struct gpucr_image_writer *w, const char *path, struct gpucr_error *err)
{
    size_t end = strlen(path);
    size_t start;
    size_t n;

    while (end > 1 && path[end - 1] == '/')
        end--;
    start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    n = end - start;
    if (strncmp(path + start, "..", n) == 0) /* also of no bytes, and "." */
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "\"%s\" does not name a new folder", path);
    if (n > FINAL_NAME_MAX)
        return gpucr_error_set(err, GPUCR_ERR_USAGE,
                               "the name of the image has %zu bytes, more than %d", n,
                               FINAL_NAME_MAX);
    (void)memcpy(w->name, path + start, n);
    w->path = strndup(path, end);
    /* "/NAME" lies in "/", a bare name in ".". */
    w->parent = start == 0 ? strdup(".") : strndup(path, start == 1 ? 1 : start - 1);
    return w->path && w->parent ? 0 : gpucr_error_no_memory(err);
}

static int check_parent(const struct gpucr_image_writer *w, struct gpucr_error *err)
{
    struct stat st;
    int rc;

    if (fstat(w->parent_fd, &st) != 0)
        return fail_begin(w, errno, "its parent folder cannot be looked at", err);
    if (st.st_mode & S_ISVTX)
        return 0;
    if (st.st_mode & S_IWOTH) {
        rc = gpucr_error_set(err, GPUCR_ERR_IMAGE_UNSAFE,
                             "everybody may rename or remove what is in %s; choose another folder "
                             "for the image, or set the sticky bit: chmod +t %s",
                             w->parent, w->parent);
        return gpucr_error_path(err, rc, w->parent);
    }
    if (st.st_mode & S_IWGRP)
        gpucr_info("the group of the folder %s may rename or remove the image in it", w->parent);
    return 0;
}

static int open_parent(struct gpucr_image_writer *w, struct gpucr_error *err)
{
    int rc;

    assert(w->parent);
    w->parent_fd = open(w->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->parent_fd < 0) {
        rc = gpucr_error_errno(err, errno,
                               "cannot create the image %s: the folder %s, in which it would be, "
                               "cannot be opened",
                               w->path, w->parent);
        return gpucr_error_path(err, rc, w->parent);
    }
    return check_parent(w, err);
}

/** No link is followed: one that leads nowhere takes the name as well. */
static int check_name_free(const struct gpucr_image_writer *w, struct gpucr_error *err)
{
    struct stat st;
    int rc;

    if (fstatat(w->parent_fd, w->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        rc = gpucr_error_set(err, GPUCR_ERR_EXISTS,
                             "there is a %s called %s already; choose another name for the image, "
                             "or remove it",
                             S_ISDIR(st.st_mode) ? "folder" : "file", w->path);
        return gpucr_error_path(err, rc, w->path);
    }
    return errno == ENOENT ? 0 : fail_begin(w, errno, "its name cannot be looked up", err);
}

/** Is it still the folder that has this name? It may have been removed since it was opened. */
static bool has_name(int parent_fd, const char *name, int fd)
{
    struct stat by_name;
    struct stat by_fd;

    return fstatat(parent_fd, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &by_fd) == 0 &&
           by_name.st_dev == by_fd.st_dev && by_name.st_ino == by_fd.st_ino;
}

/** Remove what an earlier writer left, unless that writer lives: then it holds the lock. */
static void remove_leftover(int parent_fd, const char *name)
{
    GPUCR_AUTO_FD int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    int rc;

    if (fd < 0 || fstat(fd, &st) != 0 || st.st_uid != geteuid())
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        gpucr_debug("%s stays: %s", name,
                    errno == EWOULDBLOCK ? "it is being written" : "it cannot be locked");
        return;
    }
    if (!has_name(parent_fd, name, fd))
        return;
    rc = gpucr_image_tree_remove(parent_fd, name);
    if (rc < 0)
        gpucr_warn("cannot remove %s, left by an earlier run: %s", name, strerror(-rc));
    else
        gpucr_info("removed %s, left by an earlier run", name);
}

static void remove_leftovers(const struct gpucr_image_writer *w)
{
    int fd = openat(w->parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    GPUCR_AUTO_DIR DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    char prefix[NAME_MAX + 1];
    const struct dirent *e;

    if (!dir) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    (void)snprintf(prefix, sizeof(prefix), ".%.*s" TEMP_INFIX, FINAL_NAME_MAX, w->name);
    while ((e = readdir(dir))) {
        if (gpucr_starts_with(e->d_name, prefix) &&
            strlen(e->d_name) == strlen(prefix) + TEMP_RANDOM)
            remove_leftover(w->parent_fd, e->d_name);
    }
}

static int make_temp_name(struct gpucr_image_writer *w, struct gpucr_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char bytes[TEMP_RANDOM];
    char suffix[TEMP_RANDOM + 1] = {0};

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return fail_begin(w, errno, "no random numbers", err);
    for (int i = 0; i < TEMP_RANDOM; i++)
        suffix[i] = letters[bytes[i] % (sizeof(letters) - 1)];
    (void)snprintf(w->temp_name, sizeof(w->temp_name), ".%.*s" TEMP_INFIX "%s", FINAL_NAME_MAX,
                   w->name, suffix);
    return 0;
}

/**
 * Open and lock the folder just made. Between the two, a writer that begins may take it
 * for a leftover, lock it and remove it: then it is not ours, and another one is made.
 * Returns 1 when it is ours, 0 when it is not. NFS cannot lock a folder: EBADF, no lock.
 */
static int take_temp(struct gpucr_image_writer *w, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd =
        openat(w->parent_fd, w->temp_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return errno == ENOENT ? 0 : fail_begin(w, errno, "its folder cannot be opened", err);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return 0;
        gpucr_debug("the file system of %s cannot lock a folder: %s", w->path, strerror(errno));
    }
    if (!has_name(w->parent_fd, w->temp_name, fd))
        return 0;
    w->fd = gpucr_steal_fd(&fd);
    return 1;
}

static int make_temp(struct gpucr_image_writer *w, struct gpucr_error *err)
{
    for (int i = 0; i < TEMP_TRIES; i++) {
        int rc = make_temp_name(w, err);

        if (rc < 0)
            return rc;
        if (mkdirat(w->parent_fd, w->temp_name, 0700) != 0) {
            if (errno == EEXIST)
                continue;
            w->temp_name[0] = '\0';
            return fail_begin(w, errno, "its parent folder takes no new entry", err);
        }
        rc = gpucr_fault("image.begin.after-mkdir", err);
        if (rc == 0)
            rc = take_temp(w, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
    w->temp_name[0] = '\0';
    return fail_begin(w, EEXIST, "no name is free for its hidden folder", err);
}

/** The mode is set once more: the umask may have taken the owner's own rights. */
static int make_folder(const struct gpucr_image_writer *w, const char *name, int *ret,
                       struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = -1;

    if (mkdirat(w->fd, name, 0700) != 0 || fchmodat(w->fd, name, 0700, 0) != 0)
        return fail_begin(w, errno, "a folder in it cannot be created", err);
    fd = openat(w->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail_begin(w, errno, "a folder in it cannot be opened", err);
    *ret = gpucr_steal_fd(&fd);
    return 0;
}

int gpucr_image_writer_begin(const char *path, struct gpucr_image_writer **ret,
                             struct gpucr_error *err)
{
    AUTO_WRITER struct gpucr_image_writer *w = calloc(1, sizeof(*w));
    int rc;

    if (!w)
        return gpucr_error_no_memory(err);
    w->parent_fd = w->fd = w->criu_fd = w->logs_fd = -1;
    rc = split_path(w, path, err);
    if (rc == 0)
        rc = open_parent(w, err);
    if (rc == 0)
        rc = check_name_free(w, err);
    if (rc < 0)
        return rc;
    remove_leftovers(w);
    rc = make_temp(w, err);
    if (rc == 0 && fchmod(w->fd, 0700) != 0)
        rc = fail_begin(w, errno, "its mode cannot be set", err);
    if (rc == 0)
        rc = make_folder(w, GPUCR_IMAGE_CRIU_NAME, &w->criu_fd, err);
    if (rc == 0)
        rc = make_folder(w, GPUCR_IMAGE_LOGS_NAME, &w->logs_fd, err);
    if (rc == 0)
        *ret = gpucr_steal_ptr(&w);
    return rc;
}

void gpucr_image_writer_free(struct gpucr_image_writer *writer)
{
    int rc = 0;

    if (!writer)
        return;
    if (!writer->committed && writer->temp_name[0])
        rc = gpucr_image_tree_remove(writer->parent_fd, writer->temp_name);
    if (rc < 0 && rc != -ENOENT)
        gpucr_warn("cannot remove %s/%s: %s", writer->parent, writer->temp_name, strerror(-rc));
    /* The lock goes with fd: only now may others take what could not be removed. */
    for (size_t i = 0; i < 4; i++) {
        int fd = (const int[]){writer->criu_fd, writer->logs_fd, writer->fd, writer->parent_fd}[i];

        if (fd >= 0)
            (void)close(fd);
    }
    free(writer->path);
    free(writer->parent);
    free(writer);
}

int gpucr_image_writer_criu_fd(const struct gpucr_image_writer *writer)
{
    return writer->criu_fd;
}

int gpucr_image_writer_logs_fd(const struct gpucr_image_writer *writer)
{
    return writer->logs_fd;
}

int gpucr_image_writer_free_bytes(const struct gpucr_image_writer *writer, uint64_t *ret,
                                  struct gpucr_error *err)
{
    struct statvfs vfs;
    uint64_t blocks;

    if (fstatvfs(writer->fd, &vfs) != 0) {
        int rc = gpucr_error_errno(err, errno, "cannot ask for the space at %s", writer->path);

        return gpucr_error_path(err, rc, writer->path);
    }
    /* Some blocks are reserved for root. */
    blocks = geteuid() == 0 ? vfs.f_bfree : vfs.f_bavail;
    if (__builtin_mul_overflow(blocks, (uint64_t)vfs.f_frsize, ret))
        *ret = UINT64_MAX;
    return 0;
}

uint64_t gpucr_image_writer_written_bytes(const struct gpucr_image_writer *writer)
{
    int fd = openat(writer->criu_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    GPUCR_AUTO_DIR DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *e;
    uint64_t total = 0;

    if (!dir) {
        if (fd >= 0)
            (void)close(fd);
        return 0;
    }
    while ((e = readdir(dir))) {
        struct stat st;

        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            total += (uint64_t)st.st_size;
    }
    return total;
}

uint64_t gpucr_image_writer_size_bytes(const struct gpucr_image_writer *writer)
{
    return writer->size_bytes;
}
