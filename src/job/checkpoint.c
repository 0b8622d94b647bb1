/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "image/writer.h"
#include "job/engine_use.h"
#include "job/look.h"
#include "job/manifest_fill.h"
#include "job/preflight.h"
#include "job/record.h"

enum { END_WAIT_MS = 30000, FULL_DISK_BYTES = 1 << 20 };

struct checkpoint {
    struct gpucr_job job;
    struct gpucr_engine *engine;
    struct gpucr_image_writer *writer;
    struct gpucr_manifest manifest;
    bool dumped;    /* CRIU's images are complete */
    bool committed; /* the image has its name */
};

static int open_engine(struct checkpoint *c, struct gpucr_error *err)
{
    struct gpucr_engine_options options = gpucr_engine_options_of(c->job.options);
    int rc = gpucr_engine_open_criu(c->job.options->criu_path, &c->engine, err);

    if (rc == 0)
        rc = c->engine->ops->check_options(&options, err);
    if (rc == 0 && !c->engine->hardware_breakpoints)
        rc = gpucr_preflight_add(&c->job, GPUCR_FINDING_HARDWARE_BREAKPOINTS, 0, err,
                                 "hardware breakpoints do not fire on this machine");
    return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
}

static int open_image(struct checkpoint *c, struct gpucr_error *err)
{
    uint64_t free_bytes = 0;
    int rc = gpucr_image_writer_begin(c->job.options->image_dir, &c->writer, err);

    if (rc == 0)
        rc = gpucr_image_writer_free_bytes(c->writer, &free_bytes, err);
    if (rc == 0)
        rc = gpucr_preflight_disk(&c->job, free_bytes, err);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
}

static int look(struct checkpoint *c, struct gpucr_error *err)
{
    struct gpucr_job *job = &c->job;
    int rc;

    gpucr_monitor_begin(&job->monitor, "preflight", 0, NULL, NULL);
    rc = gpucr_job_lock(job, job->options->pid, err);
    if (rc == 0)
        rc = open_engine(c, err);
    if (rc == 0)
        rc = gpucr_manifest_fill_options(job->options, &c->manifest, err);
    if (rc == 0)
        rc = gpucr_job_look(job, err);
    if (rc == 0)
        rc = gpucr_preflight_dump(job, err);
    if (rc == 0)
        rc = gpucr_preflight_verdict(job, err);
    if (rc == 0)
        rc = open_image(c, err);
    if (rc == 0)
        rc = gpucr_preflight_verdict(job, err);
    gpucr_monitor_end(&job->monitor, 0);
    return rc;
}

static uint64_t dump_progress(void *arg)
{
    const struct checkpoint *c = arg;

    return gpucr_image_writer_written_bytes(c->writer);
}

static void commit_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct gpucr_job *job = arg;

    if (job->options->progress)
        job->options->progress(job->options->progress_arg, "commit", done_bytes, total_bytes);
}

static int commit(struct checkpoint *c, struct gpucr_error *err)
{
    struct gpucr_job *job = &c->job;
    int rc;

    c->dumped = true;
    gpucr_monitor_end(&job->monitor, gpucr_image_writer_written_bytes(c->writer));
    gpucr_monitor_begin(&job->monitor, "commit", 0, NULL, NULL);
    gpucr_manifest_fill_phases(job->result, &c->manifest);
    rc = gpucr_fault("checkpoint.commit", err);
    if (rc == 0)
        rc = gpucr_image_writer_commit(c->writer, &c->manifest, commit_progress, job, err);
    if (rc < 0)
        return gpucr_error_stage(err, rc, GPUCR_STAGE_COMMIT);
    c->committed = true;
    job->result->image_bytes = gpucr_image_writer_size_bytes(c->writer);
    gpucr_monitor_end(&job->monitor, job->result->image_bytes);
    return 0;
}

/*
 * CRIU's post-dump notification: the images are complete and nothing is killed yet.
 * A failure here makes CRIU put everything back. After success the image counts,
 * so there is nothing to undo any more.
 */
static int commit_before_kill(void *arg, struct gpucr_error *err)
{
    struct checkpoint *c = arg;
    int rc;

    if (c->job.options->leave_running)
        return 0;
    rc = commit(c, err);
    if (rc == 0) {
        gpucr_undo_clear(&c->job.undo);
        gpucr_monitor_begin(&c->job.monitor, "kill", 0, NULL, NULL);
    }
    return rc;
}

static uint64_t resident_bytes(const struct gpucr_pids *pids)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < pids->count; i++) {
        struct gpucr_proc_stat stat;

        if (gpucr_proc_stat_read(pids->ids[i], &stat, NULL) == 0)
            sum += stat.rss_bytes;
    }
    return sum;
}

/* CRIU only says that it failed; what it has written so far is still there to be seen. */
static int name_full_disk(struct checkpoint *c, int rc, struct gpucr_error *err)
{
    uint64_t free_bytes = 0;

    if (rc != GPUCR_ERR_ENGINE || gpucr_image_writer_free_bytes(c->writer, &free_bytes, NULL) < 0 ||
        free_bytes >= FULL_DISK_BYTES)
        return rc;
    if (err)
        err->code = GPUCR_ERR_NO_SPACE;
    return gpucr_error_wrap(err, GPUCR_ERR_NO_SPACE, "the disk is full, %llu bytes are left",
                            (unsigned long long)free_bytes);
}

