/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <assert.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "image/image_text.h"
#include "image/json_scan.h"
#include "image/manifest_fields.h"

enum {
    JSON_DEPTH_MAX = 6,
    JSON_VALUES_MAX = 8388608, /* json-c needs some 80 bytes for each */
};

static void cleanup_json(struct json_object **o)
{
    if (*o)
        (void)json_object_put(*o);
}

static void cleanup_tokener(struct json_tokener **t)
{
    if (*t)
        json_tokener_free(*t);
}

static void cleanup_manifest(struct gpucr_manifest **m)
{
    gpucr_manifest_done(*m);
    free(*m);
}

#define AUTO_JSON     GPUCR_CLEANUP(cleanup_json)
#define AUTO_TOKENER  GPUCR_CLEANUP(cleanup_tokener)
#define AUTO_MANIFEST GPUCR_CLEANUP(cleanup_manifest)

/** A JSON object and where in the manifest it is. */
struct node {
    struct json_object *json;
    struct gpucr_field_place place;
};

struct bounds {
    size_t min;
    size_t max;
};

static int fail_member(const struct node *node, const char *name, const char *what,
                       struct gpucr_error *err)
{
    char where[GPUCR_PLACE_BYTES];
    char shown[GPUCR_PLACE_BYTES / 2];

    (void)gpucr_image_text_show(shown, sizeof(shown), name);
    return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT, "%s %s",
                           gpucr_field_place_text(where, &node->place, shown), what);
}

static int get_member(const struct node *node, const char *name, enum json_type type,
                      struct json_object **ret, struct gpucr_error *err)
{
    struct json_object *member;

    if (!json_object_object_get_ex(node->json, name, &member))
        return fail_member(node, name, "is missing", err);
    if (!json_object_is_type(member, type))
        return fail_member(node, name, "is of another type than the format demands", err);
    *ret = member;
    return 0;
}

static int get_array(const struct node *node, const char *name, const struct bounds *bounds,
                     struct json_object **ret, struct gpucr_error *err)
{
    char where[GPUCR_PLACE_BYTES];
    struct json_object *array = NULL;
    int rc = get_member(node, name, json_type_array, &array, err);
    size_t n;

    if (rc < 0)
        return rc;
    n = json_object_array_length(array);
    if (n < bounds->min || n > bounds->max)
        return gpucr_error_set(
            err, GPUCR_ERR_IMAGE_FORMAT, "%s has %zu elements: allowed are %zu to %zu",
            gpucr_field_place_text(where, &node->place, name), n, bounds->min, bounds->max);
    *ret = array;
    return 0;
}

/** json-c turns what does not fit into the nearest that does: beyond every limit of the format. */
static int get_number(const struct gpucr_field *f, struct json_object *member,
                      const struct gpucr_field_place *place, uint64_t *ret, struct gpucr_error *err)
{
    uint64_t value =
        json_object_get_int64(member) < 0 ? UINT64_MAX : json_object_get_uint64(member);
    int rc = gpucr_field_check_number(f, value, place, err);

    if (rc == 0)
        *ret = value;
    return rc;
}

static int read_number(const struct gpucr_field *f, const struct node *node, void *out,
                       struct gpucr_error *err)
{
    struct json_object *member = NULL;
    uint64_t value = 0;
    int rc = get_member(node, f->name, json_type_int, &member, err);

    if (rc == 0)
        rc = get_number(f, member, &node->place, &value, err);
    if (rc == 0)
        gpucr_field_store(f, out, value);
    return rc;
}

static int read_bool(const struct gpucr_field *f, const struct node *node, void *out,
                     struct gpucr_error *err)
{
    struct json_object *member = NULL;
    int rc = get_member(node, f->name, json_type_boolean, &member, err);

    if (rc == 0)
        *(bool *)(void *)((char *)out + f->offset) = json_object_get_boolean(member);
    return rc;
}

static int read_text(const struct gpucr_field *f, const struct node *node, void *out,
                     struct gpucr_error *err)
{
    char *at = (char *)out + f->offset;
    struct json_object *member = NULL;
    const char *text;
    size_t n;
    int rc = get_member(node, f->name, json_type_string, &member, err);

    if (rc < 0)
        return rc;
    text = json_object_get_string(member);
    n = (size_t)json_object_get_string_len(member);
    rc = gpucr_field_check_text(f, text, n, &node->place, err);
    if (rc < 0)
        return rc;
    if (f->kind == GPUCR_FIELD_TEXT_PTR) {
        char *copy = strdup(text);

        if (!copy)
            return gpucr_error_no_memory(err);
        *(char **)(void *)at = copy;
        return 0;
    }
    assert(n < f->size_bytes);
    (void)memcpy(at, text, n + 1);
    return 0;
}

