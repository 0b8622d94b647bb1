/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file out.h
 * Everything that reaches a person or a script: reports, tables, progress, log.
 */
#ifndef GPUCR_CLI_OUT_H
#define GPUCR_CLI_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <gpucr/gpucr.h>

#include "opt.h"

/* --- out_text.c ----------------------------------------------------------------------------- */

enum { CLI_TEXT_BYTES = 64 };

/** "1.5 GiB", "512 B". Returns @p buffer. */
const char *cli_format_bytes(char buffer[CLI_TEXT_BYTES], uint64_t bytes);

/** "4.1.1" of 40101. Returns @p buffer. */
const char *cli_format_version(char buffer[CLI_TEXT_BYTES], int32_t version);

/** "0,1" or "-". Returns @p buffer. */
const char *cli_format_gpus(char buffer[CLI_TEXT_BYTES], const uint32_t *gpus, uint32_t count);

/**
 * Copy @p text so that it can be shown: what is not valid UTF-8 becomes '?', and
 * so do control characters where @p visible; a process chooses its own name.
 */
const char *cli_clean_text(char *buffer, size_t size, const char *text, bool visible);

/** Print @p text in lines of at most @p width columns, all but the first indented. */
void cli_wrap_text(FILE *out, unsigned indent, unsigned width, const char *text);

/** Report of an operation, check and list included. */
void cli_text_report(const struct cli_options *options, const struct gpucr_result *result,
                     const struct gpucr_machine *machine);

/** One error: what failed, then the numbers that belong to it. */
void cli_text_error(FILE *out, const char *what, const struct gpucr_error *err);

/* --- out_machine.c -------------------------------------------------------------------------- */

void cli_text_machine(FILE *out, const struct gpucr_machine *machine);

/* --- out_json.c ----------------------------------------------------------------------------- */

/** The document of `--json` as text; free() it. Never NULL. */
char *cli_json_report(const struct cli_options *options, const struct gpucr_result *result,
                      const struct gpucr_machine *machine, int exit_status);

/* --- out_image.c ---------------------------------------------------------------------------- */

/** Human view of a manifest. @p image_bytes is the size of all files. */
int cli_image_report(FILE *out, const char *manifest_json, uint64_t image_bytes,
                     struct gpucr_error *err);

/* --- out_table.c: libsmartcols -------------------------------------------------------------- */

struct cli_table;
struct libscols_line;

struct cli_column {
    const char *name;
    enum { CLI_COLUMN_TEXT, CLI_COLUMN_NUMBER, CLI_COLUMN_NAME, CLI_COLUMN_TREE } kind;
};

struct cli_table *cli_table_new(const struct cli_column *columns, size_t count);

/** NULL is fine. */
void cli_table_free(struct cli_table *table);

/** A row below @p parent in a tree; NULL: at the top. */
struct libscols_line *cli_table_row(struct cli_table *table, struct libscols_line *parent);
void cli_table_cell(struct libscols_line *row, size_t column, const char *text);
void cli_table_print(struct cli_table *table, FILE *out);

void cli_table_cleanup(struct cli_table **table);
#define CLI_AUTO_TABLE __attribute__((cleanup(cli_table_cleanup)))

/** The table of phases, with a line for the total. */
void cli_phases_print(FILE *out, const struct gpucr_phase *phases, size_t count, uint64_t total_ns);

/* --- progress.c ----------------------------------------------------------------------------- */

/** Show progress from now on, where stderr is a terminal and nobody asked for quiet. */
void cli_progress_start(bool quiet);
void cli_progress_stop(void);

/** gpucr_progress_fn; also remembers the phase for cli_progress_phase(). */
void cli_progress_update(void *arg, const char *phase, uint64_t done_bytes, uint64_t total_bytes);

/** gpucr_image_progress_fn. */
void cli_progress_verify(void *arg, uint64_t done_bytes, uint64_t total_bytes);

/** Run @p write with the progress line out of the way. */
void cli_progress_interrupt(void (*write)(void *arg), void *arg);

/** Name of the phase at work, or "". Async-signal-safe. */
const char *cli_progress_phase(void);

/** The line, at most @p columns wide: for progress.c and its test. */
struct cli_progress_state {
    const char *phase;
    uint64_t done_bytes;
    uint64_t total_bytes;
    uint64_t phase_ns; /**< time since the phase began */
};
void cli_progress_line(char *buffer, size_t columns, const struct cli_progress_state *line);

/* --- out_log.c ------------------------------------------------------------------------------ */

/** Note the command line for the log file, before the parser rearranges it. */
void cli_log_remember(int argc, char **argv);

/** Set the library's sink by -v, -q and --log. */
int cli_log_start(const struct cli_options *options, struct gpucr_error *err);
void cli_log_stop(int exit_status);

/* --- signals.c ------------------------------------------------------------------------------ */

/** Writing to a closed pipe is an error to report, not the end of gpucr. */
void cli_signals_init(void);

/** From now on the first INT, TERM, HUP or QUIT sets *cli_signals_cancel(). */
void cli_signals_catch(void);
const volatile int *cli_signals_cancel(void);

/** Foreground restore: signals now go to process @p pid. */
void cli_signals_forward(int32_t pid);

/** Stop forwarding. */
void cli_signals_done(void);

#endif
