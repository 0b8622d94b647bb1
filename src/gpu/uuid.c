/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "gpu/driver.h"

static const char prefix[] = "GPU-";

/* A hyphen stands before these bytes. */
static bool is_group_start(size_t byte)
{
    return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

bool gpucr_uuid_parse(const char *text, struct gpucr_uuid *ret)
{
    struct gpucr_uuid uuid;

    if (!gpucr_starts_with(text, prefix))
        return false;
    text += strlen(prefix);
    for (size_t i = 0; i < sizeof(uuid.bytes); i++) {
        char digits[3] = "";
        uint64_t value;

        if (is_group_start(i) && *text++ != '-')
            return false;
        if (text[0] == '\0' || text[1] == '\0')
            return false;
        (void)memcpy(digits, text, 2);
        if (!gpucr_parse_u64(digits, 16, &value))
            return false;
        uuid.bytes[i] = (unsigned char)value;
        text += 2;
    }
    if (*text != '\0')
        return false;
    *ret = uuid;
    return true;
}

void gpucr_uuid_format(const struct gpucr_uuid *uuid, char ret[GPUCR_UUID_BYTES])
{
    size_t used = (size_t)snprintf(ret, GPUCR_UUID_BYTES, "%s", prefix);

    for (size_t i = 0; i < sizeof(uuid->bytes); i++)
        used += (size_t)snprintf(ret + used, GPUCR_UUID_BYTES - used, "%s%02x",
                                 is_group_start(i) ? "-" : "", uuid->bytes[i]);
}
