/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"

enum {
    PATH_BYTES = 64,
    STAT_BYTES = 1024,
    STATUS_BYTES = 8192, /* without supplementary groups it is about 1500 */
    STATUS_BYTES_MAX = 4 << 20,
    FIRST_STAT_FIELD = 4,            /* the first number behind the name and the state */
    STAT_FIELDS = 21,                /* up to rss, field 24 */
    FLAG_KERNEL_THREAD = 0x00200000, /* PF_KTHREAD, unchanged since 2.6.27 */
};

/*
 * The kernel makes these files in one piece: one read() returns all of it when
 * the buffer is large enough, and a second one would only say end of file.
 */
static int read_once(const char *path, char *buffer, size_t size)
{
    GPUCR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t n;

    if (fd < 0)
        return -errno;
    do {
        n = read(fd, buffer, size - 1);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    buffer[n] = '\0';
    return (int)n;
}

/* A process that goes away is ENOENT at open() and ESRCH at read(). */
static int read_failed(int os_errno, pid_t pid, const char *what, struct gpucr_error *err)
{
    int rc;

    if (os_errno == ENOENT)
        os_errno = ESRCH;
    rc = gpucr_error_errno(err, os_errno, "cannot read the %s of process %d", what, (int)pid);
    return gpucr_error_pid(err, rc, pid);
}

static int bad_form(pid_t pid, const char *what, struct gpucr_error *err)
{
    int rc = gpucr_error_set(err, GPUCR_ERR_SYSTEM,
                             "the kernel's %s of process %d does not have the known form", what,
                             (int)pid);

    return gpucr_error_pid(err, rc, pid);
}

/* Some fields are signed (tpgid is -1 without a terminal); two's complement keeps them. */
static bool scan_number(const char **p, uint64_t *ret)
{
    bool negative;

    while (**p == ' ')
        (*p)++;
    negative = **p == '-';
    if (negative)
        (*p)++;
    if (!gpucr_scan_u64(*p, 10, ret, p))
        return false;
    if (negative)
        *ret = -*ret;
    return true;
}

static uint64_t page_bytes(void)
{
    static uint64_t cached;
    uint64_t bytes = __atomic_load_n(&cached, __ATOMIC_RELAXED);

    if (bytes == 0) {
        bytes = (uint64_t)sysconf(_SC_PAGESIZE);
        __atomic_store_n(&cached, bytes, __ATOMIC_RELAXED);
    }
    return bytes;
}

/* "12 (name) S 1 …": the name may hold blanks, brackets and newlines, no escapes are made. */
static bool parse_stat(const char *text, struct gpucr_proc_stat *ret)
{
    struct gpucr_proc_stat s = {0};
    uint64_t fields[STAT_FIELDS];
    const char *name = strchr(text, '(');
    const char *end = strrchr(text, ')');
    const char *p;
    uint64_t pid;

    if (!name || !end || end < name || end[1] != ' ' || end[2] == '\0')
        return false;
    if (!gpucr_scan_u64(text, 10, &pid, NULL) || pid > INT_MAX)
        return false;
    name++;
    if ((size_t)(end - name) >= sizeof(s.comm))
        return false;
    (void)memcpy(s.comm, name, (size_t)(end - name));
    p = end + 3;
    for (size_t i = 0; i < STAT_FIELDS; i++) {
        if (!scan_number(&p, &fields[i]))
            return false;
    }
    s.pid = (pid_t)pid;
    s.state = end[2];
    s.parent_pid = (pid_t)fields[4 - FIRST_STAT_FIELD];
    s.group = (pid_t)fields[5 - FIRST_STAT_FIELD];
    s.session = (pid_t)fields[6 - FIRST_STAT_FIELD];
    s.tty = (int32_t)fields[7 - FIRST_STAT_FIELD];
    s.kernel_thread = (fields[9 - FIRST_STAT_FIELD] & FLAG_KERNEL_THREAD) != 0;
    s.thread_count = (uint32_t)fields[20 - FIRST_STAT_FIELD];
    s.start_ticks = fields[22 - FIRST_STAT_FIELD];
    s.rss_bytes = fields[24 - FIRST_STAT_FIELD] * page_bytes();
    *ret = s;
    return true;
}

static int stat_read(const char *path, pid_t pid, struct gpucr_proc_stat *ret,
                     struct gpucr_error *err)
{
    char text[STAT_BYTES];
    int n = read_once(path, text, sizeof(text));

    if (n < 0)
        return read_failed(-n, pid, "state", err);
    return parse_stat(text, ret) ? 0 : bad_form(pid, "state", err);
}

int gpucr_proc_stat_read(pid_t pid, struct gpucr_proc_stat *ret, struct gpucr_error *err)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    return stat_read(path, pid, ret, err);
}

int gpucr_task_stat_read(pid_t pid, pid_t tid, struct gpucr_proc_stat *ret, struct gpucr_error *err)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
    return stat_read(path, pid, ret, err);
}

static uint64_t status_number(const char *p, int base)
{
    uint64_t value;

    while (*p == ' ' || *p == '\t')
        p++;
    return gpucr_scan_u64(p, base, &value, NULL) ? value : 0;
}

