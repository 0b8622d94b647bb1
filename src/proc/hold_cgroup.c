/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A hold that no SIGCONT ends: a frozen cgroup v2.
 *
 * What the kernel does (measured on 6.18, the code is as old as cgroup.freeze, 5.2):
 * a stopped task counts as frozen; SIGCONT takes it from T into the freezer's trap
 * without a return to user mode; SIGSTOP sent there is acted upon at thaw, again
 * before any return to user mode.
 *
 * So once the freezer holds the processes, they are taken out of T. A stopped process
 * would still be hit when its process group is orphaned: SIGHUP comes with the SIGCONT,
 * waits in the freezer, and kills at thaw. The kernel (has_stopped_jobs) and shells do
 * that to stopped jobs only.
 */
#include "proc/hold_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "proc/cgroup.h"
#include "proc/rest.h"

enum {
    FREEZE_MS = 2000,
    STOP_MS = 5000,
    POLL_US = 200,
    VALUE_BYTES = 256,
    NAME_BYTES = 64,
    PROCS_BYTES_MAX = 16 << 20,
    EMPTY_ROUNDS_MAX = 16,
};

static const char name_prefix[] = "gpucr-";

void gpucr_hold_forget_cgroups(struct gpucr_hold *hold)
{
    for (size_t i = 0; i < hold->cgroup_count; i++)
        free(hold->cgroups[i]);
    free(hold->cgroups);
    hold->cgroups = NULL;
    hold->cgroup_count = 0;
    hold->cgroup = NULL;
}

static bool is_listed(const struct gpucr_hold *hold, const char *folder)
{
    for (size_t i = 0; i < hold->cgroup_count; i++) {
        if (strcmp(hold->cgroups[i], folder) == 0)
            return true;
    }
    return false;
}

static int list_cgroup(struct gpucr_hold *hold, const char *folder, struct gpucr_error *err)
{
    char **grown;
    char *copy;

    if (is_listed(hold, folder))
        return 0;
    grown = reallocarray(hold->cgroups, hold->cgroup_count + 1, sizeof(*grown));
    if (!grown)
        return gpucr_error_no_memory(err);
    hold->cgroups = grown;
    copy = strdup(folder);
    if (!copy)
        return gpucr_error_no_memory(err);
    hold->cgroups[hold->cgroup_count++] = copy;
    hold->cgroup = hold->cgroups[0];
    return 0;
}

/* gpucr-PID-START */
static bool parse_name(const char *name, uint64_t *ret_pid, uint64_t *ret_start_ticks)
{
    const char *p = name + sizeof(name_prefix) - 1;

    return gpucr_starts_with(name, name_prefix) && gpucr_scan_u64(p, 10, ret_pid, &p) &&
           *p == '-' && gpucr_parse_u64(p + 1, 10, ret_start_ticks);
}

static bool is_ours(const char *folder)
{
    const char *slash = strrchr(folder, '/');
    uint64_t pid;
    uint64_t start_ticks;

    return slash && parse_name(slash + 1, &pid, &start_ticks);
}

int gpucr_hold_find_cgroups(struct gpucr_hold *hold, struct gpucr_error *err)
{
    char folder[GPUCR_CGROUP_PATH_BYTES];
    struct gpucr_cgroups cgroups;
    int rc = gpucr_cgroups_open(&cgroups, err);

    for (size_t i = 0; rc == 0 && i < hold->count; i++) {
        if (hold->items[i].ended ||
            gpucr_cgroup_folder(&cgroups, hold->items[i].ident.pid, folder, NULL) < 0)
            continue;
        if (is_ours(folder))
            rc = list_cgroup(hold, folder, err);
    }
    if (rc == 0)
        gpucr_cgroups_done(&cgroups);
    return rc;
}

static int value_path(const char *folder, const char *name, char ret[GPUCR_CGROUP_PATH_BYTES],
                      struct gpucr_error *err)
{
    int n = snprintf(ret, GPUCR_CGROUP_PATH_BYTES, "%s/%s", folder, name);

    if (n >= 0 && n < GPUCR_CGROUP_PATH_BYTES)
        return 0;
    return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED, "the path of the cgroup %s is too long",
                           folder);
}

static int write_value(const char *folder, const char *name, const char *value,
                       struct gpucr_error *err)
{
    char path[GPUCR_CGROUP_PATH_BYTES];
    GPUCR_AUTO_FD int fd = -1;
    int rc = value_path(folder, name, path, err);

