/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Operations with made-up results, for tests of the command: GPUCR_TEST_ENDING says
 * how they end. They take the place of the library's by the linker's --wrap.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gpucr/gpucr.h>

#define GIB (UINT64_C(1) << 30)

int __wrap_gpucr_list(const struct gpucr_job_options *options, struct gpucr_result *result);
int __wrap_gpucr_check(const struct gpucr_job_options *options, struct gpucr_result *result);
int __wrap_gpucr_suspend(const struct gpucr_job_options *options, struct gpucr_result *result);
int __wrap_gpucr_resume(const struct gpucr_job_options *options, struct gpucr_result *result);
int __wrap_gpucr_checkpoint(const struct gpucr_job_options *options, struct gpucr_result *result);
int __wrap_gpucr_restore(const struct gpucr_job_options *options, struct gpucr_result *result);
int __wrap_gpucr_machine_probe(const struct gpucr_job_options *options, struct gpucr_machine *ret,
                               struct gpucr_error *err);
void __wrap_gpucr_result_done(struct gpucr_result *result);

static const char *ending(void)
{
    const char *text = getenv("GPUCR_TEST_ENDING");

    return text ? text : "done";
}

static bool ends(const char *how)
{
    return strcmp(ending(), how) == 0;
}

static struct gpucr_error make_error(int code, enum gpucr_stage stage, int pid, const char *text)
{
    struct gpucr_error err = {.code = code, .stage = stage, .pid = pid, .device = -1};

    (void)snprintf(err.text, sizeof(err.text), "%s", text);
    return err;
}

/* Three processes: two with CUDA state, one without. */
static void fill_processes(struct gpucr_result *result, enum gpucr_process_state after)
{
    static const char *const names[] = {"trainer", "worker", "python3"};

    result->processes = calloc(3, sizeof(*result->processes));
    result->process_count = 3;
    result->root_pid = 4711;
    for (int i = 0; i < 3; i++) {
        struct gpucr_process_result *process = &result->processes[i];

        process->pid = 4711 + i;
        process->parent_pid = i ? 4711 : 1;
        process->namespace_pid = 11 + i;
        process->start_ticks = 123456 + (uint64_t)i;
        (void)snprintf(process->name, sizeof(process->name), "%s", names[i]);
        process->is_cuda = i < 2;
        process->holds_device = i == 2;
        process->before = GPUCR_PROCESS_RUNNING;
        process->after = after;
        process->host_bytes = 512U << 20;
        if (!process->is_cuda)
            continue;
        process->device_bytes = 20 * GIB;
        process->device_bytes_after = after == GPUCR_PROCESS_RUNNING ? 20 * GIB : 0;
        process->gpu_count = 2;
        process->gpus[0] = 0;
        process->gpus[1] = (uint32_t)i + 1;
    }
}

static void add_finding(struct gpucr_result *result, enum gpucr_severity severity, bool forced)
{
    struct gpucr_finding *finding;

    result->findings = realloc(result->findings, (result->finding_count + 1) * sizeof(*finding));
    finding = &result->findings[result->finding_count++];
    *finding = (struct gpucr_finding){.severity = severity,
                                      .can_force = severity == GPUCR_SEVERITY_REFUSE,
                                      .forced = forced,
                                      .pid = 4711};
    (void)snprintf(finding->name, sizeof(finding->name), "orphanable-group");
    (void)snprintf(finding->text, sizeof(finding->text),
                   "The process group 4711 loses its shell when the session ends; the kernel "
                   "would then wake the suspended program.");
    (void)snprintf(finding->remedy, sizeof(finding->remedy), "Start the program with setsid.");
}

static void add_phases(struct gpucr_result *result)
{
    result->phases[0] = (struct gpucr_phase){"lock", 0, 12000000, 0};
    result->phases[1] = (struct gpucr_phase){"checkpoint", 40 * GIB, 10000000000, 0};
    result->phase_count = 2;
    result->total_ns = 10100000000;
    result->image_bytes = 41 * GIB;
}

static void add_log(struct gpucr_result *result)
{
    result->log_line_count = 2;
    result->log_lines[0].is_cause = true;
    (void)snprintf(result->log_lines[0].text, GPUCR_LOG_LINE_BYTES,
                   "Can't dump the io_uring of process 4713");
    (void)snprintf(result->log_lines[1].text, GPUCR_LOG_LINE_BYTES, "Dumping FAILED.");
}

static void end_done(struct gpucr_result *result)
{
    fill_processes(result, GPUCR_PROCESS_SUSPENDED);
    add_finding(result, GPUCR_SEVERITY_WARN, false);
    add_finding(result, GPUCR_SEVERITY_REFUSE, true);
    add_phases(result);
}

static void end_failed(struct gpucr_result *result, enum gpucr_outcome outcome)
{
    bool lost = outcome == GPUCR_OUTCOME_NOT_ROLLED_BACK;

    fill_processes(result, GPUCR_PROCESS_RUNNING);
    add_phases(result);
    add_log(result);
    result->outcome = outcome;
    result->error = make_error(GPUCR_ERR_DRIVER, GPUCR_STAGE_CHECKPOINT, 4711,
                               "Checkpoint of process 4711 (trainer) failed: out of memory.");
    result->error.driver_code = 2;
    result->processes[0].error = result->error;
    result->processes[1].error = make_error(GPUCR_ERR_TIMEOUT, GPUCR_STAGE_LOCK, 4712,
                                            "Process 4712 (worker) did not answer within 30 s.");
    if (lost) {
        result->processes[0].after = GPUCR_PROCESS_FAILED;
        result->processes[0].error.code = GPUCR_ERR_POISONED;
    }
}

