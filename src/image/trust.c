/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "image/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "image/image_text.h"

enum {
    SPECIAL_BITS = S_ISUID | S_ISGID,
    WRITE_BITS = S_IWGRP | S_IWOTH,
    READ_BITS = S_IRGRP | S_IROTH,
};

static int fail_trust(const char *path, const char *what, const char *repair,
                      struct gpucr_error *err)
{
    char shown[GPUCR_ERROR_PATH_BYTES];
    int rc;

    (void)gpucr_image_text_show(shown, sizeof(shown), path);
    rc = gpucr_error_set(err, GPUCR_ERR_IMAGE_UNSAFE, "%s %s; %s", shown, what, repair);
    return gpucr_error_path(err, rc, shown);
}

static int check_owner(const char *path, const struct statx *st, struct gpucr_error *err)
{
    uid_t caller = geteuid();
    char what[96];
    char repair[96];

    if (st->stx_uid == 0 || st->stx_uid == caller)
        return 0;
    (void)snprintf(what, sizeof(what), "belongs to user %u, not to root or to the caller, user %u",
                   st->stx_uid, caller);
    (void)snprintf(repair, sizeof(repair),
                   "if you trust what is in the image, make it yours: chown -R %u", caller);
    return fail_trust(path, what, repair, err);
}

int gpucr_trust_check(const char *path, const struct statx *st, struct gpucr_error *err)
{
    unsigned mode = st->stx_mode;

    if (S_ISLNK(mode))
        return fail_trust(path, "is a symbolic link",
                          "an image holds files and folders only: put the file in its place", err);
    if (!S_ISREG(mode) && !S_ISDIR(mode))
        return fail_trust(path, "is a socket, a pipe or a device",
                          "an image holds files and folders only: remove it", err);
    if (st->stx_attributes & st->stx_attributes_mask & STATX_ATTR_MOUNT_ROOT)
        return fail_trust(path, "is a mount point", "unmount it and copy the file instead", err);
    if (mode & WRITE_BITS)
        return fail_trust(path, "can be written by its group or by others",
                          "if nobody has changed it, take the right away: chmod -R go-w", err);
    if (S_ISREG(mode) && (mode & SPECIAL_BITS))
        return fail_trust(path, "is setuid or setgid", "take the bits away: chmod ug-s", err);
    if (S_ISREG(mode) && st->stx_nlink > 1)
        return fail_trust(path, "has a second name (a hard link)",
                          "copy the image with cp -a, and restore the copy", err);
    return check_owner(path, st, err);
}

static int judge_entry(void *arg, struct gpucr_image_tree_visit *visit, struct gpucr_error *err)
{
    const char *image_path = arg;
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/%s", image_path, visit->path);
    return gpucr_trust_check(path, &visit->st, err);
}

int gpucr_trust_walk(int image_fd, const char *image_path, struct gpucr_image_tree *ret,
                     struct gpucr_error *err)
{
    struct statx st = {0};
    int rc;

    if (statx(image_fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) != 0) {
        rc = gpucr_error_errno(err, errno, "cannot look at the image %s", image_path);
        return gpucr_error_path(err, rc, image_path);
    }
    /* The image itself may well be a mount point. */
    st.stx_attributes = 0;
    rc = gpucr_trust_check(image_path, &st, err);
    if (rc < 0)
        return rc;
    if (st.stx_mode & READ_BITS)
        gpucr_warn("others can read the image %s, which holds the memory of programs: "
                   "chmod -R go= %s",
                   image_path, image_path);
    rc = gpucr_image_tree_walk(image_fd, judge_entry, (void *)image_path, ret, err);
    if (rc < 0 && rc != GPUCR_ERR_IMAGE_UNSAFE) {
        rc = gpucr_error_wrap(err, rc, "the image %s", image_path);
        return gpucr_error_path(err, rc, image_path);
    }
    return rc;
}