    if (rc < 0)
        return rc;
    fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || write(fd, value, strlen(value)) < 0) {
        rc = gpucr_error_errno(err, errno, "cannot write %s to %s", value, path);
        return gpucr_error_path(err, rc, path);
    }
    return 0;
}

static bool folder_is_frozen(const char *folder)
{
    char path[GPUCR_CGROUP_PATH_BYTES];
    char value[VALUE_BYTES];

    return value_path(folder, "cgroup.events", path, NULL) == 0 &&
           gpucr_file_read_small(AT_FDCWD, path, value, sizeof(value)) > 0 &&
           strstr(value, "frozen 1");
}

static bool is_frozen(const struct gpucr_hold *hold, const struct gpucr_cgroups *cgroups, pid_t pid)
{
    char folder[GPUCR_CGROUP_PATH_BYTES];

    return gpucr_cgroup_folder(cgroups, pid, folder, NULL) == 0 && is_listed(hold, folder) &&
           folder_is_frozen(folder);
}

bool gpucr_hold_is_frozen(const struct gpucr_hold *hold, pid_t pid)
{
    struct gpucr_cgroups cgroups;
    bool frozen;

    if (gpucr_cgroups_open(&cgroups, NULL) < 0)
        return false;
    frozen = is_frozen(hold, &cgroups, pid);
    gpucr_cgroups_done(&cgroups);
    return frozen;
}

/* ---- usable at all? ---- */

static bool is_readable(const char *folder, const char *name, char *ret, size_t size)
{
    char path[GPUCR_CGROUP_PATH_BYTES];
    int n;

    if (value_path(folder, name, path, NULL) < 0)
        return false;
    n = gpucr_file_read_small(AT_FDCWD, path, ret, size);
    if (n > 0 && ret[n - 1] == '\n')
        ret[n - 1] = '\0';
    return n >= 0;
}

static int check_writable(const char *path, struct gpucr_error *err)
{
    int rc;

    if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0)
        return 0;
    rc = gpucr_error_errno(err, errno, "the cgroup %s cannot be changed", path);
    return gpucr_error_path(err, rc, path);
}

/* May children be made below this cgroup, and processes moved there? */
static int check_folder(const char *folder, struct gpucr_error *err)
{
    char path[GPUCR_CGROUP_PATH_BYTES];
    char value[VALUE_BYTES];
    int rc;

    if (is_ours(folder)) {
        rc = gpucr_error_set(err, GPUCR_ERR_BUSY, "%s is a cgroup that gpucr has left behind",
                             folder);
        return gpucr_error_path(err, rc, folder);
    }
    /* Only the root cgroup has no type. */
    if (is_readable(folder, "cgroup.type", value, sizeof(value))) {
        if (strcmp(value, "domain") != 0) {
            rc = gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                                 "the cgroup %s is of type \"%s\", which takes no children of ours",
                                 folder, value);
            return gpucr_error_path(err, rc, folder);
        }
        if (!is_readable(folder, "cgroup.freeze", value, sizeof(value)))
            return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                                   "this kernel's cgroup v2 cannot freeze; Linux 5.2 is the "
                                   "oldest that can");
    }
    rc = value_path(folder, "cgroup.procs", path, err);
    if (rc == 0)
        rc = check_writable(folder, err);
    if (rc == 0)
        rc = check_writable(path, err);
    return rc;
}

static int check_process(const struct gpucr_cgroups *cgroups, pid_t pid, struct gpucr_error *err)
{
    char folder[GPUCR_CGROUP_PATH_BYTES];
    int rc = gpucr_cgroup_folder(cgroups, pid, folder, err);

    return rc < 0 ? rc : check_folder(folder, err);
}

int gpucr_hold_can_freeze(pid_t root, struct gpucr_error *err)
{
    struct gpucr_cgroups cgroups;
    int rc = gpucr_cgroups_open(&cgroups, err);

    if (rc < 0)
        return rc;
    rc = check_process(&cgroups, root, err);
    gpucr_cgroups_done(&cgroups);
    return rc == 0 ? 1 : 0;
}

/* ---- freeze ---- */

