/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>

#include "base/log.h"
#include "base/parallel.h"
#include "job/job.h"
#include "job/record.h"

enum { DEFAULT_TIMEOUT_MS = 30000 };

uint64_t gpucr_job_timeout_ms(const struct gpucr_job_options *options)
{
    return options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
}

static void tell_waiting(void *arg, pid_t pid, const char *what, uint64_t waited_ms)
{
    (void)arg;
    gpucr_warn("process %d: the driver's %s has been running for %llu s; it is not interrupted, "
               "since that would leave driver and process out of step",
               pid, what, (unsigned long long)(waited_ms / 1000));
}

/* nvmlInit takes some 20 ms. */
static void *open_nvml(void *arg)
{
    struct gpucr_job *job = arg;
    struct gpucr_error why = GPUCR_ERROR_INIT;

    if (gpucr_nvml_open(job->options->driver_root, &job->nvml, &why) < 0)
        gpucr_info("no NVML: %s", why.text);
    return NULL;
}

struct gpucr_nvml *gpucr_job_nvml(struct gpucr_job *job)
{
    uint64_t begin_ns = gpucr_now_ns();

    if (job->nvml_opening) {
        (void)pthread_join(job->nvml_thread, NULL);
        gpucr_monitor_driver(&job->monitor, gpucr_now_ns() - begin_ns);
    }
    job->nvml_opening = false;
    return job->nvml;
}

static void bind_driver(struct gpucr_job *job)
{
    uint64_t begin_ns = gpucr_now_ns();

    job->nvml_opening = gpucr_thread_start(&job->nvml_thread, open_nvml, job) == 0;
    job->driver_error = (struct gpucr_error)GPUCR_ERROR_INIT;
    if (gpucr_driver_open(job->options->driver_root, &job->driver, &job->driver_error) < 0) {
        gpucr_info("no CUDA driver: %s", job->driver_error.text);
        return;
    }
    gpucr_debug("driver %s, CUDA %d", job->driver->library_path, job->driver->cuda_version);
    gpucr_monitor_driver(&job->monitor, gpucr_now_ns() - begin_ns);
}

static void close_driver(struct gpucr_job *job)
{
    uint64_t begin_ns = gpucr_now_ns();

    gpucr_monitor_begin(&job->monitor, "close", 0, NULL, NULL);
    (void)gpucr_nvml_close(gpucr_job_nvml(job));
    (void)gpucr_driver_close(job->driver);
    gpucr_monitor_driver(&job->monitor, gpucr_now_ns() - begin_ns);
    gpucr_monitor_end(&job->monitor, 0);
}

int gpucr_job_open_to_look(struct gpucr_job *job, const struct gpucr_job_options *options,
                           struct gpucr_result *result)
{
    *result = (struct gpucr_result)GPUCR_RESULT_INIT;
    *job = (struct gpucr_job){
        .operation = GPUCR_OPERATION_LIST,
        .options = options,
        .result = result,
        .begin_ns = gpucr_now_ns(),
        .lock_fd = -1,
    };
    gpucr_monitor_init(&job->monitor, options, result);
    gpucr_monitor_begin(&job->monitor, "open", 0, NULL, NULL);
    bind_driver(job);
    gpucr_monitor_end(&job->monitor, 0);
    return 0;
}

int gpucr_job_open(struct gpucr_job *job, enum gpucr_operation operation,
                   const struct gpucr_job_options *options, struct gpucr_result *result)
{
    (void)gpucr_job_open_to_look(job, options, result);
    job->operation = operation;
    /* 10–470 ms on an idle GPU without persistence mode: beside the discovery. */
    if (job->driver)
        (void)gpucr_driver_start_init(job->driver, NULL);
    job->group = (struct gpucr_group){
        .driver = job->driver,
        .sequential = options->sequential,
        .waiting = tell_waiting,
        .waiting_arg = job,
    };
    result->root_pid = options->pid;
    if (gpucr_tracer_new(&job->tracer, &result->error) < 0)
        return result->error.code;
    job->group.tracer = job->tracer;
    return 0;
}

int gpucr_job_check_cancel(const struct gpucr_job *job, struct gpucr_error *err)
{
    if (job->options->cancel && *job->options->cancel)
        return gpucr_error_set(err, GPUCR_ERR_CANCELLED, "stopped on request");
    return 0;
}

static void close_all(struct gpucr_job *job)
{
    gpucr_hold_free(job->hold);
    gpucr_group_done(&job->group);
    gpucr_tree_done(&job->tree);
    (void)gpucr_tracer_free(job->tracer);
    close_driver(job);
    gpucr_record_unlock(job->options, job->lock_pid, job->lock_fd);
    gpucr_monitor_done(&job->monitor);
}

