/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <sys/utsname.h>

#include "base/log.h"
#include "base/text.h"
#include "job/look.h"
#include "job/preflight.h"

static int check_engine(struct gpucr_job *job, struct gpucr_error *err)
{
    struct gpucr_engine *engine = NULL;
    struct gpucr_error why = GPUCR_ERROR_INIT;
    int rc = gpucr_engine_open_criu(job->options->criu_path, &engine, &why);

    if (rc < 0)
        return gpucr_preflight_add(job, GPUCR_FINDING_ENGINE_MISSING, 0, err, "%s", why.text);
    rc = 0;
    if (!engine->hardware_breakpoints)
        rc = gpucr_preflight_add(job, GPUCR_FINDING_HARDWARE_BREAKPOINTS, 0, err,
                                 "hardware breakpoints do not fire on this machine");
    (void)gpucr_engine_close(engine);
    return rc;
}

static int check_machine(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = 0;

    if (!job->driver || gpucr_driver_wait_init(job->driver, &job->driver_error) < 0)
        rc = gpucr_preflight_add(job, GPUCR_FINDING_DRIVER_MISSING, 0, err, "%s",
                                 job->driver_error.text);
    return rc == 0 ? check_engine(job, err) : rc;
}

/* As checkpoint sees the tree. Locked: a stopped process is asked through a window. */
static int check_tree(struct gpucr_job *job, struct gpucr_error *err)
{
    int rc = gpucr_job_lock(job, job->options->pid, err);

    if (rc == 0)
        rc = gpucr_job_look(job, err);
    return rc == 0 ? gpucr_preflight_dump(job, err) : rc;
}

int gpucr_check(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    struct gpucr_job job;
    int rc = gpucr_job_open(&job, GPUCR_OPERATION_CHECKPOINT, options, result);

    if (rc == 0)
        rc = check_machine(&job, &result->error);
    if (rc == 0 && options->pid)
        rc = check_tree(&job, &result->error);
    if (rc == 0)
        rc = gpucr_preflight_verdict(&job, &result->error);
    return gpucr_job_finish(&job, rc);
}

static void probe_driver(struct gpucr_driver *driver, struct gpucr_machine *machine)
{
    machine->driver_version = driver->cuda_version;
    machine->can_checkpoint = true;
    machine->can_remap = driver->can_remap;
}

static void probe_nvml(const char *driver_root, struct gpucr_machine *machine)
{
    struct gpucr_nvml *nvml = NULL;

    if (gpucr_nvml_open(driver_root, &nvml, NULL) < 0)
        return;
    (void)gpucr_nvml_driver_name(nvml, machine->driver_name, sizeof(machine->driver_name), NULL);
    (void)gpucr_nvml_gpus(nvml, machine->gpus, GPUCR_GPUS_PER_PROCESS_MAX, &machine->gpu_count,
                          NULL);
    (void)gpucr_nvml_close(nvml);
}

int gpucr_machine_probe(const struct gpucr_job_options *options, struct gpucr_machine *ret,
                        struct gpucr_error *err)
{
    struct gpucr_machine machine = {0};
    struct gpucr_driver *driver = NULL;
    struct gpucr_engine *engine = NULL;
    struct utsname uts = {0};

    (void)err;
    if (gpucr_driver_open(options->driver_root, &driver, NULL) == 0)
        probe_driver(driver, &machine);
    probe_nvml(options->driver_root, &machine);
    (void)gpucr_driver_close(driver);
    if (gpucr_engine_open_criu(options->criu_path, &engine, NULL) == 0) {
        (void)gpucr_copy_text(machine.criu_path, sizeof(machine.criu_path), engine->path);
        machine.criu_version = engine->version;
        machine.hardware_breakpoints = engine->hardware_breakpoints;
    }
    (void)gpucr_engine_close(engine);
    if (uname(&uts) == 0)
        (void)snprintf(machine.kernel, sizeof(machine.kernel), "%.30s %.60s", uts.sysname,
                       uts.release);
    *ret = machine;
    return 0;
}