/* Whoever kills a suspended program leaves its cgroup behind, empty. */
static void remove_stale(const char *folder)
{
    GPUCR_AUTO_DIR DIR *dir = opendir(folder);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        struct gpucr_proc_stat stat;
        uint64_t pid;
        uint64_t start_ticks;

        if (!parse_name(entry->d_name, &pid, &start_ticks) || pid > INT_MAX)
            continue;
        if (gpucr_proc_stat_read((pid_t)pid, &stat, NULL) == 0 && stat.start_ticks == start_ticks)
            continue;
        (void)unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR); /* fails if it is in use */
    }
}

static int make_child(struct gpucr_hold *hold, const char *name, const char *folder,
                      char ret[GPUCR_CGROUP_PATH_BYTES], struct gpucr_error *err)
{
    int rc = value_path(folder, name, ret, err);

    if (rc < 0 || is_listed(hold, ret))
        return rc;
    rc = check_folder(folder, err);
    if (rc < 0)
        return rc;
    remove_stale(folder);
    /* The name is unique to the root; one that is there is a left-over of the same hold. */
    if (mkdir(ret, 0755) < 0 && errno != EEXIST) {
        rc = gpucr_error_errno(err, errno, "cannot make the cgroup %s", ret);
        return gpucr_error_path(err, rc, ret);
    }
    return list_cgroup(hold, ret, err);
}

static int move_process(const struct gpucr_held *held, const char *folder, struct gpucr_error *err)
{
    struct gpucr_error one = GPUCR_ERROR_INIT;
    char pid[NAME_BYTES];
    int rc;

    (void)snprintf(pid, sizeof(pid), "%d", (int)held->ident.pid);
    rc = write_value(folder, "cgroup.procs", pid, &one);
    if (rc == 0 || gpucr_ident_ended(&held->ident))
        return 0;
    if (err)
        *err = one;
    return gpucr_error_pid(err, rc, held->ident.pid);
}

/* A stopped process keeps its pid, so what is moved is what is held. */
static int move_all(struct gpucr_hold *hold, const struct gpucr_cgroups *cgroups,
                    struct gpucr_error *err)
{
    char folder[GPUCR_CGROUP_PATH_BYTES];
    char child[GPUCR_CGROUP_PATH_BYTES];
    char name[NAME_BYTES];
    int rc = 0;

    (void)snprintf(name, sizeof(name), "%s%d-%" PRIu64, name_prefix, (int)hold->root,
                   hold->items[0].ident.start_ticks);
    for (size_t i = 0; rc == 0 && i < hold->count; i++) {
        const struct gpucr_held *held = &hold->items[i];

        if (held->ended || gpucr_ident_ended(&held->ident))
            continue;
        rc = gpucr_cgroup_folder(cgroups, held->ident.pid, folder, err);
        if (rc == 0)
            rc = make_child(hold, name, folder, child, err);
        if (rc == 0)
            rc = move_process(held, child, err);
    }
    return rc;
}

static int wait_frozen(const char *folder, struct gpucr_deadline deadline, struct gpucr_error *err)
{
    int rc;

    while (!folder_is_frozen(folder)) {
        if (gpucr_deadline_passed(deadline)) {
            rc = gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                                 "the processes in the cgroup %s did not freeze", folder);
            return gpucr_error_path(err, rc, folder);
        }
        gpucr_sleep_us(POLL_US);
    }
    return 0;
}

static int freeze_all(const struct gpucr_hold *hold, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(FREEZE_MS);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < hold->cgroup_count; i++)
        rc = write_value(hold->cgroups[i], "cgroup.freeze", "1", err);
    for (size_t i = 0; rc == 0 && i < hold->cgroup_count; i++)
        rc = wait_frozen(hold->cgroups[i], deadline, err);
    return rc;
}

/* ---- back ---- */

static int move_listed(char *pids, const char *to, struct gpucr_error *err)
{
    char *line;

    while ((line = strsep(&pids, "\n"))) {
        struct gpucr_error one = GPUCR_ERROR_INIT;
        int rc;

        if (line[0] == '\0' || strcmp(line, "0") == 0) /* of another pid namespace */
            continue;
        rc = write_value(to, "cgroup.procs", line, &one);
        if (rc < 0 && one.os_errno != ESRCH) {
            if (err)
                *err = one;
            return rc;
        }
    }
    return 0;
}

