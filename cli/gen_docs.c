/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Build tool: prints the manual page or a shell completion from the tables of
 * verbs.c, so that no option can be missing there.
 */
#include <string.h>

#include "cli.h"

enum { ALL_VERBS_BITS = (1U << CLI_VERB_COUNT) - 1 };

static const char generated[] = "Made by gpucr-gen-docs from cli/verbs.c; change it there.";

static bool is_own_of(const struct cli_option *option, size_t verb)
{
    return option->group != CLI_GROUP_COMMON && (option->verbs & (1U << verb));
}

/* Last word of a command's name: what a completion sees right before the options. */
static const char *last_word(const struct cli_verb *verb)
{
    const char *space = strchr(verb->name, ' ');

    return space ? space + 1 : verb->name;
}

/* --- manual page ---------------------------------------------------------------------------- */

/* Text for roff: minus signs that stay minus signs, nothing taken as a request. */
static void roff(const char *text)
{
    if (*text == '.' || *text == '\'')
        (void)fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '\n')
            (void)fputs("\n.PP\n", stdout);
        else if (*text == '-')
            (void)fputs("\\-", stdout);
        else if (*text == '\\')
            (void)fputs("\\e", stdout);
        else
            (void)fputc(*text, stdout);
    }
}

static void man_option(const struct cli_option *option)
{
    (void)printf(".TP\n");
    if (option->short_name)
        (void)printf("\\fB\\-%c\\fR, ", option->short_name);
    (void)printf("\\fB\\-\\-");
    roff(option->name);
    (void)printf("\\fR");
    if (option->argument)
        (void)printf(" \\fI%s\\fR", option->argument);
    (void)printf("\n");
    roff(option->help);
    if (option->variable)
        (void)printf("; environment: \\fB%s\\fR", option->variable);
    (void)printf(".\n");
}

static void man_verb(size_t index)
{
    const struct cli_verb *verb = &cli_verbs[index];

    (void)printf(".SS \"gpucr %s ", verb->name);
    roff(verb->synopsis);
    (void)printf("\"\n");
    roff(verb->text);
    (void)printf("\n");
    for (size_t i = 0; i < cli_option_count; i++) {
        if (is_own_of(&cli_option_table[i], index))
            man_option(&cli_option_table[i]);
    }
}

static void man_environment(void)
{
    (void)printf(".SH ENVIRONMENT\n");
    for (size_t i = 0; i < cli_option_count; i++) {
        const struct cli_option *option = &cli_option_table[i];

        if (!option->variable)
            continue;
        (void)printf(".TP\n\\fB%s\\fR\nDefault of \\fB\\-\\-", option->variable);
        roff(option->name);
        (void)printf("\\fR.\n");
    }
}

static void man(void)
{
    (void)printf(".\\\" SPDX-License-Identifier: LGPL-2.1-or-later\n.\\\" %s\n", generated);
    (void)printf(".TH GPUCR 1 \"\" \"gpucr %s\" \"User Commands\"\n.SH NAME\n"
                 "gpucr \\- suspend, checkpoint and restore CUDA programs\n.SH SYNOPSIS\n"
                 "\\fBgpucr\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n",
                 GPUCR_VERSION);
    (void)printf("An unmodified CUDA program, one process or a tree, on one GPU or several, is\n"
                 "suspended to host memory, which frees its GPUs, checkpointed to an image on\n"
                 "disk, and restored from it. Everything that can be checked is checked before\n"
                 "anything is paused; whatever fails later is undone, and the report says how\n"
                 "it ended, for each process.\n.PP\n"
                 "Sizes are bytes, or numbers with K, M, G or T (powers of 1024). Durations are\n"
                 "seconds, or numbers with ms, s, m or h.\n.SH COMMANDS\n");
    for (size_t i = 0; i < CLI_VERB_COUNT; i++)
        man_verb(i);
    (void)printf(".SH COMMON OPTIONS\n");
    for (size_t i = 0; i < cli_option_count; i++) {
        if (cli_option_table[i].group == CLI_GROUP_COMMON)
            man_option(&cli_option_table[i]);
    }
    (void)printf(".SH EXIT STATUS\n");
    for (size_t i = 0; i < cli_exit_count; i++) {
        (void)printf(".TP\n\\fB%s\\fR\n", cli_exit_table[i].number);
        roff(cli_exit_table[i].meaning);
        (void)printf(".\n");
    }
    man_environment();
    (void)printf(".SH EXAMPLES\n.nf\ngpucr list\ngpucr checkpoint \\-\\-pid 4711 \\-o /var/ckpt/a\n"
                 "gpucr image inspect /var/ckpt/a\ngpucr restore /var/ckpt/a\n.fi\n"
                 ".SH SEE ALSO\n\\fBcriu\\fR(8)\n");
}

