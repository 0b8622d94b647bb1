/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The dump's side; the restore's is in criu_links.c. */
#include "engine/criu_remap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"

enum { FILES_MAX = 65536, ENTRIES_MAX = 1 << 20 };

static const char link_prefix[] = "link_remap.";
static const char deleted_mark[] = " (deleted)";

/* A deleted file that a process holds. */
struct deleted {
    dev_t device;
    ino_t inode;
    int folder_fd; /* where it was; -1: that is gone too */
    nlink_t links; /* names it had */
};

struct gpucr_criu_remap {
    struct deleted *files;
    size_t count;
    size_t capacity;
};

/* While the descriptors of one process are walked. */
struct walk {
    struct gpucr_criu_remap *remap;
    pid_t pid;
};

static int add(struct gpucr_criu_remap *remap, const struct deleted *file)
{
    if (remap->count == remap->capacity) {
        size_t capacity = remap->capacity ? remap->capacity * 2 : 16;
        struct deleted *files;

        if (capacity > FILES_MAX)
            return -EMFILE;
        files = realloc(remap->files, capacity * sizeof(*files));
        if (!files)
            return -ENOMEM;
        remap->files = files;
        remap->capacity = capacity;
    }
    remap->files[remap->count++] = *file;
    return 0;
}

static bool is_known(const struct gpucr_criu_remap *remap, const struct stat *st)
{
    for (size_t i = 0; i < remap->count; i++) {
        if (remap->files[i].device == st->st_dev && remap->files[i].inode == st->st_ino)
            return true;
    }
    return false;
}

/* The folder of a path as the process sees it. */
static int open_folder(pid_t pid, const char *path, size_t length)
{
    char full[PATH_MAX + 64];
    char *slash;

    (void)snprintf(full, sizeof(full), "/proc/%d/root%.*s", (int)pid, (int)length, path);
    slash = strrchr(full, '/');
    slash[1] = '\0';
    return open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int note(struct walk *walk, const char *link, const char *target)
{
    struct deleted file;
    struct stat st;

    if (*target != '/' || !gpucr_ends_with(target, deleted_mark) || stat(link, &st) != 0 ||
        is_known(walk->remap, &st))
        return 0;
    file = (struct deleted){.device = st.st_dev, .inode = st.st_ino, .links = st.st_nlink};
    file.folder_fd = open_folder(walk->pid, target, strlen(target) - strlen(deleted_mark));
    return add(walk->remap, &file);
}

static int note_fd(void *arg, int fd, const char *target)
{
    struct walk *walk = arg;
    char link[64];

    (void)snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)walk->pid, fd);
    return note(walk, link, target);
}

static int note_maps(struct walk *walk)
{
    struct gpucr_maps maps = {0};
    int rc = 0;

    if (gpucr_maps_read(walk->pid, &maps, NULL) != 0)
        return 0;
    for (size_t i = 0; rc == 0 && i < maps.count; i++) {
        const struct gpucr_mapping *map = &maps.items[i];
        char link[96];

        (void)snprintf(link, sizeof(link), "/proc/%d/map_files/%llx-%llx", (int)walk->pid,
                       (unsigned long long)map->start, (unsigned long long)map->end);
        if (gpucr_ends_with(map->path, deleted_mark))
            rc = note(walk, link, map->path);
    }
    gpucr_maps_done(&maps);
    return rc;
}

int gpucr_criu_remap_record(const struct gpucr_pids *pids, struct gpucr_criu_remap **ret,
                            struct gpucr_error *err)
{
    struct gpucr_criu_remap *remap = calloc(1, sizeof(*remap));
    int rc = 0;

    if (!remap)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; rc == 0 && i < pids->count; i++) {
        struct walk walk = {.remap = remap, .pid = pids->ids[i]};
        struct gpucr_error local = GPUCR_ERROR_INIT;

        rc = gpucr_fds_walk(walk.pid, walk.pid, note_fd, &walk, &local);
        if (local.code != 0)
            rc = 0; /* a zombie; anything else criu will meet and name itself */
        if (rc == 0)
            rc = note_maps(&walk);
    }
    if (rc == 0) {
        *ret = remap;
        return 0;
    }
    gpucr_criu_remap_free(remap);
    return gpucr_error_errno(err, -rc, "cannot look at the deleted files of the program");
}

void gpucr_criu_remap_free(struct gpucr_criu_remap *remap)
{
    if (!remap)
        return;
    for (size_t i = 0; i < remap->count; i++) {
        if (remap->files[i].folder_fd >= 0)
            (void)close(remap->files[i].folder_fd);
    }
    free(remap->files);
    free(remap);
}

/* Is it a link of the file that criu made: of that inode, and one more than there were? */
static bool is_new_link(const struct deleted *file, const char *name)
{
    struct stat st;

    return gpucr_starts_with(name, link_prefix) &&
           fstatat(file->folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_dev == file->device && st.st_ino == file->inode && st.st_nlink > file->links;
}

static int clean_folder(const struct deleted *file, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = openat(file->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    GPUCR_AUTO_DIR DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;

    if (!dir)
        return gpucr_error_errno(err, errno, "cannot list the folder of a deleted file");
    (void)gpucr_steal_fd(&fd); /* belongs to the stream now */
    for (size_t i = 0; i < ENTRIES_MAX && (entry = readdir(dir)); i++) {
        if (!is_new_link(file, entry->d_name))
            continue;
        gpucr_debug("criu's link %s is removed", entry->d_name);
        if (unlinkat(file->folder_fd, entry->d_name, 0) != 0)
            return gpucr_error_errno(err, errno, "cannot remove criu's link %s", entry->d_name);
    }
    return 0;
}

int gpucr_criu_remap_remove(const struct gpucr_criu_remap *remap, struct gpucr_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < remap->count; i++) {
        struct gpucr_error local = GPUCR_ERROR_INIT;

        if (remap->files[i].folder_fd < 0 || clean_folder(&remap->files[i], &local) == 0)
            continue;
        if (rc == 0 && err)
            *err = local;
        rc = rc == 0 ? local.code : rc;
    }
    return rc;
}
