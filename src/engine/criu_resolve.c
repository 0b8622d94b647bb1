/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_resolve.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/text.h"
#include "engine/criu_img.h"
#include "proc/procfs.h"

enum { FACT_BYTES = 300, DEVICES_BYTES_MAX = 1 << 20, MOUNTS_BYTES_MAX = 64 << 20 };

/* A message under work: its text, who it is about, and where facts are added. */
struct resolve {
    const char *message;
    pid_t pid;
    int images_fd;
    char *ret;
    size_t size;
};

GPUCR_PRINTF(2, 3) static void add_fact(struct resolve *r, const char *format, ...)
{
    char fact[FACT_BYTES];
    size_t used = strlen(r->ret);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(fact, sizeof(fact), format, args);
    va_end(args);
    (void)snprintf(r->ret + used, r->size - used, " [%s]", fact);
}

/* The number behind @p label in the message. */
static bool number_after(const char *message, const char *label, int base, uint64_t *ret)
{
    const char *at = strstr(message, label);
    const char *end;

    return at && gpucr_scan_u64(at + strlen(label), base, ret, &end);
}

static void name_of(pid_t pid, char *ret, size_t size)
{
    struct gpucr_proc_stat stat;

    if (gpucr_proc_stat_read(pid, &stat, NULL) == 0)
        (void)snprintf(ret, size, "process %d (%s)", (int)pid, stat.comm);
    else
        (void)snprintf(ret, size, "process %d", (int)pid);
}

static void add_descriptor(struct resolve *r, uint64_t fd)
{
    char path[64];
    char target[200];
    char who[96];
    ssize_t n;

    if (r->pid <= 0 || fd > INT32_MAX)
        return;
    if (r->images_fd >= 0) {
        if (gpucr_criu_img_fd_path(r->images_fd, r->pid, (uint32_t)fd, target, sizeof(target)))
            add_fact(r, "descriptor %llu of process %d was %s", (unsigned long long)fd, (int)r->pid,
                     target);
        return;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%llu", (int)r->pid, (unsigned long long)fd);
    n = readlink(path, target, sizeof(target) - 1);
    if (n <= 0)
        return;
    target[n] = '\0';
    name_of(r->pid, who, sizeof(who));
    add_fact(r, "descriptor %llu of %s is %s", (unsigned long long)fd, who, target);
}

static void resolve_descriptor(struct resolve *r)
{
    static const char *const labels[] = {"Can't dump file ", "for fd=", "Unable to open fd="};
    uint64_t fd;

    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(labels); i++) {
        if (number_after(r->message, labels[i], 10, &fd)) {
            add_descriptor(r, fd);
            return;
        }
    }
}

/* "Can't handle non-regular mapping on PID's map ADDRESS" */
static void resolve_mapping(struct resolve *r)
{
    struct gpucr_maps maps = {0};
    uint64_t pid, address;

    if (!number_after(r->message, "non-regular mapping on ", 10, &pid) || pid > INT32_MAX ||
        !number_after(r->message, "'s map ", 16, &address) || r->images_fd >= 0 ||
        gpucr_maps_read((pid_t)pid, &maps, NULL) != 0)
        return;
    for (size_t i = 0; i < maps.count; i++) {
        if (maps.items[i].start <= address && address < maps.items[i].end && maps.items[i].path[0])
            add_fact(r, "that is %s", maps.items[i].path);
    }
    gpucr_maps_done(&maps);
}

/* Mount point in the fifth column of the line whose first column is the number. */
static bool find_mount(pid_t pid, uint64_t mount_id, char *ret, size_t size)
{
    GPUCR_AUTO_FREE char *text = NULL;
    char path[64];
    char *save = NULL;
    char *line;

    (void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
    if (gpucr_file_read(AT_FDCWD, path, MOUNTS_BYTES_MAX, &text, NULL) != 0)
        return false;
    for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *at = line;
        uint64_t id;

        if (!gpucr_scan_u64(at, 10, &id, &at) || id != mount_id)
            continue;
        for (int column = 1; column < 5 && at; column++)
            at = strchr(at + 1, ' ');
        if (!at)
            return false;
        /* at is at the space before the fifth column */
        (void)snprintf(ret, size, "%.*s", (int)strcspn(at + 1, " "), at + 1);
        return true;
    }
    return false;
}

static void resolve_mount(struct resolve *r)
{
    static const char *const labels[] = {"lookup mount=", "No mapping for ", "Unable to find the ",
                                         "Mount "};
    char path[200];
    uint64_t id;

    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(labels); i++) {
        bool found;

        if (!number_after(r->message, labels[i], 10, &id) || id > UINT32_MAX)
            continue;
        if (r->images_fd >= 0)
            found = gpucr_criu_img_mount_path(r->images_fd, (uint32_t)id, path, sizeof(path));
        else
            found = (r->pid > 0 && find_mount(r->pid, id, path, sizeof(path))) ||
                    find_mount(getpid(), id, path, sizeof(path));
        if (found)
            add_fact(r, "mount %llu is %s", (unsigned long long)id, path);
        return;
    }
}

/* "(chr 195:255)": the driver's name in /proc/devices. */
static void resolve_device(struct resolve *r)
{
    GPUCR_AUTO_FREE char *text = NULL;
    char *save = NULL;
    char *line;
    uint64_t number;

    if (!number_after(r->message, "(chr ", 10, &number) ||
        gpucr_file_read(AT_FDCWD, "/proc/devices", DEVICES_BYTES_MAX, &text, NULL) != 0)
        return;
    for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *at = line + strspn(line, " ");
        uint64_t listed;

        if (gpucr_starts_with(line, "Block"))
            return;
        if (gpucr_scan_u64(at, 10, &listed, &at) && listed == number && *at == ' ') {
            add_fact(r, "character device %llu is %s", (unsigned long long)number, at + 1);
            return;
        }
    }
}

/* Who has the process id that the restore wants. */
static void resolve_pid(struct resolve *r)
{
    struct gpucr_proc_stat stat;
    uint64_t pid;

    if ((!number_after(r->message, "Can't fork for ", 10, &pid) &&
         !number_after(r->message, "do not match expected ", 10, &pid)) ||
        pid == 0 || pid > INT32_MAX)
        return;
    if (gpucr_proc_stat_read((pid_t)pid, &stat, NULL) == 0)
        add_fact(r, "%d is %s, state %c, child of %d", (int)pid, stat.comm, stat.state,
                 (int)stat.parent_pid);
}

void gpucr_criu_resolve(const char *message, pid_t pid, int images_fd, char *ret, size_t size)
{
    struct resolve r = {
        .message = message, .pid = pid, .images_fd = images_fd, .ret = ret, .size = size};

    (void)gpucr_copy_text(ret, size, message);
    resolve_descriptor(&r);
    resolve_mapping(&r);
    resolve_mount(&r);
    resolve_device(&r);
    resolve_pid(&r);
}
