/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file keeper.h
 * A fresh pid namespace for a restore, and the small program that is its first
 * process (keeper/keeper_main.c; the library carries it inside itself).
 *
 * Inside, the restored processes have their old pids, whatever is taken outside.
 * The tree's root is a child of the keeper, the keeper a child of the calling
 * process. The end of the keeper is the end of everything in the namespace.
 */
#ifndef GPUCR_ENGINE_KEEPER_H
#define GPUCR_ENGINE_KEEPER_H

#include "engine/criu_channel.h"

struct gpucr_keeper {
    pid_t pid; /* 0: none */
    int pidfd;
    int control; /* socket */
    bool kept;   /* it stays: the restore succeeded */
};

#define GPUCR_KEEPER_INIT                                                                          \
    {                                                                                              \
        .pidfd = -1, .control = -1                                                                 \
    }

/** Start the keeper and in its namespace criu. GPUCR_ERR_PERMISSION without CAP_SYS_ADMIN. */
int gpucr_keeper_start(const struct gpucr_criu_start *start, struct gpucr_keeper *ret,
                       struct gpucr_criu_channel *ret_channel, struct gpucr_error *err);

/**
 * Start criu in the pid and mount namespaces of @p target. Here the keeper is just
 * criu's parent, and ends with it.
 */
int gpucr_keeper_join(const struct gpucr_criu_start *start, pid_t target, struct gpucr_keeper *ret,
                      struct gpucr_criu_channel *ret_channel, struct gpucr_error *err);

/** The restore succeeded: let it live as long as @p root (pid inside); pid outside returned. */
int gpucr_keeper_adopt(struct gpucr_keeper *keeper, pid_t root, pid_t *ret_outside,
                       struct gpucr_error *err);

/** End the keeper and with it the namespace that it made; wait until all of it is gone. */
int gpucr_keeper_end(struct gpucr_keeper *keeper, struct gpucr_error *err);

/** End it unless it was kept; close what belongs to it. */
void gpucr_keeper_done(struct gpucr_keeper *keeper);

#endif