/* Names that a process can give itself: colours, cursor movements, broken UTF-8. */
static void end_hostile(struct gpucr_result *result)
{
    end_failed(result, GPUCR_OUTCOME_ROLLED_BACK);
    for (size_t i = 0; i < result->process_count; i++)
        (void)snprintf(result->processes[i].name, GPUCR_NAME_BYTES,
                       "\033[2J\"\xff\xc3\n\\\xc2\x9b");
    (void)snprintf(result->error.text, sizeof(result->error.text), "bad \033[31m\xe2\x82 name\n");
    (void)snprintf(result->error.path, sizeof(result->error.path), "/tmp/\xf0\x9f\x92");
    (void)snprintf(result->log_lines[0].text, GPUCR_LOG_LINE_BYTES, "\r\x01 log \xed\xa0\x80");
}

static void nap_ms(long ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL);
}

/* Two and a half seconds of dump, or until somebody asks to stop. */
static void end_slow(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    for (uint64_t i = 1; i <= 25 && !*options->cancel; i++) {
        options->progress(options->progress_arg, "dump", i * GIB, 25 * GIB);
        nap_ms(100);
    }
    if (!*options->cancel) {
        end_done(result);
        return;
    }
    nap_ms(500); /* time for a second signal */
    end_failed(result, GPUCR_OUTCOME_ROLLED_BACK);
    result->error = make_error(GPUCR_ERR_CANCELLED, GPUCR_STAGE_DUMP, 0, "Stopped as asked.");
}

/* A "restored" program: it writes its pid, and its status follows GPUCR_TEST_STATUS. */
static int end_foreground(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    const char *script = getenv("GPUCR_TEST_PROGRAM");
    pid_t pid = fork();

    if (pid == 0) {
        (void)setpgid(0, 0);
        (void)execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    end_done(result);
    options->restored(options->restored_arg, pid);
    while (waitpid(pid, &result->exit_status, 0) < 0)
        ;
    return 0;
}

static int play(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    static const struct {
        const char *name;
        int code;
        const char *text;
    } refusals[] = {
        {"refused", GPUCR_ERR_REFUSED, "The process group of 4711 can be orphaned."},
        {"usage", GPUCR_ERR_USAGE, "The options contradict each other."},
        {"internal", GPUCR_ERR_INTERNAL, "An invariant is broken."},
        {"not-found", GPUCR_ERR_NOT_FOUND, "There is no process 4711."},
    };

    if (ends("rolled-back"))
        end_failed(result, GPUCR_OUTCOME_ROLLED_BACK);
    else if (ends("not-rolled-back"))
        end_failed(result, GPUCR_OUTCOME_NOT_ROLLED_BACK);
    else if (ends("hostile"))
        end_hostile(result);
    else if (ends("slow"))
        end_slow(options, result);
    else if (ends("done"))
        end_done(result);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        if (!ends(refusals[i].name))
            continue;
        result->outcome = GPUCR_OUTCOME_REFUSED;
        result->error = make_error(refusals[i].code, GPUCR_STAGE_PREFLIGHT, 4711, refusals[i].text);
        if (refusals[i].code == GPUCR_ERR_REFUSED)
            add_finding(result, GPUCR_SEVERITY_REFUSE, false);
    }
    return result->error.code;
}

/* As the library lists: a mere holder of device files only when all are asked for. */
int __wrap_gpucr_list(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    int rc = play(options, result);
    size_t kept = 0;

    for (size_t i = 0; i < result->process_count; i++) {
        if (result->processes[i].is_cuda || options->list_all)
            result->processes[kept++] = result->processes[i];
    }
    result->process_count = kept;
    return rc;
}

int __wrap_gpucr_check(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    (void)options;
    fill_processes(result, GPUCR_PROCESS_RUNNING);
    if (ends("refused"))
        add_finding(result, GPUCR_SEVERITY_REFUSE, false);
    add_finding(result, GPUCR_SEVERITY_NOTE, false);
    return 0;
}

int __wrap_gpucr_suspend(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    return play(options, result);
}

int __wrap_gpucr_resume(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    return play(options, result);
}

int __wrap_gpucr_checkpoint(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    return play(options, result);
}

int __wrap_gpucr_restore(const struct gpucr_job_options *options, struct gpucr_result *result)
{
    if (options->foreground && ends("done"))
        return end_foreground(options, result);
    return play(options, result);
}

int __wrap_gpucr_machine_probe(const struct gpucr_job_options *options, struct gpucr_machine *ret,
                               struct gpucr_error *err)
{
    (void)options;
    (void)err;
    *ret = (struct gpucr_machine){.driver_version = 13000,
                                  .driver_name = "580.159.04",
                                  .can_checkpoint = true,
                                  .can_remap = true,
                                  .gpu_count = 1,
                                  .criu_path = "/usr/sbin/criu",
                                  .criu_version = 40101,
                                  .hardware_breakpoints = true,
                                  .kernel = "6.1.0"};
    (void)snprintf(ret->gpus[0].uuid, GPUCR_UUID_BYTES, "GPU-00000000-1111-2222-3333-444444444444");
    (void)snprintf(ret->gpus[0].name, GPUCR_NAME_BYTES, "NVIDIA H200");
    ret->gpus[0].memory_bytes = 141 * GIB;
    ret->gpus[0].free_bytes = 140 * GIB;
    return 0;
}

void __wrap_gpucr_result_done(struct gpucr_result *result)
{
    free(result->processes);
    free(result->findings);
    *result = (struct gpucr_result)GPUCR_RESULT_INIT;
}
