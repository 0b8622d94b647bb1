/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A result as one JSON document. Nothing is left out; names are stable. */
#include <json-c/json.h>
#include <string.h>

#include "cli.h"
#include "out.h"

enum { ERROR_STRING_MAX = 4096 };

/* Takes @p value over. NULL is JSON's null, so a lack of memory is caught where it arises. */
static void put(struct json_object *object, const char *key, struct json_object *value)
{
    if (json_object_object_add(object, key, value) != 0)
        cli_out_of_memory();
}

static struct json_object *checked(struct json_object *value)
{
    if (!value)
        cli_out_of_memory();
    return value;
}

static struct json_object *new_text(const char *text)
{
    char clean[ERROR_STRING_MAX];

    return checked(json_object_new_string(cli_clean_text(clean, sizeof(clean), text, false)));
}

static void put_text(struct json_object *object, const char *key, const char *text)
{
    put(object, key, new_text(text));
}

/* Empty means unknown. */
static void put_text_or_null(struct json_object *object, const char *key, const char *text)
{
    put(object, key, text && text[0] ? new_text(text) : NULL);
}

static void put_integer(struct json_object *object, const char *key, int64_t value)
{
    put(object, key, checked(json_object_new_int64(value)));
}

static void put_bytes(struct json_object *object, const char *key, uint64_t value)
{
    put(object, key, checked(json_object_new_uint64(value)));
}

static void put_bool(struct json_object *object, const char *key, bool value)
{
    put(object, key, checked(json_object_new_boolean(value)));
}

static void put_real(struct json_object *object, const char *key, double value)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "%.6f", value);
    put(object, key, checked(json_object_new_double_s(value, text)));
}

static struct json_object *new_object(void)
{
    return checked(json_object_new_object());
}

static struct json_object *new_array(void)
{
    return checked(json_object_new_array());
}

static void append(struct json_object *array, struct json_object *value)
{
    if (json_object_array_add(array, value) != 0)
        cli_out_of_memory();
}

static struct json_object *error_json(const struct gpucr_error *err)
{
    struct json_object *object;

    if (err->code == 0)
        return NULL;
    object = new_object();
    put_integer(object, "code", err->code);
    put_text(object, "code_name", gpucr_code_name(err->code));
    put_integer(object, "errno", err->os_errno);
    put_integer(object, "driver_code", err->driver_code);
    put_text(object, "stage", gpucr_stage_name(err->stage));
    put(object, "pid", err->pid ? checked(json_object_new_int(err->pid)) : NULL);
    put(object, "device", err->device >= 0 ? checked(json_object_new_int(err->device)) : NULL);
    put_text_or_null(object, "path", err->path);
    put_text_or_null(object, "finding", err->finding);
    put_text(object, "text", err->text);
    return object;
}

static struct json_object *process_json(const struct gpucr_process_result *process)
{
    struct json_object *object = new_object(), *gpus = new_array();

    for (uint32_t i = 0; i < process->gpu_count && i < GPUCR_GPUS_PER_PROCESS_MAX; i++)
        append(gpus, checked(json_object_new_int64(process->gpus[i])));
    put_integer(object, "pid", process->pid);
    put_integer(object, "parent_pid", process->parent_pid);
    put_integer(object, "namespace_pid", process->namespace_pid);
    put_bytes(object, "start_ticks", process->start_ticks);
    put_text(object, "name", process->name);
    put_bool(object, "is_cuda", process->is_cuda);
    put_bool(object, "holds_device", process->holds_device);
    put_bool(object, "was_stopped", process->was_stopped);
    put_text(object, "state_before", gpucr_process_state_name(process->before));
    put_text(object, "state_after", gpucr_process_state_name(process->after));
    put_bytes(object, "device_bytes_before", process->device_bytes);
    put_bytes(object, "device_bytes_after", process->device_bytes_after);
    put_bytes(object, "host_bytes", process->host_bytes);
    put(object, "gpus", gpus);
    put(object, "error", error_json(&process->error));
    return object;
}

static struct json_object *finding_json(const struct gpucr_finding *finding)
{
    struct json_object *object = new_object();

