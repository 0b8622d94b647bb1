/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From the driver's code to a sentence with the cause. The driver says little:
 * the same code has several causes, told apart by the call and by /proc.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/condition.h"
#include "gpu/cuda_driver.h"

const char *gpucr_cuda_op_name(enum gpucr_cuda_op op)
{
    static const char *const names[GPUCR_CUDA_OP_MAX] = {
        [GPUCR_CUDA_OP_INIT] = "cuInit",
        [GPUCR_CUDA_OP_GET_STATE] = "cuCheckpointProcessGetState",
        [GPUCR_CUDA_OP_GET_RESTORE_THREAD] = "cuCheckpointProcessGetRestoreThreadId",
        [GPUCR_CUDA_OP_LOCK] = "cuCheckpointProcessLock",
        [GPUCR_CUDA_OP_CHECKPOINT] = "cuCheckpointProcessCheckpoint",
        [GPUCR_CUDA_OP_RESTORE] = "cuCheckpointProcessRestore",
        [GPUCR_CUDA_OP_UNLOCK] = "cuCheckpointProcessUnlock",
    };

    return (unsigned)op < GPUCR_CUDA_OP_MAX ? names[op] : "an unknown call";
}

enum { DYING_MS = 200 };

struct meaning {
    int code;
    int result; /* enum gpucr_code */
    const char *text;
};

/* Meanings that hold for one call only; observed on driver 580 unless stated. */
static const struct meaning checkpoint_meanings[] = {
    {GPUCR_CU_NOT_SUPPORTED, GPUCR_ERR_DRIVER,
     "it uses managed memory, memory imported from another process (CUDA IPC), or something else "
     "that the driver cannot checkpoint and does not name"},
    {GPUCR_CU_OUT_OF_MEMORY, GPUCR_ERR_DRIVER,
     "there is not enough host memory to take in its device memory"},
};

static const struct meaning restore_meanings[] = {
    {GPUCR_CU_OUT_OF_MEMORY, GPUCR_ERR_POISONED,
     "device memory ran out while it was being restored, and the driver does not take a failed "
     "restore back: it is lost"},
    {GPUCR_CU_INVALID_VALUE, GPUCR_ERR_DRIVER,
     "the device map does not name every GPU that the driver sees, or the process uses memory "
     "imported from another process (CUDA IPC or peer memory)"},
    {GPUCR_CU_NOT_SUPPORTED, GPUCR_ERR_DRIVER,
     "it shares device memory with other processes (NCCL over NVLink, CUDA IPC), or the GPU that "
     "it is restored on does not fit"},
    {GPUCR_CU_UNKNOWN, GPUCR_ERR_DRIVER,
     "the driver gives no reason; processes that share device memory (NCCL, CUDA IPC) fail so"},
};

static const struct meaning *find_meaning(const struct gpucr_cuda_failure *failure)
{
    const struct meaning *list = checkpoint_meanings;
    size_t count = sizeof(checkpoint_meanings) / sizeof(*checkpoint_meanings);

    if (failure->op == GPUCR_CUDA_OP_RESTORE) {
        list = restore_meanings;
        count = sizeof(restore_meanings) / sizeof(*restore_meanings);
    } else if (failure->op != GPUCR_CUDA_OP_CHECKPOINT) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (list[i].code == failure->code)
            return &list[i];
    }
    return NULL;
}

/* What the driver needs to reach a process is refused with this link as well. */
static bool may_reach(pid_t pid)
{
    char path[32];
    char target[1];

    (void)snprintf(path, sizeof(path), "/proc/%d/exe", pid);
    return readlink(path, target, sizeof(target)) >= 0 || (errno != EACCES && errno != EPERM);
}

static int explain_no_permission(const char *op, const char *who, pid_t pid,
                                 struct gpucr_error *err)
{
    struct gpucr_proc_status status = {.uid = {0}};

    (void)gpucr_proc_status_read(pid, &status, NULL);
    return gpucr_error_set(err, GPUCR_ERR_PERMISSION,
                           "%s failed with CUDA_ERROR_OPERATING_SYSTEM (304): %s belongs to uid %u "
                           "and gpucr, as uid %u, may not reach it; run gpucr as that user or as "
                           "root with CAP_SYS_PTRACE",
                           op, who, (unsigned)status.uid[0], (unsigned)geteuid());
}

/* OPERATING_SYSTEM: ended, somebody else's (both measured on 580), or alive and lost. */
static int explain_unreachable(const struct gpucr_cuda_failure *failure, const char *who,
                               struct gpucr_error *err)
{
    const char *op = gpucr_cuda_op_name(failure->op);