/* Everything in our cgroup goes to its parent: that is where it came from. */
static int empty_cgroup(const char *folder, struct gpucr_error *err)
{
    GPUCR_AUTO_FREE char *pids = NULL;
    char path[GPUCR_CGROUP_PATH_BYTES];
    char to[GPUCR_CGROUP_PATH_BYTES];
    int rc = value_path(folder, "cgroup.procs", path, err);

    if (rc == 0)
        rc = gpucr_file_read(AT_FDCWD, path, PROCS_BYTES_MAX, &pids, err);
    if (rc < 0)
        return rc;
    (void)gpucr_copy_text(to, sizeof(to), folder);
    *strrchr(to, '/') = '\0';
    return move_listed(pids, to, err);
}

static int remove_cgroup(const char *folder, struct gpucr_error *err)
{
    int rc = 0;

    for (int round = 0; round < EMPTY_ROUNDS_MAX; round++) {
        if (access(folder, F_OK) < 0 && errno == ENOENT)
            return 0;
        rc = empty_cgroup(folder, err);
        if (rc < 0)
            return rc;
        if (rmdir(folder) == 0 || errno == ENOENT)
            return 0;
        if (errno != EBUSY)
            break;
        gpucr_sleep_us(POLL_US); /* a process that has just died is still accounted for */
    }
    rc = gpucr_error_errno(err, errno, "cannot remove the cgroup %s", folder);
    return gpucr_error_path(err, rc, folder);
}

static void keep_first(int *first, int rc, const struct gpucr_error *one, struct gpucr_error *err)
{
    if (rc >= 0 || *first < 0)
        return;
    *first = rc;
    if (err)
        *err = *one;
}

static int unfreeze_all(const struct gpucr_hold *hold, struct gpucr_error *err)
{
    int first = 0;

    for (size_t i = 0; i < hold->cgroup_count; i++) {
        struct gpucr_error one = GPUCR_ERROR_INIT;
        int rc = write_value(hold->cgroups[i], "cgroup.freeze", "0", &one);

        if (rc != GPUCR_ERR_NOT_FOUND)
            keep_first(&first, rc, &one, err);
    }
    return first;
}

static int remove_all(const struct gpucr_hold *hold, struct gpucr_error *err)
{
    int first = 0;

    for (size_t i = 0; i < hold->cgroup_count; i++) {
        struct gpucr_error one = GPUCR_ERROR_INIT;

        keep_first(&first, remove_cgroup(hold->cgroups[i], &one), &one, err);
    }
    return first;
}

int gpucr_hold_open_cgroups(struct gpucr_hold *hold, struct gpucr_error *err)
{
    struct gpucr_error one = GPUCR_ERROR_INIT;
    int first = unfreeze_all(hold, err);

    keep_first(&first, remove_all(hold, &one), &one, err);
    if (first == 0)
        gpucr_hold_forget_cgroups(hold);
    hold->entered = false;
    return first;
}

/* ---- thaw ---- */

static bool is_stopped(pid_t pid)
{
    struct gpucr_rest rest;

    return gpucr_rest_read(pid, &rest, NULL) == 0 && rest.kind == GPUCR_REST_STOPPED;
}

/*
 * At thaw any thread may take a signal that waits for the process, timers for instance,
 * and gets a frame for its handler before it stops. The driver's threads must not: they
 * are the ones that run on while the program's memory is not there. A SIGSTOP of their
 * own comes first, because the kernel looks at a thread's own queue first.
 */
static void stop_driver_threads(pid_t pid)
{
    struct gpucr_pids tids;

    if (gpucr_task_list(pid, &tids, NULL) < 0)
        return;
    for (size_t i = 0; i < tids.count; i++) {
        struct gpucr_proc_stat thread;

        if (tids.ids[i] != pid && gpucr_task_stat_read(pid, tids.ids[i], &thread, NULL) == 0 &&
            gpucr_comm_is_driver_thread(thread.comm))
            (void)syscall(SYS_tgkill, pid, tids.ids[i], SIGSTOP);
    }
    gpucr_pids_done(&tids);
}

/*
 * One that is T in the freezer (stopped by its owner, or again by somebody) gets SIGCONT
 * first: nothing runs by that, and no SIGSTOP stays pending behind a stop that was in
 * effect all the time.
 */
static int stop_again(const struct gpucr_hold *hold, const struct gpucr_cgroups *cgroups,
                      struct gpucr_held *held, struct gpucr_error *err)
{
    bool stopped = is_stopped(held->ident.pid);
    int rc = 0;