    put_text(object, "name", finding->name);
    put_text(object, "severity", gpucr_severity_name(finding->severity));
    put_bool(object, "can_force", finding->can_force);
    put_bool(object, "forced", finding->forced);
    put(object, "pid", finding->pid ? checked(json_object_new_int(finding->pid)) : NULL);
    put_text(object, "text", finding->text);
    put_text_or_null(object, "remedy", finding->remedy);
    return object;
}

static struct json_object *phase_json(const struct gpucr_phase *phase)
{
    struct json_object *object = new_object();

    put_text(object, "name", phase->name);
    put_bytes(object, "bytes", phase->bytes);
    put_real(object, "seconds", (double)phase->ns / 1e9);
    put_real(object, "driver_seconds", (double)phase->driver_ns / 1e9);
    put_real(object, "driver_seconds", (double)phase->driver_ns / 1e9);
    if (phase->bytes && phase->ns)
        put_real(object, "gb_per_s", (double)phase->bytes / (double)phase->ns);
    else
        put(object, "gb_per_s", NULL);
    return object;
}

static struct json_object *log_line_json(const struct gpucr_log_line *line)
{
    struct json_object *object = new_object();

    put_bool(object, "is_cause", line->is_cause);
    put_text(object, "text", line->text);
    return object;
}

static struct json_object *gpu_json(const struct gpucr_gpu *gpu, uint32_t index)
{
    struct json_object *object = new_object();

    put_integer(object, "index", index);
    put_text(object, "uuid", gpu->uuid);
    put_text(object, "name", gpu->name);
    put_bytes(object, "memory_bytes", gpu->memory_bytes);
    put_bytes(object, "free_bytes", gpu->free_bytes);
    return object;
}

static struct json_object *machine_json(const struct gpucr_machine *machine)
{
    struct json_object *object = new_object(), *gpus = new_array();

    for (uint32_t i = 0; i < machine->gpu_count && i < GPUCR_GPUS_PER_PROCESS_MAX; i++)
        append(gpus, gpu_json(&machine->gpus[i], i));
    put_text_or_null(object, "driver", machine->driver_name);
    put_integer(object, "cuda_version", machine->driver_version);
    put_bool(object, "can_checkpoint", machine->can_checkpoint);
    put_bool(object, "can_remap", machine->can_remap);
    put_text_or_null(object, "criu", machine->criu_path);
    put_integer(object, "criu_version", machine->criu_version);
    put_bool(object, "hardware_breakpoints", machine->hardware_breakpoints);
    put_text(object, "kernel", machine->kernel);
    put(object, "gpus", gpus);
    return object;
}

static void put_lists(struct json_object *root, const struct gpucr_result *result)
{
    struct json_object *processes = new_array(), *findings = new_array();
    struct json_object *phases = new_array(), *log = new_array();

    for (size_t i = 0; i < result->process_count; i++)
        append(processes, process_json(&result->processes[i]));
    for (size_t i = 0; i < result->finding_count; i++)
        append(findings, finding_json(&result->findings[i]));
    for (size_t i = 0; i < result->phase_count; i++)
        append(phases, phase_json(&result->phases[i]));
    for (size_t i = 0; i < result->log_line_count; i++)
        append(log, log_line_json(&result->log_lines[i]));
    put(root, "processes", processes);
    put(root, "findings", findings);
    put(root, "phases", phases);
    put(root, "log", log);
}

char *cli_json_report(const struct cli_options *options, const struct gpucr_result *result,
                      const struct gpucr_machine *machine, int exit_status)
{
    struct json_object *root = new_object();
    char *text;

    put_text(root, "gpucr", gpucr_version());
    put_text_or_null(root, "command", options->verb ? options->verb->name : NULL);
    put_text(root, "outcome", gpucr_outcome_name(result->outcome));
    put_integer(root, "exit_status", exit_status);
    put(root, "error", error_json(&result->error));
    if (machine)
        put(root, "machine", machine_json(machine));
    put(root, "root_pid", result->root_pid ? checked(json_object_new_int(result->root_pid)) : NULL);
    put_lists(root, result);
    put_real(root, "seconds", (double)result->total_ns / 1e9);
    put_text_or_null(root, "image", options->job.image_dir);
    put_bytes(root, "image_bytes", result->image_bytes);
    if (options->job.foreground)
        put_integer(root, "wait_status", result->exit_status);
    text = strdup(json_object_to_json_string_ext(
        root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE));
    (void)json_object_put(root);
    if (!text)
        cli_out_of_memory();
    return text;
}
