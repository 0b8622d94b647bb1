/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * Finding criu, and finding out what it and the machine can do.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/breakpoint.h"
#include "engine/criu_channel.h"
#include "engine/criu_engine.h"
#include "engine/criu_options.h"
#include "engine/trusted_path.h"

enum { VERSION_ANSWER_MS = 10000 };

/* Debian's and upstream's folders; our own setting of the plugin folder keeps them out. */
static const char *const plugin_folders[] = {"/usr/lib/criu", "/usr/local/lib/criu",
                                             "/usr/lib/x86_64-linux-gnu/criu", "/usr/lib64/criu"};

/* First executable regular file of that name in PATH. */
static int search_path(char *ret, size_t size, struct gpucr_error *err)
{
    const char *path = getenv("PATH");
    const char *end;

    for (; path && *path; path = *end ? end + 1 : end) {
        struct stat st;
        int n;

        end = strchrnul(path, ':');
        n = snprintf(ret, size, "%.*s/criu", (int)(end - path), path);
        /* Relative entries depend on where somebody stands. */
        if (*path != '/' || n < 0 || (size_t)n >= size)
            continue;
        if (stat(ret, &st) == 0 && S_ISREG(st.st_mode) && access(ret, X_OK) == 0)
            return 0;
    }
    return gpucr_error_set(err, GPUCR_ERR_ENGINE_MISSING,
                           "there is no criu in PATH; install CRIU 4.0 or newer, or name one with "
                           "--criu or in GPUCR_CRIU");
}

/* criu is started with "/" as its folder. */
static int absolute(const char *wanted, char *ret, size_t size, struct gpucr_error *err)
{
    GPUCR_AUTO_FREE char *full = realpath(wanted, NULL);

    if (!full)
        return gpucr_error_errno(err, errno, "cannot resolve the path %s", wanted);
    if (!gpucr_copy_text(ret, size, full))
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "the path of criu is too long: %s", full);
    return 0;
}

static int find(const char *wanted, char *ret, size_t size, struct gpucr_error *err)
{
    const char *source = "--criu";
    struct stat st;

    if (!wanted || !*wanted) {
        wanted = getenv("GPUCR_CRIU");
        source = "GPUCR_CRIU";
    }
    if (!wanted || !*wanted)
        return search_path(ret, size, err);
    if (stat(wanted, &st) != 0 || !S_ISREG(st.st_mode) || access(wanted, X_OK) != 0)
        return gpucr_error_path(err,
                                gpucr_error_set(err, GPUCR_ERR_ENGINE_MISSING,
                                                "%s names %s, which is not a program", source,
                                                wanted),
                                wanted);
    return absolute(wanted, ret, size, err);
}

static void name_foreign_plugins(void)
{
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(plugin_folders); i++) {
        char path[128];

        (void)snprintf(path, sizeof(path), "%s/cuda_plugin.so", plugin_folders[i]);
        if (access(path, F_OK) == 0)
            gpucr_info("CRIU's own CUDA plugin %s is left out: it would wait for ever for the "
                       "driver's answer from a stopped process",
                       path);
    }
}

/* The answer to VERSION, or an error. */
static int ask(struct gpucr_criu_channel *channel, GpucrCriu__Response **ret,
               struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(VERSION_ANSWER_MS);
    GpucrCriu__Request request = GPUCR_CRIU__REQUEST__INIT;
    int rc;

    request.type = GPUCR_CRIU__KIND__VERSION;
    rc = gpucr_criu_channel_send(channel, &request, err);
    while (rc == 0) {
        rc = gpucr_criu_channel_receive(channel, gpucr_deadline_left_ms(deadline), ret, err);
        if (rc == 0 && gpucr_deadline_passed(deadline))
            return gpucr_error_set(err, GPUCR_ERR_ENGINE_HUNG,
                                   "criu did not tell its version within %d seconds",
                                   VERSION_ANSWER_MS / 1000);
    }
    return rc < 0 ? rc : 0;
}

