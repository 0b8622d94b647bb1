/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "image/manifest_fields.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "image/image_text.h"

#define PID_LIMIT   GPUCR_MANIFEST_PID_MAX
#define ID_LIMIT    (UINT32_MAX - 1) /* the last one means "no change" to the kernel */
#define STATE_LIMIT 2

#define MEMBER_SIZE(type, member) sizeof(((type *)NULL)->member)

#define TEXT(type, member, json, least, shown)                                                     \
    {                                                                                              \
        .name = (json), .kind = GPUCR_FIELD_TEXT, .display = (shown),                              \
        .offset = offsetof(type, member), .size_bytes = MEMBER_SIZE(type, member), .min = (least), \
        .max = MEMBER_SIZE(type, member) - 1                                                       \
    }
#define NUMBER(type, member, least, most)                                                          \
    {                                                                                              \
        .name = #member, .kind = GPUCR_FIELD_NUMBER, .offset = offsetof(type, member),             \
        .size_bytes = MEMBER_SIZE(type, member), .min = (least), .max = (most)                     \
    }
#define BOOLEAN(type, member)                                                                      \
    {                                                                                              \
        .name = #member, .kind = GPUCR_FIELD_BOOL, .offset = offsetof(type, member)                \
    }
#define TABLE(name)                                                                                \
    {                                                                                              \
        .fields = (name), .count = GPUCR_ARRAY_SIZE(name)                                          \
    }

static const struct gpucr_field manifest_fields[] = {
    TEXT(struct gpucr_manifest, gpucr_version, "gpucr_version", 1, true),
    TEXT(struct gpucr_manifest, created, "created", 0, false),
    TEXT(struct gpucr_manifest, host, "host", 0, true),
    TEXT(struct gpucr_manifest, kernel, "kernel", 0, true),
    TEXT(struct gpucr_manifest, boot_id, "boot_id", 0, false),
    TEXT(struct gpucr_manifest, engine, "engine", 1, false),
    NUMBER(struct gpucr_manifest, engine_version, 0, INT32_MAX),
    TEXT(struct gpucr_manifest, driver_name, "driver", 0, true),
    NUMBER(struct gpucr_manifest, cuda_version, 0, INT32_MAX),
    NUMBER(struct gpucr_manifest, root_pid, 1, PID_LIMIT),
};

static const struct gpucr_field gpu_fields[] = {
    NUMBER(struct gpucr_manifest_gpu, index, 0, UINT32_MAX),
    TEXT(struct gpucr_manifest_gpu, uuid, "uuid", 1, false),
    TEXT(struct gpucr_manifest_gpu, name, "name", 0, true),
    NUMBER(struct gpucr_manifest_gpu, memory_bytes, 0, INT64_MAX),
};

static const struct gpucr_field process_fields[] = {
    NUMBER(struct gpucr_manifest_process, pid, 1, PID_LIMIT),
    NUMBER(struct gpucr_manifest_process, ns_pid, 1, PID_LIMIT),
    NUMBER(struct gpucr_manifest_process, parent_pid, 0, PID_LIMIT),
    NUMBER(struct gpucr_manifest_process, group, 0, PID_LIMIT),
    NUMBER(struct gpucr_manifest_process, session, 0, PID_LIMIT),
    NUMBER(struct gpucr_manifest_process, start_ticks, 0, INT64_MAX),
    NUMBER(struct gpucr_manifest_process, uid, 0, ID_LIMIT),
    NUMBER(struct gpucr_manifest_process, gid, 0, ID_LIMIT),
    TEXT(struct gpucr_manifest_process, name, "name", 0, true),
    BOOLEAN(struct gpucr_manifest_process, was_stopped),
    BOOLEAN(struct gpucr_manifest_process, is_cuda),
    NUMBER(struct gpucr_manifest_process, cuda_state, 0, STATE_LIMIT),
    NUMBER(struct gpucr_manifest_process, device_bytes, 0, INT64_MAX),
    NUMBER(struct gpucr_manifest_process, host_bytes, 0, INT64_MAX),
};

