/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/keeper_image.h"

/* GPUCR_KEEPER_FILE is set by the build: the linked program. */
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".globl gpucr_keeper_image\n"
        ".hidden gpucr_keeper_image\n"
        "gpucr_keeper_image:\n"
        ".incbin \"" GPUCR_KEEPER_FILE "\"\n"
        ".globl gpucr_keeper_image_end\n"
        ".hidden gpucr_keeper_image_end\n"
        "gpucr_keeper_image_end:\n"
        ".byte 0\n"
        ".popsection\n");

extern const unsigned char gpucr_keeper_image_end[];

size_t gpucr_keeper_image_bytes(void)
{
    return (size_t)(gpucr_keeper_image_end - gpucr_keeper_image);
}