static int read_version(struct gpucr_criu_channel *channel, int32_t *ret, struct gpucr_error *err)
{
    GpucrCriu__Response *response = NULL;
    int rc = ask(channel, &response, err);

    if (rc == 0 && response && response->version && response->version->major_number >= 0 &&
        response->version->major_number < 1000 && response->version->minor_number >= 0 &&
        response->version->minor_number < 100)
        *ret = response->version->major_number * 10000 + response->version->minor_number * 100 +
               (response->version->sublevel > 0 ? response->version->sublevel % 100 : 0);
    else if (rc == 0)
        rc = gpucr_error_set(err, GPUCR_ERR_ENGINE_MISSING, "criu does not tell its version");
    gpucr_criu__response__free_unpacked(response, NULL);
    return rc;
}

static int probe_version(const char *path, bool breakpoints, int32_t *ret, struct gpucr_error *err)
{
    struct gpucr_criu_start start = {.path = path,
                                     .hardware_breakpoints = breakpoints,
                                     .terminal_fd = -1,
                                     .config_fd = -1,
                                     .images_fd = -1,
                                     .work_fd = -1};
    struct gpucr_criu_channel channel = GPUCR_CRIU_CHANNEL_INIT;
    char said[256];
    int rc = gpucr_criu_channel_open(&start, &channel, err);

    if (rc == 0) {
        rc = read_version(&channel, ret, err);
        gpucr_criu_channel_output(&channel, said, sizeof(said));
        if (rc == GPUCR_ERR_ENGINE)
            rc = gpucr_error_set(err, GPUCR_ERR_ENGINE_MISSING,
                                 "%s is no usable criu: it does not speak CRIU's RPC%s%s", path,
                                 said[0] ? "; it says: " : "", said);
        gpucr_criu_channel_done(&channel);
    }
    if (rc != 0)
        return gpucr_error_path(err, rc, path);
    if (*ret < GPUCR_CRIU_VERSION_MIN)
        return gpucr_error_path(
            err,
            gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                            "%s is version %d.%d.%d, but CRIU 4.0 or newer is needed%s", path,
                            *ret / 10000, *ret / 100 % 100, *ret % 100,
                            *ret >= 31700 && *ret < 31800
                                ? " (3.17 as in Debian 12 also fails on kernels from 6.2 on)"
                                : ""),
            path);
    return 0;
}

static void close_engine(struct gpucr_engine *engine)
{
    free(engine);
}

static int check_options(const struct gpucr_engine_options *options, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int config_fd = -1;

    return gpucr_criu_options_config(options, &config_fd, err);
}

static const struct gpucr_engine_ops criu_ops = {
    .name = "criu",
    .check_options = check_options,
    .dump = gpucr_criu_dump,
    .restore = gpucr_criu_restore,
    .close = close_engine,
};

int gpucr_engine_open_criu(const char *path, struct gpucr_engine **ret, struct gpucr_error *err)
{
    GPUCR_AUTO_FREE struct gpucr_engine *engine = calloc(1, sizeof(*engine));
    int rc;

    if (!engine)
        return gpucr_error_no_memory(err);
    engine->ops = &criu_ops;
    rc = find(path, engine->path, sizeof(engine->path), err);
    if (rc == 0)
        rc = gpucr_trusted_path_check(engine->path, err);
    if (rc != 0)
        return rc;
    engine->hardware_breakpoints = gpucr_breakpoints_fire();
    rc = probe_version(engine->path, engine->hardware_breakpoints, &engine->version, err);
    if (rc != 0)
        return rc;
    name_foreign_plugins();
    gpucr_debug("criu %d.%d.%d is %s; hardware breakpoints %s", engine->version / 10000,
                engine->version / 100 % 100, engine->version % 100, engine->path,
                engine->hardware_breakpoints ? "fire" : "do not fire, criu works without them");
    *ret = gpucr_steal_ptr(&engine);
    return 0;
}

struct gpucr_engine *gpucr_engine_close(struct gpucr_engine *engine)
{
    if (engine)
        engine->ops->close(engine);
    return NULL;
}
