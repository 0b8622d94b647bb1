/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A manifest for people; docs/image-format.md defines its fields. */
#include <json-c/json.h>
#include <string.h>

#include "cli.h"
#include "out.h"

/* The library has checked the manifest: what is asked for here is there. */
static const char *text_of(struct json_object *object, const char *key)
{
    struct json_object *value = json_object_object_get(object, key);

    return value ? json_object_get_string(value) : "";
}

static int64_t number_of(struct json_object *object, const char *key)
{
    return json_object_get_int64(json_object_object_get(object, key));
}

static struct json_object *array_of(struct json_object *object, const char *key, size_t *ret_count)
{
    struct json_object *array = json_object_object_get(object, key);

    *ret_count = json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
    return array;
}

static void print_line(FILE *out, const char *title, const char *text)
{
    char clean[GPUCR_ERROR_TEXT_BYTES];

    (void)fprintf(out, "%-12s%s\n", title, cli_clean_text(clean, sizeof(clean), text, true));
}

static void print_machine(FILE *out, struct json_object *root)
{
    char line[512], version[CLI_TEXT_BYTES];
    int64_t cuda = number_of(root, "cuda_version");

    print_line(out, "created", text_of(root, "created"));
    (void)snprintf(line, sizeof(line), "%.64s, kernel %.255s", text_of(root, "host"),
                   text_of(root, "kernel"));
    print_line(out, "host", line);
    (void)snprintf(line, sizeof(line), "gpucr %.31s, %.31s %s", text_of(root, "gpucr_version"),
                   text_of(root, "engine"),
                   cli_format_version(version, (int32_t)number_of(root, "engine_version")));
    print_line(out, "written by", line);
    if (cuda)
        (void)snprintf(line, sizeof(line), "%.31s, CUDA %d.%d", text_of(root, "driver"),
                       (int)(cuda / 1000), (int)(cuda % 1000 / 10));
    else
        (void)snprintf(line, sizeof(line), "none");
    print_line(out, "driver", line);
}

static void print_gpus(FILE *out, struct json_object *root)
{
    size_t count;
    struct json_object *gpus = array_of(root, "gpus", &count);

    for (size_t i = 0; i < count; i++) {
        struct json_object *gpu = json_object_array_get_idx(gpus, i);
        char title[32], line[256], size[CLI_TEXT_BYTES];

        (void)snprintf(title, sizeof(title), "GPU %d", (int)number_of(gpu, "index"));
        (void)snprintf(line, sizeof(line), "%.63s, %s, %.47s", text_of(gpu, "name"),
                       cli_format_bytes(size, (uint64_t)number_of(gpu, "memory_bytes")),
                       text_of(gpu, "uuid"));
        print_line(out, title, line);
    }
}

static const char *state_of(struct json_object *process)
{
    static const char *const states[] = {"running", "locked", "checkpointed"};
    int64_t state = number_of(process, "cuda_state");

    if (json_object_get_boolean(json_object_object_get(process, "was_stopped")))
        return "stopped";
    return state >= 0 && state < (int64_t)CLI_ARRAY_SIZE(states) ? states[state] : "unknown";
}

static void fill_process_row(struct libscols_line *row, struct json_object *process)
{
    bool cuda = json_object_get_boolean(json_object_object_get(process, "is_cuda"));
    uint32_t indices[GPUCR_GPUS_PER_PROCESS_MAX];
    char text[CLI_TEXT_BYTES];
    size_t threads, gpus;
    struct json_object *gpu_array = array_of(process, "gpus", &gpus);

    (void)array_of(process, "threads", &threads);
    for (size_t i = 0; i < gpus && i < GPUCR_GPUS_PER_PROCESS_MAX; i++)
        indices[i] = (uint32_t)json_object_get_int64(json_object_array_get_idx(gpu_array, i));
    cli_table_cell(row, 0, text_of(process, "name"));
    (void)snprintf(text, sizeof(text), "%d", (int)number_of(process, "pid"));
    cli_table_cell(row, 1, text);
    cli_table_cell(row, 2, state_of(process));
    (void)snprintf(text, sizeof(text), "%zu", threads);
    cli_table_cell(row, 3, text);
    cli_table_cell(row, 4, cli_format_gpus(text, indices, (uint32_t)gpus));
    cli_table_cell(
        row, 5, cuda ? cli_format_bytes(text, (uint64_t)number_of(process, "device_bytes")) : "-");
    cli_table_cell(row, 6, cli_format_bytes(text, (uint64_t)number_of(process, "host_bytes")));
}

struct tree_row {
    int64_t pid;
    struct libscols_line *row;
};