static int dump(struct checkpoint *c, struct gpucr_error *err)
{
    struct gpucr_job *job = &c->job;
    const struct gpucr_job_options *o = job->options;
    struct gpucr_engine_log log = {.count = 0};
    struct gpucr_pids pids = {0};
    bool committed = false;
    int rc = gpucr_job_pids(job, &pids, err);
    struct gpucr_engine_dump request = {
        .options = gpucr_engine_options_of(o),
        .root = o->pid,
        .pids = &pids,
        .images_fd = gpucr_image_writer_criu_fd(c->writer),
        .work_fd = gpucr_image_writer_logs_fd(c->writer),
        .leave_running = o->leave_running,
        .tracer = job->tracer,
        .commit = commit_before_kill,
        .commit_arg = c,
        .cancel = o->cancel,
    };

    if (rc == 0)
        rc = gpucr_fault("checkpoint.dump", err);
    gpucr_monitor_begin(&job->monitor, "dump", resident_bytes(&pids), dump_progress, c);
    if (rc == 0)
        rc = c->engine->ops->dump(c->engine, &request, &log, &committed, err);
    if (rc < 0) {
        gpucr_engine_log_to_result(&log, job->result);
        rc = name_full_disk(c, rc, err);
    }
    /* The engine says by this code that it could not put a process back as it was. */
    if (rc == GPUCR_ERR_VERIFY && !c->committed)
        job->unclean = true;
    c->dumped |= rc == 0 || committed;
    /* Without a commit it is still the phase of the dump. */
    gpucr_monitor_end(&job->monitor, c->dumped && !o->leave_running
                                         ? 0
                                         : gpucr_image_writer_written_bytes(c->writer));
    gpucr_pids_done(&pids);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_DUMP);
}

/* The image counts: the processes go, whatever became of the engine. */
static int end_processes(struct gpucr_job *job, struct gpucr_error *err)
{
    int first = 0;

    for (size_t i = 0; i < job->hold->count; i++) {
        struct gpucr_held *held = &job->hold->items[i];
        int rc;

        if (held->ended || gpucr_ident_ended(&held->ident))
            continue;
        (void)gpucr_ident_signal(&held->ident, SIGKILL, NULL);
        rc = gpucr_ident_wait_end(&held->ident, END_WAIT_MS, first ? NULL : err);
        if (rc < 0 && first == 0) {
            first = gpucr_error_stage(err, rc, GPUCR_STAGE_KILL);
            (void)gpucr_error_wrap(err, rc, "the image is complete, but its program has not ended");
        }
    }
    gpucr_monitor_end(&job->monitor, 0);
    return first;
}

static int go_on(struct checkpoint *c, struct gpucr_error *err)
{
    struct gpucr_job *job = &c->job;
    int rc = gpucr_job_unfreeze(job, err);

    if (rc < 0)
        return rc;
    gpucr_undo_clear(&job->undo);
    rc = gpucr_job_verify_running(job, err);
    /* The program runs again; making the image durable costs it nothing now. */
    return rc == 0 ? commit(c, err) : rc;
}

static int checkpoint(struct checkpoint *c, struct gpucr_error *err)
{
    struct gpucr_job *job = &c->job;
    int rc = look(c, err);

    if (rc == 0)
        rc = gpucr_job_check_cancel(job, err);
    if (rc == 0)
        rc = gpucr_job_freeze(job, err);
    if (rc == 0)
        rc = gpucr_manifest_fill(job, c->engine, &c->manifest, err);
    if (rc == 0)
        rc = dump(c, err);
    if (c->committed) { /* without leave_running only */
        if (rc < 0)
            gpucr_warn("the image is complete; CRIU failed afterwards: %s",
                       err ? err->text : "no reason");
        if (err)
            *err = (struct gpucr_error)GPUCR_ERROR_INIT;
        return end_processes(job, err);
    }
    if (rc == 0)
        rc = go_on(c, err);
    return rc;
}

/*
 * The dump is complete, but the program did not come back, neither with --leave-running nor
 * by the undo of a failed commit: the image is the only whole copy of it now.
 */
static void keep_image(struct checkpoint *c)
{
    struct gpucr_result *result = c->job.result;
    struct gpucr_error why = GPUCR_ERROR_INIT;
    size_t used = strlen(result->error.text);

    if (!c->dumped || c->committed || result->outcome != GPUCR_OUTCOME_NOT_ROLLED_BACK)
        return;
    gpucr_manifest_fill_phases(result, &c->manifest);
    if (gpucr_image_writer_commit(c->writer, &c->manifest, NULL, NULL, &why) < 0) {
        gpucr_log(GPUCR_LOG_ERROR, "the image cannot be kept: %s", why.text);
        return;
    }
    result->image_bytes = gpucr_image_writer_size_bytes(c->writer);
    (void)snprintf(result->error.text + used, sizeof(result->error.text) - used,
                   "; the image %s is complete and was kept: end the program and restore it",
                   c->job.options->image_dir);
}

int gpucr_checkpoint(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    struct checkpoint c = {.committed = false};
    int rc = gpucr_job_open(&c.job, GPUCR_OPERATION_CHECKPOINT, options, result);

    if (rc == 0 && !options->image_dir)
        rc = gpucr_error_set(&result->error, GPUCR_ERR_USAGE, "no image folder was named");
    if (rc == 0)
        rc = checkpoint(&c, &result->error);
    rc = gpucr_job_finish(&c.job, rc);
    if (rc < 0)
        keep_image(&c);
    gpucr_image_writer_free(c.writer);
    (void)gpucr_engine_close(c.engine);
    gpucr_manifest_done(&c.manifest);
    return rc;
}
