/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_litter.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"
#include "proc/procfs.h"

enum { NAMES_MAX = 4096, NAME_BYTES = 64, ENTRIES_MAX = 1 << 20 };

#define FOLDER "/tmp"

static const char *const prefixes[] = {".criu.", "cr-tmpfs.", "crtools-proc.", "crtools-sys."};

struct gpucr_criu_litter {
    char (*names)[NAME_BYTES];
    size_t count;
};

static bool is_litter(const char *name)
{
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(prefixes); i++) {
        if (gpucr_starts_with(name, prefixes[i]))
            return strlen(name) < NAME_BYTES;
    }
    return false;
}

static bool is_listed(const struct gpucr_criu_litter *litter, const char *name)
{
    for (size_t i = 0; i < litter->count; i++) {
        if (strcmp(litter->names[i], name) == 0)
            return true;
    }
    return false;
}

static int list(struct gpucr_criu_litter *litter)
{
    GPUCR_AUTO_DIR DIR *dir = opendir(FOLDER);
    struct dirent *entry;

    if (!dir)
        return errno == ENOENT ? 0 : -errno;
    for (size_t i = 0; i < ENTRIES_MAX && (entry = readdir(dir)); i++) {
        char(*names)[NAME_BYTES];

        if (!is_litter(entry->d_name))
            continue;
        if (litter->count == NAMES_MAX)
            return -EMFILE;
        names = realloc(litter->names, (litter->count + 1) * sizeof(*names));
        if (!names)
            return -ENOMEM;
        litter->names = names;
        (void)gpucr_copy_text(names[litter->count++], NAME_BYTES, entry->d_name);
    }
    return 0;
}

int gpucr_criu_litter_record(struct gpucr_criu_litter **ret, struct gpucr_error *err)
{
    struct gpucr_criu_litter *litter = calloc(1, sizeof(*litter));
    int rc = litter ? list(litter) : -ENOMEM;

    if (rc == 0) {
        *ret = litter;
        return 0;
    }
    gpucr_criu_litter_free(litter);
    return gpucr_error_errno(err, -rc, "cannot list " FOLDER);
}

void gpucr_criu_litter_free(struct gpucr_criu_litter *litter)
{
    if (litter)
        free(litter->names);
    free(litter);
}

/* Run through a loader of its own (a self-contained folder) it has the loader's name. */
static bool is_criu(const struct gpucr_proc_stat *stat)
{
    char command[256];

    if (gpucr_starts_with(stat->comm, "criu"))
        return true;
    if (!gpucr_starts_with(stat->comm, "ld-linux"))
        return false;
    gpucr_cmdline_read(stat->pid, command, sizeof(command));
    return strstr(command, "criu") != NULL;
}

bool gpucr_criu_other_runs(void)
{
    struct gpucr_pids pids = {0};
    bool found = false;

    if (gpucr_proc_list(&pids, NULL) != 0)
        return true;
    for (size_t i = 0; !found && i < pids.count; i++) {
        struct gpucr_proc_stat stat;

        found = gpucr_proc_stat_read(pids.ids[i], &stat, NULL) == 0 && stat.state != 'Z' &&
                is_criu(&stat);
    }
    gpucr_pids_done(&pids);
    return found;
}

static int remove_one(const char *name, struct gpucr_error *err)
{
    char path[NAME_BYTES + 16];
    struct stat st;

    (void)snprintf(path, sizeof(path), FOLDER "/%s", name);
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return 0;
    gpucr_debug("criu's folder %s is removed", path);
    (void)umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
    /* Only an empty one: nothing of anybody can be lost. */
    if (rmdir(path) != 0 && errno != ENOENT)
        return gpucr_error_errno(err, errno, "cannot remove criu's folder %s", path);
    return 0;
}

int gpucr_criu_litter_remove(const struct gpucr_criu_litter *litter, struct gpucr_error *err)
{
    struct gpucr_criu_litter *now = NULL;
    int rc = gpucr_criu_litter_record(&now, err);
    bool others = rc == 0 && now->count > 0 && gpucr_criu_other_runs();

    for (size_t i = 0; rc == 0 && i < now->count; i++) {
        if (is_listed(litter, now->names[i]))
            continue;
        if (others)
            gpucr_warn(FOLDER "/%s may be left over from a criu that was ended: it is not touched, "
                              "because another criu is at work",
                       now->names[i]);
        else
            rc = remove_one(now->names[i], err);
    }
    gpucr_criu_litter_free(now);
    return rc;
}