/*
 * What the process is now, by /proc and the driver's last answer: each step and each
 * undo ends with one. It is not asked again here, where nothing would end a wait for a
 * process that stops meanwhile.
 */
static enum gpucr_process_state read_state(struct gpucr_job *job, struct gpucr_process_result *p)
{
    const struct gpucr_member *member = gpucr_group_find(&job->group, p->pid);
    struct gpucr_proc_stat stat;
    enum gpucr_cuda_state cuda = member ? member->state : GPUCR_CUDA_RUNNING;
    bool stopped;

    if (gpucr_proc_stat_read(p->pid, &stat, NULL) < 0 || stat.start_ticks != p->start_ticks ||
        stat.state == 'Z' || stat.state == 'X')
        return GPUCR_PROCESS_GONE;
    /* In a frozen cgroup a held process shows another letter than T. */
    stopped = job->held || stat.state == 'T' || stat.state == 't';
    /* Nobody asked the driver, so nothing was touched. */
    if (!member && p->before == GPUCR_PROCESS_SUSPENDED)
        return p->before;
    switch (cuda) {
    case GPUCR_CUDA_CHECKPOINTED:
        return stopped ? GPUCR_PROCESS_SUSPENDED : GPUCR_PROCESS_CHECKPOINTED;
    case GPUCR_CUDA_LOCKED:
        return GPUCR_PROCESS_LOCKED;
    case GPUCR_CUDA_FAILED:
        return GPUCR_PROCESS_FAILED;
    case GPUCR_CUDA_RUNNING:
    case GPUCR_CUDA_CHECKPOINTING:
    case GPUCR_CUDA_RESTORING:
        break;
    }
    return stopped ? GPUCR_PROCESS_STOPPED : GPUCR_PROCESS_RUNNING;
}

static void read_back(struct gpucr_job *job)
{
    for (size_t i = 0; i < job->result->process_count; i++) {
        struct gpucr_process_result *p = &job->result->processes[i];
        const struct gpucr_member *member = gpucr_group_find(&job->group, p->pid);

        if (member && member->error.code && !p->error.code)
            p->error = member->error;
        p->after = read_state(job, p);
    }
    gpucr_job_read_uses(job, true);
}

/* After an undo: is every process as it was? */
static bool all_as_before(const struct gpucr_result *result)
{
    for (size_t i = 0; i < result->process_count; i++) {
        if (result->processes[i].after != result->processes[i].before)
            return false;
    }
    return true;
}

static void undo_all(struct gpucr_job *job)
{
    struct gpucr_error undo_error = GPUCR_ERROR_INIT;
    int rc;

    gpucr_monitor_end(&job->monitor, 0);
    if (job->undo.count == 0)
        return;
    gpucr_monitor_begin(&job->monitor, "rollback", 0, NULL, NULL);
    rc = gpucr_undo_run(&job->undo, &undo_error);
    gpucr_monitor_end(&job->monitor, 0);
    if (rc < 0) {
        gpucr_log(GPUCR_LOG_ERROR, "rollback: %s", undo_error.text);
        job->unclean = true;
    }
}

void gpucr_job_close_after_look(struct gpucr_job *job, int rc)
{
    job->result->outcome = rc < 0 ? GPUCR_OUTCOME_REFUSED : GPUCR_OUTCOME_DONE;
    close_all(job);
    job->result->total_ns = gpucr_now_ns() - job->begin_ns;
}

int gpucr_job_finish(struct gpucr_job *job, int rc)
{
    struct gpucr_result *result = job->result;

    assert(rc >= 0 || result->error.code == rc);
    if (rc < 0)
        undo_all(job);
    gpucr_monitor_begin(&job->monitor, "readback", 0, NULL, NULL);
    read_back(job);
    gpucr_monitor_end(&job->monitor, 0);
    if (rc >= 0) {
        result->outcome = GPUCR_OUTCOME_DONE;
        result->error = (struct gpucr_error)GPUCR_ERROR_INIT;
    } else if (!job->changed && !job->unclean)
        result->outcome = GPUCR_OUTCOME_REFUSED;
    else if (!job->unclean && all_as_before(result))
        result->outcome = GPUCR_OUTCOME_ROLLED_BACK;
    else
        result->outcome = GPUCR_OUTCOME_NOT_ROLLED_BACK;
    close_all(job);
    result->total_ns = gpucr_now_ns() - job->begin_ns;
    return rc;
}
