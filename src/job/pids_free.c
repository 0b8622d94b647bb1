/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "job/pids_free.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "job/preflight.h"

enum { POLL_US = 5000 };

static bool is_taken(pid_t id)
{
    char path[32];

    /* Works for thread ids too, though they do not show in a listing of /proc. */
    (void)snprintf(path, sizeof(path), "/proc/%d", id);
    return access(path, F_OK) == 0;
}

static int describe(struct gpucr_job *job, pid_t id, struct gpucr_error *err)
{
    struct gpucr_proc_stat stat;
    struct gpucr_proc_stat parent;
    int rc;

    if (gpucr_proc_stat_read(id, &stat, NULL) < 0)
        rc = gpucr_preflight_add(job, GPUCR_FINDING_PID_TAKEN, id, err, "process id %d is taken",
                                 id);
    else if (stat.state != 'Z')
        rc = gpucr_preflight_add(job, GPUCR_FINDING_PID_TAKEN, id, err,
                                 "process id %d is taken by process %d (%s)", id, stat.pid,
                                 stat.comm);
    else if (gpucr_proc_stat_read(stat.parent_pid, &parent, NULL) == 0)
        rc = gpucr_preflight_add(job, GPUCR_FINDING_PID_TAKEN, id, err,
                                 "process id %d still belongs to the ended process (%s), which "
                                 "its parent %d (%s) has not reaped",
                                 id, stat.comm, stat.parent_pid, parent.comm);
    else
        rc = gpucr_preflight_add(job, GPUCR_FINDING_PID_TAKEN, id, err,
                                 "process id %d still belongs to an ended process that nobody has "
                                 "reaped",
                                 id);
    return rc == 0 ? gpucr_preflight_verdict(job, err) : rc;
}

static int wait_free(struct gpucr_job *job, pid_t id, struct gpucr_deadline deadline,
                     struct gpucr_error *err)
{
    while (is_taken(id)) {
        int rc = gpucr_job_check_cancel(job, err);

        if (rc < 0)
            return rc;
        if (gpucr_deadline_passed(deadline))
            return describe(job, id, err);
        gpucr_sleep_us(POLL_US);
    }
    return 0;
}

int gpucr_pids_wait_free(struct gpucr_job *job, const struct gpucr_manifest *manifest,
                         uint64_t timeout_ms, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(timeout_ms);
    int rc = 0;

    /* A tree with a pid namespace of its own gets one again. */
    if (manifest->processes[0].ns_pid == 1)
        return 0;
    for (size_t i = 0; rc == 0 && i < manifest->process_count; i++) {
        const struct gpucr_manifest_process *p = &manifest->processes[i];

        /* Thread ids are known as the checkpoint saw them from outside. */
        rc = wait_free(job, p->ns_pid, deadline, err);
        for (size_t k = 0; rc == 0 && p->ns_pid == p->pid && k < p->thread_count; k++)
            rc = wait_free(job, p->threads[k], deadline, err);
    }
    return rc;
}