    if (stopped && !is_frozen(hold, cgroups, held->ident.pid))
        return 0;
    if (held->was_stopped && !stopped) /* its owner has continued it meanwhile */
        held->was_stopped = false;
    if (stopped)
        rc = gpucr_ident_signal(&held->ident, SIGCONT, err);
    if (rc == 0)
        stop_driver_threads(held->ident.pid);
    if (rc == 0)
        rc = gpucr_ident_signal(&held->ident, SIGSTOP, err);
    if (rc != GPUCR_ERR_NOT_FOUND)
        return rc;
    held->ended = true;
    return 0;
}

static int stop_all_again(struct gpucr_hold *hold, struct gpucr_error *err)
{
    struct gpucr_cgroups cgroups;
    int first = gpucr_cgroups_open(&cgroups, err);

    if (first < 0)
        return first;
    for (size_t i = 0; i < hold->count; i++) {
        struct gpucr_error one = GPUCR_ERROR_INIT;

        if (!hold->items[i].ended)
            keep_first(&first, stop_again(hold, &cgroups, &hold->items[i], &one), &one, err);
    }
    gpucr_cgroups_done(&cgroups);
    return first;
}

static int wait_stopped(struct gpucr_hold *hold, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(STOP_MS);

    for (size_t i = 0; i < hold->count; i++) {
        struct gpucr_held *held = &hold->items[i];

        while (!held->ended && !is_stopped(held->ident.pid)) {
            held->ended = gpucr_ident_ended(&held->ident);
            if (gpucr_deadline_passed(deadline)) {
                int rc = gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                                         "process %d did not stop again when its cgroup was thawed",
                                         (int)held->ident.pid);

                return gpucr_error_pid(err, rc, held->ident.pid);
            }
            gpucr_sleep_us(POLL_US);
        }
    }
    return 0;
}

int gpucr_hold_thaw(struct gpucr_hold *hold, struct gpucr_error *err)
{
    struct gpucr_error one = GPUCR_ERROR_INIT;
    int first = 0;
    int rc;

    if (hold->cgroup_count == 0)
        return 0;
    rc = stop_all_again(hold, err);
    if (rc < 0) /* still frozen: nothing has run */
        return rc;
    rc = unfreeze_all(hold, err);
    if (rc < 0)
        return rc;
    keep_first(&first, wait_stopped(hold, &one), &one, err);
    keep_first(&first, remove_all(hold, &one), &one, err);
    if (first == 0)
        gpucr_hold_forget_cgroups(hold);
    return first;
}

/* ---- the whole ---- */

static int leave_stop(const struct gpucr_hold *hold, struct gpucr_error *err)
{
    for (size_t i = hold->count; i-- > 0;) { /* children first: no parent sees a stopped child */
        const struct gpucr_held *held = &hold->items[i];
        int rc =
            held->ended || held->was_stopped ? 0 : gpucr_ident_signal(&held->ident, SIGCONT, err);

        if (rc < 0 && rc != GPUCR_ERR_NOT_FOUND)
            return rc;
    }
    return 0;
}

int gpucr_hold_enter(struct gpucr_hold *hold, struct gpucr_error *err)
{
    struct gpucr_cgroups cgroups;
    int rc;

    if (hold->cgroup_count > 0)
        return 0;
    rc = gpucr_cgroups_open(&cgroups, err);
    if (rc < 0)
        return rc;
    rc = move_all(hold, &cgroups, err);
    gpucr_cgroups_done(&cgroups);
    hold->entered = rc == 0 && hold->cgroup_count > 0;
    return rc;
}

static int freeze_hold(struct gpucr_hold *hold, struct gpucr_error *err)
{
    int rc = gpucr_hold_enter(hold, err);

    hold->entered = false;
    if (rc == 0)
        rc = freeze_all(hold, err);
    if (rc == 0)
        rc = leave_stop(hold, err);
    if (rc == 0)
        rc = gpucr_fault("hold.frozen", err);
    return rc;
}

int gpucr_hold_freeze(struct gpucr_hold *hold, struct gpucr_error *err)
{
    struct gpucr_error undo = GPUCR_ERROR_INIT;
    int rc;

    if (hold->cgroup_count > 0 && !hold->entered)
        return 1;
    rc = freeze_hold(hold, err);
    if (rc == 0)
        return hold->cgroup_count > 0 ? 1 : 0;
    if (gpucr_hold_thaw(hold, &undo) < 0)
        return gpucr_error_wrap(err, rc, "not undone (%s)", undo.text);
    return 0;
}
