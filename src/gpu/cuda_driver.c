/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The driver vtable on libcuda's checkpoint calls. */
#include "gpu/cuda_driver.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "gpu/condition.h"
#include "gpu/driver_init.h"
#include "gpu/driver_library.h"

static struct gpucr_cuda_driver *cuda_of(struct gpucr_driver *driver)
{
    return (struct gpucr_cuda_driver *)driver;
}

/*
 * Does the binding work at all? Asked for ourselves, who have no CUDA state, the
 * driver says NOT_INITIALIZED, or SUCCESS in a program that uses CUDA. Anything
 * else would be taken for a trait of the target.
 */
static void self_test_locked(struct gpucr_cuda_driver *cuda)
{
    int state = 0;
    int code = cuda->calls.get_state(getpid(), &state);

    cuda->self_test_done = true;
    if (code == GPUCR_CU_NOT_INITIALIZED || code == GPUCR_CU_SUCCESS)
        return;
    cuda->self_test_rc = gpucr_error_set(
        &cuda->self_test_error, GPUCR_ERR_DRIVER,
        "the driver's checkpoint calls do not work for gpucr here: asked for gpucr's own process, "
        "%s answers %s (%d): %s",
        cuda->base.library_path, gpucr_cuda_error_name(code), code, gpucr_cuda_error_hint(code));
    cuda->self_test_error.driver_code = code;
}

static int self_test(struct gpucr_cuda_driver *cuda, struct gpucr_error *err)
{
    GPUCR_SCOPED_LOCK(lock, &cuda->self_test_mutex);

    if (!cuda->self_test_done)
        self_test_locked(cuda);
    if (cuda->self_test_rc < 0 && err)
        *err = cuda->self_test_error;
    return cuda->self_test_rc;
}

/* Before every call on a process. */
static int prepare(struct gpucr_cuda_driver *cuda, enum gpucr_cuda_op op, pid_t pid,
                   struct gpucr_error *err)
{
    if (pid <= 0)
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "%d is not a process id", pid);
    if (pid == getpid() && op != GPUCR_CUDA_OP_GET_STATE && op != GPUCR_CUDA_OP_GET_RESTORE_THREAD)
        return gpucr_error_set(err, GPUCR_ERR_USAGE,
                               "gpucr cannot handle its own process %d: it would wait for itself",
                               pid);
    return self_test(cuda, err);
}

static int finish(struct gpucr_cuda_driver *cuda, struct gpucr_cuda_failure *failure,
                  struct gpucr_error *err)
{
    int state = -1;

    gpucr_trace("%s(%d) = %d", gpucr_cuda_op_name(failure->op), failure->pid, failure->code);
    if (failure->code == GPUCR_CU_SUCCESS)
        return 0;
    /* It has just answered, so it answers this as well. */
    if (failure->code == GPUCR_CU_ILLEGAL_STATE &&
        cuda->calls.get_state(failure->pid, &state) == GPUCR_CU_SUCCESS)
        failure->now_state = gpucr_cuda_state_name((enum gpucr_cuda_state)state);
    return gpucr_cuda_explain(failure, err);
}

static int cuda_init(struct gpucr_driver *driver, struct gpucr_error *err)
{
    struct gpucr_cuda_driver *cuda = cuda_of(driver);
    int code = cuda->calls.init(0);

    if (code == GPUCR_CU_SUCCESS)
        return 0;
    return gpucr_cuda_explain_init(code, driver->library_path, err);
}

static int cuda_get_state(struct gpucr_driver *driver, pid_t pid, enum gpucr_cuda_state *ret,
                          struct gpucr_error *err)
{
    struct gpucr_cuda_failure call = {.op = GPUCR_CUDA_OP_GET_STATE, .pid = pid};
    struct gpucr_cuda_driver *cuda = cuda_of(driver);
    int state = -1;
    int rc = prepare(cuda, call.op, pid, err);

    if (rc < 0)
        return rc;
    call.code = cuda->calls.get_state(pid, &state);
    rc = finish(cuda, &call, err);
    if (rc == 0)
        *ret = (enum gpucr_cuda_state)state;
    return rc;
}

static int cuda_get_restore_thread(struct gpucr_driver *driver, pid_t pid, pid_t *ret,
                                   struct gpucr_error *err)
{
    struct gpucr_cuda_failure call = {.op = GPUCR_CUDA_OP_GET_RESTORE_THREAD, .pid = pid};
    struct gpucr_cuda_driver *cuda = cuda_of(driver);
    int tid = 0;
    int rc = prepare(cuda, call.op, pid, err);

    if (rc < 0)
        return rc;
    call.code = cuda->calls.get_restore_thread(pid, &tid);
    rc = finish(cuda, &call, err);
    if (rc == 0)
        *ret = tid;
    return rc;
}