/* --- bash ----------------------------------------------------------------------------------- */

static void bash_words(const struct cli_option *option)
{
    (void)printf(" --%s", option->name);
    if (option->short_name)
        (void)printf(" -%c", option->short_name);
}

/* "--pid|-p|--tree|-t" of all options whose argument is completed alike. */
static void bash_pattern(uint32_t types, const char *action)
{
    const char *bar = "    ";

    for (size_t i = 0; i < cli_option_count; i++) {
        const struct cli_option *option = &cli_option_table[i];

        if (!option->argument || !(types & (1U << option->type)))
            continue;
        (void)printf("%s--%s", bar, option->name);
        if (option->short_name)
            (void)printf(" | -%c", option->short_name);
        bar = " | ";
    }
    (void)printf(") %s || true ;;\n", action);
}

static void bash_options(void)
{
    (void)printf("# Options of the command $1; of gpucr itself where it is empty.\n"
                 "_gpucr_options()\n{\n    case $1 in\n");
    for (size_t v = 0; v <= CLI_VERB_COUNT; v++) {
        const struct cli_verb *verb = v < CLI_VERB_COUNT ? &cli_verbs[v] : NULL;

        (void)printf("    '%s') echo '", verb ? verb->name : "");
        for (size_t i = 0; i < cli_option_count; i++) {
            if (cli_option_fits(&cli_option_table[i], verb))
                bash_words(&cli_option_table[i]);
        }
        (void)printf("' ;;\n");
    }
    (void)printf("    esac\n}\n\n");
}

static void bash_arguments(void)
{
    (void)printf("# Values of option $1 that begin with $2; fails where it takes none.\n"
                 "_gpucr_argument()\n{\n    case $1 in\n");
    bash_pattern(1U << CLI_PID, "_gpucr_pids \"$2\"");
    bash_pattern(1U << CLI_DIRECTORY, "compgen -d -- \"$2\"");
    bash_pattern(1U << CLI_PATH, "compgen -f -- \"$2\"");
    bash_pattern(1U << CLI_SIZE | 1U << CLI_DURATION | 1U << CLI_NAME_VALUE | 1U << CLI_FINDING,
                 ":");
    (void)printf("    *) return 1 ;;\n    esac\n}\n\n");
}

static void bash_operands(void)
{
    static const char *const actions[] = {
        [CLI_OPERAND_NONE] = "true",
        [CLI_OPERAND_PID] = "_gpucr_pids \"$2\"",
        [CLI_OPERAND_DIR] = "compgen -d -- \"$2\"",
        [CLI_OPERAND_WORDS] = "_gpucr_operand '' \"$2\"",
    };

    (void)printf("# Operands of the command $1 that begin with $2.\n"
                 "_gpucr_operand()\n{\n    case $1 in\n    '') compgen -W '");
    for (size_t v = 0; v < CLI_VERB_COUNT; v++) {
        if (!strchr(cli_verbs[v].name, ' '))
            (void)printf("%s ", cli_verbs[v].name);
    }
    (void)printf("image' -- \"$2\" ;;\n    image) compgen -W 'inspect verify' -- \"$2\" ;;\n");
    for (size_t v = 0; v < CLI_VERB_COUNT; v++)
        (void)printf("    '%s') %s ;;\n", cli_verbs[v].name, actions[cli_verbs[v].operand]);
    (void)printf("    esac\n}\n\n");
}

