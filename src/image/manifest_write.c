/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "image/image_text.h"
#include "image/manifest_fields.h"

/* json-c escapes control characters (there are none), '"' and '\\', and, unless told not to,
 * '/'. With that the text keeps to the part of JSON that the format allows. */
enum { JSON_STYLE = JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE };

static void cleanup_json(struct json_object **o)
{
    if (*o)
        (void)json_object_put(*o);
}

#define AUTO_JSON GPUCR_CLEANUP(cleanup_json)

/** Add @p value, which is given away, to an object. */
static int add_member(struct json_object *o, const char *name, struct json_object *value,
                      struct gpucr_error *err)
{
    if (!value || json_object_object_add(o, name, value) != 0) {
        if (value)
            (void)json_object_put(value);
        return gpucr_error_no_memory(err);
    }
    return 0;
}

static int add_element(struct json_object *array, struct json_object *value,
                       struct gpucr_error *err)
{
    if (!value || json_object_array_add(array, value) != 0) {
        if (value)
            (void)json_object_put(value);
        return gpucr_error_no_memory(err);
    }
    return 0;
}

static int add_text(struct json_object *o, const struct gpucr_field *f, const void *object,
                    const struct gpucr_field_place *place, struct gpucr_error *err)
{
    const char *at = (const char *)object + f->offset;
    char cleaned[GPUCR_MANIFEST_TEXT_BYTES];
    const char *text = at;
    int rc;

    if (f->kind == GPUCR_FIELD_TEXT_PTR)
        text = *(char *const *)(const void *)at;
    else if (f->display)
        text = gpucr_image_text_show(cleaned, f->size_bytes, at);
    rc = gpucr_field_check_text(
        f, text, f->kind == GPUCR_FIELD_TEXT ? strnlen(text, f->size_bytes) : strlen(text), place,
        err);
    return rc < 0 ? rc : add_member(o, f->name, json_object_new_string(text), err);
}

static int add_field(struct json_object *o, const struct gpucr_field *f, const void *object,
                     const struct gpucr_field_place *place, struct gpucr_error *err)
{
    const char *at = (const char *)object + f->offset;
    uint64_t value;
    int rc;

    switch (f->kind) {
    case GPUCR_FIELD_BOOL:
        return add_member(o, f->name, json_object_new_boolean(*(const bool *)at), err);
    case GPUCR_FIELD_NUMBER:
        value = gpucr_field_load(f, object);
        rc = gpucr_field_check_number(f, value, place, err);
        return rc < 0 ? rc : add_member(o, f->name, json_object_new_uint64(value), err);
    case GPUCR_FIELD_TEXT:
    case GPUCR_FIELD_TEXT_PTR:
        break;
    }
    return add_text(o, f, object, place, err);
}

static int add_fields(struct json_object *o, const struct gpucr_field_table *table,
                      const void *object, const struct gpucr_field_place *place,
                      struct gpucr_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < table->count; i++)
        rc = add_field(o, &table->fields[i], object, place, err);
    return rc;
}

/** Append an object with the fields of the table to an array; @p ret borrows it. */
static int append_object(struct json_object *array, const struct gpucr_field_table *table,
                         const void *object, const struct gpucr_field_place *place,
                         struct gpucr_error *err)
{
    AUTO_JSON struct json_object *o = json_object_new_object();
    int rc = o ? add_fields(o, table, object, place, err) : gpucr_error_no_memory(err);

    return rc < 0 ? rc : add_element(array, gpucr_steal_ptr(&o), err);
}

/** An array that is a member of @p o, which owns it. */
static int new_array(struct json_object *o, const char *name, struct json_object **ret,
                     struct gpucr_error *err)
{
    struct json_object *array = json_object_new_array();
    int rc = add_member(o, name, array, err);

    if (rc == 0)
        *ret = array;
    return rc;
}

/** Objects of one kind, laid out as a C array. */
struct list {
    const char *name;
    const struct gpucr_field_table *table;
    const void *first;
    size_t stride;
    size_t count;
    size_t min;
    size_t max;
};

static int check_count(const struct list *list, struct gpucr_error *err)
{
    if (list->count < list->min || list->count > list->max)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                               "%s has %zu elements: allowed are %zu to %zu", list->name,
                               list->count, list->min, list->max);
    return 0;
}

static int add_list(struct json_object *o, const struct list *list, struct gpucr_error *err)
{
    struct json_object *array = NULL;
    int rc = check_count(list, err);

    if (rc == 0)
        rc = new_array(o, list->name, &array, err);
    for (size_t i = 0; rc == 0 && i < list->count; i++) {
        struct gpucr_field_place place = {.array = list->name, .index = i};

        rc = append_object(array, list->table, (const char *)list->first + i * list->stride, &place,
                           err);
    }
    return rc;
}

static int add_process_arrays(struct json_object *o, const struct gpucr_manifest_process *p,
                              struct gpucr_error *err)
{
    struct json_object *threads = NULL;
    struct json_object *gpus = NULL;
    int rc = new_array(o, "threads", &threads, err);

    for (size_t i = 0; rc == 0 && i < p->thread_count; i++)
        rc = add_element(threads, json_object_new_int(p->threads[i]), err);
    if (rc == 0)
        rc = new_array(o, "gpus", &gpus, err);
    for (uint32_t i = 0; rc == 0 && i < p->gpu_count; i++)
        rc = add_element(gpus, json_object_new_int64(p->gpus[i]), err);
    return rc;
}