    if (!gpucr_condition_is_gone(failure->pid) && !may_reach(failure->pid))
        return explain_no_permission(op, who, failure->pid, err);
    if (gpucr_condition_await_end(failure->pid, DYING_MS))
        return gpucr_error_set(err, GPUCR_ERR_TARGET_DIED,
                               "%s failed with CUDA_ERROR_OPERATING_SYSTEM (304): %s has ended", op,
                               who);
    return gpucr_error_set(err, GPUCR_ERR_POISONED,
                           "%s on %s failed with CUDA_ERROR_OPERATING_SYSTEM (304): the process is "
                           "alive, but the driver in it does not answer any more; a restore that "
                           "failed earlier, for lack of device memory for example, leaves it so",
                           op, who);
}

static int explain_lock_timeout(const struct gpucr_cuda_failure *failure, const char *who,
                                struct gpucr_error *err)
{
    return gpucr_error_set(err, GPUCR_ERR_TIMEOUT,
                           "%s on %s failed with CUDA_ERROR_NOT_READY (600): its GPU work did not "
                           "drain within %u ms; it launches work without pause, or waits in a "
                           "collective for another process",
                           gpucr_cuda_op_name(failure->op), who, failure->timeout_ms);
}

static int explain_other(const struct gpucr_cuda_failure *failure, const char *who,
                         struct gpucr_error *err)
{
    const struct meaning *meaning = find_meaning(failure);
    int result = meaning ? meaning->result : GPUCR_ERR_DRIVER;
    const char *text = meaning ? meaning->text : gpucr_cuda_error_hint(failure->code);
    const char *state = failure->now_state;

    if (failure->code == GPUCR_CU_NOT_INITIALIZED)
        result = GPUCR_ERR_NOT_CUDA;
    return gpucr_error_set(err, result, "%s on %s failed with %s (%d): %s%s%s",
                           gpucr_cuda_op_name(failure->op), who,
                           gpucr_cuda_error_name(failure->code), failure->code, text,
                           state ? "; it is " : "", state ? state : "");
}

int gpucr_cuda_explain(const struct gpucr_cuda_failure *failure, struct gpucr_error *err)
{
    char who[96];
    int rc;

    gpucr_condition_describe(failure->pid, who, sizeof(who));
    /* Of a zombie the driver says that it has no CUDA state (580). */
    if (failure->code == GPUCR_CU_NOT_INITIALIZED && gpucr_condition_is_gone(failure->pid))
        rc = gpucr_error_set(err, GPUCR_ERR_TARGET_DIED,
                             "%s failed with CUDA_ERROR_NOT_INITIALIZED (3): %s has ended",
                             gpucr_cuda_op_name(failure->op), who);
    else if (failure->code == GPUCR_CU_OPERATING_SYSTEM)
        rc = explain_unreachable(failure, who, err);
    else if (failure->code == GPUCR_CU_NOT_READY && failure->op == GPUCR_CUDA_OP_LOCK)
        rc = explain_lock_timeout(failure, who, err);
    else
        rc = explain_other(failure, who, err);
    if (err) {
        err->driver_code = failure->code;
        err->pid = failure->pid;
    }
    return rc;
}

int gpucr_cuda_explain_init(int driver_code, const char *library_path, struct gpucr_error *err)
{
    const char *hidden = getenv("CUDA_VISIBLE_DEVICES");
    const char *text = gpucr_cuda_error_hint(driver_code);
    int rc;

    if (driver_code == GPUCR_CU_NO_DEVICE && hidden)
        rc = gpucr_error_set(err, GPUCR_ERR_DRIVER,
                             "cuInit failed with CUDA_ERROR_NO_DEVICE (100): CUDA_VISIBLE_DEVICES "
                             "is \"%s\" in gpucr's environment and may hide every GPU; unset it",
                             hidden);
    else if (driver_code == GPUCR_CU_NO_DEVICE)
        rc = gpucr_error_set(err, GPUCR_ERR_DRIVER,
                             "cuInit failed with CUDA_ERROR_NO_DEVICE (100): no GPU is there, or "
                             "/dev/nvidia* may not be opened here (container, device cgroup)");
    else if (driver_code == GPUCR_CU_UNKNOWN)
        rc = gpucr_error_set(err, GPUCR_ERR_DRIVER,
                             "cuInit failed with CUDA_ERROR_UNKNOWN (999): the kernel module does "
                             "not work; is nvidia_uvm loaded, /dev/nvidia-uvm there and "
                             "accessible, and does nvidia-smi work");
    else
        rc = gpucr_error_set(err, GPUCR_ERR_DRIVER, "cuInit of %s failed with %s (%d): %s",
                             library_path, gpucr_cuda_error_name(driver_code), driver_code, text);
    if (err)
        err->driver_code = driver_code;
    return rc;
}
