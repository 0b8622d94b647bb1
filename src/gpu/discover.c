/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gpu/discover.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"

enum {
    NVIDIA_MAJOR = 195,
    MAJORS_MAX = 32,
    KCMP_FILES_TYPE = 2, /* KCMP_FILES of linux/kcmp.h */
    TABLES_MAX = 16,     /* descriptor tables of one process told apart */
    CUDA_THREADS_MIN = 2 /* the program's own and the restore thread */
};

struct look {
    pid_t pid;
    pid_t tid; /* whose descriptors are being walked */
    const char *dev_root;
    size_t dev_root_length;
    bool majors_known;
    unsigned majors[MAJORS_MAX];
    size_t major_count;
    struct gpucr_evidence *evidence;
};

static bool is_number(const char *text)
{
    uint64_t number;

    return gpucr_parse_u64(text, 10, &number);
}

/* "nvidia0", "nvidiactl", "nvidia-caps/nvidia-cap1", … as the driver names its nodes. */
static bool is_device_name(const char *name)
{
    static const char *const names[] = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools",
                                        "nvidia-modeset"};

    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(names); i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    if (gpucr_starts_with(name, "nvidia-caps/") ||
        gpucr_starts_with(name, "nvidia-caps-imex-channels/"))
        return true;
    return gpucr_starts_with(name, "nvidia") && is_number(name + 6);
}

/* Is it a device file below the folder @p root? */
static bool is_device_below(const char *root, size_t root_length, const char *path)
{
    char name[64];
    size_t n;

    if (strncmp(path, root, root_length) != 0 || path[root_length] != '/')
        return false;
    path += root_length;
    while (*path == '/')
        path++;
    if (!gpucr_copy_text(name, sizeof(name), path))
        return false;
    /* A node that was replaced while open (a container's /dev remade). */
    if (gpucr_ends_with(name, " (deleted)")) {
        n = strlen(name) - strlen(" (deleted)");
        name[n] = '\0';
    }
    return is_device_name(name);
}

/* In a container the nodes are in /dev whatever their folder is called out here. */
static bool is_device_path(const struct look *look, const char *path)
{
    return is_device_below(look->dev_root, look->dev_root_length, path) ||
           is_device_below("/dev", 4, path);
}

/* Character majors of /proc/devices whose name begins with nvidia: all but 195 are given out at
 * load. */
static void read_majors(struct look *look)
{
    GPUCR_AUTO_FREE char *text = NULL;
    const char *line;

    look->majors_known = true;
    look->majors[look->major_count++] = NVIDIA_MAJOR;
    if (gpucr_file_read(AT_FDCWD, "/proc/devices", 1 << 20, &text, NULL) < 0)
        return;
    line = text;
    while (line && !gpucr_starts_with(line, "Block devices") && look->major_count < MAJORS_MAX) {
        const char *p = line;
        uint64_t number;

        while (*p == ' ')
            p++;
        if (gpucr_scan_u64(p, 10, &number, &p) && gpucr_starts_with(p, " nvidia"))
            look->majors[look->major_count++] = (unsigned)number;
        line = strchr(line, '\n');
        if (line)
            line++;
    }
}

static bool is_device_node(struct look *look, int fd)
{
    char path[96];
    struct stat st;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/fd/%d", look->pid, look->tid, fd);
    if (stat(path, &st) != 0 || !S_ISCHR(st.st_mode))
        return false;
    if (!look->majors_known)
        read_majors(look);
    for (size_t i = 0; i < look->major_count; i++) {
        if (major(st.st_rdev) == look->majors[i])
            return true;
    }
    return false;
}

static void note_path(struct look *look, const char *path)
{
    if (look->evidence->example_path[0] == '\0')
        (void)gpucr_copy_text(look->evidence->example_path, sizeof(look->evidence->example_path),
                              path);
}

static int see_descriptor(void *arg, int fd, const char *target)
{
    struct look *look = arg;

    if (target[0] != '/')
        return 0;
    if (!is_device_path(look, target) && !is_device_node(look, fd))
        return 0;
    look->evidence->flags |= GPUCR_EVIDENCE_DESCRIPTOR;
    look->evidence->example_fd = fd;
    note_path(look, target);
    return 1; /* one is enough */
}

/* Do two threads use one descriptor table? Where the kernel does not tell, no. */
static bool same_table(pid_t a, pid_t b)
{
    return syscall(SYS_kcmp, a, b, KCMP_FILES_TYPE, 0UL, 0UL) == 0;
}

struct tables {
    pid_t tids[TABLES_MAX];
    size_t count;
};

/* Is the table of @p tid one that was not seen yet? */
static bool is_new_table(struct tables *seen, pid_t tid)
{
    for (size_t i = 0; i < seen->count; i++) {
        if (same_table(seen->tids[i], tid))
            return false;
    }
    if (seen->count < TABLES_MAX)
        seen->tids[seen->count++] = tid;
    return true;
}

