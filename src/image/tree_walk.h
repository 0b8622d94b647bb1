/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file tree_walk.h
 * Folders by descriptor: opening beneath one, looking at everything in one, removing one.
 */
#ifndef GPUCR_IMAGE_TREE_WALK_H
#define GPUCR_IMAGE_TREE_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

enum {
    GPUCR_IMAGE_TREE_DEPTH_MAX = 8,
    GPUCR_IMAGE_TREE_ENTRIES_MAX =
        1114112, /* the files of a manifest, and room for folders and logs */
};

struct gpucr_image_tree_entry {
    char *path; /* relative to the root of the walk */
    uint64_t size_bytes;
    bool is_folder;
};

/** Everything found, by path, ascending. */
struct gpucr_image_tree {
    struct gpucr_image_tree_entry *entries;
    size_t count;
    size_t capacity;
};

/** What a walk is looking at. */
struct gpucr_image_tree_visit {
    int folder_fd;    /* of the folder the entry is in */
    const char *name; /* in that folder */
    const char *path; /* relative to the root of the walk */
    struct statx st;  /* of the entry itself, links are not followed */
};

/** 0: keep it and, if it is a folder, go into it. 1: leave it out. Negative: end the walk. */
typedef int (*gpucr_image_tree_visit_fn)(void *arg, struct gpucr_image_tree_visit *visit,
                                         struct gpucr_error *err);

/**
 * Look at everything in a folder. @p ret may be NULL. More depth or entries than the
 * limits are GPUCR_ERR_IMAGE_FORMAT.
 */
int gpucr_image_tree_walk(int root_fd, gpucr_image_tree_visit_fn visit, void *arg,
                          struct gpucr_image_tree *ret, struct gpucr_error *err);

/** Release what a walk found. NULL is fine. */
void gpucr_image_tree_done(struct gpucr_image_tree *tree);

/**
 * Open what lies beneath a folder: no link, no "..", no mount point leads elsewhere.
 * Returns the descriptor, close-on-exec, or -errno (EXDEV: a mount point, ELOOP: a link).
 */
int gpucr_image_tree_open(int root_fd, const char *path, int flags);

/** Remove a folder with everything in it; links are not followed. 0 or -errno of the first failure.
 */
int gpucr_image_tree_remove(int parent_fd, const char *name);

#endif