static void bash(void)
{
    (void)printf("# SPDX-License-Identifier: LGPL-2.1-or-later\n# shellcheck shell=bash\n# %s\n\n",
                 generated);
    (void)printf(
        "_gpucr_pids()\n{\n    compgen -W \"$(cd /proc && echo [0-9]*)\" -- \"$1\"\n}\n\n");
    bash_options();
    bash_arguments();
    bash_operands();
    (void)printf("_gpucr()\n{\n"
                 "    local word=${COMP_WORDS[COMP_CWORD]} verb='' i\n"
                 "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                 "        if [[ ${COMP_WORDS[i]} == -* ]]; then\n"
                 "            _gpucr_argument \"${COMP_WORDS[i]}\" x > /dev/null && ((i++))\n"
                 "        elif [[ -z $verb ]]; then\n"
                 "            verb=${COMP_WORDS[i]}\n"
                 "        elif [[ $verb == image ]]; then\n"
                 "            verb=\"image ${COMP_WORDS[i]}\"\n"
                 "        fi\n"
                 "    done\n"
                 "    if ((i > COMP_CWORD)); then\n"
                 "        mapfile -t COMPREPLY < <(\n"
                 "            _gpucr_argument \"${COMP_WORDS[COMP_CWORD - 1]}\" \"$word\")\n"
                 "    elif [[ $word == -* ]]; then\n"
                 "        mapfile -t COMPREPLY < <(\n"
                 "            compgen -W \"$(_gpucr_options \"$verb\")\" -- \"$word\")\n"
                 "    else\n"
                 "        mapfile -t COMPREPLY < <(_gpucr_operand \"$verb\" \"$word\")\n"
                 "    fi\n"
                 "}\n\ncomplete -o filenames -F _gpucr gpucr\n");
}

/* --- zsh ------------------------------------------------------------------------------------ */

/* A description inside '…[…]': quotes, brackets and colons mean something there. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            (void)fputs("'\\''", stdout);
        else if (strchr("[]:\\", *text))
            (void)printf("\\%c", *text);
        else
            (void)fputc(*text, stdout);
    }
}

static const char *zsh_action(enum cli_type type)
{
    static const char *const actions[] = {
        [CLI_PID] = "_pids",    [CLI_PATH] = "_files", [CLI_DIRECTORY] = "_files -/",
        [CLI_SIZE] = " ",       [CLI_DURATION] = " ",  [CLI_STRING] = " ",
        [CLI_NAME_VALUE] = " ", [CLI_FINDING] = " ",
    };

    return actions[type];
}

static void zsh_option(const char *prefix, const struct cli_option *option)
{
    bool repeats =
        option->type == CLI_COUNT || option->type == CLI_NAME_VALUE || option->type == CLI_FINDING;

    (void)printf("%s'%s", prefix, repeats ? "*" : "");
    if (option->short_name && !repeats)
        (void)printf("(-%c --%s)", option->short_name, option->name);
    if (option->short_name)
        (void)printf("'{-%c,--%s}'", option->short_name, option->name);
    else
        (void)printf("--%s", option->name);
    (void)printf("[");
    zsh_text(option->help);
    (void)printf("]");
    if (option->argument) {
        (void)printf(":");
        zsh_text(option->argument);
        (void)printf(":%s", zsh_action(option->type));
    }
    (void)printf("'");
}

/* Options of @p verb that are not in the array "common"; NULL: those that are. */
static void zsh_options(const struct cli_verb *verb)
{
    for (size_t i = 0; i < cli_option_count; i++) {
        const struct cli_option *option = &cli_option_table[i];

        if (option->verbs && cli_option_fits(option, verb) &&
            (verb == NULL) == (option->group == CLI_GROUP_COMMON))
            zsh_option(verb ? " \\\n                " : "\n        ", option);
    }
}

/* Both image commands take the same options. */
static void zsh_verb(size_t index)
{
    static const char *const operands[] = {
        [CLI_OPERAND_NONE] = "",
        [CLI_OPERAND_PID] = " '1:process:_pids'",
        [CLI_OPERAND_DIR] = " '1:image:_files -/'",
        [CLI_OPERAND_WORDS] = " '1:command:->command'",
    };
    const struct cli_verb *verb = &cli_verbs[index];

    if (index == CLI_IMAGE_VERIFY)
        return;
    if (index == CLI_IMAGE_INSPECT)
        (void)printf("        image)\n            _arguments -S $common '1:what:(inspect verify)' "
                     "'2:image:_files -/'");
    else
        (void)printf("        %s)\n            _arguments -S $common%s", verb->name,
                     operands[verb->operand]);
    zsh_options(verb);
    (void)printf("\n            ;;\n");
}

