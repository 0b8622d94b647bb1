/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <libsmartcols.h>

#include "cli.h"
#include "out.h"

struct cli_table {
    struct libscols_table *table;
};

void cli_table_free(struct cli_table *table)
{
    if (!table)
        return;
    scols_unref_table(table->table);
    free(table);
}

void cli_table_cleanup(struct cli_table **table)
{
    cli_table_free(*table);
}

struct cli_table *cli_table_new(const struct cli_column *columns, size_t count)
{
    static const int flags[] = {
        [CLI_COLUMN_TEXT] = 0,
        [CLI_COLUMN_NUMBER] = SCOLS_FL_RIGHT,
        [CLI_COLUMN_NAME] = SCOLS_FL_TRUNC,
        [CLI_COLUMN_TREE] = SCOLS_FL_TREE,
    };
    struct cli_table *table = calloc(1, sizeof(*table));

    if (!table || !(table->table = scols_new_table()))
        cli_out_of_memory();
    for (size_t i = 0; i < count; i++) {
        if (!scols_table_new_column(table->table, columns[i].name, 0, flags[columns[i].kind]))
            cli_out_of_memory();
    }
    return table;
}

struct libscols_line *cli_table_row(struct cli_table *table, struct libscols_line *parent)
{
    struct libscols_line *row = scols_table_new_line(table->table, parent);

    if (!row)
        cli_out_of_memory();
    return row;
}

void cli_table_cell(struct libscols_line *row, size_t column, const char *text)
{
    char clean[GPUCR_ERROR_TEXT_BYTES];

    (void)cli_clean_text(clean, sizeof(clean), text, true);
    if (scols_line_set_data(row, column, clean) != 0)
        cli_out_of_memory();
}

void cli_table_print(struct cli_table *table, FILE *out)
{
    (void)scols_table_set_stream(table->table, out);
    if (scols_print_table(table->table) != 0)
        cli_out_of_memory();
}

static void add_phase(struct cli_table *table, const char *name, uint64_t bytes, uint64_t ns)
{
    struct libscols_line *row = cli_table_row(table, NULL);
    char size[CLI_TEXT_BYTES], seconds[CLI_TEXT_BYTES], rate[CLI_TEXT_BYTES] = "-";

    (void)snprintf(seconds, sizeof(seconds), "%.3f", (double)ns / 1e9);
    if (bytes && ns) /* bytes in a nanosecond are gigabytes in a second */
        (void)snprintf(rate, sizeof(rate), "%.2f", (double)bytes / (double)ns);
    cli_table_cell(row, 0, name);
    cli_table_cell(row, 1, bytes ? cli_format_bytes(size, bytes) : "-");
    cli_table_cell(row, 2, seconds);
    cli_table_cell(row, 3, rate);
}

void cli_phases_print(FILE *out, const struct gpucr_phase *phases, size_t count, uint64_t total_ns)
{
    static const struct cli_column columns[] = {
        {"PHASE", CLI_COLUMN_TEXT},
        {"BYTES", CLI_COLUMN_NUMBER},
        {"SECONDS", CLI_COLUMN_NUMBER},
        {"GB/S", CLI_COLUMN_NUMBER},
    };
    CLI_AUTO_TABLE struct cli_table *table = cli_table_new(columns, CLI_ARRAY_SIZE(columns));

    if (count == 0)
        return;
    for (size_t i = 0; i < count; i++)
        add_phase(table, phases[i].name, phases[i].bytes, phases[i].ns);
    add_phase(table, "total", 0, total_ns);
    cli_table_print(table, out);
}
