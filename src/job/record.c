/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "job/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

enum { RECORD_VERSION = 1, RECORD_BYTES_MAX = 16 << 20, RECORDS_MAX = 65536, DEPTH_MAX = 1000 };

void gpucr_record_done(struct gpucr_record *record)
{
    free(record->processes);
    *record = (struct gpucr_record){0};
}

static void cleanup_json(struct json_object **object)
{
    if (*object)
        (void)json_object_put(*object);
}

#define AUTO_JSON GPUCR_CLEANUP(cleanup_json)

/* /run/gpucr for root; for others a folder of their own that nobody else can write. */
static void state_path(const struct gpucr_job_options *options, char *ret, size_t size)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");

    if (options->state_dir)
        (void)snprintf(ret, size, "%s", options->state_dir);
    else if (geteuid() == 0)
        (void)snprintf(ret, size, "/run/gpucr");
    else if (runtime && runtime[0] == '/')
        (void)snprintf(ret, size, "%s/gpucr", runtime);
    else
        (void)snprintf(ret, size, "/tmp/gpucr-%u", (unsigned)geteuid());
}

static int state_open(const struct gpucr_job_options *options, bool create, int *ret,
                      struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = -1;
    char path[GPUCR_ERROR_PATH_BYTES];
    struct stat st;
    int rc;

    state_path(options, path, sizeof(path));
    if (create && mkdir(path, 0700) < 0 && errno != EEXIST)
        return gpucr_error_path(err, gpucr_error_errno(err, errno, "cannot make %s", path), path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = gpucr_error_errno(err, errno, "cannot open the state folder %s", path);
        return gpucr_error_path(err, rc, path);
    }
    if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & 022)) {
        rc = gpucr_error_set(err, GPUCR_ERR_PERMISSION,
                             "the state folder %s belongs to user %u with mode %o; it must be "
                             "the caller's own and writable by nobody else",
                             path, (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777));
        return gpucr_error_path(err, rc, path);
    }
    *ret = gpucr_steal_fd(&fd);
    return 0;
}

static void record_name(int32_t root_pid, char *ret, size_t size)
{
    (void)snprintf(ret, size, "suspended-%d.json", root_pid);
}

int gpucr_record_of_job(const struct gpucr_job *job, struct gpucr_record *ret,
                        struct gpucr_error *err)
{
    size_t count = job->result->process_count;
    struct gpucr_record record = {.root_pid = job->options->pid};

    record.processes = calloc(count ? count : 1, sizeof(*record.processes));
    if (!record.processes)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; i < count; i++) {
        const struct gpucr_process_result *p = &job->result->processes[i];
        struct gpucr_member *member = gpucr_group_find((struct gpucr_group *)&job->group, p->pid);
        struct gpucr_record_process *r = &record.processes[record.count++];

        *r = (struct gpucr_record_process){
            .pid = p->pid,
            .start_ticks = p->start_ticks,
            .was_stopped = p->was_stopped,
            .is_cuda = p->is_cuda,
            .cuda_state = member ? (uint32_t)member->before : 0,
            .device_bytes = p->device_bytes,
            .gpu_count = p->gpu_count,
        };
        (void)memcpy(r->gpus, p->gpus, sizeof(r->gpus));
    }
    *ret = record;
    return 0;
}

static struct json_object *process_to_json(const struct gpucr_record_process *p)
{
    struct json_object *o = json_object_new_object();
    struct json_object *gpus = json_object_new_array();

    for (uint32_t i = 0; i < p->gpu_count; i++)
        (void)json_object_array_add(gpus, json_object_new_int64(p->gpus[i]));
    (void)json_object_object_add(o, "pid", json_object_new_int64(p->pid));
    (void)json_object_object_add(o, "start_ticks", json_object_new_uint64(p->start_ticks));
    (void)json_object_object_add(o, "was_stopped", json_object_new_boolean(p->was_stopped));
    (void)json_object_object_add(o, "is_cuda", json_object_new_boolean(p->is_cuda));
    (void)json_object_object_add(o, "cuda_state", json_object_new_int64(p->cuda_state));
    (void)json_object_object_add(o, "device_bytes", json_object_new_uint64(p->device_bytes));
    (void)json_object_object_add(o, "gpus", gpus);
    return o;
}

static struct json_object *record_to_json(const struct gpucr_record *record, const char *boot_id)
{
    struct json_object *o = json_object_new_object();
    struct json_object *list = json_object_new_array();

