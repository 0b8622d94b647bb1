/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gpu/driver.h"

#include <assert.h>
#include <signal.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/parallel.h"
#include "gpu/driver_init.h"

struct gpucr_driver_init {
    struct gpucr_driver *driver;
    pthread_mutex_t mutex;
    pthread_t thread;
    bool started;
    bool joined;
    int rc;
    struct gpucr_error error;
};

int gpucr_driver_init_new(struct gpucr_driver *driver, struct gpucr_error *err)
{
    struct gpucr_driver_init *init = calloc(1, sizeof(*init));

    if (!init)
        return gpucr_error_no_memory(err);
    init->driver = driver;
    init->error.device = -1;
    (void)pthread_mutex_init(&init->mutex, NULL);
    driver->init = init;
    return 0;
}

struct gpucr_driver_init *gpucr_driver_init_free(struct gpucr_driver_init *init)
{
    if (!init)
        return NULL;
    if (init->started && !init->joined)
        (void)pthread_join(init->thread, NULL);
    (void)pthread_mutex_destroy(&init->mutex);
    free(init);
    return NULL;
}

bool gpucr_driver_init_was_started(struct gpucr_driver *driver)
{
    GPUCR_SCOPED_LOCK(lock, &driver->init->mutex);

    return driver->init->started;
}

static void *run_init(void *arg)
{
    struct gpucr_driver_init *init = arg;
    uint64_t start_ns = gpucr_now_ns();

    init->rc = init->driver->ops->init(init->driver, &init->error);
    gpucr_debug("driver initialised in %llu ms",
                (unsigned long long)((gpucr_now_ns() - start_ns) / 1000000));
    return NULL;
}

/* With the mutex held. */
static int start_locked(struct gpucr_driver_init *init, struct gpucr_error *err)
{
    int rc;

    if (init->started)
        return 0;
    /* The driver's own threads inherit the mask: signals belong to the program. */
    rc = gpucr_thread_start(&init->thread, run_init, init);
    if (rc != 0)
        return gpucr_error_errno(err, rc, "a thread to initialise the driver cannot be started");
    init->started = true;
    return 0;
}

int gpucr_driver_start_init(struct gpucr_driver *driver, struct gpucr_error *err)
{
    GPUCR_SCOPED_LOCK(lock, &driver->init->mutex);

    return start_locked(driver->init, err);
}

int gpucr_driver_wait_init(struct gpucr_driver *driver, struct gpucr_error *err)
{
    struct gpucr_driver_init *init = driver->init;
    GPUCR_SCOPED_LOCK(lock, &init->mutex);
    int rc = start_locked(init, err);

    if (rc < 0)
        return rc;
    if (!init->joined) {
        (void)pthread_join(init->thread, NULL);
        init->joined = true;
    }
    if (init->rc < 0 && err)
        *err = init->error;
    return init->rc;
}

struct gpucr_driver *gpucr_driver_close(struct gpucr_driver *driver)
{
    if (driver)
        driver->ops->close(driver);
    return NULL;
}

const char *gpucr_cuda_state_name(enum gpucr_cuda_state state)
{
    static const char *const names[] = {
        [GPUCR_CUDA_RUNNING] = "running",
        [GPUCR_CUDA_LOCKED] = "locked",
        [GPUCR_CUDA_CHECKPOINTED] = "checkpointed",
        [GPUCR_CUDA_FAILED] = "failed",
        [GPUCR_CUDA_CHECKPOINTING] = "checkpointing",
        [GPUCR_CUDA_RESTORING] = "restoring",
    };

    if ((unsigned)state >= GPUCR_ARRAY_SIZE(names))
        return "unknown";
    return names[state];
}
