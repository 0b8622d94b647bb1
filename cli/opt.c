/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "opt.h"

#include <getopt.h>
#include <string.h>

#include "cli.h"

enum {
    LONG_BASE = 256, /* above every character: getopt's value of a long option is base + index */
    OPTIONS_MAX = 64,
};

/* The tables of getopt_long(), made from ours for one command. */
struct parser {
    char shorts[2 * OPTIONS_MAX + 3];
    struct option longs[OPTIONS_MAX + 1];
    const char *names[OPTIONS_MAX];
    size_t count;
};

unsigned cli_verb_id(const struct cli_verb *verb)
{
    return (unsigned)(verb - cli_verbs);
}

bool cli_option_fits(const struct cli_option *option, const struct cli_verb *verb)
{
    if (!verb)
        return option->group == CLI_GROUP_COMMON;
    return option->verbs & (1U << cli_verb_id(verb));
}

static void parser_init(struct parser *parser, const struct cli_verb *verb)
{
    char *s = parser->shorts;

    /* before the command: stop at the first word, which is the command */
    if (!verb)
        *s++ = '+';
    *s++ = ':';
    for (size_t i = 0; i < cli_option_count && parser->count < OPTIONS_MAX; i++) {
        const struct cli_option *option = &cli_option_table[i];

        if (!cli_option_fits(option, verb))
            continue;
        parser->names[parser->count] = option->name;
        parser->longs[parser->count++] = (struct option){
            .name = option->name,
            .has_arg = option->argument ? required_argument : no_argument,
            .val = LONG_BASE + (int)i,
        };
        if (!option->short_name)
            continue;
        *s++ = option->short_name;
        if (option->argument)
            *s++ = ':';
    }
}

static const struct cli_option *option_of_value(int value, const struct cli_verb *verb)
{
    if (value >= LONG_BASE)
        return &cli_option_table[value - LONG_BASE];
    for (size_t i = 0; i < cli_option_count; i++) {
        const struct cli_option *option = &cli_option_table[i];

        if (option->short_name == value && cli_option_fits(option, verb))
            return option;
    }
    return NULL;
}

static int append_name_value(struct gpucr_job_options *job, char *text, struct gpucr_error *err)
{
    char *equals;

    while (*text == '-') /* criu's own spelling is understood too */
        text++;
    equals = strchr(text, '=');
    if (*text == '\0' || equals == text)
        return cli_error_set(err, GPUCR_ERR_USAGE, "it has no name; write NAME or NAME=VALUE");
    if (job->criu_option_count == GPUCR_NAME_VALUE_MAX)
        return cli_error_set(err, GPUCR_ERR_USAGE, "it may be given %d times at most",
                             GPUCR_NAME_VALUE_MAX);
    if (equals)
        *equals = '\0';
    job->criu_options[job->criu_option_count++] = (struct gpucr_name_value){
        .name = text,
        .value = equals ? equals + 1 : NULL,
    };
    return 0;
}

static int append_forced(struct gpucr_job_options *job, const char *text, struct gpucr_error *err)
{
    if (*text == '\0')
        return cli_error_set(err, GPUCR_ERR_USAGE, "it names no finding");
    if (job->forced_count == GPUCR_FORCED_MAX)
        return cli_error_set(err, GPUCR_ERR_USAGE, "it may be given %d times at most",
                             GPUCR_FORCED_MAX);
    job->forced[job->forced_count++] = text;
    return 0;
}

/* Store one option; the error does not yet name the option. */
static int store(struct cli_options *options, const struct cli_option *option, char *text,
                 struct gpucr_error *err)
{
    void *target = (char *)options + option->offset;

