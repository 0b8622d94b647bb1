/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "sim_fault.h"

#include "sim_root.h"
#include "sim_sys.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX  8192
#define COUNT_MAX 64

struct rule {
    int call;
    uint64_t pid;
    uint64_t nth;
    bool late;
    bool complete;
    struct sim_fault fault;
};

struct counts {
    uint64_t inode;
    int64_t time_s;
    int64_t time_ns;
    struct {
        uint64_t rule;
        uint64_t count;
    } of[COUNT_MAX];
};

static const char *const call_rules[] = {
#define SIM_CALL(id, rule, base, symbol) rule,
#include "sim_calls.def"
#undef SIM_CALL
};

#define SIM_CALL(id, rule, base, symbol)
static const struct {
    const char *word;
    bool has_value;
} actions[] = {
#define SIM_ACTION(id, word, value, what) {word, value},
#include "sim_calls.def"
#undef SIM_ACTION
};
#undef SIM_CALL

const char *sim_call_rule(enum sim_call call)
{
    return call_rules[call];
}

const char *sim_action_word(enum sim_action action)
{
    return actions[action].word;
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 14695981039346656037ull;

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return hash;
}

static void parse_word(struct rule *rule, char *word)
{
    char *value = strchr(word, '=');
    uint64_t number = 0;

    if (value)
        *value++ = '\0';
    if (value && !sim_parse_u64(value, &number))
        return;
    if (!strcmp(word, "pid")) {
        rule->pid = number;
    } else if (!strcmp(word, "nth")) {
        rule->nth = number;
    } else if (!strcmp(word, "late")) {
        rule->late = true;
    } else {
        for (int i = 0; i < SIM_ACTION_COUNT; i++) {
            if (strcmp(word, actions[i].word) != 0 || actions[i].has_value != (value != NULL))
                continue;
            rule->fault.action = (enum sim_action)i;
            rule->fault.value = number;
            rule->complete = true;
        }
    }
}

static int find_call(const char *word)
{
    for (int i = 0; i < SIM_CALL_COUNT; i++) {
        if (!strcmp(word, call_rules[i]))
            return i;
    }
    return -1;
}

/* A line that is not a whole rule (a comment, say) is one that matches nothing. */
static struct rule parse_rule(char *line)
{
    struct rule rule = {.call = -1};
    bool first = true;

    rule.fault.rule = hash_text(line);
    while (*line) {
        size_t length = strcspn(line, " \t");
        char *next = line + length + (line[length] ? 1 : 0);

        line[length] = '\0';
        if (length && first) {
            rule.call = find_call(line);
            first = false;
        } else if (length) {
            parse_word(&rule, line);
        }
        line = next;
    }
    return rule;
}

static char *next_line(char **at)
{
    char *line = *at;
    size_t length = strcspn(line, "\n");

    if (!*line)
        return NULL;
    *at = line + length + (line[length] ? 1 : 0);
    line[length] = '\0';
    return line;
}

/* Counts a match and returns the number it has. */
static uint64_t count_match(uint64_t rule)
{
    char path[SIM_PATH_MAX], faults[SIM_PATH_MAX];
    struct counts counts = {0};
    struct stat info = {0};
    uint64_t result = 0;
    int fd;

    if (!sim_root_path(path, sizeof(path), "state/fault-counts") ||
        !sim_root_path(faults, sizeof(faults), "state/faults") || stat(faults, &info) != 0)
        return 0;
    fd = sim_open_shared(path);
    if (fd < 0)
        return 0;
    flock(fd, LOCK_EX);
    if (pread(fd, &counts, sizeof(counts), 0) != sizeof(counts) || counts.inode != info.st_ino ||
        counts.time_s != info.st_mtim.tv_sec || counts.time_ns != info.st_mtim.tv_nsec)
        counts = (struct counts){
            .inode = info.st_ino, .time_s = info.st_mtim.tv_sec, .time_ns = info.st_mtim.tv_nsec};
    for (int i = 0; i < COUNT_MAX && !result; i++) {
        if (counts.of[i].rule != rule && counts.of[i].rule)
            continue;
        counts.of[i].rule = rule;
        result = ++counts.of[i].count;
    }
    if (pwrite(fd, &counts, sizeof(counts), 0) != sizeof(counts))
        result = 0;
    close(fd);
    return result;
}

static bool rule_matches(const struct rule *rule, const struct sim_fault_query *query)
{
    if (!rule->complete || rule->call != (int)query->call || rule->late != query->late)
        return false;
    if (rule->pid && rule->pid != (uint64_t)query->pid && rule->pid != (uint64_t)query->other_pid)
        return false;
    return !rule->nth || count_match(rule->fault.rule) == rule->nth;
}

static bool read_rules(char text[FILE_MAX])
{
    char path[SIM_PATH_MAX];

    return sim_root_path(path, sizeof(path), "state/faults") &&
           sim_read_file(path, text, FILE_MAX) > 0;
}

unsigned sim_fault_match(const struct sim_fault_query *query,
                         struct sim_fault faults[SIM_FAULT_MAX])
{
    char text[FILE_MAX];
    char *at = text, *line;
    unsigned count = 0;

    if (!read_rules(text))
        return 0;
    while ((line = next_line(&at)) && count < SIM_FAULT_MAX) {
        struct rule rule = parse_rule(line);

        if (rule_matches(&rule, query))
            faults[count++] = rule.fault;
    }
    return count;
}

bool sim_fault_standing(uint64_t rule)
{
    char text[FILE_MAX];
    char *at = text, *line;

    if (!read_rules(text))
        return false;
    while ((line = next_line(&at))) {
        if (hash_text(line) == rule)
            return true;
    }
    return false;
}
