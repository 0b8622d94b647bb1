/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A result as text for people. */
#include <limits.h>
#include <string.h>

#include "cli.h"
#include "out.h"

enum { TERMINAL_WIDTH = 79, FACTS_BYTES = 160 };

/* Long sentences are broken on a terminal only: a log is searched line by line. */
static void print_sentence(FILE *out, unsigned indent, const char *text)
{
    char clean[GPUCR_ERROR_TEXT_BYTES];

    (void)cli_clean_text(clean, sizeof(clean), text, true);
    cli_wrap_text(out, indent, isatty(fileno(out)) ? TERMINAL_WIDTH : UINT_MAX, clean);
}

/* Numbers to search for; the sentence already says what they mean. */
static void print_facts(FILE *out, const struct gpucr_error *err)
{
    char facts[FACTS_BYTES];
    int used = snprintf(facts, sizeof(facts), "%s", gpucr_code_name(err->code));

    if (err->stage != GPUCR_STAGE_NONE)
        used += snprintf(facts + used, sizeof(facts) - (size_t)used, ", stage %s",
                         gpucr_stage_name(err->stage));
    if (err->driver_code)
        used += snprintf(facts + used, sizeof(facts) - (size_t)used, ", CUDA error %d",
                         err->driver_code);
    if (err->os_errno)
        (void)snprintf(facts + used, sizeof(facts) - (size_t)used, ", errno %d", err->os_errno);
    (void)fprintf(out, "    (%s)\n", facts);
}

void cli_text_error(FILE *out, const char *what, const struct gpucr_error *err)
{
    (void)fprintf(out, "%s: ", what);
    print_sentence(out, 4, err->text);
    if (err->code != GPUCR_ERR_USAGE)
        print_facts(out, err);
}

/* --- findings ------------------------------------------------------------------------------- */

static void print_finding(FILE *out, const struct gpucr_finding *finding)
{
    static const char *const titles[] = {
        [GPUCR_SEVERITY_NOTE] = "note",
        [GPUCR_SEVERITY_WARN] = "warning",
        [GPUCR_SEVERITY_REFUSE] = "refused",
    };

    (void)fprintf(out, "%s: %s", finding->forced ? "forced" : titles[finding->severity],
                  finding->name);
    if (finding->pid)
        (void)fprintf(out, " (process %d)", finding->pid);
    (void)fprintf(out, "\n    ");
    print_sentence(out, 4, finding->text);
    if (finding->remedy[0]) {
        (void)fprintf(out, "    to do: ");
        print_sentence(out, 11, finding->remedy);
    }
    if (finding->can_force && !finding->forced)
        (void)fprintf(out, "    to go on nevertheless: --force %s\n", finding->name);
}

static void print_findings(FILE *out, const struct gpucr_result *result, enum gpucr_severity least)
{
    for (size_t i = 0; i < result->finding_count; i++) {
        if (result->findings[i].severity >= least)
            print_finding(out, &result->findings[i]);
    }
}

/* --- processes ------------------------------------------------------------------------------ */

static void print_list(FILE *out, const struct gpucr_result *result)
{
    static const struct cli_column columns[] = {
        {"PID", CLI_COLUMN_NUMBER},        {"NAME", CLI_COLUMN_NAME},
        {"STATE", CLI_COLUMN_TEXT},        {"GPU", CLI_COLUMN_TEXT},
        {"DEVICE MEM", CLI_COLUMN_NUMBER}, {"HOST MEM", CLI_COLUMN_NUMBER},
    };
    CLI_AUTO_TABLE struct cli_table *table = cli_table_new(columns, CLI_ARRAY_SIZE(columns));

    for (size_t i = 0; i < result->process_count; i++) {
        const struct gpucr_process_result *process = &result->processes[i];
        struct libscols_line *row = cli_table_row(table, NULL);
        char text[CLI_TEXT_BYTES];

        (void)snprintf(text, sizeof(text), "%d", process->pid);
        cli_table_cell(row, 0, text);
        cli_table_cell(row, 1, process->name);
        cli_table_cell(
            row, 2, process->is_cuda ? gpucr_process_state_name(process->before) : "no CUDA state");
        cli_table_cell(row, 3, cli_format_gpus(text, process->gpus, process->gpu_count));
        cli_table_cell(row, 4, cli_format_bytes(text, process->device_bytes));
        cli_table_cell(row, 5, cli_format_bytes(text, process->host_bytes));
    }
    if (result->process_count)
        cli_table_print(table, out);
    else
        (void)fprintf(out, "No process with CUDA state.\n");
}

