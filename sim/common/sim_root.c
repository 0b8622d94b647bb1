/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "sim_root.h"

#include "sim_sys.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root_path[SIM_PATH_MAX];
static pthread_once_t root_once = PTHREAD_ONCE_INIT;

static bool try_root(const char *path)
{
    char probe[SIM_PATH_MAX + 16];

    snprintf(probe, sizeof(probe), "%s/state/config", path);
    if (access(probe, R_OK) != 0 || strlen(path) >= sizeof(root_path))
        return false;
    memcpy(root_path, path, strlen(path) + 1);
    return true;
}

/* ROOT/lib/libcuda.so.1 and ROOT/usr/lib/x86_64-linux-gnu/libcuda.so.1 both lie below the root. */
static void find_by_library(void)
{
    char path[SIM_PATH_MAX];
    Dl_info info;

    if (!dladdr((void *)&try_root, &info) || !info.dli_fname || info.dli_fname[0] != '/' ||
        strlen(info.dli_fname) >= sizeof(path))
        return;
    memcpy(path, info.dli_fname, strlen(info.dli_fname) + 1);
    for (int up = 0; up < 5; up++) {
        char *slash = strrchr(path, '/');

        if (!slash || slash == path)
            return;
        *slash = '\0';
        if (try_root(path))
            return;
    }
}

static void find_root(void)
{
    const char *named = getenv("GPUCR_SIM_ROOT");

    if (named && named[0] == '/' && try_root(named))
        return;
    find_by_library();
}

const char *sim_root(void)
{
    /* Not pthread_once alone: the restore thread must not wait for a thread that is stopped in it.
     */
    if (!root_path[0])
        pthread_once(&root_once, find_root);
    return root_path[0] ? root_path : NULL;
}

bool sim_root_path(char *path, size_t capacity, const char *tail)
{
    const char *root = sim_root();
    int length;

    if (!root)
        return false;
    length = snprintf(path, capacity, "%s/%s", root, tail);
    return length > 0 && (size_t)length < capacity;
}

void sim_uuid_format(const uint8_t uuid[SIM_UUID_SIZE], char *text, size_t capacity)
{
    size_t at = (size_t)snprintf(text, capacity, "GPU-");

    for (int i = 0; i < SIM_UUID_SIZE && at + 4 < capacity; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            text[at++] = '-';
        at += (size_t)snprintf(text + at, capacity - at, "%02x", uuid[i]);
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

bool sim_uuid_parse(const char *text, uint8_t uuid[SIM_UUID_SIZE])
{
    uint8_t result[SIM_UUID_SIZE];

    if (strncmp(text, "GPU-", 4) != 0)
        return false;
    text += 4;
    for (int i = 0; i < SIM_UUID_SIZE; i++) {
        int high, low;

        if (*text == '-')
            text++;
        high = hex_digit(text[0]);
        low = high < 0 ? -1 : hex_digit(text[1]);
        if (low < 0)
            return false;
        result[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    memcpy(uuid, result, sizeof(result));
    return *text == '\0';
}

void sim_bus_id_format(unsigned gpu, char *text, size_t capacity)
{
    snprintf(text, capacity, "0000:%02x:00.0", 0x17 + gpu * 8);
}

/* "vram1" is the key "vram" of GPU 1; the bare key is for all GPUs. */
static bool indexed_key(const char *key, const char *base, unsigned *first, unsigned *last)
{
    size_t length = strlen(base);
    uint64_t index;

    if (strncmp(key, base, length) != 0)
        return false;
    if (!key[length]) {
        *first = 0;
        *last = SIM_GPU_MAX - 1;
        return true;
    }
    if (!sim_parse_u64(key + length, &index) || index >= SIM_GPU_MAX)
        return false;
    *first = *last = (unsigned)index;
    return true;
}

static void set_gpu_keys(struct sim_config *config, const char *key, const char *value)
{
    unsigned first, last;
    uint64_t number;

    if (indexed_key(key, "vram", &first, &last) && sim_parse_u64(value, &number)) {
        for (unsigned i = first; i <= last; i++)
            config->gpu[i].vram_bytes = number;
    } else if (indexed_key(key, "name", &first, &last)) {
        for (unsigned i = first; i <= last; i++)
            snprintf(config->gpu[i].name, SIM_NAME_MAX, "%s", value);
    } else if (indexed_key(key, "uuid", &first, &last)) {
        sim_uuid_parse(value, config->gpu[first].uuid);
    }
}

static void set_key(struct sim_config *config, const char *key, const char *value)
{
    uint64_t number = 0;
    bool is_number = sim_parse_u64(value, &number);

    if (!strcmp(key, "gpus") && is_number && number <= SIM_GPU_MAX)
        config->gpu_count = (unsigned)number;
    else if (!strcmp(key, "cc_major") && is_number)
        config->cc_major = (unsigned)number;
    else if (!strcmp(key, "cc_minor") && is_number)
        config->cc_minor = (unsigned)number;
    else if (!strcmp(key, "context_bytes") && is_number)
        config->context_bytes = number;
    else if (!strcmp(key, "copy_bytes_per_s") && is_number)
        config->copy_bytes_per_s = number;
    else if (!strcmp(key, "copy_gbps"))
        config->copy_bytes_per_s = (uint64_t)(strtod(value, NULL) * 1e9);
    else if (!strcmp(key, "checkpoint_floor_ms") && is_number)
        config->checkpoint_floor_ms = number;
    else if (!strcmp(key, "restore_floor_ms") && is_number)
        config->restore_floor_ms = number;
    else if (!strcmp(key, "init_ms") && is_number)
        config->init_ms = number;
    else if (!strcmp(key, "persistence"))
        config->persistence = number != 0;
    else if (!strcmp(key, "mig"))
        config->mig = number != 0;
    else if (!strcmp(key, "driver_version"))
        snprintf(config->driver_version, SIM_NAME_MAX, "%s", value);
    else
        set_gpu_keys(config, key, value);
}

static void parse_line(struct sim_config *config, char *line)
{
    char *equals = strchr(line, '=');

    if (line[0] == '#' || !equals)
        return;
    *equals = '\0';
    set_key(config, line, equals + 1);
}

bool sim_config_read(struct sim_config *config)
{
    char path[SIM_PATH_MAX], text[8192];
    char *line = text;

    *config = (struct sim_config){.gpu_count = 1,
                                  .cc_major = 9,
                                  .context_bytes = 64ull << 20,
                                  .checkpoint_floor_ms = 20,
                                  .restore_floor_ms = 10};
    snprintf(config->driver_version, SIM_NAME_MAX, "580.159.04-sim");
    for (unsigned i = 0; i < SIM_GPU_MAX; i++) {
        config->gpu[i].vram_bytes = 4ull << 30;
        snprintf(config->gpu[i].name, SIM_NAME_MAX, "Simulated H200");
    }
    if (!sim_root_path(path, sizeof(path), "state/config") ||
        sim_read_file(path, text, sizeof(text)) < 0)
        return false;
    while (*line) {
        char *end = strchr(line, '\n');
        char *next = end ? end + 1 : line + strlen(line);

        if (end)
            *end = '\0';
        parse_line(config, line);
        line = next;
    }
    return true;
}
