/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The bytes are a manifest. Whatever is accepted is written and read again: the second
 * text must be the first one. Whatever is refused must be refused as a matter of format.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void must(int condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_manifest first = {0};
    struct gpucr_manifest second = {0};
    char *first_json = NULL;
    char *second_json = NULL;
    int rc = gpucr_manifest_from_json((const char *)data, size_bytes, &first, &err);

    if (rc < 0) {
        must(rc == GPUCR_ERR_IMAGE_FORMAT && err.code == rc && err.text[0]);
        return 0;
    }
    must(gpucr_manifest_to_json(&first, &first_json, &err) == 0);
    must(gpucr_manifest_from_json(first_json, strlen(first_json), &second, &err) == 0);
    must(gpucr_manifest_to_json(&second, &second_json, &err) == 0);
    must(strcmp(first_json, second_json) == 0);
    free(first_json);
    free(second_json);
    gpucr_manifest_done(&first);
    gpucr_manifest_done(&second);
    return 0;
}
