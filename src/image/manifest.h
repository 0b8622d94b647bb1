/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file manifest.h
 * manifest.json as a structure. docs/image-format.md defines every field, its
 * limits and what a reader rejects; this file follows it.
 *
 * This layer knows no process and no GPU: the facts are plain data, filled in and
 * judged by the layers above.
 */
#ifndef GPUCR_IMAGE_MANIFEST_H
#define GPUCR_IMAGE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    GPUCR_MANIFEST_VERSION = 0,
    GPUCR_MANIFEST_TEXT_BYTES = 256,
    GPUCR_MANIFEST_BYTES_MAX = 64 << 20,
    GPUCR_MANIFEST_PROCESSES_MAX = 32768,
    GPUCR_MANIFEST_THREADS_MAX = 1048576,
    GPUCR_MANIFEST_GPUS_MAX = 64,
    GPUCR_MANIFEST_OPTIONS_MAX = 128,
    GPUCR_MANIFEST_PHASES_MAX = 32,
    GPUCR_MANIFEST_FILES_MAX = 1048576,
    GPUCR_MANIFEST_PID_MAX = 4194304, /* PID_MAX_LIMIT of 64-bit kernels */
};

/** All files of an image together: 1 PiB. */
#define GPUCR_MANIFEST_IMAGE_BYTES_MAX (UINT64_C(1) << 50)

struct gpucr_manifest_gpu {
    uint32_t index;
    char uuid[48];
    char name[64];
    uint64_t memory_bytes;
};

struct gpucr_manifest_process {
    int32_t pid;    /* in the pid namespace in which the checkpoint was taken */
    int32_t ns_pid; /* in its own pid namespace */
    int32_t parent_pid;
    int32_t group; /* process group */
    int32_t session;
    uint64_t start_ticks;
    uint32_t uid, gid;
    char name[64];
    int32_t *threads; /* tids as in pid; ascending */
    size_t thread_count;
    bool was_stopped; /* its owner had stopped it: restore leaves it stopped */
    bool is_cuda;
    uint32_t cuda_state; /* driver's state before the checkpoint: the state to end in */
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint32_t gpus[GPUCR_MANIFEST_GPUS_MAX];
    uint32_t gpu_count;
};

struct gpucr_manifest_option {
    char name[64];
    char value[GPUCR_MANIFEST_TEXT_BYTES];
};

struct gpucr_manifest_phase {
    char name[32];
    uint64_t bytes;
    uint64_t ns;
};

/** One file, filled by the writer at commit. */
struct gpucr_manifest_file {
    char *path; /* relative, "criu/pages-1.img" */
    uint64_t size_bytes;
    char digest[33]; /* 128 bits in hex; algorithm in the format document */
};

struct gpucr_manifest {
    char gpucr_version[32];
    char created[32]; /* UTC, "2026-01-31T12:00:00Z" */
    char host[65];
    char kernel[GPUCR_MANIFEST_TEXT_BYTES];
    char boot_id[37];
    char engine[32]; /* "criu" */
    int32_t engine_version;
    char driver_name[32]; /* "580.159.04", "" without a driver */
    int32_t cuda_version; /* 13000, 0 without a driver */
    int32_t root_pid;
    struct gpucr_manifest_gpu gpus[GPUCR_MANIFEST_GPUS_MAX];
    size_t gpu_count;
    struct gpucr_manifest_process *processes; /* parents before children */
    size_t process_count;
    struct gpucr_manifest_option options[GPUCR_MANIFEST_OPTIONS_MAX];
    size_t option_count;
    struct gpucr_manifest_phase phases[GPUCR_MANIFEST_PHASES_MAX];
    size_t phase_count;
    struct gpucr_manifest_file *files;
    size_t file_count;
};

/** Release what the manifest owns and empty it. */
void gpucr_manifest_done(struct gpucr_manifest *manifest);

/** Release a list of files with its paths. NULL is fine. */
void gpucr_manifest_files_free(struct gpucr_manifest_file *files, size_t count);

/**
 * JSON text of the manifest; free() it. A manifest that gpucr_manifest_from_json() would
 * refuse is refused here with the same error. Names that are only shown to people
 * (processes, host, …) come out with '?' for bytes that a manifest cannot hold.
 */
int gpucr_manifest_to_json(const struct gpucr_manifest *manifest, char **ret,
                           struct gpucr_error *err);

/**
 * Would a manifest with these facts be written? The list of files is not looked at: it is
 * made by the commit. For a caller that wants to know before it goes to any length.
 */
int gpucr_manifest_check_facts(const struct gpucr_manifest *manifest, struct gpucr_error *err);

/** Parse and check everything the format document demands; gpucr_manifest_done() releases it. */
int gpucr_manifest_from_json(const char *json, size_t size_bytes, struct gpucr_manifest *ret,
                             struct gpucr_error *err);

/** Value of an option, the first one of the name, or NULL. */
const char *gpucr_manifest_option(const struct gpucr_manifest *manifest, const char *name);

/**
 * Add an option. A name or value that is too long or not plain text, and one option too many,
 * are errors (GPUCR_ERR_USAGE): nothing is cut off.
 */
int gpucr_manifest_add_option(struct gpucr_manifest *manifest, const char *name, const char *value,
                              struct gpucr_error *err);

#endif