    switch (option->type) {
    case CLI_FLAG:
        *(bool *)target = true;
        return 0;
    case CLI_COUNT:
        *(uint32_t *)target += 1;
        return 0;
    case CLI_PID:
        return cli_value_pid(text, target, err);
    case CLI_SIZE:
        return cli_value_size(text, target, err);
    case CLI_DURATION:
        return cli_value_duration(text, target, err);
    case CLI_STRING:
    case CLI_PATH:
    case CLI_DIRECTORY:
        if (*text == '\0')
            return cli_error_set(err, GPUCR_ERR_USAGE, "its argument is empty");
        *(const char **)target = text;
        return 0;
    case CLI_NAME_VALUE:
        return append_name_value(&options->job, text, err);
    case CLI_FINDING:
        return append_forced(&options->job, text, err);
    }
    return cli_error_set(err, GPUCR_ERR_INTERNAL, "the option table has an unknown type");
}

/* An option that is not in the table of this command. */
static int unknown_option(const struct parser *parser, const struct cli_verb *verb,
                          const char *word, struct gpucr_error *err)
{
    const char *of = verb ? verb->name : "gpucr";
    char name[64];
    const char *nearest;
    size_t matches = 0;

    if (optopt && optopt < LONG_BASE)
        return cli_error_set(err, GPUCR_ERR_USAGE, "%s has no option -%c", of, optopt);
    if (optopt)
        return cli_error_set(err, GPUCR_ERR_USAGE, "option --%s takes no argument",
                             cli_option_table[optopt - LONG_BASE].name);
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (size_t i = 0; i < parser->count; i++)
        matches += strncmp(parser->names[i], name, strlen(name)) == 0;
    if (matches > 1)
        return cli_error_set(err, GPUCR_ERR_USAGE, "option --%s could be one of several", name);
    nearest = cli_word_nearest(name, parser->names, parser->count);
    if (!nearest)
        return cli_error_set(err, GPUCR_ERR_USAGE, "%s has no option --%s", of, name);
    return cli_error_set(err, GPUCR_ERR_USAGE, "%s has no option --%s; did you mean --%s?", of,
                         name, nearest);
}

static int store_named(struct cli_options *options, const struct cli_option *option, char *text,
                       struct gpucr_error *err)
{
    struct gpucr_error why = GPUCR_ERROR_INIT;
    int rc = store(options, option, text, &why);

    if (rc < 0)
        return cli_error_set(err, rc, "option --%s: %.900s", option->name, why.text);
    return 0;
}

static int parse_options(int argc, char **argv, struct cli_options *options,
                         struct gpucr_error *err)
{
    struct parser parser = {0};
    int value, rc = 0;