static int read_fields(const struct node *node, const struct gpucr_field_table *table, void *out,
                       struct gpucr_error *err)
{
    int rc = 0;

    if (!json_object_is_type(node->json, json_type_object))
        return fail_member(node, "", "is not an object", err);
    for (size_t i = 0; rc == 0 && i < table->count; i++) {
        const struct gpucr_field *f = &table->fields[i];

        switch (f->kind) {
        case GPUCR_FIELD_NUMBER:
            rc = read_number(f, node, out, err);
            break;
        case GPUCR_FIELD_BOOL:
            rc = read_bool(f, node, out, err);
            break;
        case GPUCR_FIELD_TEXT:
        case GPUCR_FIELD_TEXT_PTR:
            rc = read_text(f, node, out, err);
            break;
        }
    }
    return rc;
}

static bool is_known(const char *name, const struct gpucr_field_table *table,
                     const char *const *others)
{
    for (size_t i = 0; i < table->count; i++) {
        if (strcmp(name, table->fields[i].name) == 0)
            return true;
    }
    for (; *others; others++) {
        if (strcmp(name, *others) == 0)
            return true;
    }
    return false;
}

/** Nothing but the fields of the table and @p others, a list that ends with NULL. */
static int check_names(const struct node *node, const struct gpucr_field_table *table,
                       const char *const *others, struct gpucr_error *err)
{
    struct json_object_iterator i = json_object_iter_begin(node->json);
    struct json_object_iterator end = json_object_iter_end(node->json);

    for (; !json_object_iter_equal(&i, &end); json_object_iter_next(&i)) {
        const char *name = json_object_iter_peek_name(&i);

        if (!is_known(name, table, others))
            return fail_member(node, name, "is a field that the format does not know", err);
    }
    return 0;
}

/** An object of which the table names all fields. */
static int read_object(const struct node *node, const struct gpucr_field_table *table, void *out,
                       struct gpucr_error *err)
{
    static const char *const none[] = {NULL};
    int rc = read_fields(node, table, out, err);

    return rc < 0 ? rc : check_names(node, table, none, err);
}

/** Objects of one kind, to be laid out as a C array. */
struct list {
    struct json_object *array;
    const char *name;
    const struct gpucr_field_table *table;
    size_t stride;
};

static int read_list(const struct list *list, void *first, size_t *count, struct gpucr_error *err)
{
    size_t n = json_object_array_length(list->array);

    for (size_t i = 0; i < n; i++) {
        struct node node = {.json = json_object_array_get_idx(list->array, i),
                            .place = {.array = list->name, .index = i}};
        int rc = read_object(&node, list->table, (char *)first + i * list->stride, err);

        if (rc < 0)
            return rc;
        *count = i + 1;
    }
    return 0;
}

static int read_gpus(const struct node *top, struct gpucr_manifest *m, struct gpucr_error *err)
{
    static const struct bounds bounds = {0, GPUCR_MANIFEST_GPUS_MAX};
    struct list list = {NULL, "gpus", &gpucr_manifest_gpu_table, sizeof(m->gpus[0])};
    int rc = get_array(top, list.name, &bounds, &list.array, err);

    return rc < 0 ? rc : read_list(&list, m->gpus, &m->gpu_count, err);
}

static int read_options(const struct node *top, struct gpucr_manifest *m, struct gpucr_error *err)
{
    static const struct bounds bounds = {0, GPUCR_MANIFEST_OPTIONS_MAX};
    struct list list = {NULL, "options", &gpucr_manifest_option_table, sizeof(m->options[0])};
    int rc = get_array(top, list.name, &bounds, &list.array, err);

    return rc < 0 ? rc : read_list(&list, m->options, &m->option_count, err);
}

static int read_phases(const struct node *top, struct gpucr_manifest *m, struct gpucr_error *err)
{
    static const struct bounds bounds = {0, GPUCR_MANIFEST_PHASES_MAX};
    struct list list = {NULL, "phases", &gpucr_manifest_phase_table, sizeof(m->phases[0])};
    int rc = get_array(top, list.name, &bounds, &list.array, err);

    return rc < 0 ? rc : read_list(&list, m->phases, &m->phase_count, err);
}

