/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "image/reader.h"
#include "job/engine_use.h"
#include "job/look.h"
#include "job/pids_free.h"
#include "job/preflight.h"

enum {
    DEFAULT_PID_WAIT_MS = 10000,
    KILL_WAIT_MS = 30000,
    HOLD_WAIT_MS = 5000,
    HOLD_POLL_US = 1000
};

struct restore {
    struct gpucr_job job;
    struct gpucr_engine *engine;
    struct gpucr_image *image;
    const struct gpucr_manifest *manifest;
    struct gpucr_pids image_pids;
    char work_path[GPUCR_ERROR_PATH_BYTES];
    int work_fd;
    struct gpucr_engine_restored restored;
};

static void verify_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct gpucr_job *job = arg;

    if (job->options->progress)
        job->options->progress(job->options->progress_arg, "verify", done_bytes, total_bytes);
}

static int look(struct restore *r, struct gpucr_error *err)
{
    struct gpucr_job *job = &r->job;
    struct gpucr_engine_options options = gpucr_engine_options_of(job->options);
    uint64_t wait_ms = job->options->pid_wait_ms ? job->options->pid_wait_ms : DEFAULT_PID_WAIT_MS;
    int rc;

    gpucr_monitor_begin(&job->monitor, "preflight", 0, NULL, NULL);
    rc = gpucr_image_open(job->options->image_dir, &r->image, err);
    if (rc < 0)
        return gpucr_error_stage(err, rc, GPUCR_STAGE_VERIFY);
    r->manifest = gpucr_image_manifest(r->image);
    for (size_t i = 0; rc == 0 && i < r->manifest->process_count; i++)
        rc = gpucr_pids_add(&r->image_pids, r->manifest->processes[i].ns_pid, err);
    if (rc == 0)
        rc = gpucr_engine_open_criu(job->options->criu_path, &r->engine, err);
    if (rc == 0)
        rc = r->engine->ops->check_options(&options, err);
    if (rc == 0)
        rc = gpucr_preflight_restore(job, r->manifest, err);
    if (rc == 0)
        rc = gpucr_preflight_verdict(job, err);
    /* Two restores of one image must not take each other's processes for their own. */
    if (rc == 0 && !job->options->pid_namespace)
        rc = gpucr_job_lock(job, r->manifest->root_pid, err);
    if (rc == 0 && !job->options->pid_namespace)
        rc = gpucr_pids_wait_free(job, r->manifest, wait_ms, err);
    gpucr_monitor_end(&job->monitor, 0);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
}

/* A damaged image must not reach the engine: CRIU spins for ever on a cut pages file. */
static int verify(struct restore *r, struct gpucr_error *err)
{
    struct gpucr_job *job = &r->job;
    int rc;

    gpucr_monitor_begin(&job->monitor, "verify", 0, NULL, NULL);
    rc = gpucr_image_verify(r->image, verify_progress, job, err);
    job->result->image_bytes = gpucr_image_size_bytes(r->image);
    gpucr_monitor_end(&job->monitor, job->result->image_bytes);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_VERIFY);
}

/* The child of ours whose end is the end of what was restored. */
static pid_t child_of_ours(const struct gpucr_engine_restored *restored)
{
    return restored->keeper ? restored->keeper : restored->root;
}

static void wait_ends(const struct gpucr_tree *tree)
{
    for (size_t i = 0; i < tree->count; i++) {
        struct gpucr_ident ident;

        if (gpucr_ident_open(tree->items[i].pid, &ident, NULL) < 0)
            continue;
        if (ident.start_ticks == tree->items[i].start_ticks)
            (void)gpucr_ident_wait_end(&ident, KILL_WAIT_MS, NULL);
        gpucr_ident_done(&ident);
    }
}

static int kill_tree(void *arg, struct gpucr_error *err)
{
    struct restore *r = arg;
    pid_t child = child_of_ours(&r->restored);
    struct gpucr_tree tree = {0};
    int rc = gpucr_tree_read(child, &tree, NULL);

    (void)err;
    for (size_t i = 0; rc == 0 && i < tree.count; i++)
        (void)kill(tree.items[i].pid, SIGKILL);
    (void)kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    wait_ends(&tree);
    gpucr_tree_done(&tree);
    r->job.result->root_pid = 0;
    return 0;
}