static void zsh(void)
{
    (void)printf("#compdef gpucr\n# SPDX-License-Identifier: LGPL-2.1-or-later\n# %s\n\n"
                 "_gpucr() {\n    local context state line\n    local -a commands common\n"
                 "    commands=(\n",
                 generated);
    for (size_t v = 0; v < CLI_VERB_COUNT; v++) {
        if (strchr(cli_verbs[v].name, ' '))
            continue;
        (void)printf("        '%s:", cli_verbs[v].name);
        zsh_text(cli_verbs[v].summary);
        (void)printf("'\n");
    }
    (void)printf("        'image:Show or verify an image'\n    )\n    common=(");
    zsh_options(NULL);
    (void)printf(
        "\n    )\n"
        "    _arguments -C -S $common '(-V --version)'{-V,--version}'[Show the version]' \\\n"
        "        '1:command:->command' '*::argument:->argument'\n"
        "    case $state in\n    argument)\n        case $words[1] in\n");
    for (size_t v = 0; v < CLI_VERB_COUNT; v++)
        zsh_verb(v);
    (void)printf("        esac\n        ;;\n    esac\n"
                 "    [[ $state == command ]] && _describe command commands\n}\n\n"
                 "_gpucr \"$@\"\n");
}

/* --- fish ----------------------------------------------------------------------------------- */

static void fish_text(const char *text)
{
    (void)fputc('\'', stdout);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            (void)fputc('\\', stdout);
        (void)fputc(*text, stdout);
    }
    (void)fputc('\'', stdout);
}

static void fish_option(const struct cli_option *option)
{
    static const char *const actions[] = {
        [CLI_PID] = " -x -a '(__fish_complete_pids)'",
        [CLI_PATH] = " -r -F",
        [CLI_DIRECTORY] = " -x -a '(__fish_complete_directories)'",
        [CLI_SIZE] = " -x",
        [CLI_DURATION] = " -x",
        [CLI_STRING] = " -x",
        [CLI_NAME_VALUE] = " -x",
        [CLI_FINDING] = " -x",
    };

    (void)printf("complete -c gpucr");
    if (option->verbs == 0) {
        (void)printf(" -n __fish_use_subcommand");
    } else if (option->verbs != ALL_VERBS_BITS) {
        (void)printf(" -n '__fish_seen_subcommand_from");
        for (size_t v = 0; v < CLI_VERB_COUNT; v++) {
            if (option->verbs & (1U << v))
                (void)printf(" %s", last_word(&cli_verbs[v]));
        }
        (void)printf("'");
    }
    if (option->short_name)
        (void)printf(" -s %c", option->short_name);
    (void)printf(" -l %s%s -d ", option->name, option->argument ? actions[option->type] : "");
    fish_text(option->help);
    (void)printf("\n");
}

static void fish_verb(const struct cli_verb *verb)
{
    static const char *const operands[] = {
        [CLI_OPERAND_PID] = "(__fish_complete_pids)",
        [CLI_OPERAND_DIR] = "(__fish_complete_directories)",
        [CLI_OPERAND_WORDS] = "list check suspend resume checkpoint restore image",
    };

    if (strchr(verb->name, ' '))
        (void)printf("complete -c gpucr -n '__fish_seen_subcommand_from image; and not "
                     "__fish_seen_subcommand_from inspect verify' -a %s -d ",
                     last_word(verb));
    else
        (void)printf("complete -c gpucr -n __fish_use_subcommand -a %s -d ", verb->name);
    fish_text(verb->summary);
    (void)printf("\n");
    if (verb->operand != CLI_OPERAND_NONE)
        (void)printf("complete -c gpucr -n '__fish_seen_subcommand_from %s' -a '%s'\n",
                     last_word(verb), operands[verb->operand]);
}

static void fish(void)
{
    (void)printf("# SPDX-License-Identifier: LGPL-2.1-or-later\n# %s\n\ncomplete -c gpucr -f\n"
                 "complete -c gpucr -n __fish_use_subcommand -a image -d "
                 "'Show or verify an image'\n",
                 generated);
    for (size_t v = 0; v < CLI_VERB_COUNT; v++)
        fish_verb(&cli_verbs[v]);
    for (size_t i = 0; i < cli_option_count; i++)
        fish_option(&cli_option_table[i]);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } kinds[] = {{"man", man}, {"bash", bash}, {"zsh", zsh}, {"fish", fish}};

    for (size_t i = 0; argc == 2 && i < CLI_ARRAY_SIZE(kinds); i++) {
        if (strcmp(argv[1], kinds[i].name) != 0)
            continue;
        kinds[i].print();
        return cli_finish_output(CLI_EXIT_DONE);
    }
    (void)fprintf(stderr, "usage: gpucr-gen-docs man|bash|zsh|fish\n");
    return CLI_EXIT_USAGE;
}