    parser_init(&parser, options->verb);
    optind = 0; /* glibc: start anew */
    opterr = 0;
    while ((value = getopt_long(argc, argv, parser.shorts, parser.longs, NULL)) != -1) {
        const struct cli_option *option =
            option_of_value(value == ':' ? optopt : value, options->verb);

        if (!option)
            return unknown_option(&parser, options->verb, argv[optind - 1], err);
        if (value == ':')
            return cli_error_set(err, GPUCR_ERR_USAGE, "option --%s needs %s", option->name,
                                 option->argument);
        rc = store_named(options, option, optarg, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int cli_parse_global(int argc, char **argv, struct cli_options *options, int *ret_index,
                     struct gpucr_error *err)
{
    int rc;

    options->verb = NULL;
    rc = parse_options(argc, argv, options, err);
    if (rc == 0)
        *ret_index = optind;
    return rc;
}

static int unknown_verb(const char *word, struct gpucr_error *err)
{
    const char *names[CLI_VERB_COUNT];
    const char *nearest;

    for (size_t i = 0; i < CLI_VERB_COUNT; i++)
        names[i] = cli_verbs[i].name;
    nearest = cli_word_nearest(word, names, CLI_VERB_COUNT);
    if (nearest)
        return cli_error_set(err, GPUCR_ERR_USAGE,
                             "there is no command \"%.100s\"; did you mean \"%s\"?", word, nearest);
    return cli_error_set(err, GPUCR_ERR_USAGE, "there is no command \"%.100s\"", word);
}

int cli_parse_verb(int argc, char **argv, const struct cli_verb **ret, int *ret_words,
                   struct gpucr_error *err)
{
    char two[64];
    int words = 1;

    (void)snprintf(two, sizeof(two), "%.24s", argv[0]);
    if (strcmp(argv[0], "image") == 0) {
        if (argc < 2 || argv[1][0] == '-')
            return cli_error_set(err, GPUCR_ERR_USAGE,
                                 "say what to do with the image: \"image inspect DIR\" or "
                                 "\"image verify DIR\"");
        (void)snprintf(two, sizeof(two), "image %.24s", argv[1]);
        words = 2;
    }
    for (size_t i = 0; i < CLI_VERB_COUNT; i++) {
        if (strcmp(cli_verbs[i].name, two) != 0)
            continue;
        *ret = &cli_verbs[i];
        *ret_words = words;
        return 0;
    }
    return unknown_verb(two, err);
}

static int store_operand(struct cli_options *options, char *word, struct gpucr_error *err)
{
    struct gpucr_job_options *job = &options->job;

    switch (options->verb->operand) {
    case CLI_OPERAND_PID:
        if (job->pid)
            return cli_error_set(err, GPUCR_ERR_USAGE,
                                 "give one process id; \"%.100s\" is too many", word);
        return cli_value_pid(word, &job->pid, err);
    case CLI_OPERAND_DIR:
        if (job->image_dir)
            return cli_error_set(err, GPUCR_ERR_USAGE, "give one image; \"%.100s\" is too many",
                                 word);
        if (*word == '\0')
            return cli_error_set(err, GPUCR_ERR_USAGE, "the name of the image is empty");
        job->image_dir = word;
        return 0;
    case CLI_OPERAND_WORDS:
        for (size_t i = 0; i < CLI_ARRAY_SIZE(options->words); i++) {
            if (options->words[i])
                continue;
            options->words[i] = word;
            return 0;
        }
        break;
    case CLI_OPERAND_NONE:
        break;
    }
    return cli_error_set(err, GPUCR_ERR_USAGE, "%s does not take \"%.100s\"", options->verb->name,
                         word);
}

/* Defaults from the environment, where the command line was silent. */
static int apply_environment(struct cli_options *options, struct gpucr_error *err)
{
    for (size_t i = 0; i < cli_option_count; i++) {
        const struct cli_option *option = &cli_option_table[i];
        char *text = option->variable ? getenv(option->variable) : NULL;
        int rc;

        if (!text || *text == '\0' || !cli_option_fits(option, options->verb) ||
            *(const char **)((char *)options + option->offset))
            continue;
        rc = store_named(options, option, text, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int check_complete(const struct cli_options *options, struct gpucr_error *err)
{
    const struct cli_verb *verb = options->verb;

    if (verb->needs_dir && !options->job.image_dir)
        return cli_error_set(err, GPUCR_ERR_USAGE, "%s needs the image folder: %s", verb->name,
                             verb->operand == CLI_OPERAND_DIR ? "DIR" : "-o DIR");
    if (verb->needs_pid && !options->job.pid)
        return cli_error_set(err, GPUCR_ERR_USAGE, "%s needs a process: --pid PID", verb->name);
    if (options->detach && options->job.foreground)
        return cli_error_set(err, GPUCR_ERR_USAGE,
                             "--detach and --foreground contradict each other");
    if (options->quiet && options->verbosity)
        return cli_error_set(err, GPUCR_ERR_USAGE, "--quiet and --verbose contradict each other");
    return 0;
}

int cli_parse_command(int argc, char **argv, struct cli_options *options, struct gpucr_error *err)
{
    int rc = parse_options(argc, argv, options, err);

    if (rc < 0 || options->help)
        return rc;
    for (int i = optind; i < argc; i++) {
        rc = store_operand(options, argv[i], err);
        if (rc < 0)
            return rc;
    }
    rc = apply_environment(options, err);
    if (rc < 0)
        return rc;
    return check_complete(options, err);
}