    for (size_t i = 0; i < record->count; i++)
        (void)json_object_array_add(list, process_to_json(&record->processes[i]));
    (void)json_object_object_add(o, "version", json_object_new_int(RECORD_VERSION));
    (void)json_object_object_add(o, "boot_id", json_object_new_string(boot_id));
    (void)json_object_object_add(o, "root_pid", json_object_new_int64(record->root_pid));
    (void)json_object_object_add(o, "processes", list);
    return o;
}

/* Written beside, synced, renamed: a reader sees the old record or the new one. */
static int replace_file(int dir_fd, const char *name, const char *text, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = -1;
    char temp[64];
    int rc;

    (void)snprintf(temp, sizeof(temp), ".%s.%d", name, (int)getpid());
    fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return gpucr_error_errno(err, errno, "cannot write the record %s", name);
    rc = gpucr_fd_write_all(fd, text, strlen(text), err);
    if (rc == 0 && (fsync(fd) < 0 || renameat(dir_fd, temp, dir_fd, name) < 0 || fsync(dir_fd) < 0))
        rc = gpucr_error_errno(err, errno, "cannot write the record %s", name);
    if (rc < 0)
        (void)unlinkat(dir_fd, temp, 0);
    return rc;
}

int gpucr_record_write(const struct gpucr_job_options *options, const struct gpucr_record *record,
                       struct gpucr_error *err)
{
    AUTO_JSON struct json_object *json = NULL;
    GPUCR_AUTO_FD int dir_fd = -1;
    char boot_id[37];
    char name[48];
    int rc = gpucr_boot_id_read(boot_id, err);

    if (rc == 0)
        rc = state_open(options, true, &dir_fd, err);
    if (rc < 0)
        return rc;
    json = record_to_json(record, boot_id);
    record_name(record->root_pid, name, sizeof(name));
    return replace_file(dir_fd, name, json_object_to_json_string(json), err);
}

static uint64_t number(struct json_object *o, const char *key)
{
    struct json_object *value = NULL;

    if (!json_object_object_get_ex(o, key, &value) || !json_object_is_type(value, json_type_int))
        return 0;
    return json_object_get_uint64(value);
}

static bool boolean(struct json_object *o, const char *key)
{
    struct json_object *value = NULL;

    return json_object_object_get_ex(o, key, &value) && json_object_get_boolean(value);
}

static void process_from_json(struct json_object *o, struct gpucr_record_process *ret)
{
    struct json_object *gpus = NULL;

    *ret = (struct gpucr_record_process){
        .pid = (int32_t)number(o, "pid"),
        .start_ticks = number(o, "start_ticks"),
        .was_stopped = boolean(o, "was_stopped"),
        .is_cuda = boolean(o, "is_cuda"),
        .cuda_state = (uint32_t)number(o, "cuda_state"),
        .device_bytes = number(o, "device_bytes"),
    };
    if (!json_object_object_get_ex(o, "gpus", &gpus) || !json_object_is_type(gpus, json_type_array))
        return;
    for (size_t i = 0; i < json_object_array_length(gpus); i++) {
        if (ret->gpu_count < GPUCR_GPUS_PER_PROCESS_MAX)
            ret->gpus[ret->gpu_count++] =
                (uint32_t)json_object_get_int64(json_object_array_get_idx(gpus, i));
    }
}

/* 1: a record of this boot. 0: of another boot or version, or not a record. */
static int record_from_json(struct json_object *json, struct gpucr_record *ret,
                            struct gpucr_error *err)
{
    struct json_object *list = NULL;
    struct json_object *boot = NULL;
    char boot_id[37];
    size_t count;

    if (gpucr_boot_id_read(boot_id, err) < 0)
        return err ? err->code : GPUCR_ERR_SYSTEM;
    if (!json_object_is_type(json, json_type_object) || number(json, "version") != RECORD_VERSION ||
        !json_object_object_get_ex(json, "boot_id", &boot) ||
        strcmp(json_object_get_string(boot) ? json_object_get_string(boot) : "", boot_id) != 0 ||
        !json_object_object_get_ex(json, "processes", &list) ||
        !json_object_is_type(list, json_type_array))
        return 0;
    count = json_object_array_length(list);
    if (count > GPUCR_RECORD_PROCESSES_MAX)
        return 0;
    *ret = (struct gpucr_record){.root_pid = (int32_t)number(json, "root_pid")};
    ret->processes = calloc(count ? count : 1, sizeof(*ret->processes));
    if (!ret->processes)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; i < count; i++)
        process_from_json(json_object_array_get_idx(list, i), &ret->processes[ret->count++]);
    return 1;
}

