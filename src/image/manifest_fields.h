/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file manifest_fields.h
 * The fields of the manifest's objects as tables, which writer, reader and checks
 * share, so that none of them can forget a field or have another limit.
 */
#ifndef GPUCR_IMAGE_MANIFEST_FIELDS_H
#define GPUCR_IMAGE_MANIFEST_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "image/manifest.h"

enum gpucr_field_kind {
    GPUCR_FIELD_TEXT,     /* char[size_bytes] */
    GPUCR_FIELD_TEXT_PTR, /* char *, owned */
    GPUCR_FIELD_NUMBER,   /* int32_t, uint32_t or uint64_t, by size_bytes; never negative */
    GPUCR_FIELD_BOOL,
};

struct gpucr_field {
    const char *name;
    enum gpucr_field_kind kind;
    bool display; /* only shown to people: the writer may clean it */
    size_t offset;
    size_t size_bytes;
    uint64_t min; /* value of a number, length of a text */
    uint64_t max;
};

struct gpucr_field_table {
    const struct gpucr_field *fields;
    size_t count;
};

#define GPUCR_MANIFEST_FORMAT "gpucr-image"

extern const struct gpucr_field_table gpucr_manifest_table;
extern const struct gpucr_field_table gpucr_manifest_gpu_table;
extern const struct gpucr_field_table gpucr_manifest_process_table;
extern const struct gpucr_field_table gpucr_manifest_option_table;
extern const struct gpucr_field_table gpucr_manifest_phase_table;
extern const struct gpucr_field_table gpucr_manifest_file_table;

/** Place of an object in the manifest, for messages: "processes[3]". */
struct gpucr_field_place {
    const char *array; /* NULL: the manifest itself */
    size_t index;
};

enum { GPUCR_PLACE_BYTES = 96 };

/** "processes[3].pid", or "pid" in the manifest itself. Returns @p to. */
const char *gpucr_field_place_text(char to[GPUCR_PLACE_BYTES],
                                   const struct gpucr_field_place *place, const char *field);

/** The value of a number field; negative ones come out larger than every limit. */
uint64_t gpucr_field_load(const struct gpucr_field *field, const void *object);

/** Store a value that was checked. */
void gpucr_field_store(const struct gpucr_field *field, void *object, uint64_t value);

/** Is the number within the limits of the field? */
int gpucr_field_check_number(const struct gpucr_field *field, uint64_t value,
                             const struct gpucr_field_place *place, struct gpucr_error *err);

/** Has the text an allowed length and only allowed characters? */
int gpucr_field_check_text(const struct gpucr_field *field, const char *text, size_t size_bytes,
                           const struct gpucr_field_place *place, struct gpucr_error *err);

/**
 * What the fields have to say about each other (pids, parents, GPUs, paths) and the
 * forms of texts. Part of reading and, lest an unreadable image be made, of writing.
 */
int gpucr_manifest_check(const struct gpucr_manifest *manifest, struct gpucr_error *err);

#endif