static const struct gpucr_field option_fields[] = {
    TEXT(struct gpucr_manifest_option, name, "name", 1, false),
    TEXT(struct gpucr_manifest_option, value, "value", 0, false),
};

static const struct gpucr_field phase_fields[] = {
    TEXT(struct gpucr_manifest_phase, name, "name", 1, true),
    NUMBER(struct gpucr_manifest_phase, bytes, 0, INT64_MAX),
    NUMBER(struct gpucr_manifest_phase, ns, 0, INT64_MAX),
};

static const struct gpucr_field file_fields[] = {
    {.name = "path",
     .kind = GPUCR_FIELD_TEXT_PTR,
     .offset = offsetof(struct gpucr_manifest_file, path),
     .min = 1,
     .max = GPUCR_IMAGE_PATH_BYTES - 1},
    NUMBER(struct gpucr_manifest_file, size_bytes, 0, INT64_MAX),
    TEXT(struct gpucr_manifest_file, digest, "digest", 0, false),
};

const struct gpucr_field_table gpucr_manifest_table = TABLE(manifest_fields);
const struct gpucr_field_table gpucr_manifest_gpu_table = TABLE(gpu_fields);
const struct gpucr_field_table gpucr_manifest_process_table = TABLE(process_fields);
const struct gpucr_field_table gpucr_manifest_option_table = TABLE(option_fields);
const struct gpucr_field_table gpucr_manifest_phase_table = TABLE(phase_fields);
const struct gpucr_field_table gpucr_manifest_file_table = TABLE(file_fields);

const char *gpucr_field_place_text(char to[GPUCR_PLACE_BYTES],
                                   const struct gpucr_field_place *place, const char *field)
{
    if (place->array)
        (void)snprintf(to, GPUCR_PLACE_BYTES, "%s[%zu]%s%s", place->array, place->index,
                       field[0] ? "." : "", field);
    else
        (void)snprintf(to, GPUCR_PLACE_BYTES, "%s", field[0] ? field : "the manifest");
    return to;
}

uint64_t gpucr_field_load(const struct gpucr_field *field, const void *object)
{
    const char *at = (const char *)object + field->offset;

    /* An int32_t is read as such, so that a negative one exceeds every limit of 64 bits;
     * it has the limit INT32_MAX at most, which tells it from a uint32_t. */
    if (field->size_bytes == sizeof(uint64_t))
        return *(const uint64_t *)(const void *)at;
    if (field->max <= INT32_MAX)
        return (uint64_t)(int64_t) * (const int32_t *)(const void *)at;
    return *(const uint32_t *)(const void *)at;
}

void gpucr_field_store(const struct gpucr_field *field, void *object, uint64_t value)
{
    char *at = (char *)object + field->offset;

    if (field->size_bytes == sizeof(uint64_t))
        *(uint64_t *)(void *)at = value;
    else
        *(uint32_t *)(void *)at = (uint32_t)value;
}

int gpucr_field_check_number(const struct gpucr_field *field, uint64_t value,
                             const struct gpucr_field_place *place, struct gpucr_error *err)
{
    char where[GPUCR_PLACE_BYTES];

    if (value >= field->min && value <= field->max)
        return 0;
    return gpucr_error_set(
        err, GPUCR_ERR_IMAGE_FORMAT, "%s is out of range: allowed are %" PRIu64 " to %" PRIu64,
        gpucr_field_place_text(where, place, field->name), field->min, field->max);
}

int gpucr_field_check_text(const struct gpucr_field *field, const char *text, size_t size_bytes,
                           const struct gpucr_field_place *place, struct gpucr_error *err)
{
    char where[GPUCR_PLACE_BYTES];

    if (size_bytes < field->min || size_bytes > field->max)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                               "%s has %zu bytes: allowed are %" PRIu64 " to %" PRIu64 " bytes",
                               gpucr_field_place_text(where, place, field->name), size_bytes,
                               field->min, field->max);
    if (!gpucr_image_text_valid(text, size_bytes))
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                               "%s is not UTF-8 text without control characters",
                               gpucr_field_place_text(where, place, field->name));
    return 0;
}