/* Threads may have a table of their own (unshare(CLONE_FILES)): each table is walked once. */
static int look_at_descriptors(struct look *look, const struct gpucr_pids *tids,
                               struct gpucr_error *err)
{
    struct gpucr_error why = GPUCR_ERROR_INIT;
    struct tables seen = {.count = 0};

    for (size_t i = 0; i < tids->count; i++) {
        int rc;

        if (!is_new_table(&seen, tids->ids[i]))
            continue;
        look->tid = tids->ids[i];
        rc = gpucr_fds_walk(look->pid, look->tid, see_descriptor, look, &why);
        if (rc > 0)
            return 0;
        if (rc < 0 && rc != GPUCR_ERR_NOT_FOUND) {
            if (err)
                *err = why;
            return rc;
        }
    }
    return 0;
}

static int look_at_mappings(struct look *look, struct gpucr_error *err)
{
    struct gpucr_maps maps = {0};
    int rc = gpucr_maps_read(look->pid, &maps, err);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < maps.count; i++) {
        if (!is_device_path(look, maps.items[i].path))
            continue;
        look->evidence->flags |= GPUCR_EVIDENCE_MAPPING;
        note_path(look, maps.items[i].path);
        break;
    }
    gpucr_maps_done(&maps);
    return 0;
}

static void look_at_threads(struct look *look, const struct gpucr_pids *tids)
{
    for (size_t i = 0; i < tids->count; i++) {
        char path[64];
        char comm[GPUCR_PROC_COMM_BYTES];
        int n;

        (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", look->pid, tids->ids[i]);
        n = gpucr_file_read_small(AT_FDCWD, path, comm, sizeof(comm));
        if (n <= 0)
            continue;
        if (comm[n - 1] == '\n')
            comm[n - 1] = '\0';
        if (!gpucr_comm_is_restore_thread(comm))
            continue;
        look->evidence->flags |= GPUCR_EVIDENCE_RESTORE_THREAD;
        look->evidence->restore_tid = tids->ids[i];
        return;
    }
}

int gpucr_evidence_read(pid_t pid, const char *dev_root, struct gpucr_evidence *ret,
                        struct gpucr_error *err)
{
    struct gpucr_evidence evidence = {.example_fd = -1};
    struct look look = {
        .pid = pid, .dev_root = dev_root ? dev_root : "/dev", .evidence = &evidence};
    struct gpucr_pids tids = {0};
    int rc = gpucr_task_list(pid, &tids, err);

    if (rc < 0)
        return rc;
    look.dev_root_length = strlen(look.dev_root);
    while (look.dev_root_length > 0 && look.dev_root[look.dev_root_length - 1] == '/')
        look.dev_root_length--;
    look_at_threads(&look, &tids);
    rc = look_at_descriptors(&look, &tids, err);
    if (rc == 0)
        rc = look_at_mappings(&look, err);
    gpucr_pids_done(&tids);
    if (rc < 0) {
        rc = gpucr_error_wrap(err, rc, "process %d cannot be searched for GPU device files", pid);
        return gpucr_error_pid(err, rc, pid);
    }
    *ret = evidence;
    return 0;
}

/* The record of getdents64; glibc's readdir would allocate for every process. */
struct dirent_record {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

static bool is_restore_thread(int task_fd, const char *tid)
{
    char path[32];
    char comm[GPUCR_PROC_COMM_BYTES];
    int n;

    (void)snprintf(path, sizeof(path), "%.16s/comm", tid);
    n = gpucr_file_read_small(task_fd, path, comm, sizeof(comm));
    if (n <= 0)
        return false;
    if (comm[n - 1] == '\n')
        comm[n - 1] = '\0';
    return gpucr_comm_is_restore_thread(comm);
}

pid_t gpucr_evidence_quick(pid_t pid, uint32_t thread_count)
{
    _Alignas(struct dirent_record) char records[8192];
    GPUCR_AUTO_FD int task_fd = -1;
    char path[32];
    ssize_t n;

    if (thread_count < CUDA_THREADS_MIN)
        return 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
    task_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (task_fd < 0)
        return 0;
    while ((n = syscall(SYS_getdents64, task_fd, records, sizeof(records))) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct dirent_record *record = (const void *)(records + at);
            uint64_t tid;

            at += record->length;
            /* The first thread carries the program's name. */
            if (!gpucr_parse_u64(record->name, 10, &tid) || tid == (uint64_t)pid)
                continue;
            if (tid <= INT_MAX && is_restore_thread(task_fd, record->name))
                return (pid_t)tid;
        }
    }
    return 0;
}
