/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/fault.h"
#include "base/log.h"
#include "job/look.h"
#include "job/preflight.h"
#include "job/record.h"

static int look(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc;

    gpucr_monitor_begin(&job->monitor, "preflight", 0, NULL, NULL);
    rc = gpucr_job_lock(job, job->options->pid, err);
    if (rc == 0)
        rc = gpucr_job_look(job, err);
    if (rc == 0)
        rc = gpucr_preflight_verdict(job, err);
    gpucr_monitor_end(&job->monitor, 0);
    return rc;
}

static int undo_freeze_cgroup(void *arg, struct gpucr_error *err)
{
    struct gpucr_job *job = arg;

    return gpucr_hold_thaw(job->hold, err);
}

/* A frozen cgroup where there can be one; else the preflight's findings decide. */
static int strengthen_hold(struct gpucr_job *job, struct gpucr_error *err)
{
    struct gpucr_error why = GPUCR_ERROR_INIT;
    int rc;

    gpucr_monitor_begin(&job->monitor, "freeze", 0, NULL, NULL);
    rc = gpucr_hold_freeze(job->hold, &why);
    gpucr_monitor_end(&job->monitor, 0);
    if (rc < 0) {
        if (err)
            *err = why;
        return rc;
    }
    if (rc == 0) {
        gpucr_info("the tree is held by SIGSTOP alone: %s", why.text);
        rc = gpucr_preflight_weak_hold(job, why.text, err);
        return rc == 0 ? gpucr_preflight_verdict(job, err) : rc;
    }
    gpucr_undo_push(&job->undo, "cgroup thawed", undo_freeze_cgroup, job);
    return 0;
}

static int write_record(struct gpucr_job *job, struct gpucr_error *err)
{
    struct gpucr_record record = {0};
    int rc = gpucr_record_of_job(job, &record, err);

    gpucr_monitor_begin(&job->monitor, "record", 0, NULL, NULL);
    if (rc == 0)
        rc = gpucr_fault("suspend.record", err);
    if (rc == 0)
        rc = gpucr_record_write(job->options, &record, err);
    gpucr_record_done(&record);
    gpucr_monitor_end(&job->monitor, 0);
    /* One that was not written durably must not call a running tree suspended. */
    if (rc < 0)
        gpucr_record_remove(job->options, job->options->pid);
    return rc;
}

static int suspend(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = look(job, err);

    if (rc == 0)
        rc = gpucr_job_check_cancel(job, err);
    if (rc == 0)
        rc = gpucr_job_freeze(job, err);
    if (rc == 0)
        rc = strengthen_hold(job, err);
    if (rc == 0)
        rc = write_record(job, err);
    if (rc == 0)
        gpucr_undo_clear(&job->undo);
    return rc;
}

int gpucr_suspend(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    struct gpucr_job job;
    int rc = gpucr_job_open(&job, GPUCR_OPERATION_SUSPEND, options, result);

    if (rc == 0)
        rc = suspend(&job, &result->error);
    return gpucr_job_finish(&job, rc);
}
