/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SIM_TOOL_H
#define SIM_TOOL_H

#include <stdbool.h>
#include <stdint.h>

/* Each takes the words after the verb and returns the exit status. */
int tool_create(int argc, char **argv);
int tool_run(int argc, char **argv);
int tool_print_env(const char *root);

/* Prints a message and returns 1. */
__attribute__((format(printf, 1, 2))) int tool_error(const char *format, ...);

/* "4096", "512M", "4GiB" */
bool tool_parse_bytes(const char *text, uint64_t *bytes);

#endif
