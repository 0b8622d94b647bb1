/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Child processes of a sample: started by fork and exec, asked through signals and pipes. */
#ifndef SAMPLE_TREE_H
#define SAMPLE_TREE_H

#include "options.h"

/* Starts the children and waits until each has said "ready". Before any thread is started. */
void tree_start(const struct sample_options *options);
/*
 * Has every child verify (end: and end), prints each answer as "child verify ...", and then
 * "tree processes=N answered=N". Without children it prints nothing.
 */
void tree_verify(bool end);

#endif
