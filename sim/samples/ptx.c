/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "ptx.h"

#define PTX_GLOBAL_INDEX                                                                           \
    "    mov.u32 %r1, %ctaid.x;\n"                                                                 \
    "    mov.u32 %r2, %ntid.x;\n"                                                                  \
    "    mov.u32 %r3, %tid.x;\n"                                                                   \
    "    mov.u32 %r4, %nctaid.x;\n"                                                                \
    "    mul.wide.u32 %rd4, %r1, %r2;\n"                                                           \
    "    cvt.u64.u32 %rd5, %r3;\n"                                                                 \
    "    add.u64 %rd4, %rd4, %rd5;\n"                                                              \
    "    mul.wide.u32 %rd6, %r4, %r2;\n"                                                           \
    "    mov.u64 %rd10, 0x9e3779b97f4a7c15;\n"                                                     \
    "    mov.u64 %rd11, 0xbf58476d1ce4e5b9;\n"

/* rd7 = pattern(seed rd3 + index rd4), rd9 = address of the word */
#define PTX_PATTERN_WORD                                                                           \
    "    add.u64 %rd7, %rd3, %rd4;\n"                                                              \
    "    mul.lo.u64 %rd7, %rd7, %rd10;\n"                                                          \
    "    shr.u64 %rd8, %rd7, 29;\n"                                                                \
    "    xor.b64 %rd7, %rd7, %rd8;\n"                                                              \
    "    mul.lo.u64 %rd7, %rd7, %rd11;\n"                                                          \
    "    shr.u64 %rd8, %rd7, 32;\n"                                                                \
    "    xor.b64 %rd7, %rd7, %rd8;\n"                                                              \
    "    shl.b64 %rd9, %rd4, 3;\n"                                                                 \
    "    add.u64 %rd9, %rd1, %rd9;\n"

#define PTX_REGISTERS                                                                              \
    "    .reg .pred %p<4>;\n"                                                                      \
    "    .reg .b32 %r<8>;\n"                                                                       \
    "    .reg .b64 %rd<16>;\n"

const char sample_ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    "\n"
    ".visible .entry gpucr_fill(\n"
    "    .param .u64 fill_words, .param .u64 fill_count, .param .u64 fill_seed)\n"
    "{\n" PTX_REGISTERS "    ld.param.u64 %rd1, [fill_words];\n"
    "    ld.param.u64 %rd2, [fill_count];\n"
    "    ld.param.u64 %rd3, [fill_seed];\n"
    "    cvta.to.global.u64 %rd1, %rd1;\n" PTX_GLOBAL_INDEX "fill_loop:\n"
    "    setp.ge.u64 %p1, %rd4, %rd2;\n"
    "    @%p1 bra fill_done;\n" PTX_PATTERN_WORD "    st.global.u64 [%rd9], %rd7;\n"
    "    add.u64 %rd4, %rd4, %rd6;\n"
    "    bra fill_loop;\n"
    "fill_done:\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry gpucr_check(\n"
    "    .param .u64 check_words, .param .u64 check_count, .param .u64 check_seed,\n"
    "    .param .u64 check_bad)\n"
    "{\n" PTX_REGISTERS "    ld.param.u64 %rd1, [check_words];\n"
    "    ld.param.u64 %rd2, [check_count];\n"
    "    ld.param.u64 %rd3, [check_seed];\n"
    "    ld.param.u64 %rd12, [check_bad];\n"
    "    cvta.to.global.u64 %rd1, %rd1;\n"
    "    cvta.to.global.u64 %rd12, %rd12;\n"
    "    mov.u64 %rd13, 0;\n" PTX_GLOBAL_INDEX "check_loop:\n"
    "    setp.ge.u64 %p1, %rd4, %rd2;\n"
    "    @%p1 bra check_done;\n" PTX_PATTERN_WORD "    ld.global.u64 %rd14, [%rd9];\n"
    "    setp.ne.u64 %p2, %rd14, %rd7;\n"
    "    selp.u64 %rd15, 1, 0, %p2;\n"
    "    add.u64 %rd13, %rd13, %rd15;\n"
    "    add.u64 %rd4, %rd4, %rd6;\n"
    "    bra check_loop;\n"
    "check_done:\n"
    "    setp.eq.u64 %p3, %rd13, 0;\n"
    "    @%p3 bra check_end;\n"
    "    red.global.add.u64 [%rd12], %rd13;\n"
    "check_end:\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry gpucr_increment(.param .u64 increment_word)\n"
    "{\n"
    "    .reg .b64 %rd<4>;\n"
    "    ld.param.u64 %rd1, [increment_word];\n"
    "    cvta.to.global.u64 %rd1, %rd1;\n"
    "    red.global.add.u64 [%rd1], 1;\n"
    "    ret;\n"
    "}\n"
    "\n"
    ".visible .entry gpucr_spin(.param .u64 spin_word, .param .u64 spin_ns)\n"
    "{\n"
    "    .reg .pred %p<2>;\n"
    "    .reg .b64 %rd<8>;\n"
    "    ld.param.u64 %rd1, [spin_word];\n"
    "    ld.param.u64 %rd2, [spin_ns];\n"
    "    cvta.to.global.u64 %rd1, %rd1;\n"
    "    mov.u64 %rd3, %globaltimer;\n"
    "    add.u64 %rd4, %rd3, %rd2;\n"
    "spin_loop:\n"
    "    mov.u64 %rd5, %globaltimer;\n"
    "    setp.lt.u64 %p1, %rd5, %rd4;\n"
    "    @%p1 bra spin_loop;\n"
    "    red.global.add.u64 [%rd1], 1;\n"
    "    ret;\n"
    "}\n";
