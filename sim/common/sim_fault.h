/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Scripted faults: state/faults, re-read at each call. One rule a line:
 *
 *     CALL [pid=N] [nth=K] [late] ACTION
 *
 * A rule with nth applies to the K-th matching call only; the counts are kept in
 * state/fault-counts, across processes, until the rule file is written anew.
 */
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum sim_call {
#define SIM_CALL(id, rule, base, symbol) SIM_CALL_##id,
#include "sim_calls.def"
#undef SIM_CALL
    SIM_CALL_COUNT
};

enum sim_action {
#define SIM_CALL(id, rule, base, symbol)
#define SIM_ACTION(id, word, value, what) SIM_ACTION_##id,
#include "sim_calls.def"
#undef SIM_ACTION
#undef SIM_CALL
    SIM_ACTION_COUNT
};

struct sim_fault {
    enum sim_action action;
    uint64_t value;
    uint64_t rule; /* identifies the line */
};

struct sim_fault_query {
    enum sim_call call;
    int pid;       /* matched by pid=N: the executing process ... */
    int other_pid; /* ... or the pid the caller used for it, 0: none */
    bool late;     /* asks for the rules that act after the call took effect */
};

#define SIM_FAULT_MAX 8

/* Fills faults with the matching rules, in the order of the file. Returns how many. */
unsigned sim_fault_match(const struct sim_fault_query *query,
                         struct sim_fault faults[SIM_FAULT_MAX]);

/* Whether the rule still stands in the file. */
bool sim_fault_standing(uint64_t rule);

const char *sim_call_rule(enum sim_call call);
const char *sim_action_word(enum sim_action action);

#endif
