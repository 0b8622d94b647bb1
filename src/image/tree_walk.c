/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "image/tree_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "image/image_text.h"

enum {
    WALK_PATH_BYTES = (GPUCR_IMAGE_TREE_DEPTH_MAX + 1) * (GPUCR_IMAGE_NAME_MAX + 1),
    OPEN_TRIES = 64,
    REMOVE_DEPTH_MAX = 64,
};

struct walk {
    gpucr_image_tree_visit_fn visit;
    void *arg;
    struct gpucr_image_tree *tree;
    size_t seen;
    char path[WALK_PATH_BYTES];
};

int gpucr_image_tree_open(int root_fd, const char *path, int flags)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    long fd;

    /* EAGAIN: a rename elsewhere in the system made the check of "beneath" uncertain. */
    for (int i = 0; i < OPEN_TRIES; i++) {
        fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    return fd >= 0 ? (int)fd : -errno;
}

/** The next entry but . and ..; NULL at the end or, with errno set, on failure. */
static const struct dirent *next_entry(DIR *dir)
{
    const struct dirent *e;

    do {
        errno = 0;
        e = readdir(dir);
    } while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    return e;
}

/** Take over a descriptor of a folder for reading. On failure it is closed. */
static DIR *take_dir(int fd)
{
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    int saved = errno;

    if (!dir && fd >= 0)
        (void)close(fd);
    errno = saved;
    return dir;
}

/** Room for one more entry. */
static bool grow(struct gpucr_image_tree *tree)
{
    size_t capacity = tree->capacity ? tree->capacity * 2 : 64;
    struct gpucr_image_tree_entry *grown;

    if (tree->count < tree->capacity)
        return true;
    grown = realloc(tree->entries, capacity * sizeof(*grown));
    if (!grown)
        return false;
    tree->entries = grown;
    tree->capacity = capacity;
    return true;
}

static bool set_entry(struct gpucr_image_tree_entry *e, const char *path, const struct statx *st)
{
    e->path = strdup(path);
    e->size_bytes = st->stx_size;
    e->is_folder = S_ISDIR(st->stx_mode);
    return e->path != NULL;
}

static int add_entry(struct gpucr_image_tree *tree, const char *path, const struct statx *st,
                     struct gpucr_error *err)
{
    if (!grow(tree) || !set_entry(&tree->entries[tree->count], path, st))
        return gpucr_error_no_memory(err);
    tree->count++;
    return 0;
}

static int fail_walk(const struct walk *w, int os_errno, const char *what, struct gpucr_error *err)
{
    char shown[GPUCR_ERROR_PATH_BYTES];

    return gpucr_error_errno(
        err, os_errno, "cannot %s %s", what,
        gpucr_image_text_show(shown, sizeof(shown), w->path[0] ? w->path : "the folder"));
}

static int walk_folder(struct walk *w, int fd, size_t depth, struct gpucr_error *err);

/** The entry at w->path. */
static int walk_entry(struct walk *w, int folder_fd, const char *name, size_t depth,
                      struct gpucr_error *err)
{
    struct gpucr_image_tree_visit visit = {.folder_fd = folder_fd, .name = name, .path = w->path};
    int rc;
    int fd;

    if (++w->seen > GPUCR_IMAGE_TREE_ENTRIES_MAX)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT, "there are more than %d entries",
                               GPUCR_IMAGE_TREE_ENTRIES_MAX);
    if (statx(folder_fd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS,
              &visit.st) != 0)
        return fail_walk(w, errno, "look at", err);
    rc = w->visit(w->arg, &visit, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (w->tree)
        rc = add_entry(w->tree, w->path, &visit.st, err);
    if (rc < 0 || !S_ISDIR(visit.st.stx_mode))
        return rc;
    fd = gpucr_image_tree_open(folder_fd, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return fail_walk(w, -fd, "open", err);
    return walk_folder(w, fd, depth + 1, err);
}

/** @p fd is taken over. */
static int walk_folder(struct walk *w, int fd, size_t depth, struct gpucr_error *err)
{
    GPUCR_AUTO_DIR DIR *dir = take_dir(fd);
    size_t length = strlen(w->path);
    const struct dirent *e;
    int rc = 0;

    if (!dir)
        return fail_walk(w, errno, "read", err);
    while (rc == 0 && (e = next_entry(dir))) {
        if (depth >= GPUCR_IMAGE_TREE_DEPTH_MAX)
            return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                   "folders are nested more than %d deep",
                                   GPUCR_IMAGE_TREE_DEPTH_MAX);
        (void)snprintf(w->path + length, sizeof(w->path) - length, "%s%s", length ? "/" : "",
                       e->d_name);
        rc = walk_entry(w, dirfd(dir), e->d_name, depth, err);
        w->path[length] = '\0';
    }
    if (rc == 0 && errno != 0)
        rc = fail_walk(w, errno, "read", err);
    return rc;
}

static int compare_entries(const void *a, const void *b)
{
    const struct gpucr_image_tree_entry *x = a;
    const struct gpucr_image_tree_entry *y = b;

    return strcmp(x->path, y->path);
}

int gpucr_image_tree_walk(int root_fd, gpucr_image_tree_visit_fn visit, void *arg,
                          struct gpucr_image_tree *ret, struct gpucr_error *err)
{
    struct gpucr_image_tree tree = {0};
    struct walk w = {.visit = visit, .arg = arg, .tree = ret ? &tree : NULL};
    /* A descriptor of its own: the position of a reader is part of an open folder. */
    int fd = gpucr_image_tree_open(root_fd, ".", O_RDONLY | O_DIRECTORY);
    int rc = fd < 0 ? fail_walk(&w, -fd, "open", err) : walk_folder(&w, fd, 0, err);

    if (rc < 0) {
        gpucr_image_tree_done(&tree);
        return rc;
    }
    if (ret) {
        if (tree.count > 1)
            qsort(tree.entries, tree.count, sizeof(*tree.entries), compare_entries);
        *ret = tree;
    }
    return 0;
}

void gpucr_image_tree_done(struct gpucr_image_tree *tree)
{
    if (!tree)
        return;
    for (size_t i = 0; i < tree->count; i++)
        free(tree->entries[i].path);
    free(tree->entries);
    *tree = (struct gpucr_image_tree){0};
}

static int remove_folder(int parent_fd, const char *name, size_t depth)
{
    GPUCR_AUTO_DIR DIR *dir = NULL;
    const struct dirent *e;
    int first = 0;

    if (depth > REMOVE_DEPTH_MAX)
        return -ELOOP;
    dir = take_dir(openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!dir)
        return -errno;
    while ((e = next_entry(dir))) {
        int rc = 0;

        if (unlinkat(dirfd(dir), e->d_name, 0) != 0)
            rc = errno == EISDIR ? remove_folder(dirfd(dir), e->d_name, depth + 1) : -errno;
        if (first == 0)
            first = rc;
    }
    if (first == 0 && unlinkat(parent_fd, name, AT_REMOVEDIR) != 0)
        first = -errno;
    return first;
}

int gpucr_image_tree_remove(int parent_fd, const char *name)
{
    return remove_folder(parent_fd, name, 0);
}
