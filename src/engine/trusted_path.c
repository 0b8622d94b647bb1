/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/trusted_path.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

static int check_part(const char *part, bool is_folder, const char *whole, struct gpucr_error *err)
{
    struct stat st;

    if (lstat(part, &st) != 0)
        return gpucr_error_path(err, gpucr_error_errno(err, errno, "cannot look at %s", part),
                                part);
    if (st.st_uid != 0)
        return gpucr_error_path(
            err,
            gpucr_error_set(err, GPUCR_ERR_PERMISSION,
                            "root does not start %s, because %s belongs to user %u", whole, part,
                            (unsigned)st.st_uid),
            part);
    /* In a sticky folder nobody else can replace what belongs to root. */
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !(is_folder && (st.st_mode & S_ISVTX) != 0))
        return gpucr_error_path(
            err,
            gpucr_error_set(err, GPUCR_ERR_PERMISSION,
                            "root does not start %s, because others may write to %s (mode %04o)",
                            whole, part, (unsigned)(st.st_mode & 07777)),
            part);
    return 0;
}

int gpucr_trusted_path_check(const char *path, struct gpucr_error *err)
{
    char part[PATH_MAX];
    int rc;

    if (geteuid() != 0)
        return 0;
    if (*path != '/' || !gpucr_copy_text(part, sizeof(part), path))
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "the path %s is not absolute or too long",
                               path);
    rc = check_part(part, false, path, err);
    while (rc == 0 && strcmp(part, "/") != 0) {
        char *slash = strrchr(part, '/');

        slash[slash == part ? 1 : 0] = '\0';
        rc = check_part(part, true, path, err);
    }
    return rc;
}
