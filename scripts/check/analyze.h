/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file analyze.h
 * What the static analysers are told and no compiler ever sees: scripts/check/analyze
 * includes it in front of every file but those that define these functions.
 *
 * An analyser looks into one file at a time. It cannot know that an error code is
 * negative, so that it follows paths on which a failure counts as success and the
 * out-parameters are rubbish; nor that a fact is added without changing the code.
 */
#ifndef GPUCR_ANALYZE_H
#define GPUCR_ANALYZE_H

/* No functions: the analysers do not look into a call at every depth. */
#define GPUCR_ANALYZE_FAILS(call)                                                                  \
    ({                                                                                             \
        const int code_ = (call);                                                                  \
        if (code_ >= 0)                                                                            \
            __builtin_unreachable();                                                               \
        code_;                                                                                     \
    })

#define GPUCR_ANALYZE_SAME(code, call)                                                             \
    ({                                                                                             \
        const int code_ = (code);                                                                  \
        (void)(call);                                                                              \
        code_;                                                                                     \
    })

#ifdef GPUCR_ANALYZE_CLI
#include "cli.h"
#define cli_error_set(...) GPUCR_ANALYZE_FAILS(cli_error_set(__VA_ARGS__))
#else
#include "base/err.h"
#define gpucr_error_set(...)          GPUCR_ANALYZE_FAILS(gpucr_error_set(__VA_ARGS__))
#define gpucr_error_errno(...)        GPUCR_ANALYZE_FAILS(gpucr_error_errno(__VA_ARGS__))
#define gpucr_error_wrap(...)         GPUCR_ANALYZE_FAILS(gpucr_error_wrap(__VA_ARGS__))
#define gpucr_error_no_memory(err)    GPUCR_ANALYZE_FAILS(gpucr_error_no_memory(err))
#define gpucr_error_pid(e, code, v)   GPUCR_ANALYZE_SAME(code, gpucr_error_pid(e, code_, v))
#define gpucr_error_path(e, code, v)  GPUCR_ANALYZE_SAME(code, gpucr_error_path(e, code_, v))
#define gpucr_error_stage(e, code, v) GPUCR_ANALYZE_SAME(code, gpucr_error_stage(e, code_, v))
#endif

#endif