static int cuda_lock(struct gpucr_driver *driver, pid_t pid, uint32_t timeout_ms,
                     struct gpucr_error *err)
{
    struct gpucr_cuda_failure call = {.op = GPUCR_CUDA_OP_LOCK, .pid = pid};
    /* To the driver 0 means for ever, which nobody here means. */
    struct gpucr_cu_lock_args args = {.timeout_ms = timeout_ms ? timeout_ms : 1};
    struct gpucr_cuda_driver *cuda = cuda_of(driver);
    int rc = prepare(cuda, call.op, pid, err);

    if (rc == 0)
        rc = gpucr_fault("driver.lock", err);
    if (rc < 0)
        return rc;
    call.timeout_ms = args.timeout_ms;
    call.code = cuda->calls.lock(pid, &args);
    return finish(cuda, &call, err);
}

static int cuda_checkpoint(struct gpucr_driver *driver, pid_t pid, struct gpucr_error *err)
{
    struct gpucr_cuda_failure call = {.op = GPUCR_CUDA_OP_CHECKPOINT, .pid = pid};
    struct gpucr_cu_checkpoint_args args = {0};
    struct gpucr_cuda_driver *cuda = cuda_of(driver);
    int rc = prepare(cuda, call.op, pid, err);

    if (rc == 0)
        rc = gpucr_fault("driver.checkpoint", err);
    if (rc < 0)
        return rc;
    call.code = cuda->calls.checkpoint(pid, &args);
    return finish(cuda, &call, err);
}

static struct gpucr_cu_gpu_pair *pairs_for_driver(const struct gpucr_gpu_pair *pairs,
                                                  uint32_t count)
{
    struct gpucr_cu_gpu_pair *out = calloc(count, sizeof(*out));

    for (uint32_t i = 0; out && i < count; i++) {
        (void)memcpy(out[i].old_uuid, pairs[i].from.bytes, sizeof(out[i].old_uuid));
        (void)memcpy(out[i].new_uuid, pairs[i].to.bytes, sizeof(out[i].new_uuid));
    }
    return out;
}

static int cuda_restore(struct gpucr_driver *driver, pid_t pid, const struct gpucr_gpu_pair *pairs,
                        uint32_t pair_count, struct gpucr_error *err)
{
    struct gpucr_cuda_failure call = {.op = GPUCR_CUDA_OP_RESTORE, .pid = pid};
    GPUCR_AUTO_FREE struct gpucr_cu_gpu_pair *list = NULL;
    struct gpucr_cu_restore_args args = {0};
    struct gpucr_cuda_driver *cuda = cuda_of(driver);
    int rc = prepare(cuda, call.op, pid, err);

    if (rc < 0)
        return rc;
    if (pair_count > 0 && !driver->can_remap)
        return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                               "a device map needs driver 580 (CUDA 13.0) or newer; %s is of CUDA "
                               "%d.%d",
                               driver->library_path, driver->cuda_version / 1000,
                               driver->cuda_version % 1000 / 10);
    /* The caller of Restore must have called cuInit, or the driver refuses. */
    rc = gpucr_driver_wait_init(driver, err);
    if (rc == 0)
        rc = gpucr_fault("driver.restore", err);
    if (rc < 0)
        return rc;
    if (pair_count > 0) {
        list = pairs_for_driver(pairs, pair_count);
        if (!list)
            return gpucr_error_no_memory(err);
        args.gpu_pairs = list;
        args.gpu_pair_count = pair_count;
    }
    call.pair_count = pair_count;
    call.code = cuda->calls.restore(pid, &args);
    return finish(cuda, &call, err);
}

static int cuda_unlock(struct gpucr_driver *driver, pid_t pid, struct gpucr_error *err)
{
    struct gpucr_cuda_failure call = {.op = GPUCR_CUDA_OP_UNLOCK, .pid = pid};
    struct gpucr_cu_unlock_args args = {0};
    struct gpucr_cuda_driver *cuda = cuda_of(driver);
    int rc = prepare(cuda, call.op, pid, err);

    if (rc == 0)
        rc = gpucr_fault("driver.unlock", err);
    if (rc < 0)
        return rc;
    call.code = cuda->calls.unlock(pid, &args);
    return finish(cuda, &call, err);
}

static void cuda_close(struct gpucr_driver *driver)
{
    struct gpucr_cuda_driver *cuda = cuda_of(driver);
    bool initialised = driver->init && gpucr_driver_init_was_started(driver);

    driver->init = gpucr_driver_init_free(driver->init);
    (void)pthread_mutex_destroy(&cuda->self_test_mutex);
    /* After cuInit the driver has threads and exit handlers: its code must stay. */
    if (cuda->handle && !initialised)
        (void)dlclose(cuda->handle);
    free(cuda);
}

