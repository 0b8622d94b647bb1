/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file gpucr/result.h
 * What an operation did: to each process, in which phases, and how it ended.
 *
 * A result is filled by the calls of gpucr/job.h on success and on failure
 * alike, so that every process that failed is reported with its cause and with
 * what became of it. Release it with gpucr_result_done().
 *
 * Since: 0.1
 */
#ifndef GPUCR_RESULT_H
#define GPUCR_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpucr/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How an operation ended; the exit status of the command follows from it. */
enum gpucr_outcome {
    GPUCR_OUTCOME_DONE = 0,        /**< done, and the end state was verified */
    GPUCR_OUTCOME_REFUSED,         /**< refused before anything was changed */
    GPUCR_OUTCOME_ROLLED_BACK,     /**< failed; everything is as it was before */
    GPUCR_OUTCOME_NOT_ROLLED_BACK, /**< failed; something is not as it was before */
};

/** State of a process as the user sees it. */
enum gpucr_process_state {
    GPUCR_PROCESS_UNKNOWN = 0,
    GPUCR_PROCESS_RUNNING,      /**< runs */
    GPUCR_PROCESS_STOPPED,      /**< stopped by its owner, GPU state in place */
    GPUCR_PROCESS_LOCKED,       /**< CUDA calls are locked, GPU state in place */
    GPUCR_PROCESS_SUSPENDED,    /**< stopped, GPU state in host memory */
    GPUCR_PROCESS_CHECKPOINTED, /**< GPU state in host memory, CPU threads run */
    GPUCR_PROCESS_FAILED,       /**< the driver lost it */
    GPUCR_PROCESS_GONE,         /**< ended */
    GPUCR_PROCESS_STATE_MAX,
};

enum {
    GPUCR_NAME_BYTES = 64,
    GPUCR_GPUS_PER_PROCESS_MAX = 64,
    GPUCR_UUID_BYTES = 41, /**< "GPU-" and 36 characters, and the NUL */
};

/** One process of the tree. */
struct gpucr_process_result {
    int32_t pid; /**< as the caller sees it */
    int32_t parent_pid;
    int32_t namespace_pid; /**< in its own pid namespace */
    uint64_t start_ticks;  /**< field 22 of /proc/PID/stat */
    char name[GPUCR_NAME_BYTES];
    bool is_cuda;                    /**< has CUDA state */
    bool holds_device;               /**< has GPU device files open or mapped, but no CUDA state */
    bool was_stopped;                /**< its owner had stopped it before */
    enum gpucr_process_state before; /**< when the operation began */
    enum gpucr_process_state after;  /**< read back at the end */
    uint64_t device_bytes;           /**< device memory in use when the operation began */
    uint64_t device_bytes_after;     /**< device memory in use when it ended */
    uint64_t host_bytes;             /**< resident host memory when it began */
    uint32_t gpu_count;
    uint32_t gpus[GPUCR_GPUS_PER_PROCESS_MAX]; /**< GPU indices in use, NVML order */
    struct gpucr_error error;                  /**< its own failure, code 0 if none */
};

enum gpucr_severity {
    GPUCR_SEVERITY_NOTE = 0, /**< for information */
    GPUCR_SEVERITY_WARN,     /**< may lead to trouble */
    GPUCR_SEVERITY_REFUSE,   /**< the operation does not start; `--force NAME` overrides */
};

/** One finding of the preflight. */
struct gpucr_finding {
    char name[GPUCR_ERROR_FINDING_BYTES]; /**< stable, "orphanable-group" */
    enum gpucr_severity severity;
    bool can_force;                      /**< a refusal that the caller may override */
    bool forced;                         /**< the caller overrode a refusal */
    int32_t pid;                         /**< process concerned, or 0 for the machine */
    char text[GPUCR_ERROR_TEXT_BYTES];   /**< what, and why it matters */
    char remedy[GPUCR_ERROR_TEXT_BYTES]; /**< what to do */
};

enum { GPUCR_PHASES_MAX = 24, GPUCR_LOG_LINES_MAX = 24, GPUCR_LOG_LINE_BYTES = 512 };

/** One phase with its cost. */
struct gpucr_phase {
    const char *name; /**< static string: "lock", "hold", "checkpoint", "dump", … */
    uint64_t bytes;   /**< moved, 0 where nothing is moved */
    uint64_t ns;
    uint64_t driver_ns; /**< of it inside the driver: the longest of the parallel calls */
};

/** A line of an engine's log that explains a failure. */
struct gpucr_log_line {
    bool is_cause;                   /**< the first cause; the others are its consequences */
    char text[GPUCR_LOG_LINE_BYTES]; /**< numbers of mounts and files resolved to paths */
};

/** The whole result of an operation. */
struct gpucr_result {
    enum gpucr_outcome outcome;
    struct gpucr_error error; /**< the first cause, code 0 if none */
    struct gpucr_process_result *processes;
    size_t process_count;
    struct gpucr_finding *findings;
    size_t finding_count;
    struct gpucr_phase phases[GPUCR_PHASES_MAX];
    size_t phase_count;
    struct gpucr_log_line log_lines[GPUCR_LOG_LINES_MAX];
    size_t log_line_count;
    uint64_t total_ns;
    uint64_t image_bytes; /**< size of the image written or read, 0 if none */
    int32_t root_pid;     /**< root of the tree handled or restored */
    int32_t exit_status;  /**< foreground restore: wait status of the root process */
};

#define GPUCR_RESULT_INIT                                                                          \
    {                                                                                              \
        .error = GPUCR_ERROR_INIT                                                                  \
    }

/** Release what a result owns and empty it. NULL is fine. */
void gpucr_result_done(struct gpucr_result *result);

/** Names as in JSON output; never NULL. */
const char *gpucr_outcome_name(enum gpucr_outcome outcome);
const char *gpucr_process_state_name(enum gpucr_process_state state);
const char *gpucr_severity_name(enum gpucr_severity severity);

#ifdef __cplusplus
}
#endif
#endif