static int read_named(int dir_fd, const char *name, struct gpucr_record *ret,
                      struct gpucr_error *err)
{
    AUTO_JSON struct json_object *json = NULL;
    GPUCR_AUTO_FREE char *text = NULL;
    int rc = gpucr_file_read(dir_fd, name, RECORD_BYTES_MAX, &text, err);

    if (rc == GPUCR_ERR_NOT_FOUND)
        return 0;
    if (rc < 0)
        return rc;
    json = json_tokener_parse(text);
    return json ? record_from_json(json, ret, err) : 0;
}

int gpucr_record_read(const struct gpucr_job_options *options, int32_t root_pid,
                      struct gpucr_record *ret, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int dir_fd = -1;
    char name[48];
    int rc = state_open(options, false, &dir_fd, err);

    if (rc == GPUCR_ERR_NOT_FOUND)
        return 0;
    if (rc < 0)
        return rc;
    record_name(root_pid, name, sizeof(name));
    return read_named(dir_fd, name, ret, err);
}

void gpucr_record_remove(const struct gpucr_job_options *options, int32_t root_pid)
{
    GPUCR_AUTO_FD int dir_fd = -1;
    char name[48];

    if (state_open(options, false, &dir_fd, NULL) < 0)
        return;
    record_name(root_pid, name, sizeof(name));
    if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
        gpucr_warn("cannot remove the record %s, ignoring", name);
}

static int walk(const struct gpucr_job_options *options,
                void (*fn)(void *arg, struct gpucr_record *record), void *arg,
                struct gpucr_error *err)
{
    GPUCR_AUTO_DIR DIR *dir = NULL;
    int dir_fd = -1;
    int rc = state_open(options, false, &dir_fd, err);
    int left = RECORDS_MAX;

    if (rc == GPUCR_ERR_NOT_FOUND)
        return 0;
    if (rc < 0)
        return rc;
    dir = fdopendir(dir_fd);
    if (!dir) {
        rc = gpucr_error_errno(err, errno, "cannot read the state folder");
        (void)close(dir_fd);
        return rc;
    }
    for (struct dirent *e = readdir(dir); e && left > 0; e = readdir(dir)) {
        struct gpucr_record record = {0};

        if (!gpucr_starts_with(e->d_name, "suspended-") || !gpucr_ends_with(e->d_name, ".json"))
            continue;
        left--;
        if (read_named(dirfd(dir), e->d_name, &record, NULL) == 1)
            fn(arg, &record);
        gpucr_record_done(&record);
    }
    return 0;
}

struct reader {
    void (*fn)(void *arg, const struct gpucr_record *record);
    void *arg;
};

static void show_record(void *arg, struct gpucr_record *record)
{
    const struct reader *reader = arg;

    reader->fn(reader->arg, record);
}

int gpucr_record_walk(const struct gpucr_job_options *options,
                      void (*fn)(void *arg, const struct gpucr_record *record), void *arg,
                      struct gpucr_error *err)
{
    struct reader reader = {.fn = fn, .arg = arg};

    return walk(options, show_record, &reader, err);
}

struct find {
    int32_t pid;
    uint64_t start_ticks;
    struct gpucr_record *ret;
    int found;
};

const struct gpucr_record_process *gpucr_record_process(const struct gpucr_record *record,
                                                        int32_t pid, uint64_t start_ticks)
{
    for (size_t i = 0; i < record->count; i++) {
        if (record->processes[i].pid == pid && record->processes[i].start_ticks == start_ticks)
            return &record->processes[i];
    }
    return NULL;
}

static void find_in(void *arg, struct gpucr_record *record)
{
    struct find *find = arg;

    if (find->found || !gpucr_record_process(record, find->pid, find->start_ticks))
        return;
    *find->ret = *record;
    *record = (struct gpucr_record){0};
    find->found = 1;
}

int gpucr_record_find(const struct gpucr_job_options *options, int32_t pid, uint64_t start_ticks,
                      struct gpucr_record *ret, struct gpucr_error *err)
{
    struct find find = {.pid = pid, .start_ticks = start_ticks, .ret = ret};
    struct gpucr_record own = {0};
    int rc = gpucr_record_read(options, pid, &own, err);

    if (rc == 1)
        find_in(&find, &own);
    gpucr_record_done(&own);
    if (rc >= 0 && !find.found)
        rc = walk(options, find_in, &find, err);
    return rc < 0 ? rc : find.found;
}