static int run_engine(struct restore *r, struct gpucr_error *err)
{
    struct gpucr_job *job = &r->job;
    struct gpucr_engine_log log = {.count = 0};
    struct gpucr_engine_restore request = {
        .options = gpucr_engine_options_of(job->options),
        .pids = &r->image_pids,
        .root = r->manifest->processes[0].ns_pid,
        .images_fd = gpucr_image_criu_fd(r->image),
        .work_fd = r->work_fd,
        .pid_namespace = job->options->pid_namespace,
        .cancel = job->options->cancel,
    };
    int rc = gpucr_fault("restore.engine", err);

    gpucr_restore_options(r->manifest, &request.options);
    gpucr_monitor_begin(&job->monitor, "engine-restore", 0, NULL, NULL);
    job->changed = true;
    if (rc == 0)
        rc = r->engine->ops->restore(r->engine, &request, &log, &r->restored, err);
    gpucr_monitor_end(&job->monitor, job->result->image_bytes);
    if (rc < 0) {
        gpucr_engine_log_to_result(&log, job->result);
        /* The engine says by this code that it could not end all that it had begun. */
        job->unclean = rc == GPUCR_ERR_VERIFY;
        return gpucr_error_stage(err, rc, GPUCR_STAGE_ENGINE_RESTORE);
    }
    gpucr_undo_push(&job->undo, "what was restored is ended", kill_tree, r);
    job->result->root_pid = r->restored.root;
    return 0;
}

static const struct gpucr_manifest_process *find_process(const struct restore *r, pid_t ns_pid)
{
    for (size_t i = 0; i < r->manifest->process_count; i++) {
        const struct gpucr_manifest_process *p = &r->manifest->processes[i];

        if (p->ns_pid == ns_pid)
            return p;
    }
    return NULL;
}

static int take_process(struct restore *r, const struct gpucr_proc_stat *stat,
                        struct gpucr_error *err)
{
    struct gpucr_job *job = &r->job;
    const struct gpucr_manifest_process *m;
    struct gpucr_process_result *p;
    int rc = gpucr_job_add_process(job, stat, err);

    if (rc < 0)
        return rc;
    p = gpucr_job_process(job, stat->pid);
    p->before = GPUCR_PROCESS_GONE;
    m = find_process(r, p->namespace_pid);
    if (!m)
        return gpucr_error_set(err, GPUCR_ERR_VERIFY,
                               "CRIU restored process %d (%s), which is not in the manifest",
                               stat->pid, stat->comm);
    p->was_stopped = m->was_stopped;
    p->is_cuda = m->is_cuda;
    p->device_bytes = m->device_bytes;
    p->gpu_count = m->gpu_count;
    (void)memcpy(p->gpus, m->gpus, sizeof(p->gpus[0]) * m->gpu_count);
    if (p->is_cuda)
        rc = gpucr_group_add(&job->group, p->pid, true, err);
    if (p->is_cuda && rc == 0 &&
        (m->cuda_state == GPUCR_CUDA_LOCKED || m->cuda_state == GPUCR_CUDA_CHECKPOINTED))
        gpucr_group_find(&job->group, p->pid)->goal = (enum gpucr_cuda_state)m->cuda_state;
    return rc;
}

/*
 * The engine has seen the leaders stopped; the other threads of a process get there a
 * moment later, without an instruction of the program in between.
 */
static int wait_held(const struct gpucr_hold *hold, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(HOLD_WAIT_MS);
    struct gpucr_error why = GPUCR_ERROR_INIT;
    int rc = gpucr_hold_check(hold, &why);

    while (rc == GPUCR_ERR_VERIFY && !gpucr_deadline_passed(deadline)) {
        gpucr_sleep_us(HOLD_POLL_US);
        rc = gpucr_hold_check(hold, &why);
    }
    if (rc < 0 && err)
        *err = why;
    return rc;
}

