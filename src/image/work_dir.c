/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "image/reader.h"
#include "image/tree_walk.h"

enum { WORK_PATH_BYTES = 4096 };

int gpucr_image_work_dir(char *ret_path, size_t size, int *ret_fd, struct gpucr_error *err)
{
    /* Not from the environment of a more privileged program. */
    const char *base = secure_getenv("TMPDIR");
    char path[WORK_PATH_BYTES];
    size_t n;
    int rc;
    int fd;

    if (!base || base[0] != '/')
        base = "/tmp";
    n = (size_t)snprintf(path, sizeof(path), "%s/gpucr-XXXXXX", base);
    if (n >= sizeof(path) || n >= size)
        return gpucr_error_set(err, GPUCR_ERR_USAGE,
                               "the path of the temporary folder (TMPDIR) is too long: %.200s",
                               base);
    if (!mkdtemp(path)) {
        rc = gpucr_error_errno(err, errno, "cannot create a work folder in %s", base);
        return gpucr_error_path(err, rc, base);
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        rc = gpucr_error_errno(err, errno, "cannot open the work folder %s", path);
        (void)rmdir(path);
        return gpucr_error_path(err, rc, path);
    }
    (void)memcpy(ret_path, path, n + 1);
    *ret_fd = fd;
    return 0;
}

void gpucr_image_work_dir_remove(const char *path)
{
    int rc = gpucr_image_tree_remove(AT_FDCWD, path);

    if (rc < 0)
        gpucr_warn("cannot remove the work folder %s: %s", path, strerror(-rc));
}
