/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "image/image_text.h"

#include <stdint.h>
#include <string.h>

#include "base/text.h"

/* Files of the engine; other folders belong to later versions of the format. */
static const char listed_prefix[] = "criu/";

/**
 * Length of the character at @p p, of which @p left bytes may be read, or 0 when it is
 * not allowed. The table of well-formed sequences is that of Unicode 15, section 3.9:
 * it leaves out overlong forms, surrogates and everything past U+10FFFF.
 */
static size_t character_length(const unsigned char *p, size_t left)
{
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    size_t n;

    if (p[0] < 0x80)
        return p[0] >= 0x20 && p[0] != 0x7f ? 1 : 0;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (left < n)
        return 0;
    if (p[0] == 0xc2 || p[0] == 0xe0)
        low = 0xa0; /* C2 80..9F are control characters of a terminal; E0 80..9F is overlong */
    else if (p[0] == 0xf0)
        low = 0x90;
    if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf4)
        high = 0x8f;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    return n;
}

bool gpucr_image_text_valid(const char *text, size_t size_bytes)
{
    const unsigned char *p = (const unsigned char *)text;

    while (size_bytes > 0) {
        size_t n = character_length(p, size_bytes);

        if (n == 0)
            return false;
        p += n;
        size_bytes -= n;
    }
    return true;
}

void gpucr_image_text_clean(char *text)
{
    unsigned char *p = (unsigned char *)text;
    size_t left = strlen(text);

    while (left > 0) {
        size_t n = character_length(p, left);

        if (n == 0) {
            *p = '?';
            n = 1;
        }
        p += n;
        left -= n;
    }
}

const char *gpucr_image_text_show(char *to, size_t size, const char *text)
{
    (void)gpucr_copy_text(to, size, text);
    gpucr_image_text_clean(to);
    return to;
}

const char *gpucr_image_path_fault(const char *path)
{
    size_t depth = 0;
    const char *p = path;

    if (strnlen(path, GPUCR_IMAGE_PATH_BYTES) == GPUCR_IMAGE_PATH_BYTES)
        return "is too long";
    if (!gpucr_image_text_valid(path, strlen(path)))
        return "is not UTF-8 text without control characters";
    if (path[0] == '/')
        return "is absolute";
    for (;;) {
        size_t n = strcspn(p, "/");

        if (n == 0)
            return "has an empty component";
        if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return "has a component . or ..";
        if (n > GPUCR_IMAGE_NAME_MAX)
            return "has a component longer than 255 bytes";
        if (++depth > GPUCR_IMAGE_DEPTH_MAX)
            return "has more than 8 components";
        if (p[n] == '\0')
            break;
        p += n + 1;
    }
    return gpucr_starts_with(path, listed_prefix) ? NULL : "is not below criu/";
}
