/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The mappings of a process. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "proc/procfs.h"

void gpucr_maps_done(struct gpucr_maps *maps)
{
    free(maps->items);
    free(maps->text);
    *maps = (struct gpucr_maps){0};
}

static bool scan_then(const char **p, int base, char separator, uint64_t *ret)
{
    if (!gpucr_scan_u64(*p, base, ret, p) || **p != separator)
        return false;
    (*p)++;
    return true;
}

static bool scan_permissions(const char **p, struct gpucr_mapping *m)
{
    const char *s = *p;

    if (strnlen(s, 5) < 5 || s[4] != ' ')
        return false;
    m->readable = s[0] == 'r';
    m->writable = s[1] == 'w';
    m->executable = s[2] == 'x';
    m->shared = s[3] == 's';
    *p = s + 5;
    return true;
}

/* The kernel writes a newline in a name as \012 and leaves everything else as it is. */
static void decode_newlines(char *path)
{
    char *to = strstr(path, "\\012");

    if (!to)
        return;
    for (const char *from = to; *from; to++) {
        if (strncmp(from, "\\012", 4) == 0) {
            *to = '\n';
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

static bool parse_line(char *line, struct gpucr_mapping *ret)
{
    struct gpucr_mapping m = {0};
    const char *p = line;
    uint64_t major;
    uint64_t minor;
    char *path;

    if (!scan_then(&p, 16, '-', &m.start) || !scan_then(&p, 16, ' ', &m.end) || m.end < m.start)
        return false;
    if (!scan_permissions(&p, &m) || !scan_then(&p, 16, ' ', &m.offset))
        return false;
    if (!scan_then(&p, 16, ':', &major) || !scan_then(&p, 16, ' ', &minor))
        return false;
    if (!gpucr_scan_u64(p, 10, &m.inode, &p))
        return false;
    m.dev_major = (uint32_t)major;
    m.dev_minor = (uint32_t)minor;
    path = line + (p - line);
    path += strspn(path, " ");
    decode_newlines(path);
    m.path = path;
    m.deleted = gpucr_ends_with(path, " (deleted)");
    *ret = m;
    return true;
}

static size_t count_lines(const char *text)
{
    size_t count = 0;

    for (const char *p = text; (p = strchr(p, '\n')); p++)
        count++;
    return count;
}

static int parse_maps(pid_t pid, struct gpucr_maps *maps, struct gpucr_error *err)
{
    size_t lines = count_lines(maps->text);
    char *rest = maps->text;
    char *line;

    maps->items = calloc(lines ? lines : 1, sizeof(*maps->items));
    if (!maps->items)
        return gpucr_error_no_memory(err);
    while (maps->count < lines && (line = strsep(&rest, "\n"))) {
        if (!parse_line(line, &maps->items[maps->count])) {
            int rc = gpucr_error_set(err, GPUCR_ERR_SYSTEM,
                                     "line %zu of the mappings of process %d does not have the "
                                     "known form",
                                     maps->count + 1, (int)pid);

            return gpucr_error_pid(err, rc, pid);
        }
        maps->count++;
    }
    return 0;
}

int gpucr_maps_read(pid_t pid, struct gpucr_maps *ret, struct gpucr_error *err)
{
    struct gpucr_maps maps = {0};
    GPUCR_AUTO_FD int fd = -1;
    char path[64];
    int rc;

    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        rc = gpucr_error_errno(err, errno == ENOENT ? ESRCH : errno,
                               "cannot read the mappings of process %d", (int)pid);
    else
        rc = gpucr_fd_read_all(fd, GPUCR_PROC_MAPS_BYTES_MAX, &maps.text, NULL, err);
    if (rc < 0)
        return gpucr_error_pid(err, rc, pid);
    rc = parse_maps(pid, &maps, err);
    if (rc < 0) {
        gpucr_maps_done(&maps);
        return rc;
    }
    *ret = maps;
    return 0;
}
