/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>

#include "cli.h"
#include "out.h"

enum { HELP_WIDTH = 79, NAME_COLUMN = 2, TEXT_COLUMN = 29, STATUS_COLUMN = 8 };

/* "  NAME", then the text from its column on, on the next line if NAME is long. */
static void print_entry(FILE *out, const char *name, unsigned column, const char *text)
{
    int used = fprintf(out, "%*s%s", NAME_COLUMN, "", name);

    if (used >= (int)column) {
        (void)fputc('\n', out);
        used = 0;
    }
    (void)fprintf(out, "%*s", (int)column - used, "");
    cli_wrap_text(out, column, HELP_WIDTH, text);
}

static void print_option(FILE *out, const struct cli_option *option)
{
    char name[96], text[512];
    char letter[8] = "    ";

    if (option->short_name)
        (void)snprintf(letter, sizeof(letter), "-%c, ", option->short_name);
    (void)snprintf(name, sizeof(name), "%s--%s%s%s", letter, option->name,
                   option->argument ? " " : "", option->argument ? option->argument : "");
    (void)snprintf(text, sizeof(text), "%s%s%s", option->help,
                   option->variable ? "; environment: " : "",
                   option->variable ? option->variable : "");
    print_entry(out, name, TEXT_COLUMN, text);
}

static void print_options(FILE *out, const struct cli_verb *verb)
{
    for (int group = 0; group < CLI_GROUP_COUNT; group++) {
        bool titled = false;

        for (size_t i = 0; i < cli_option_count; i++) {
            const struct cli_option *option = &cli_option_table[i];

            if ((int)option->group != group || !cli_option_fits(option, verb))
                continue;
            if (!titled)
                (void)fprintf(out, "\n%s:\n", cli_group_titles[group]);
            titled = true;
            print_option(out, option);
        }
    }
}

static void print_paragraphs(FILE *out, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        char paragraph[512];

        (void)snprintf(paragraph, sizeof(paragraph), "%.*s", (int)length, text);
        (void)fputc('\n', out);
        cli_wrap_text(out, 0, HELP_WIDTH, paragraph);
        text += length + (text[length] == '\n');
    }
}

static void print_verb(FILE *out, const struct cli_verb *verb)
{
    (void)fprintf(out, "Usage: gpucr %s %s\n", verb->name, verb->synopsis);
    print_paragraphs(out, verb->text);
    print_options(out, verb);
}

static void print_program(FILE *out)
{
    char name[96];

    (void)fprintf(out, "Usage: gpucr COMMAND [OPTIONS]\n\n"
                       "Suspends, checkpoints and restores unmodified CUDA programs.\n\n"
                       "Commands:\n");
    for (size_t i = 0; i < CLI_VERB_COUNT; i++) {
        (void)snprintf(name, sizeof(name), "%s", cli_verbs[i].name);
        print_entry(out, name, TEXT_COLUMN, cli_verbs[i].summary);
    }
    print_options(out, NULL);
    (void)fprintf(out, "\nExit status:\n");
    for (size_t i = 0; i < cli_exit_count; i++)
        print_entry(out, cli_exit_table[i].number, STATUS_COLUMN, cli_exit_table[i].meaning);
    (void)fprintf(out, "\n\"gpucr COMMAND --help\" shows the options of a command.\n");
}

void cli_help_print(FILE *out, const struct cli_verb *verb)
{
    if (verb)
        print_verb(out, verb);
    else
        print_program(out);
}

int cli_cmd_help(struct cli_options *options)
{
    char *words[] = {(char *)options->words[0], (char *)options->words[1]};
    const struct cli_verb *verb = NULL;
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int count = options->words[1] ? 2 : 1, used = 0;

    if (words[0] && cli_parse_verb(count, words, &verb, &used, &err) < 0)
        return cli_report_error(options, &err, CLI_EXIT_USAGE);
    cli_help_print(stdout, verb);
    return CLI_EXIT_DONE;
}

int cli_version(struct cli_options *options)
{
    (void)fprintf(stdout, options->json ? "{ \"gpucr\": \"%s\" }\n" : "gpucr %s\n",
                  gpucr_version());
    return CLI_EXIT_DONE;
}
