/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gpu/condition.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "proc/cgroup.h"

/*
 * State letter of the process: that of its first thread, unless that one has
 * ended before the others (pthread_exit in main), which leaves it a zombie.
 */
static int state_of(pid_t pid, char *ret, struct gpucr_error *err)
{
    struct gpucr_proc_stat st;
    struct gpucr_pids tids = {0};
    int rc = gpucr_proc_stat_read(pid, &st, err);

    if (rc < 0)
        return rc;
    *ret = st.state;
    if (st.state != 'Z' && st.state != 'X')
        return 0;
    if (gpucr_task_list(pid, &tids, NULL) < 0)
        return 0;
    for (size_t i = 0; i < tids.count; i++) {
        if (gpucr_task_stat_read(pid, tids.ids[i], &st, NULL) < 0)
            continue;
        if (st.state == 'Z' || st.state == 'X')
            continue;
        *ret = st.state;
        break;
    }
    gpucr_pids_done(&tids);
    return 0;
}

static pthread_once_t cgroups_once = PTHREAD_ONCE_INIT;
static struct gpucr_cgroups cgroups;

/* The mounts are looked up once: they stay where they are, and the list of them may be long. */
static void open_cgroups(void)
{
    struct gpucr_error why = GPUCR_ERROR_INIT;

    if (gpucr_cgroups_open(&cgroups, &why) < 0)
        gpucr_warn("frozen processes will not be noticed: %s", why.text);
}

static bool is_frozen(pid_t pid)
{
    char folder[GPUCR_CGROUP_PATH_BYTES];

    (void)pthread_once(&cgroups_once, open_cgroups);
    return gpucr_cgroup_frozen(&cgroups, pid, folder) > 0;
}

int gpucr_condition_read(pid_t pid, enum gpucr_condition *ret, struct gpucr_error *err)
{
    struct gpucr_error why = GPUCR_ERROR_INIT;
    char state = '?';
    int rc = state_of(pid, &state, &why);

    if (rc == GPUCR_ERR_NOT_FOUND || (rc == 0 && (state == 'Z' || state == 'X'))) {
        *ret = GPUCR_CONDITION_GONE;
        return 0;
    }
    if (rc < 0) {
        if (err)
            *err = why;
        return rc;
    }
    if (is_frozen(pid))
        *ret = GPUCR_CONDITION_FROZEN;
    else if (state == 'T')
        *ret = GPUCR_CONDITION_STOPPED;
    else if (state == 't')
        *ret = GPUCR_CONDITION_TRACED;
    else
        *ret = GPUCR_CONDITION_RUNS;
    return 0;
}

/*
 * Flags of /proc/PID/stat (include/linux/sched.h): a process that a signal has ended
 * stays visible, for seconds where it has much memory to give back or to dump.
 */
static bool is_ending(pid_t pid)
{
    enum { DUMPS_CORE = 0x200, SIGNALED = 0x400, FLAGS_FIELD = 7 }; /* fields behind the name */
    char path[32];
    char text[1024];
    const char *p;
    uint64_t flags;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (gpucr_file_read_small(AT_FDCWD, path, text, sizeof(text)) <= 0)
        return false;
    p = strrchr(text, ')');
    for (int i = 0; p && i < FLAGS_FIELD; i++)
        p = strchr(p + 1, ' ');
    return p && gpucr_scan_u64(p + 1, 10, &flags, &p) && (flags & (DUMPS_CORE | SIGNALED));
}

bool gpucr_condition_is_gone(pid_t pid)
{
    char state = '?';
    int rc = state_of(pid, &state, NULL);

    return rc == GPUCR_ERR_NOT_FOUND || (rc == 0 && (state == 'Z' || state == 'X')) ||
           is_ending(pid);
}

bool gpucr_condition_await_end(pid_t pid, uint64_t timeout_ms)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(timeout_ms);

    while (!gpucr_condition_is_gone(pid)) {
        if (gpucr_deadline_passed(deadline))
            return false;
        gpucr_sleep_us(2000);
    }
    return true;
}

void gpucr_condition_describe(pid_t pid, char *ret, size_t size)
{
    struct gpucr_proc_stat st;

    if (gpucr_proc_stat_read(pid, &st, NULL) == 0 && st.comm[0] != '\0')
        (void)snprintf(ret, size, "process %d (%s)", pid, st.comm);
    else
        (void)snprintf(ret, size, "process %d", pid);
}
