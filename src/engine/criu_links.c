/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The restore's side of criu_remap.h. For a deleted file F criu links what stands in
 * for it (link_remap.N, or the ghost F.cr.N.ghost made from the image) to the name F,
 * opens F, and unlinks both. Ended in between it leaves some of these names.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "engine/criu_img.h"
#include "engine/criu_remap.h"

enum { LINKS_MAX = 65536, NAME_BYTES = PATH_MAX + 32 };

static const char keep_suffix[] = ".gpucr-keep";

/* One deleted file. Paths are those of the caller's root: where the restored
 * processes have a mount namespace of their own, criu makes and unmakes its files. */
struct link {
    char *name;     /* the deleted file's */
    char *stand_in; /* link_remap.N or the ghost */
    char *kept;     /* second name of the stand-in, NULL for a ghost */
    bool name_was_there;
    bool stand_in_was_there;
};

struct gpucr_criu_links {
    int images_fd;
    struct link *items;
    size_t count;
};

static void free_link(struct link *link)
{
    free(link->name);
    free(link->stand_in);
    free(link->kept);
}

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static bool same_file(const char *a, const char *b)
{
    struct stat st_a, st_b;

    return lstat(a, &st_a) == 0 && lstat(b, &st_b) == 0 && st_a.st_dev == st_b.st_dev &&
           st_a.st_ino == st_b.st_ino;
}

/* Give the stand-in of the image its second name; one left over from an earlier try is as good. */
static void keep(struct link *link)
{
    char second[NAME_BYTES];

    (void)snprintf(second, sizeof(second), "%s%s", link->stand_in, keep_suffix);
    if (linkat(AT_FDCWD, link->stand_in, AT_FDCWD, second, 0) == 0 || errno == EEXIST)
        link->kept = strdup(second);
    else
        gpucr_debug("%s gets no second name: %s", link->stand_in, strerror(errno));
}

static int add(void *arg, const struct gpucr_criu_remap_entry *entry)
{
    struct gpucr_criu_links *links = arg;
    char name[PATH_MAX];
    char stand_in[NAME_BYTES];
    struct link *items;
    struct link *link;

    if (!gpucr_criu_img_file_path(links->images_fd, entry->file_id, name, sizeof(name)))
        return 0;
    if (entry->is_ghost)
        (void)snprintf(stand_in, sizeof(stand_in), "%s.cr.%x.ghost", name, entry->remap_id);
    else if (!entry->is_linked || !gpucr_criu_img_file_path(links->images_fd, entry->remap_id,
                                                            stand_in, sizeof(stand_in)))
        return 0;
    if (links->count == LINKS_MAX)
        return -EMFILE;
    items = realloc(links->items, (links->count + 1) * sizeof(*items));
    if (!items)
        return -ENOMEM;
    links->items = items;
    link = &items[links->count++];
    *link = (struct link){.name = strdup(name), .stand_in = strdup(stand_in)};
    if (!link->name || !link->stand_in)
        return -ENOMEM;
    link->name_was_there = exists(name);
    link->stand_in_was_there = exists(stand_in);
    if (entry->is_linked && link->stand_in_was_there)
        keep(link);
    return 0;
}

int gpucr_criu_links_keep(int images_fd, struct gpucr_criu_links **ret, struct gpucr_error *err)
{
    struct gpucr_criu_links *links = calloc(1, sizeof(*links));
    int rc;

    if (!links)
        return gpucr_error_no_memory(err);
    links->images_fd = images_fd;
    rc = gpucr_criu_img_walk_remaps(images_fd, add, links);
    if (rc == 0) {
        *ret = links;
        return 0;
    }
    (void)gpucr_criu_links_finish(links, false, NULL);
    gpucr_criu_links_free(links);
    return gpucr_error_errno(err, -rc, "cannot keep the deleted files of the image");
}

static void remove_name(const char *path)
{
    gpucr_debug("criu's file %s is removed", path);
    if (unlink(path) != 0 && errno == EISDIR)
        (void)rmdir(path);
}

/* Names that the failed restore left. */
static void put_back(const struct link *link)
{
    const char *stand_in = link->kept ? link->kept : link->stand_in;

    if (!link->name_was_there && same_file(link->name, stand_in))
        remove_name(link->name);
    if (!link->kept && !link->stand_in_was_there && exists(link->stand_in))
        remove_name(link->stand_in);
}

static int finish_link(const struct link *link, bool failed, struct gpucr_error *err)
{
    if (!link->name || !link->stand_in)
        return 0;
    if (failed)
        put_back(link);
    if (!link->kept)
        return 0;
    if (failed && linkat(AT_FDCWD, link->kept, AT_FDCWD, link->stand_in, 0) != 0 && errno != EEXIST)
        return gpucr_error_errno(err, errno,
                                 "the file %s, which the image needs, cannot be made again from %s",
                                 link->stand_in, link->kept);
    if (unlink(link->kept) != 0 && errno != ENOENT)
        return gpucr_error_errno(err, errno, "cannot remove %s", link->kept);
    return 0;
}

int gpucr_criu_links_finish(struct gpucr_criu_links *links, bool failed, struct gpucr_error *err)
{
    struct gpucr_error first = GPUCR_ERROR_INIT;

    for (size_t i = 0; i < links->count; i++) {
        struct gpucr_error local = GPUCR_ERROR_INIT;

        if (finish_link(&links->items[i], failed, &local) != 0 && first.code == 0)
            first = local;
    }
    if (first.code != 0 && err)
        *err = first;
    return first.code;
}

void gpucr_criu_links_free(struct gpucr_criu_links *links)
{
    if (!links)
        return;
    for (size_t i = 0; i < links->count; i++)
        free_link(&links->items[i]);
    free(links->items);
    free(links);
}
