/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "job/look.h"

#include "job/preflight.h"
#include "job/record.h"

int gpucr_job_lock(struct gpucr_job *job, int32_t pid, struct gpucr_error *err)
{
    int rc = gpucr_record_lock(job->options, pid, &job->lock_fd, err);

    job->lock_pid = pid;
    return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
}

int gpucr_job_look(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = gpucr_job_scan(job, err);

    if (rc == 0)
        rc = gpucr_preflight_processes(job, err);
    /* A traced process would let the driver's probe hang: the verdict comes first. */
    if (rc == 0)
        rc = gpucr_preflight_verdict(job, err);
    if (rc == 0)
        rc = gpucr_job_probe(job, err);
    if (rc < 0)
        return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
    gpucr_job_read_uses(job, false);
    gpucr_job_note_bytes(job);
    return gpucr_preflight_tree(job, err);
}
