/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lists of processes and threads. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "proc/procfs.h"

enum { FIRST_CAPACITY = 64 };

void gpucr_pids_done(struct gpucr_pids *pids)
{
    free(pids->ids);
    *pids = (struct gpucr_pids){0};
}

static int pids_grow(struct gpucr_pids *pids, struct gpucr_error *err)
{
    size_t capacity = pids->capacity ? pids->capacity * 2 : FIRST_CAPACITY;
    pid_t *ids;

    if (pids->count >= GPUCR_PROC_PIDS_MAX)
        return gpucr_error_set(err, GPUCR_ERR_SYSTEM, "there are more than %d processes",
                               GPUCR_PROC_PIDS_MAX);
    ids = reallocarray(pids->ids, capacity, sizeof(*ids));
    if (!ids)
        return gpucr_error_no_memory(err);
    pids->ids = ids;
    pids->capacity = capacity;
    return 0;
}

int gpucr_pids_add(struct gpucr_pids *pids, pid_t id, struct gpucr_error *err)
{
    int rc = pids->count == pids->capacity ? pids_grow(pids, err) : 0;

    if (rc < 0)
        return rc;
    pids->ids[pids->count++] = id;
    return 0;
}

bool gpucr_pids_contain(const struct gpucr_pids *pids, pid_t id)
{
    for (size_t i = 0; i < pids->count; i++) {
        if (pids->ids[i] == id)
            return true;
    }
    return false;
}

static int compare_ids(const void *a, const void *b)
{
    pid_t x = *(const pid_t *)a;
    pid_t y = *(const pid_t *)b;

    return (x > y) - (x < y);
}

/* The kernel lists both in ascending order, but does not promise it. */
static void sort_ids(struct gpucr_pids *pids)
{
    for (size_t i = 1; i < pids->count; i++) {
        if (pids->ids[i - 1] > pids->ids[i]) {
            qsort(pids->ids, pids->count, sizeof(*pids->ids), compare_ids);
            return;
        }
    }
}

static int list_numbers(DIR *dir, struct gpucr_pids *pids, struct gpucr_error *err)
{
    for (;;) {
        const struct dirent *entry;
        uint64_t id;
        int rc;

        errno = 0;
        entry = readdir(dir);
        if (!entry && errno != 0 && errno != ENOENT && errno != ESRCH)
            return gpucr_error_errno(err, errno, "cannot list a folder of /proc");
        if (!entry)
            break;
        if (!gpucr_parse_u64(entry->d_name, 10, &id) || id == 0 || id > INT_MAX)
            continue;
        rc = gpucr_pids_add(pids, (pid_t)id, err);
        if (rc < 0)
            return rc;
    }
    sort_ids(pids);
    return 0;
}

static int list_folder(const char *path, struct gpucr_pids *ret, struct gpucr_error *err)
{
    GPUCR_AUTO_DIR DIR *dir = opendir(path);
    struct gpucr_pids pids = {0};
    int rc;

    if (!dir)
        return gpucr_error_errno(err, errno == ENOENT ? ESRCH : errno, "cannot list %s", path);
    rc = list_numbers(dir, &pids, err);
    if (rc < 0) {
        gpucr_pids_done(&pids);
        return rc;
    }
    *ret = pids;
    return 0;
}

int gpucr_proc_list(struct gpucr_pids *ret, struct gpucr_error *err)
{
    struct gpucr_pids pids;
    int rc = list_folder("/proc", &pids, err);

    if (rc < 0)
        return rc;
    if (pids.count == 0) { /* hidden by mount options, or it is no procfs at all */
        gpucr_pids_done(&pids);
        return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED, "/proc shows no processes");
    }
    *ret = pids;
    return 0;
}

int gpucr_task_list(pid_t pid, struct gpucr_pids *ret, struct gpucr_error *err)
{
    struct gpucr_pids tids;
    char path[64];
    int rc;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    rc = list_folder(path, &tids, err);
    if (rc < 0)
        return gpucr_error_pid(err, rc, pid);
    if (tids.count > 0 && tids.count <= GPUCR_PROC_THREADS_MAX) {
        *ret = tids;
        return 0;
    }
    if (tids.count == 0)
        rc = gpucr_error_errno(err, ESRCH, "cannot list the threads of process %d", (int)pid);
    else
        rc = gpucr_error_set(err, GPUCR_ERR_SYSTEM, "process %d has more than %d threads", (int)pid,
                             GPUCR_PROC_THREADS_MAX);
    gpucr_pids_done(&tids);
    return gpucr_error_pid(err, rc, pid);
}