static int read_files(const struct node *top, struct gpucr_manifest *m, struct gpucr_error *err)
{
    static const struct bounds bounds = {1, GPUCR_MANIFEST_FILES_MAX};
    struct list list = {NULL, "files", &gpucr_manifest_file_table, sizeof(*m->files)};
    int rc = get_array(top, list.name, &bounds, &list.array, err);

    if (rc < 0)
        return rc;
    /* All of them count from the start: the one being read may own its path already. */
    m->file_count = json_object_array_length(list.array);
    m->files = calloc(m->file_count, sizeof(*m->files));
    if (!m->files) {
        m->file_count = 0;
        return gpucr_error_no_memory(err);
    }
    return read_list(&list, m->files, &(size_t){0}, err);
}

/** The numbers of an array, each within the limits of @p f. */
static int read_numbers(const struct gpucr_field *f, struct json_object *array,
                        const struct node *node, uint32_t *out, struct gpucr_error *err)
{
    size_t n = json_object_array_length(array);

    for (size_t i = 0; i < n; i++) {
        struct json_object *element = json_object_array_get_idx(array, i);
        uint64_t value = 0;
        int rc;

        if (!json_object_is_type(element, json_type_int))
            return fail_member(node, f->name, "holds something else than numbers", err);
        rc = get_number(f, element, &node->place, &value, err);
        if (rc < 0)
            return rc;
        out[i] = (uint32_t)value;
    }
    return 0;
}

static int read_threads(const struct node *node, struct gpucr_manifest_process *p, size_t *left,
                        struct gpucr_error *err)
{
    static const struct gpucr_field element = {
        .name = "threads", .min = 1, .max = GPUCR_MANIFEST_PID_MAX};
    const struct bounds bounds = {0, *left};
    struct json_object *array = NULL;
    int rc = get_array(node, element.name, &bounds, &array, err);

    if (rc < 0)
        return rc;
    p->thread_count = json_object_array_length(array);
    *left -= p->thread_count;
    p->threads = calloc(p->thread_count + 1, sizeof(*p->threads));
    if (!p->threads)
        return gpucr_error_no_memory(err);
    return read_numbers(&element, array, node, (uint32_t *)p->threads, err);
}

static int read_process_gpus(const struct node *node, struct gpucr_manifest_process *p,
                             struct gpucr_error *err)
{
    static const struct gpucr_field element = {.name = "gpus", .min = 0, .max = UINT32_MAX};
    static const struct bounds bounds = {0, GPUCR_MANIFEST_GPUS_MAX};
    struct json_object *array = NULL;
    int rc = get_array(node, element.name, &bounds, &array, err);

    if (rc < 0)
        return rc;
    p->gpu_count = (uint32_t)json_object_array_length(array);
    return read_numbers(&element, array, node, p->gpus, err);
}

static int read_process(const struct node *node, struct gpucr_manifest_process *p,
                        size_t *threads_left, struct gpucr_error *err)
{
    static const char *const arrays[] = {"threads", "gpus", NULL};
    int rc = read_fields(node, &gpucr_manifest_process_table, p, err);

    if (rc == 0)
        rc = read_threads(node, p, threads_left, err);
    if (rc == 0)
        rc = read_process_gpus(node, p, err);
    if (rc == 0)
        rc = check_names(node, &gpucr_manifest_process_table, arrays, err);
    return rc;
}

static int read_processes(const struct node *top, struct gpucr_manifest *m, struct gpucr_error *err)
{
    static const struct bounds bounds = {1, GPUCR_MANIFEST_PROCESSES_MAX};
    size_t threads_left = GPUCR_MANIFEST_THREADS_MAX;
    struct json_object *array = NULL;
    int rc = get_array(top, "processes", &bounds, &array, err);
    size_t n;

    if (rc < 0)
        return rc;
    n = json_object_array_length(array);
    m->processes = calloc(n, sizeof(*m->processes));
    if (!m->processes)
        return gpucr_error_no_memory(err);
    m->process_count = n;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct node node = {.json = json_object_array_get_idx(array, i),
                            .place = {.array = "processes", .index = i}};

        rc = read_process(&node, &m->processes[i], &threads_left, err);
    }
    return rc;
}

static int read_manifest(const struct node *top, struct gpucr_manifest *m, struct gpucr_error *err)
{
    static const char *const others[] = {"format",  "version", "gpus",  "processes",
                                         "options", "phases",  "files", NULL};
    int (*const parts[])(const struct node *, struct gpucr_manifest *, struct gpucr_error *) = {
        read_gpus, read_processes, read_options, read_phases, read_files};
    int rc = read_fields(top, &gpucr_manifest_table, m, err);

    for (size_t i = 0; rc == 0 && i < GPUCR_ARRAY_SIZE(parts); i++)
        rc = parts[i](top, m, err);
    if (rc == 0)
        rc = check_names(top, &gpucr_manifest_table, others, err);
    return rc;
}