static const struct gpucr_driver_ops cuda_ops = {
    .init = cuda_init,
    .get_state = cuda_get_state,
    .get_restore_thread = cuda_get_restore_thread,
    .lock = cuda_lock,
    .checkpoint = cuda_checkpoint,
    .restore = cuda_restore,
    .unlock = cuda_unlock,
    .close = cuda_close,
};

static void *find_call(void *handle, gpucr_cu_get_proc_address_fn get, const char *symbol,
                       int version)
{
    void *found = NULL;
    int status = 0;

    if (get && get(symbol, &found, version, 0, &status) == GPUCR_CU_SUCCESS && status == 0 && found)
        return found;
    return dlsym(handle, symbol);
}

/* Number behind "libcuda.so.", which is the driver's version; "" if there is none. */
static const char *version_in_path(const char *path)
{
    static const char mark[] = "libcuda.so.";
    const char *at = strstr(path, mark);

    if (!at || !strchr(at + sizeof(mark) - 1, '.'))
        return "";
    return at + sizeof(mark) - 1;
}

static int too_old(const struct gpucr_driver *driver, const char *missing, struct gpucr_error *err)
{
    const char *name = version_in_path(driver->library_path);
    int rc = gpucr_error_set(
        err, GPUCR_ERR_UNSUPPORTED,
        "the driver cannot checkpoint processes by its C API (%s%s): that needs driver 570 (CUDA "
        "12.8) or newer, and installed is driver %s with CUDA %d.%d",
        missing ? "it has no " : "its version is too low", missing ? missing : "",
        *name ? name : driver->library_path, driver->cuda_version / 1000,
        driver->cuda_version % 1000 / 10);

    return gpucr_error_path(err, rc, driver->library_path);
}

static int bind_calls(struct gpucr_cuda_driver *cuda, struct gpucr_error *err)
{
    gpucr_cu_driver_get_version_fn get_version = NULL;
    gpucr_cu_get_proc_address_fn get = NULL;
    const char *missing = NULL;
    int code;

    *(void **)&get_version = dlsym(cuda->handle, "cuDriverGetVersion");
    *(void **)&get = dlsym(cuda->handle, "cuGetProcAddress_v2");
    if (!get_version)
        return gpucr_error_path(
            err,
            gpucr_error_set(err, GPUCR_ERR_DRIVER_MISSING,
                            "%s is no CUDA driver library: it has no cuDriverGetVersion",
                            cuda->base.library_path),
            cuda->base.library_path);
    code = get_version(&cuda->base.cuda_version);
    if (code != GPUCR_CU_SUCCESS) {
        gpucr_error_set(err, GPUCR_ERR_DRIVER, "cuDriverGetVersion of %s failed with %s (%d): %s",
                        cuda->base.library_path, gpucr_cuda_error_name(code), code,
                        gpucr_cuda_error_hint(code));
        if (err)
            err->driver_code = code;
        return gpucr_error_path(err, GPUCR_ERR_DRIVER, cuda->base.library_path);
    }
#define BIND(field, symbol, version, args)                                                         \
    *(void **)&cuda->calls.field = find_call(cuda->handle, get, symbol, version);                  \
    if (!cuda->calls.field && !missing)                                                            \
        missing = symbol;
    GPUCR_CUDA_CALLS(BIND)
#undef BIND
    if (missing || cuda->base.cuda_version < GPUCR_CUDA_VERSION_CHECKPOINT)
        return too_old(&cuda->base, missing, err);
    /* The map is a field of Restore's arguments, without a symbol of its own to look for. */
    cuda->base.can_remap = cuda->base.cuda_version >= GPUCR_CUDA_VERSION_REMAP;
    return 0;
}

static void close_cuda(struct gpucr_cuda_driver **cuda)
{
    if (*cuda)
        (void)gpucr_driver_close(&(*cuda)->base);
}

int gpucr_driver_open(const char *driver_root, struct gpucr_driver **ret, struct gpucr_error *err)
{
    struct gpucr_cuda_driver *cuda GPUCR_CLEANUP(close_cuda) = calloc(1, sizeof(*cuda));
    int rc;

    if (!cuda)
        return gpucr_error_no_memory(err);
    cuda->base.ops = &cuda_ops;
    cuda->self_test_error.device = -1;
    (void)pthread_mutex_init(&cuda->self_test_mutex, NULL);
    rc = gpucr_driver_init_new(&cuda->base, err);
    if (rc == 0)
        rc = gpucr_driver_library_load(driver_root, "libcuda.so.1", &cuda->handle,
                                       cuda->base.library_path, err);
    if (rc == 0)
        rc = bind_calls(cuda, err);
    if (rc < 0)
        return rc;
    gpucr_debug("%s: CUDA %d.%d%s", cuda->base.library_path, cuda->base.cuda_version / 1000,
                cuda->base.cuda_version % 1000 / 10, cuda->base.can_remap ? ", device map" : "");
    *ret = &gpucr_steal_ptr(&cuda)->base;
    return 0;
}
