/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "job/preflight.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/text.h"

enum { FINDINGS_MAX = 200 };

struct finding_kind {
    const char *name;
    enum gpucr_severity severity;
    bool fixed; /* a refusal that no --force can lift: it could not work at all */
    const char *remedy;
};

static const struct finding_kind kinds[GPUCR_FINDING_MAX] = {
    [GPUCR_FINDING_NOT_CUDA] = {"not-cuda", GPUCR_SEVERITY_REFUSE, true,
                                "name the process that uses the GPU; `gpucr list` shows them"},
    [GPUCR_FINDING_CPU_ONLY] = {"cpu-only", GPUCR_SEVERITY_NOTE, false, "nothing to do"},
    [GPUCR_FINDING_DRIVER_MISSING] = {"driver-missing", GPUCR_SEVERITY_REFUSE, true,
                                      "install NVIDIA driver 570 or newer, or name its folder by "
                                      "--driver-root"},
    [GPUCR_FINDING_ENGINE_MISSING] = {"engine-missing", GPUCR_SEVERITY_REFUSE, true,
                                      "install CRIU 4.0 or newer, or name it by --criu"},
    [GPUCR_FINDING_TRACED] = {"traced", GPUCR_SEVERITY_REFUSE, true,
                              "detach the debugger or tracer"},
    [GPUCR_FINDING_ALREADY_SUSPENDED] = {"already-suspended", GPUCR_SEVERITY_REFUSE, true,
                                         "resume it first: gpucr resume"},
    [GPUCR_FINDING_FROZEN] = {"frozen-cgroup", GPUCR_SEVERITY_REFUSE, true,
                              "thaw the cgroup (unpause the container) first"},
    [GPUCR_FINDING_NAMESPACE_INIT] = {"namespace-init", GPUCR_SEVERITY_REFUSE, true,
                                      "run gpucr outside of this pid namespace"},
    [GPUCR_FINDING_PERMISSION] = {"permission", GPUCR_SEVERITY_REFUSE, true,
                                  "run gpucr as root or as the owner of the process"},
    [GPUCR_FINDING_ORPHANABLE_GROUP] =
        {"orphanable-group", GPUCR_SEVERITY_REFUSE, false,
         "start the program with setsid, or suspend it where its cgroup can be frozen (cgroup v2, "
         "as root)"},
    [GPUCR_FINDING_WEAK_HOLD] = {"weak-hold", GPUCR_SEVERITY_WARN, false,
                                 "send no SIGCONT to the suspended processes; where cgroup v2 is "
                                 "writable, gpucr freezes them as well"},
    [GPUCR_FINDING_INHERITED_DEVICE] = {"inherited-device", GPUCR_SEVERITY_REFUSE, false,
                                        "let the child exec, or close the GPU's files in it; "
                                        "PyTorch: multiprocessing start method 'spawn'"},
    [GPUCR_FINDING_DEVICE_FILE] = {"device-file", GPUCR_SEVERITY_REFUSE, false,
                                   "let the program close it before the checkpoint"},
    [GPUCR_FINDING_IO_URING] = {"io-uring", GPUCR_SEVERITY_REFUSE, false,
                                "switch io_uring off in the program (libuv: UV_USE_IO_URING=0)"},
    [GPUCR_FINDING_OUTSIDE_SESSION] = {"outside-session", GPUCR_SEVERITY_REFUSE, false,
                                       "add --shell-job, or start the program with setsid"},
    [GPUCR_FINDING_TCP_ESTABLISHED] = {"tcp-established", GPUCR_SEVERITY_REFUSE, false,
                                       "add --tcp-established, or close the connection"},
    [GPUCR_FINDING_HOST_MEMORY] = {"host-memory", GPUCR_SEVERITY_WARN, false,
                                   "free host memory; the device memory has to fit into it"},
    [GPUCR_FINDING_DISK_SPACE] = {"disk-space", GPUCR_SEVERITY_REFUSE, false,
                                  "choose a file system with more space"},
    [GPUCR_FINDING_HARDWARE_BREAKPOINTS] = {"hardware-breakpoints", GPUCR_SEVERITY_NOTE, false,
                                            "nothing to do: CRIU is told to work without them"},
    [GPUCR_FINDING_STATE_FAILED] = {"driver-state-failed", GPUCR_SEVERITY_REFUSE, true,
                                    "the process cannot be brought back; restart the program"},
    [GPUCR_FINDING_PID_TAKEN] = {"pid-taken", GPUCR_SEVERITY_REFUSE, true,
                                 "end that process, or restore with --pid-namespace"},
    [GPUCR_FINDING_DRIVER_DIFFERS] = {"driver-differs", GPUCR_SEVERITY_REFUSE, false,
                                      "restore on a machine with the same driver"},
    [GPUCR_FINDING_GPU_MISSING] = {"gpu-missing", GPUCR_SEVERITY_REFUSE, true,
                                   "restore on the machine that has these GPUs"},
    [GPUCR_FINDING_DEVICE_MEMORY] = {"device-memory", GPUCR_SEVERITY_REFUSE, false,
                                     "free device memory; the driver loses a process for which "
                                     "there is too little"},
    [GPUCR_FINDING_KERNEL_DIFFERS] = {"kernel-differs", GPUCR_SEVERITY_WARN, false,
                                      "CRIU usually copes with a newer kernel; an older one may "
                                      "lack what the program used"},
    [GPUCR_FINDING_FOREIGN_UID] = {"foreign-uid", GPUCR_SEVERITY_REFUSE, true,
                                   "restore as root or as that user"},
};