/* "running -> suspended", or one word where nothing changed. */
static void change_cell(struct libscols_line *row, size_t column, const char *before,
                        const char *after)
{
    char text[2 * CLI_TEXT_BYTES + 8];

    if (strcmp(before, after) == 0)
        cli_table_cell(row, column, after);
    else {
        (void)snprintf(text, sizeof(text), "%s -> %s", before, after);
        cli_table_cell(row, column, text);
    }
}

static void print_changes(FILE *out, const struct gpucr_result *result)
{
    static const struct cli_column columns[] = {
        {"PID", CLI_COLUMN_NUMBER}, {"NAME", CLI_COLUMN_NAME},       {"STATE", CLI_COLUMN_TEXT},
        {"GPU", CLI_COLUMN_TEXT},   {"DEVICE MEM", CLI_COLUMN_TEXT},
    };
    CLI_AUTO_TABLE struct cli_table *table = cli_table_new(columns, CLI_ARRAY_SIZE(columns));

    if (result->process_count == 0)
        return;
    (void)fputc('\n', out);
    for (size_t i = 0; i < result->process_count; i++) {
        const struct gpucr_process_result *process = &result->processes[i];
        struct libscols_line *row = cli_table_row(table, NULL);
        char text[CLI_TEXT_BYTES], before[CLI_TEXT_BYTES], after[CLI_TEXT_BYTES];

        (void)snprintf(text, sizeof(text), "%d", process->pid);
        cli_table_cell(row, 0, text);
        cli_table_cell(row, 1, process->name);
        change_cell(row, 2, gpucr_process_state_name(process->before),
                    gpucr_process_state_name(process->after));
        cli_table_cell(row, 3, cli_format_gpus(text, process->gpus, process->gpu_count));
        if (process->is_cuda)
            change_cell(row, 4, cli_format_bytes(before, process->device_bytes),
                        cli_format_bytes(after, process->device_bytes_after));
        else
            cli_table_cell(row, 4, "no CUDA state");
    }
    cli_table_print(table, out);
}

/* Every process that failed, with its cause and what became of it. */
static void print_process_errors(FILE *out, const struct gpucr_result *result)
{
    for (size_t i = 0; i < result->process_count; i++) {
        const struct gpucr_process_result *process = &result->processes[i];
        char name[GPUCR_NAME_BYTES], what[GPUCR_NAME_BYTES + 64];

        if (process->error.code == 0)
            continue;
        (void)cli_clean_text(name, sizeof(name), process->name, true);
        (void)snprintf(what, sizeof(what), "process %d (%s), now %s", process->pid, name,
                       gpucr_process_state_name(process->after));
        cli_text_error(out, what, &process->error);
    }
}

static void print_log_lines(FILE *out, const struct gpucr_result *result)
{
    char clean[GPUCR_LOG_LINE_BYTES];

    if (result->log_line_count)
        (void)fprintf(out, "From the log of the engine (first cause marked):\n");
    for (size_t i = 0; i < result->log_line_count; i++) {
        const struct gpucr_log_line *line = &result->log_lines[i];

        (void)fprintf(out, "  %c %s\n", line->is_cause ? '>' : ' ',
                      cli_clean_text(clean, sizeof(clean), line->text, true));
    }
}

/* --- whole reports -------------------------------------------------------------------------- */

struct totals {
    size_t cuda;
    uint64_t before_bytes;
    uint64_t after_bytes;
};

static struct totals sum_up(const struct gpucr_result *result)
{
    struct totals totals = {0};

    for (size_t i = 0; i < result->process_count; i++) {
        totals.cuda += result->processes[i].is_cuda;
        totals.before_bytes += result->processes[i].device_bytes;
        totals.after_bytes += result->processes[i].device_bytes_after;
    }
    return totals;
}

static void print_image_headline(FILE *out, const struct cli_options *options,
                                 const struct gpucr_result *result)
{
    char size[CLI_TEXT_BYTES], path[GPUCR_ERROR_TEXT_BYTES];
    unsigned verb = cli_verb_id(options->verb);
    const char *many = result->process_count == 1 ? "" : "es";

    (void)cli_format_bytes(size, result->image_bytes);
    (void)cli_clean_text(path, sizeof(path), options->job.image_dir, true);
    if (verb == CLI_CHECKPOINT)
        (void)fprintf(out, "Checkpointed %zu process%s to %s (%s); %s.\n", result->process_count,
                      many, path, size,
                      options->job.leave_running ? "the program goes on" : "the program is gone");
    else if (verb == CLI_RESTORE)
        (void)fprintf(out, "Restored %zu process%s from %s (%s); process %d is the root.\n",
                      result->process_count, many, path, size, result->root_pid);
    else
        (void)fprintf(out, "%s is complete and undamaged (%s).\n", path, size);
}