static int by_pid(const void *a, const void *b)
{
    const struct tree_row *left = a, *right = b;

    return (left->pid > right->pid) - (left->pid < right->pid);
}

/* Parents come before children, so a row's parent exists; by pid it is found quickly. */
static void add_processes(struct cli_table *table, struct json_object *processes, size_t count)
{
    CLI_AUTO_FREE struct tree_row *rows = calloc(count, sizeof(*rows));

    if (!rows)
        cli_out_of_memory();
    for (size_t i = 0; i < count; i++)
        rows[i].pid = number_of(json_object_array_get_idx(processes, i), "pid");
    qsort(rows, count, sizeof(*rows), by_pid);
    for (size_t i = 0; i < count; i++) {
        struct json_object *process = json_object_array_get_idx(processes, i);
        const struct tree_row self = {.pid = number_of(process, "pid")};
        const struct tree_row up = {.pid = number_of(process, "parent_pid")};
        struct tree_row *mine = bsearch(&self, rows, count, sizeof(*rows), by_pid);
        struct tree_row *parent = i ? bsearch(&up, rows, count, sizeof(*rows), by_pid) : NULL;

        mine->row = cli_table_row(table, parent ? parent->row : NULL);
        fill_process_row(mine->row, process);
    }
}

static void print_processes(FILE *out, struct json_object *root)
{
    static const struct cli_column columns[] = {
        {"PROCESS", CLI_COLUMN_TREE},    {"PID", CLI_COLUMN_NUMBER},
        {"STATE", CLI_COLUMN_TEXT},      {"THREADS", CLI_COLUMN_NUMBER},
        {"GPU", CLI_COLUMN_TEXT},        {"DEVICE MEM", CLI_COLUMN_NUMBER},
        {"HOST MEM", CLI_COLUMN_NUMBER},
    };
    CLI_AUTO_TABLE struct cli_table *table = cli_table_new(columns, CLI_ARRAY_SIZE(columns));
    size_t count;
    struct json_object *processes = array_of(root, "processes", &count);

    if (count == 0)
        return;
    add_processes(table, processes, count);
    (void)fputc('\n', out);
    cli_table_print(table, out);
}

static void print_options(FILE *out, struct json_object *root)
{
    size_t count;
    struct json_object *options = array_of(root, "options", &count);
    char line[GPUCR_ERROR_TEXT_BYTES];

    for (size_t i = 0; i < count; i++) {
        struct json_object *option = json_object_array_get_idx(options, i);
        const char *value = text_of(option, "value");

        (void)snprintf(line, sizeof(line), "%.63s%s%.255s", text_of(option, "name"),
                       *value ? "=" : "", value);
        print_line(out, i ? "" : "options", line);
    }
}

static void print_phases(FILE *out, struct json_object *root)
{
    struct gpucr_phase phases[GPUCR_PHASES_MAX] = {0};
    uint64_t total_ns = 0;
    size_t count;
    struct json_object *array = array_of(root, "phases", &count);

    for (size_t i = 0; i < count; i++) {
        struct json_object *phase = json_object_array_get_idx(array, i);

        total_ns += (uint64_t)number_of(phase, "ns");
        if (i >= GPUCR_PHASES_MAX)
            continue;
        phases[i] = (struct gpucr_phase){
            .name = text_of(phase, "name"),
            .bytes = (uint64_t)number_of(phase, "bytes"),
            .ns = (uint64_t)number_of(phase, "ns"),
        };
    }
    if (count)
        (void)fputc('\n', out);
    cli_phases_print(out, phases, count < GPUCR_PHASES_MAX ? count : GPUCR_PHASES_MAX, total_ns);
}

static void print_size(FILE *out, struct json_object *root, uint64_t image_bytes)
{
    char line[256], size[CLI_TEXT_BYTES];
    size_t files;

    (void)array_of(root, "files", &files);
    (void)snprintf(line, sizeof(line), "%s in %zu files", cli_format_bytes(size, image_bytes),
                   files);
    print_line(out, "size", line);
}

int cli_image_report(FILE *out, const char *manifest_json, uint64_t image_bytes,
                     struct gpucr_error *err)
{
    struct json_object *root = json_tokener_parse(manifest_json);

    if (!json_object_is_type(root, json_type_object)) {
        (void)json_object_put(root);
        return cli_error_set(err, GPUCR_ERR_INTERNAL, "the manifest could not be parsed again");
    }
    print_machine(out, root);
    print_gpus(out, root);
    print_size(out, root, image_bytes);
    print_options(out, root);
    print_processes(out, root);
    print_phases(out, root);
    (void)json_object_put(root);
    return 0;
}