static int check_process_counts(const struct gpucr_manifest *m, struct gpucr_error *err)
{
    size_t threads = 0;

    for (size_t i = 0; i < m->process_count; i++) {
        const struct gpucr_manifest_process *p = &m->processes[i];

        if (__builtin_add_overflow(threads, p->thread_count, &threads) ||
            threads > GPUCR_MANIFEST_THREADS_MAX || p->gpu_count > GPUCR_MANIFEST_GPUS_MAX)
            return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                   "processes have more than %d threads, or one of them has more "
                                   "than %d GPUs",
                                   GPUCR_MANIFEST_THREADS_MAX, GPUCR_MANIFEST_GPUS_MAX);
        for (size_t t = 0; t < p->thread_count; t++) {
            if (p->threads[t] <= 0 || p->threads[t] > GPUCR_MANIFEST_PID_MAX)
                return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                       "processes[%zu].threads[%zu] is not a thread id", i, t);
        }
    }
    return 0;
}

static int add_processes(struct json_object *root, const struct gpucr_manifest *m,
                         struct gpucr_error *err)
{
    struct list list = {"processes",
                        &gpucr_manifest_process_table,
                        m->processes,
                        sizeof(*m->processes),
                        m->process_count,
                        1,
                        GPUCR_MANIFEST_PROCESSES_MAX};
    struct json_object *array;
    int rc = check_count(&list, err);

    if (rc == 0)
        rc = check_process_counts(m, err);
    if (rc == 0)
        rc = add_list(root, &list, err);
    if (rc < 0)
        return rc;
    (void)json_object_object_get_ex(root, "processes", &array);
    for (size_t i = 0; rc == 0 && i < m->process_count; i++)
        rc = add_process_arrays(json_object_array_get_idx(array, i), &m->processes[i], err);
    return rc;
}

static int add_lists(struct json_object *root, const struct gpucr_manifest *m,
                     struct gpucr_error *err)
{
    const struct list gpus = {
        "gpus", &gpucr_manifest_gpu_table, m->gpus, sizeof(m->gpus[0]), m->gpu_count,
        0,      GPUCR_MANIFEST_GPUS_MAX};
    const struct list rest[] = {
        {"options", &gpucr_manifest_option_table, m->options, sizeof(m->options[0]),
         m->option_count, 0, GPUCR_MANIFEST_OPTIONS_MAX},
        {"phases", &gpucr_manifest_phase_table, m->phases, sizeof(m->phases[0]), m->phase_count, 0,
         GPUCR_MANIFEST_PHASES_MAX},
        {"files", &gpucr_manifest_file_table, m->files, sizeof(*m->files), m->file_count, 1,
         GPUCR_MANIFEST_FILES_MAX},
    };
    int rc = add_list(root, &gpus, err);

    if (rc == 0)
        rc = add_processes(root, m, err);
    for (size_t i = 0; rc == 0 && i < GPUCR_ARRAY_SIZE(rest); i++)
        rc = add_list(root, &rest[i], err);
    return rc;
}

/** The text with the newline that ends it. */
static int print_json(struct json_object *root, char **ret, struct gpucr_error *err)
{
    size_t n = 0;
    const char *text = json_object_to_json_string_length(root, JSON_STYLE, &n);
    char *copy;

    if (!text)
        return gpucr_error_no_memory(err);
    if (n + 1 > GPUCR_MANIFEST_BYTES_MAX)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                               "the manifest would have %zu bytes, more than %d", n + 1,
                               GPUCR_MANIFEST_BYTES_MAX);
    copy = malloc(n + 2);
    if (!copy)
        return gpucr_error_no_memory(err);
    (void)memcpy(copy, text, n);
    copy[n] = '\n';
    copy[n + 1] = '\0';
    *ret = copy;
    return 0;
}

int gpucr_manifest_to_json(const struct gpucr_manifest *manifest, char **ret,
                           struct gpucr_error *err)
{
    const struct gpucr_field_place top = {0};
    AUTO_JSON struct json_object *root = json_object_new_object();
    int rc;

    if (!root)
        return gpucr_error_no_memory(err);
    rc = add_member(root, "format", json_object_new_string(GPUCR_MANIFEST_FORMAT), err);
    if (rc == 0)
        rc = add_member(root, "version", json_object_new_int(GPUCR_MANIFEST_VERSION), err);
    if (rc == 0)
        rc = add_fields(root, &gpucr_manifest_table, manifest, &top, err);
    if (rc == 0)
        rc = add_lists(root, manifest, err);
    if (rc == 0)
        rc = gpucr_manifest_check(manifest, err);
    if (rc == 0)
        rc = print_json(root, ret, err);
    return rc;
}

int gpucr_manifest_check_facts(const struct gpucr_manifest *manifest, struct gpucr_error *err)
{
    char path[] = "criu/any";
    struct gpucr_manifest_file any = {.path = path, .digest = "00000000000000000000000000000000"};
    GPUCR_AUTO_FREE struct gpucr_manifest *copy = malloc(sizeof(*copy));
    GPUCR_AUTO_FREE char *json = NULL;

    if (!copy)
        return gpucr_error_no_memory(err);
    /* A shallow copy: what it points to stays the caller's. */
    *copy = *manifest;
    copy->files = &any;
    copy->file_count = 1;
    return gpucr_manifest_to_json(copy, &json, err);
}