static void print_headline(FILE *out, const struct cli_options *options,
                           const struct gpucr_result *result)
{
    struct totals totals = sum_up(result);
    unsigned verb = cli_verb_id(options->verb);
    const char *many = result->process_count == 1 ? "" : "es";
    char size[CLI_TEXT_BYTES];

    if (verb == CLI_SUSPEND)
        (void)fprintf(out, "Suspended %zu process%s; %s of device memory became free.\n",
                      result->process_count, many,
                      cli_format_bytes(size, totals.before_bytes > totals.after_bytes
                                                 ? totals.before_bytes - totals.after_bytes
                                                 : 0));
    else if (verb == CLI_RESUME)
        (void)fprintf(out, "Resumed %zu process%s; %s of device memory are in use again.\n",
                      result->process_count, many, cli_format_bytes(size, totals.after_bytes));
    else
        print_image_headline(out, options, result);
    if (result->process_count && totals.cuda == 0)
        (void)fprintf(out, "No process of the tree has CUDA state: it was handled as an "
                           "ordinary program.\n");
}

static void print_done(const struct cli_options *options, const struct gpucr_result *result)
{
    /* in the foreground standard output was the program's */
    FILE *out = options->job.foreground ? stderr : stdout;

    if (!options->quiet)
        print_findings(stderr, result, GPUCR_SEVERITY_WARN);
    if (options->quiet || (options->job.foreground && !options->verbosity))
        return;
    print_headline(out, options, result);
    print_changes(out, result);
    if (result->phase_count)
        (void)fputc('\n', out);
    cli_phases_print(out, result->phases, result->phase_count, result->total_ns);
}

static void print_failed(const struct cli_options *options, const struct gpucr_result *result)
{
    static const char *const endings[] = {
        [GPUCR_OUTCOME_DONE] = "was done, but gpucr failed",
        [GPUCR_OUTCOME_REFUSED] = "was refused and nothing was changed",
        [GPUCR_OUTCOME_ROLLED_BACK] = "failed and everything is as it was before",
        [GPUCR_OUTCOME_NOT_ROLLED_BACK] = "failed and something is not as it was before",
    };
    char what[160];

    (void)snprintf(what, sizeof(what), "gpucr: %s %s", options->verb->name,
                   endings[result->outcome]);
    cli_text_error(stderr, what, &result->error);
    print_process_errors(stderr, result);
    print_findings(stderr, result, options->quiet ? GPUCR_SEVERITY_REFUSE : GPUCR_SEVERITY_WARN);
    print_log_lines(stderr, result);
    if (options->quiet || result->outcome == GPUCR_OUTCOME_REFUSED)
        return;
    print_changes(stderr, result);
    if (result->phase_count)
        (void)fputc('\n', stderr);
    cli_phases_print(stderr, result->phases, result->phase_count, result->total_ns);
}

static void print_check(const struct cli_options *options, const struct gpucr_result *result,
                        const struct gpucr_machine *machine)
{
    const char *subject = options->job.pid ? "This process tree" : "This machine";
    size_t refusals = 0;

    if (machine)
        cli_text_machine(stdout, machine);
    if (options->job.pid)
        print_list(stdout, result);
    print_findings(stdout, result, GPUCR_SEVERITY_NOTE);
    for (size_t i = 0; i < result->finding_count; i++)
        refusals +=
            result->findings[i].severity == GPUCR_SEVERITY_REFUSE && !result->findings[i].forced;
    if (refusals)
        (void)fprintf(stdout, "%s is not fit: %zu finding%s refuse%s.\n", subject, refusals,
                      refusals == 1 ? "" : "s", refusals == 1 ? "s" : "");
    else
        (void)fprintf(stdout, "%s is fit.\n", subject);
}

void cli_text_report(const struct cli_options *options, const struct gpucr_result *result,
                     const struct gpucr_machine *machine)
{
    unsigned verb = cli_verb_id(options->verb);

    if (verb == CLI_CHECK && (result->error.code == 0 || result->finding_count))
        print_check(options, result, machine);
    else if (result->error.code || result->outcome != GPUCR_OUTCOME_DONE)
        print_failed(options, result);
    else if (verb == CLI_LIST)
        print_list(stdout, result);
    else
        print_done(options, result);
}
