/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file opt.h
 * The table of commands and the table of options. Parser, help, manual page and
 * shell completions are all made from these two tables.
 */
#ifndef GPUCR_CLI_OPT_H
#define GPUCR_CLI_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpucr/job.h>

/** Commands; also bit numbers of cli_option.verbs. */
enum cli_verb_id {
    CLI_LIST,
    CLI_CHECK,
    CLI_SUSPEND,
    CLI_RESUME,
    CLI_CHECKPOINT,
    CLI_RESTORE,
    CLI_IMAGE_INSPECT,
    CLI_IMAGE_VERIFY,
    CLI_HELP,
    CLI_VERB_COUNT,
};

/** What a command takes beside options. */
enum cli_operand {
    CLI_OPERAND_NONE,
    CLI_OPERAND_PID,   /**< a process; also by --pid */
    CLI_OPERAND_DIR,   /**< an image; also by --images-dir */
    CLI_OPERAND_WORDS, /**< the name of a command */
};

struct cli_verb {
    const char *name;     /**< "suspend", "image inspect" */
    const char *synopsis; /**< what follows the name */
    const char *summary;  /**< one line, no full stop */
    const char *text;     /**< paragraphs, separated by "\n" */
    enum cli_operand operand;
    bool needs_pid;
    bool needs_dir;
};

/** Indexed by enum cli_verb_id. */
extern const struct cli_verb cli_verbs[CLI_VERB_COUNT];

/** How the argument of an option is read and what its offset points at. */
enum cli_type {
    CLI_FLAG,       /**< bool */
    CLI_COUNT,      /**< uint32_t, raised by one */
    CLI_PID,        /**< int32_t, above 0 */
    CLI_SIZE,       /**< uint64_t bytes, above 0, with K, M, G or T */
    CLI_DURATION,   /**< uint64_t milliseconds, above 0, with ms, s, m or h */
    CLI_STRING,     /**< const char *, not empty */
    CLI_PATH,       /**< the same, a file; completed as such */
    CLI_DIRECTORY,  /**< the same, a directory */
    CLI_NAME_VALUE, /**< appended to job.criu_options */
    CLI_FINDING,    /**< appended to job.forced */
};

/** Heading under which help shows an option. */
enum cli_group {
    CLI_GROUP_OWN,    /**< options of the command */
    CLI_GROUP_CRIU,   /**< passed to CRIU */
    CLI_GROUP_COMMON, /**< options of every command */
    CLI_GROUP_COUNT,
};

extern const char *const cli_group_titles[CLI_GROUP_COUNT];

struct cli_option {
    const char *name;
    char short_name;      /**< 0: none */
    const char *argument; /**< name of the argument in help, NULL for flags */
    enum cli_type type;
    enum cli_group group;
    uint32_t verbs;       /**< bits of enum cli_verb_id */
    size_t offset;        /**< in struct cli_options */
    const char *variable; /**< environment variable with the default, or NULL */
    const char *help;     /**< whole sentences without the last full stop */
};

extern const struct cli_option cli_option_table[];
extern const size_t cli_option_count;

struct cli_exit_status {
    const char *number;
    const char *meaning;
};

extern const struct cli_exit_status cli_exit_table[];
extern const size_t cli_exit_count;

/** Everything the command line said. */
struct cli_options {
    struct gpucr_job_options job;
    const struct cli_verb *verb; /**< NULL until known */
    bool json;
    bool quiet;
    bool help;
    bool version;
    bool detach; /**< restore: said explicitly */
    uint32_t verbosity;
    const char *log_file;
    const char *words[2]; /**< help: the command asked for */
};

/**
 * Read options in front of the command; @p ret_index becomes the index of the
 * first word that is no option.
 */
int cli_parse_global(int argc, char **argv, struct cli_options *options, int *ret_index,
                     struct gpucr_error *err);

/** Find the command at argv[0] (and argv[1]); @p ret_words is how many it took. */
int cli_parse_verb(int argc, char **argv, const struct cli_verb **ret, int *ret_words,
                   struct gpucr_error *err);

/**
 * Read options and operands of options->verb; argv[0] is not looked at.
 * NAME=VALUE arguments are cut in place.
 */
int cli_parse_command(int argc, char **argv, struct cli_options *options, struct gpucr_error *err);

/** Value of enum cli_verb_id. */
unsigned cli_verb_id(const struct cli_verb *verb);

/** Does @p verb (NULL: the program itself) take the option? */
bool cli_option_fits(const struct cli_option *option, const struct cli_verb *verb);

/* --- opt_value.c ---------------------------------------------------------------------------- */

/** Each reads the whole @p text, or explains in @p err and leaves @p ret alone. */
int cli_value_pid(const char *text, int32_t *ret, struct gpucr_error *err);
int cli_value_size(const char *text, uint64_t *ret, struct gpucr_error *err);
int cli_value_duration(const char *text, uint64_t *ret, struct gpucr_error *err);

/** Number of edits (insert, delete, replace, swap) between two words, capped at 99. */
unsigned cli_word_distance(const char *a, const char *b);

/** The nearest of @p words to @p text, or NULL when none is near enough. */
const char *cli_word_nearest(const char *text, const char *const *words, size_t count);

#endif