static void lock_name(int32_t pid, char *ret, size_t size)
{
    (void)snprintf(ret, size, "lock-%d", pid);
}

static int open_lock(int dir_fd, int32_t pid, int *ret, struct gpucr_error *err)
{
    char name[48];
    char owner[32] = "";
    int rc;

    lock_name(pid, name, sizeof(name));
    *ret = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*ret < 0)
        return gpucr_error_errno(err, errno, "cannot open the lock of process %d", pid);
    if (flock(*ret, LOCK_EX | LOCK_NB) == 0)
        return 0;
    (void)gpucr_file_read_small(dir_fd, name, owner, sizeof(owner));
    rc = gpucr_error_set(err, GPUCR_ERR_BUSY, "another gpucr (process %s) works on process %d",
                         owner[0] ? owner : "unknown", pid);
    return gpucr_error_pid(err, rc, pid);
}

static bool is_below(pid_t pid, pid_t ancestor)
{
    struct gpucr_proc_stat stat;

    for (int depth = 0; depth < DEPTH_MAX && pid > 1; depth++) {
        if (gpucr_proc_stat_read(pid, &stat, NULL) < 0)
            return false;
        pid = stat.parent_pid;
        if (pid == ancestor)
            return true;
    }
    return false;
}

/* A lock that nobody holds was left by a gpucr that was killed. */
static bool is_locked(int dir_fd, const char *name)
{
    GPUCR_AUTO_FD int fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
}

/*
 * Trees overlap: two of them are one job when the root of one lies below the other. Our
 * own lock is in the folder already, so of two that begin at once at least one sees the
 * other.
 */
static int check_overlap(int dir_fd, int32_t pid, struct gpucr_error *err)
{
    GPUCR_AUTO_DIR DIR *dir = NULL;
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int left = RECORDS_MAX;

    dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        int rc = gpucr_error_errno(err, errno, "cannot read the state folder");

        gpucr_cleanup_fd(&fd);
        return rc;
    }
    for (struct dirent *e = readdir(dir); e && left-- > 0; e = readdir(dir)) {
        uint64_t other;
        int rc;

        if (!gpucr_starts_with(e->d_name, "lock-") ||
            !gpucr_parse_u64(e->d_name + strlen("lock-"), 10, &other) || other > INT32_MAX ||
            (int32_t)other == pid)
            continue;
        if ((!is_below(pid, (pid_t)other) && !is_below((pid_t)other, pid)) ||
            !is_locked(dir_fd, e->d_name))
            continue;
        rc = gpucr_error_set(err, GPUCR_ERR_BUSY,
                             "another gpucr works on process %d, whose tree overlaps with that of "
                             "process %d",
                             (int)other, pid);
        return gpucr_error_pid(err, rc, pid);
    }
    return 0;
}

int gpucr_record_lock(const struct gpucr_job_options *options, int32_t pid, int *ret_fd,
                      struct gpucr_error *err)
{
    GPUCR_AUTO_FD int dir_fd = -1;
    GPUCR_AUTO_FD int fd = -1;
    char owner[32];
    char name[48];
    struct stat st = {0};
    int rc;

    if (pid <= 0)
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "%d is not the pid of a process", pid);
    rc = state_open(options, true, &dir_fd, err);
    if (rc < 0)
        return rc;
    do { /* the holder before us may have removed the file between our open and our lock */
        gpucr_cleanup_fd(&fd);
        fd = -1;
        rc = open_lock(dir_fd, pid, &fd, err);
    } while (rc == 0 && fstat(fd, &st) == 0 && st.st_nlink == 0);
    if (rc < 0)
        return rc;
    (void)snprintf(owner, sizeof(owner), "%d", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, owner, strlen(owner), 0) < 0)
        return gpucr_error_errno(err, errno, "cannot write the lock of process %d", pid);
    rc = check_overlap(dir_fd, pid, err);
    if (rc < 0) {
        lock_name(pid, name, sizeof(name));
        (void)unlinkat(dir_fd, name, 0);
        return rc;
    }
    *ret_fd = gpucr_steal_fd(&fd);
    return 0;
}

void gpucr_record_unlock(const struct gpucr_job_options *options, int32_t pid, int fd)
{
    GPUCR_AUTO_FD int dir_fd = -1;
    char name[48];

    if (fd < 0)
        return;
    lock_name(pid, name, sizeof(name));
    if (state_open(options, false, &dir_fd, NULL) == 0)
        (void)unlinkat(dir_fd, name, 0);
    (void)close(fd);
}