static bool is_forced(const struct gpucr_job_options *options, const char *name)
{
    for (size_t i = 0; i < options->forced_count; i++) {
        if (strcmp(options->forced[i], name) == 0)
            return true;
    }
    return false;
}

bool gpucr_preflight_has(const struct gpucr_job *job, enum gpucr_finding_id id)
{
    for (size_t i = 0; i < job->result->finding_count; i++) {
        if (strcmp(job->result->findings[i].name, kinds[id].name) == 0)
            return true;
    }
    return false;
}

int gpucr_preflight_add(struct gpucr_job *job, enum gpucr_finding_id id, int32_t pid,
                        struct gpucr_error *err, const char *format, ...)
{
    const struct finding_kind *kind = &kinds[id];
    struct gpucr_result *result = job->result;
    struct gpucr_finding *grown;
    struct gpucr_finding *f;
    va_list args;

    if (result->finding_count >= FINDINGS_MAX && gpucr_preflight_has(job, id))
        return 0;
    grown = reallocarray(result->findings, result->finding_count + 1, sizeof(*grown));
    if (!grown)
        return gpucr_error_no_memory(err);
    result->findings = grown;
    f = &grown[result->finding_count++];
    *f = (struct gpucr_finding){.severity = kind->severity, .pid = pid};
    (void)gpucr_copy_text(f->name, sizeof(f->name), kind->name);
    (void)gpucr_copy_text(f->remedy, sizeof(f->remedy), kind->remedy);
    f->can_force = kind->severity == GPUCR_SEVERITY_REFUSE && !kind->fixed;
    f->forced = f->can_force && is_forced(job->options, kind->name);
    va_start(args, format);
    (void)vsnprintf(f->text, sizeof(f->text), format, args);
    va_end(args);
    gpucr_info("%s: %s: %s", gpucr_severity_name(f->severity), f->name, f->text);
    return 0;
}

/* Codes of refusals that have one of their own; the others are "refused". */
static int code_of(const char *name)
{
    static const struct {
        enum gpucr_finding_id id;
        int code;
    } codes[] = {
        {GPUCR_FINDING_NOT_CUDA, GPUCR_ERR_NOT_CUDA},
        {GPUCR_FINDING_DRIVER_MISSING, GPUCR_ERR_DRIVER_MISSING},
        {GPUCR_FINDING_ENGINE_MISSING, GPUCR_ERR_ENGINE_MISSING},
        {GPUCR_FINDING_TRACED, GPUCR_ERR_BUSY},
        {GPUCR_FINDING_ALREADY_SUSPENDED, GPUCR_ERR_BUSY},
        {GPUCR_FINDING_FROZEN, GPUCR_ERR_BUSY},
        {GPUCR_FINDING_PERMISSION, GPUCR_ERR_PERMISSION},
        {GPUCR_FINDING_DISK_SPACE, GPUCR_ERR_NO_SPACE},
        {GPUCR_FINDING_STATE_FAILED, GPUCR_ERR_POISONED},
        {GPUCR_FINDING_PID_TAKEN, GPUCR_ERR_EXISTS},
        {GPUCR_FINDING_NAMESPACE_INIT, GPUCR_ERR_UNSUPPORTED},
    };

    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(codes); i++) {
        if (strcmp(kinds[codes[i].id].name, name) == 0)
            return codes[i].code;
    }
    return GPUCR_ERR_REFUSED;
}

int gpucr_preflight_verdict(struct gpucr_job *job, struct gpucr_error *err)
{
    for (size_t i = 0; i < job->result->finding_count; i++) {
        const struct gpucr_finding *f = &job->result->findings[i];
        int rc;

        if (f->severity != GPUCR_SEVERITY_REFUSE || f->forced)
            continue;
        rc = gpucr_error_set(err, code_of(f->name), "%s", f->text);
        if (err) {
            (void)gpucr_copy_text(err->finding, sizeof(err->finding), f->name);
            err->pid = f->pid;
        }
        return gpucr_error_stage(err, rc, GPUCR_STAGE_PREFLIGHT);
    }
    return 0;
}
