/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "job/engine_use.h"

enum { DEFAULT_IDLE_MS = 120000 };

struct gpucr_engine_options gpucr_engine_options_of(const struct gpucr_job_options *o)
{
    return (struct gpucr_engine_options){
        .shell_job = o->shell_job,
        .tcp_established = o->tcp_established,
        .file_locks = o->file_locks,
        .link_remap = o->link_remap,
        .ext_unix_sk = o->ext_unix_sk,
        .ghost_limit_bytes = o->ghost_limit_bytes,
        .extra = o->criu_options,
        .extra_count = o->criu_option_count,
        .idle_timeout_ms = o->engine_timeout_ms ? o->engine_timeout_ms : DEFAULT_IDLE_MS,
    };
}

static bool is_set(const struct gpucr_manifest *manifest, const char *name)
{
    return gpucr_manifest_option(manifest, name) != NULL;
}

void gpucr_restore_options(const struct gpucr_manifest *manifest,
                           struct gpucr_engine_options *options)
{
    options->shell_job |= is_set(manifest, "shell-job");
    options->tcp_established |= is_set(manifest, "tcp-established");
    options->file_locks |= is_set(manifest, "file-locks");
    options->link_remap |= is_set(manifest, "link-remap");
    options->ext_unix_sk |= is_set(manifest, "ext-unix-sk");
}

void gpucr_engine_log_to_result(const struct gpucr_engine_log *log, struct gpucr_result *result)
{
    for (size_t i = 0; i < log->count && result->log_line_count < GPUCR_LOG_LINES_MAX; i++)
        result->log_lines[result->log_line_count++] = log->lines[i];
}