static uint32_t status_numbers(const char *p, uint32_t max, int32_t *ret)
{
    uint32_t count = 0;

    while (count < max) {
        uint64_t value;

        while (*p == ' ' || *p == '\t')
            p++;
        if (!gpucr_scan_u64(p, 10, &value, &p))
            break;
        ret[count++] = (int32_t)value;
    }
    return count;
}

static void status_line(const char *line, struct gpucr_proc_status *s)
{
    const char *colon = strchr(line, ':');
    size_t n = colon ? (size_t)(colon - line) : 0;
    const char *p = line + n + 1;

    if (!colon)
        return;
#define IS(name) (n == sizeof(name) - 1 && memcmp(line, name, n) == 0)
    if (IS("Tgid"))
        s->pid = (pid_t)status_number(p, 10);
    else if (IS("TracerPid"))
        s->tracer_pid = (pid_t)status_number(p, 10);
    else if (IS("Uid"))
        (void)status_numbers(p, 4, (int32_t *)s->uid);
    else if (IS("Gid"))
        (void)status_numbers(p, 4, (int32_t *)s->gid);
    else if (IS("NSpid"))
        s->ns_level_count = status_numbers(p, GPUCR_PROC_NS_LEVELS_MAX, s->ns_pids);
    else if (IS("VmRSS"))
        s->rss_bytes = status_number(p, 10) * 1024;
    else if (IS("VmLck"))
        s->locked_bytes = status_number(p, 10) * 1024;
    else if (IS("SigCgt"))
        s->signals_caught = status_number(p, 16);
    else if (IS("SigBlk"))
        s->signals_blocked = status_number(p, 16);
    else if (IS("Seccomp"))
        s->seccomp = (uint32_t)status_number(p, 10);
    else if (IS("voluntary_ctxt_switches") || IS("nonvoluntary_ctxt_switches"))
        s->switches += status_number(p, 10);
#undef IS
}

static bool parse_status(const char *text, struct gpucr_proc_status *ret)
{
    struct gpucr_proc_status s = {0};

    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');

        status_line(line, &s);
        if (!end)
            break;
        line = end + 1;
    }
    if (s.pid == 0)
        return false;
    *ret = s;
    return true;
}

static int status_read(const char *path, pid_t pid, struct gpucr_proc_status *ret,
                       struct gpucr_error *err)
{
    GPUCR_AUTO_FREE char *large = NULL;
    char text[STATUS_BYTES];
    int n = read_once(path, text, sizeof(text));
    int rc;

    if (n < 0)
        return read_failed(-n, pid, "status", err);
    if (n == (int)sizeof(text) - 1) { /* thousands of supplementary groups */
        rc = gpucr_file_read(AT_FDCWD, path, STATUS_BYTES_MAX, &large, err);
        if (rc < 0)
            return rc;
    }
    return parse_status(large ? large : text, ret) ? 0 : bad_form(pid, "status", err);
}

int gpucr_proc_status_read(pid_t pid, struct gpucr_proc_status *ret, struct gpucr_error *err)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    return status_read(path, pid, ret, err);
}

int gpucr_task_status_read(pid_t pid, pid_t tid, struct gpucr_proc_status *ret,
                           struct gpucr_error *err)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
    return status_read(path, pid, ret, err);
}

void gpucr_wchan_read(pid_t pid, pid_t tid, char *ret, size_t size)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/wchan", (int)pid, (int)tid);
    if (read_once(path, ret, size) < 0 || strcmp(ret, "0") == 0)
        ret[0] = '\0';
}

void gpucr_cmdline_read(pid_t pid, char *ret, size_t size)
{
    struct gpucr_proc_stat stat;
    char path[PATH_BYTES];
    int n;

    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    n = read_once(path, ret, size);
    while (n > 0 && ret[n - 1] == '\0')
        n--;
    if (n <= 0) { /* a zombie, a kernel thread, or it wiped its arguments */
        if (gpucr_proc_stat_read(pid, &stat, NULL) < 0)
            stat.comm[0] = '\0';
        n = snprintf(ret, size, "[%s]", stat.comm);
        n = n < (int)size ? n : (int)size - 1;
    }
    for (int i = 0; i < n; i++) {
        unsigned char c = (unsigned char)ret[i];

        if (c == '\0')
            ret[i] = ' ';
        else if (c < ' ' || c == 0x7f) /* it may go to a terminal */
            ret[i] = '?';
    }
    ret[n] = '\0';
}

bool gpucr_comm_is_restore_thread(const char *comm)
{
    size_t n = strlen(comm);

    return n == 15 && gpucr_starts_with(comm, "cuda") &&
           strspn(comm + 4, "0123456789abcdefABCDEF") == 11;
}

bool gpucr_comm_is_driver_thread(const char *comm)
{
    return gpucr_comm_is_restore_thread(comm) || strcmp(comm, "cuda-EvtHandlr") == 0;
}

int gpucr_boot_id_read(char ret[37], struct gpucr_error *err)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    char text[64];
    int n = read_once(path, text, sizeof(text));
    int rc;

    if (n < 0) {
        rc = gpucr_error_errno(err, -n, "cannot read %s", path);
        return gpucr_error_path(err, rc, path);
    }
    if (n < 36)
        return gpucr_error_set(err, GPUCR_ERR_SYSTEM, "%s holds no boot id", path);
    (void)memcpy(ret, text, 36);
    ret[36] = '\0';
    return 0;
}
