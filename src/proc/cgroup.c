/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"

enum { MOUNTINFO_BYTES_MAX = 64 << 20, VALUE_BYTES = 256, MEMBERSHIP_BYTES = 16384 };

void gpucr_cgroups_done(struct gpucr_cgroups *cgroups)
{
    free(cgroups->unified.folder);
    free(cgroups->unified.root);
    free(cgroups->freezer.folder);
    free(cgroups->freezer.root);
    *cgroups = (struct gpucr_cgroups){0};
}

/* Blanks, tabs, newlines and backslashes in mountinfo are three octal digits. */
static void decode_octal(char *text)
{
    char *to = text;

    for (const char *from = text; *from; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
            from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

static bool has_option(const char *options, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = options; (p = strstr(p, name)); p += n) {
        if ((p == options || p[-1] == ',') && (p[n] == '\0' || p[n] == ','))
            return true;
    }
    return false;
}

/* Of several mounts the one that shows most is taken: its root is the shortest. */
static int keep_mount(struct gpucr_cgroup_mount *mount, char *root, char *folder,
                      struct gpucr_error *err)
{
    struct gpucr_cgroup_mount found;

    decode_octal(root);
    decode_octal(folder);
    if (mount->folder && strlen(mount->root) <= strlen(root))
        return 0;
    found.folder = strdup(folder);
    found.root = strdup(root);
    if (!found.folder || !found.root) {
        free(found.folder);
        free(found.root);
        return gpucr_error_no_memory(err);
    }
    free(mount->folder);
    free(mount->root);
    *mount = found;
    return 0;
}

/* "36 35 98:0 ROOT FOLDER rw,… optional… - TYPE SOURCE OPTIONS" */
static int parse_mount(char *line, struct gpucr_cgroups *cgroups, struct gpucr_error *err)
{
    char *end = strstr(line, " - ");
    char *words[5];
    char *type;
    char *options;

    if (!end || !gpucr_starts_with(end, " - cgroup"))
        return 0;
    *end = '\0';
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(words); i++) {
        words[i] = strsep(&line, " ");
        if (!words[i])
            return 0;
    }
    options = end + 3;
    type = strsep(&options, " ");
    (void)strsep(&options, " "); /* the source, any word */
    if (strcmp(type, "cgroup2") == 0)
        return keep_mount(&cgroups->unified, words[3], words[4], err);
    if (strcmp(type, "cgroup") == 0 && options && has_option(options, "freezer"))
        return keep_mount(&cgroups->freezer, words[3], words[4], err);
    return 0;
}

int gpucr_cgroups_open(struct gpucr_cgroups *ret, struct gpucr_error *err)
{
    struct gpucr_cgroups cgroups = {0};
    GPUCR_AUTO_FREE char *text = NULL;
    char *rest;
    char *line;
    int rc = gpucr_file_read(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_BYTES_MAX, &text, err);

    if (rc < 0)
        return rc;
    rest = text;
    while (rc == 0 && (line = strsep(&rest, "\n")))
        rc = parse_mount(line, &cgroups, err);
    if (rc < 0) {
        gpucr_cgroups_done(&cgroups);
        return rc;
    }
    *ret = cgroups;
    return 0;
}

/* A line of /proc/PID/cgroup: "0::/path" for v2, "7:freezer:/path" for v1. */
static const char *path_in_line(const char *line, bool unified)
{
    const char *controllers = strchr(line, ':');
    const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    char names[VALUE_BYTES];

    if (!path)
        return NULL;
    if (unified)
        return gpucr_starts_with(line, "0::") ? path + 1 : NULL;
    if ((size_t)(path - controllers) > sizeof(names))
        return NULL;
    (void)snprintf(names, sizeof(names), "%.*s", (int)(path - controllers - 1), controllers + 1);
    return has_option(names, "freezer") ? path + 1 : NULL;
}