/** Format and version come first: what another version means by its fields is unknown. */
static int check_version(const struct node *top, struct gpucr_error *err)
{
    struct json_object *format = NULL;
    struct json_object *version = NULL;
    int rc = get_member(top, "format", json_type_string, &format, err);

    if (rc < 0)
        return rc;
    if (strcmp(json_object_get_string(format), GPUCR_MANIFEST_FORMAT) != 0)
        return fail_member(top, "format", "is not \"" GPUCR_MANIFEST_FORMAT "\"", err);
    rc = get_member(top, "version", json_type_int, &version, err);
    if (rc < 0)
        return rc;
    if (json_object_get_int64(version) != GPUCR_MANIFEST_VERSION)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                               "it is of version %" PRId64 " of the format; this gpucr reads "
                               "version %d only",
                               json_object_get_int64(version), GPUCR_MANIFEST_VERSION);
    return 0;
}

static size_t count_members(struct json_object *o)
{
    size_t n = 0;

    if (json_object_is_type(o, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(o); i++)
            n += count_members(json_object_array_get_idx(o, i));
    } else if (json_object_is_type(o, json_type_object)) {
        struct json_object_iterator i = json_object_iter_begin(o);
        struct json_object_iterator end = json_object_iter_end(o);

        for (; !json_object_iter_equal(&i, &end); json_object_iter_next(&i))
            n += 1 + count_members(json_object_iter_peek_value(&i));
    }
    return n;
}

static int fail_byte(size_t at, struct gpucr_error *err)
{
    return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                           "the byte at offset %zu is not part of what the format allows", at);
}

static int parse(const char *json, size_t size_bytes, const struct gpucr_json_scan *scan,
                 struct json_object **ret, struct gpucr_error *err)
{
    AUTO_TOKENER struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH_MAX);
    AUTO_JSON struct json_object *o = NULL;
    enum json_tokener_error error;

    if (!tokener)
        return gpucr_error_no_memory(err);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    o = json_tokener_parse_ex(tokener, json, (int)size_bytes);
    error = json_tokener_get_error(tokener);
    if (error == json_tokener_success && json_tokener_get_parse_end(tokener) == size_bytes) {
        *ret = gpucr_steal_ptr(&o);
        return 0;
    }
    if (scan->bad_at != SIZE_MAX)
        return fail_byte(scan->bad_at, err);
    return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT, "it is not JSON from offset %zu on: %s",
                           json_tokener_get_parse_end(tokener), json_tokener_error_desc(error));
}

static int check_bytes(const char *json, size_t size_bytes, struct gpucr_json_scan *ret,
                       struct gpucr_error *err)
{
    if (size_bytes > GPUCR_MANIFEST_BYTES_MAX)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT, "it is larger than %d bytes",
                               GPUCR_MANIFEST_BYTES_MAX);
    if (size_bytes < 3 || json[0] != '{' || json[size_bytes - 2] != '}' ||
        json[size_bytes - 1] != '\n')
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                               "it is not one JSON object and a newline");
    *ret = gpucr_json_scan(json, size_bytes - 1);
    if (ret->colons + ret->commas > JSON_VALUES_MAX)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT, "it holds more than %d values",
                               JSON_VALUES_MAX);
    return 0;
}

int gpucr_manifest_from_json(const char *json, size_t size_bytes, struct gpucr_manifest *ret,
                             struct gpucr_error *err)
{
    AUTO_MANIFEST struct gpucr_manifest *m = NULL;
    AUTO_JSON struct json_object *root = NULL;
    struct gpucr_json_scan scan = {0};
    struct node top = {0};
    int rc = check_bytes(json, size_bytes, &scan, err);

    if (rc == 0)
        rc = parse(json, size_bytes - 1, &scan, &root, err);
    if (rc < 0)
        return rc;
    top.json = root;
    rc = check_version(&top, err);
    if (rc < 0)
        return rc;
    if (scan.bad_at != SIZE_MAX)
        return fail_byte(scan.bad_at, err);
    if (count_members(root) != scan.colons)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT, "a field occurs twice in its object");
    m = calloc(1, sizeof(*m));
    if (!m)
        return gpucr_error_no_memory(err);
    rc = read_manifest(&top, m, err);
    if (rc == 0)
        rc = gpucr_manifest_check(m, err);
    if (rc < 0)
        return rc;
    *ret = *m;
    *m = (struct gpucr_manifest){0};
    return 0;
}
