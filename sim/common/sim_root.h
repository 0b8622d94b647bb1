/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The simulated root and its configuration (state/config, key=value lines). */
#ifndef SIM_ROOT_H
#define SIM_ROOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_GPU_MAX   16
#define SIM_NAME_MAX  64
#define SIM_PATH_MAX  512
#define SIM_UUID_SIZE 16

struct sim_config_gpu {
    uint8_t uuid[SIM_UUID_SIZE];
    char name[SIM_NAME_MAX];
    uint64_t vram_bytes;
};

struct sim_config {
    unsigned gpu_count;
    struct sim_config_gpu gpu[SIM_GPU_MAX];
    unsigned cc_major;
    unsigned cc_minor;
    uint64_t context_bytes;
    uint64_t copy_bytes_per_s; /* 0: as fast as it goes */
    uint64_t checkpoint_floor_ms;
    uint64_t restore_floor_ms;
    uint64_t init_ms;
    bool persistence;
    bool mig;
    char driver_version[SIM_NAME_MAX];
};

/*
 * The root: GPUCR_SIM_ROOT, else the folder above the library itself that holds state/config.
 * Found once and kept, so that it survives a restore; NULL when there is none.
 */
const char *sim_root(void);

/* Writes ROOT/tail. Returns false when it does not fit or there is no root. */
bool sim_root_path(char *path, size_t capacity, const char *tail);

/* Returns false when the configuration is missing or damaged. */
bool sim_config_read(struct sim_config *config);

/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"; text holds at least 41 bytes. */
void sim_uuid_format(const uint8_t uuid[SIM_UUID_SIZE], char *text, size_t capacity);
bool sim_uuid_parse(const char *text, uint8_t uuid[SIM_UUID_SIZE]);

/* "0000:17:00.0" */
void sim_bus_id_format(unsigned gpu, char *text, size_t capacity);

#endif
