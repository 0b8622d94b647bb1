/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "image/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "image/image_text.h"

void gpucr_manifest_done(struct gpucr_manifest *manifest)
{
    if (!manifest)
        return;
    for (size_t i = 0; i < manifest->process_count; i++)
        free(manifest->processes[i].threads);
    free(manifest->processes);
    gpucr_manifest_files_free(manifest->files, manifest->file_count);
    *manifest = (struct gpucr_manifest){0};
}

void gpucr_manifest_files_free(struct gpucr_manifest_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(files[i].path);
    free(files);
}

const char *gpucr_manifest_option(const struct gpucr_manifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->option_count; i++) {
        if (strcmp(manifest->options[i].name, name) == 0)
            return manifest->options[i].value;
    }
    return NULL;
}

int gpucr_manifest_add_option(struct gpucr_manifest *manifest, const char *name, const char *value,
                              struct gpucr_error *err)
{
    struct gpucr_manifest_option option = {0};
    char shown[GPUCR_MANIFEST_TEXT_BYTES];

    if (manifest->option_count >= GPUCR_MANIFEST_OPTIONS_MAX)
        return gpucr_error_set(err, GPUCR_ERR_USAGE,
                               "an image can record %d options of the engine, no more",
                               GPUCR_MANIFEST_OPTIONS_MAX);
    if (name[0] == '\0' || !gpucr_copy_text(option.name, sizeof(option.name), name) ||
        !gpucr_image_text_valid(name, strlen(name)))
        return gpucr_error_set(err, GPUCR_ERR_USAGE,
                               "the name of the option \"%s\" is empty, longer than %zu bytes or "
                               "not plain text",
                               gpucr_image_text_show(shown, sizeof(shown), name),
                               sizeof(option.name) - 1);
    if (!gpucr_copy_text(option.value, sizeof(option.value), value) ||
        !gpucr_image_text_valid(value, strlen(value)))
        return gpucr_error_set(err, GPUCR_ERR_USAGE,
                               "the value of the option \"%s\" is longer than %zu bytes or not "
                               "plain text",
                               name, sizeof(option.value) - 1);
    manifest->options[manifest->option_count++] = option;
    return 0;
}
