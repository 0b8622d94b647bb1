/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Device memory in use, shared by all processes of a root (state/vram). Opened, locked and mapped
 * only for the moment of an access: a checkpointed process must have nothing of it left. Processes
 * that are gone are dropped at each access.
 */
#ifndef SIM_VRAM_H
#define SIM_VRAM_H

#include "sim_root.h"

struct sim_vram_use {
    int pid; /* as the caller sees it */
    uint64_t bytes;
};

/* Adds bytes[] per GPU for the calling process, all or nothing. Returns false when full. */
bool sim_vram_claim(const struct sim_config *config, const uint64_t bytes[SIM_GPU_MAX]);
/* Gives bytes back. */
void sim_vram_return(unsigned gpu, uint64_t bytes);
/* Gives everything of the calling process back. */
void sim_vram_return_all(void);
/* Bytes in use per GPU by everybody. */
void sim_vram_used(uint64_t used[SIM_GPU_MAX]);
/* The users of a GPU, at most capacity of them; returns how many there are. */
unsigned sim_vram_users(unsigned gpu, struct sim_vram_use *users, unsigned capacity);

#endif