/* Path inside the mount, or NULL when the mount does not show it. */
static const char *path_below(const char *root, const char *path)
{
    size_t n = strlen(root);

    if (strstr(path, "/../") || gpucr_ends_with(path, "/..")) /* above our cgroup namespace */
        return NULL;
    if (strcmp(root, "/") == 0)
        return path;
    if (strncmp(root, path, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NULL;
    return path + n;
}

/* 0, or 1 when the mount does not show it; negative errno when /proc cannot be read. */
static int find_folder(const struct gpucr_cgroup_mount *mount, pid_t pid, bool unified,
                       char ret[GPUCR_CGROUP_PATH_BYTES])
{
    char text[MEMBERSHIP_BYTES];
    char *rest = text;
    char name[64];
    char *line;
    int n;

    if (!mount->folder)
        return 1;
    (void)snprintf(name, sizeof(name), "/proc/%d/cgroup", (int)pid);
    n = gpucr_file_read_small(AT_FDCWD, name, text, sizeof(text));
    if (n < 0)
        return n;
    while ((line = strsep(&rest, "\n"))) {
        const char *path = path_in_line(line, unified);

        if (!path)
            continue;
        path = path_below(mount->root, path);
        if (!path)
            return 1;
        n = snprintf(ret, GPUCR_CGROUP_PATH_BYTES, "%s%s", mount->folder, path);
        if (n < 0 || n >= GPUCR_CGROUP_PATH_BYTES)
            return 1;
        while (n > 1 && ret[n - 1] == '/')
            ret[--n] = '\0';
        return 0;
    }
    return 1;
}

int gpucr_cgroup_folder(const struct gpucr_cgroups *cgroups, pid_t pid,
                        char ret[GPUCR_CGROUP_PATH_BYTES], struct gpucr_error *err)
{
    int rc;

    if (!cgroups->unified.folder)
        return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED, "no cgroup v2 is mounted here");
    rc = find_folder(&cgroups->unified, pid, true, ret);
    if (rc == 0)
        return 0;
    if (rc < 0)
        rc = gpucr_error_errno(err, rc == -ENOENT ? ESRCH : -rc,
                               "cannot read the cgroup of process %d", (int)pid);
    else
        rc = gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                             "the cgroup v2 of process %d is not to be seen below %s", (int)pid,
                             cgroups->unified.folder);
    return gpucr_error_pid(err, rc, pid);
}

/* The content of FOLDER/NAME, without the last newline; "" if it cannot be read. */
static void read_value(const char *folder, const char *name, char *ret, size_t size)
{
    char path[GPUCR_CGROUP_PATH_BYTES + 32];
    int n;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    n = gpucr_file_read_small(AT_FDCWD, path, ret, size);
    if (n > 0 && ret[n - 1] == '\n')
        n--;
    ret[n > 0 ? n : 0] = '\0';
}

/*
 * cgroup.events says "frozen 1" only when all processes have got there; one that waits
 * in the kernel keeps it at 0, so what was asked for is looked at too, up to the mount.
 */
static bool unified_frozen(const char *mount, char *folder)
{
    char value[VALUE_BYTES];

    read_value(folder, "cgroup.events", value, sizeof(value));
    if (strstr(value, "frozen 1"))
        return true;
    while (strlen(folder) > strlen(mount)) {
        read_value(folder, "cgroup.freeze", value, sizeof(value));
        if (strcmp(value, "1") == 0)
            return true;
        *strrchr(folder, '/') = '\0';
    }
    return false;
}

int gpucr_cgroup_frozen(const struct gpucr_cgroups *cgroups, pid_t pid,
                        char ret[GPUCR_CGROUP_PATH_BYTES])
{
    char folder[GPUCR_CGROUP_PATH_BYTES];
    char value[VALUE_BYTES];

    if (find_folder(&cgroups->unified, pid, true, folder) == 0 &&
        unified_frozen(cgroups->unified.folder, folder)) {
        (void)gpucr_copy_text(ret, GPUCR_CGROUP_PATH_BYTES, folder);
        return 1;
    }
    if (find_folder(&cgroups->freezer, pid, false, folder) != 0)
        return 0;
    read_value(folder, "freezer.state", value, sizeof(value)); /* the parents' effect included */
    if (strcmp(value, "FROZEN") != 0 && strcmp(value, "FREEZING") != 0)
        return 0;
    (void)gpucr_copy_text(ret, GPUCR_CGROUP_PATH_BYTES, folder);
    return 1;
}