/* Everything of the image must be there, stopped, before the GPU side begins. */
static int take_tree(struct restore *r, struct gpucr_error *err)
{
    struct gpucr_job *job = &r->job;
    struct gpucr_pids pids = {0};
    bool *was_stopped = NULL;
    int rc = gpucr_tree_read(r->restored.root, &job->tree, err);

    for (size_t i = 0; rc == 0 && i < job->tree.count; i++) {
        if (job->tree.items[i].state != 'Z')
            rc = take_process(r, &job->tree.items[i], err);
    }
    if (rc == 0 && job->result->process_count != r->manifest->process_count)
        rc = gpucr_error_set(err, GPUCR_ERR_VERIFY, "CRIU restored %zu of %zu processes",
                             job->result->process_count, r->manifest->process_count);
    if (rc == 0 && !(was_stopped = calloc(job->result->process_count, sizeof(bool))))
        rc = gpucr_error_no_memory(err);
    for (size_t i = 0; rc == 0 && i < job->result->process_count; i++) {
        was_stopped[i] = job->result->processes[i].was_stopped;
        rc = gpucr_pids_add(&pids, job->result->processes[i].pid, err);
    }
    if (rc == 0)
        rc = gpucr_hold_adopt(&pids, was_stopped, &job->hold, err);
    if (rc == 0)
        rc = wait_held(job->hold, err);
    job->held = rc == 0;
    gpucr_job_note_bytes(job);
    gpucr_pids_done(&pids);
    free(was_stopped);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_READBACK);
}

static int check_group(struct gpucr_job *job, size_t expected, struct gpucr_error *err)
{
    int rc = job->group.count ? gpucr_group_probe(&job->group, err) : 0;

    if (rc < 0)
        return rc;
    if (job->group.count != expected)
        return gpucr_error_set(err, GPUCR_ERR_VERIFY,
                               "the driver knows %zu of the %zu CUDA processes that were restored",
                               job->group.count, expected);
    return gpucr_group_verify(&job->group, GPUCR_CUDA_CHECKPOINTED, err);
}

static bool has_cuda(const struct gpucr_manifest *manifest)
{
    for (size_t i = 0; i < manifest->process_count; i++) {
        if (manifest->processes[i].is_cuda)
            return true;
    }
    return false;
}

/* A driver that does not come up is a reason not to begin. */
static int init_driver(struct restore *r, struct gpucr_error *err)
{
    struct gpucr_job *job = &r->job;
    int rc;

    if (!has_cuda(r->manifest))
        return 0;
    gpucr_monitor_begin(&job->monitor, "driver-init", 0, NULL, NULL);
    rc = gpucr_driver_wait_init(job->driver, err);
    gpucr_monitor_end(&job->monitor, 0);
    return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
}

static int restore(struct restore *r, struct gpucr_error *err)
{
    struct gpucr_job *job = &r->job;
    int rc = look(r, err);

    if (rc == 0)
        rc = verify(r, err);
    if (rc == 0)
        rc = init_driver(r, err);
    if (rc == 0)
        rc = gpucr_image_work_dir(r->work_path, sizeof(r->work_path), &r->work_fd, err);
    if (rc == 0)
        rc = gpucr_job_check_cancel(job, err);
    if (rc == 0)
        rc = run_engine(r, err);
    if (rc == 0)
        rc = take_tree(r, err);
    if (rc == 0)
        rc = check_group(job, job->group.count, err);
    if (rc == 0)
        rc = gpucr_job_check_cancel(job, err);
    if (rc == 0)
        rc = gpucr_job_unfreeze(job, err);
    if (rc == 0)
        rc = gpucr_job_verify_running(job, err);
    if (rc == 0)
        gpucr_undo_clear(&job->undo);
    return rc;
}

static void wait_for_root(const struct gpucr_job_options *options,
                          const struct gpucr_engine_restored *restored, struct gpucr_result *result)
{
    pid_t child = child_of_ours(restored);
    int status = 0;

    if (options->restored)
        options->restored(options->restored_arg, restored->root);
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return;
    }
    result->exit_status = status;
}

int gpucr_restore(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    struct restore r = {.work_fd = -1};
    int rc = gpucr_job_open(&r.job, GPUCR_OPERATION_RESTORE, options, result);

    if (rc == 0 && !options->image_dir)
        rc = gpucr_error_set(&result->error, GPUCR_ERR_USAGE, "no image folder was named");
    if (rc == 0)
        rc = restore(&r, &result->error);
    rc = gpucr_job_finish(&r.job, rc);
    if (r.work_fd >= 0)
        gpucr_image_work_dir_remove(r.work_path);
    gpucr_cleanup_fd(&r.work_fd);
    (void)gpucr_image_close(r.image);
    (void)gpucr_engine_close(r.engine);
    gpucr_pids_done(&r.image_pids);
    if (rc == 0 && options->foreground)
        wait_for_root(options, &r.restored, result);
    return rc;
}
