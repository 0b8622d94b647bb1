/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * One restore. criu makes the root with CLONE_PARENT (rst_sibling), so that it
 * becomes a child of whoever started criu: of the calling process, or of the keeper
 * of a fresh pid namespace.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/criu_channel.h"
#include "engine/criu_engine.h"
#include "engine/criu_explain.h"
#include "engine/criu_options.h"
#include "engine/criu_spawn.h"
#include "engine/criu_teardown.h"
#include "engine/criu_watch.h"
#include "engine/keeper.h"
#include "proc/tree.h"

enum { END_MS = 30000, STOPPED_MS = 10000 };

struct restore {
    const struct gpucr_engine *engine;
    const struct gpucr_engine_restore *request;
    enum gpucr_criu_rights rights;
    struct gpucr_criu_channel channel;
    struct gpucr_criu_watch watch;
    struct gpucr_keeper keeper; /* with pid_namespace */
    struct gpucr_criu_teardown *teardown;
    bool asked; /* criu has the request: it may have made something */
    pid_t root; /* as criu sees it */
};

/* criu hands a terminal to a shell job by its own standard input. */
static int terminal(const struct gpucr_engine_options *options)
{
    return options->shell_job && isatty(STDIN_FILENO) ? STDIN_FILENO : -1;
}

static int start(struct restore *restore, struct gpucr_error *err)
{
    const struct gpucr_engine_restore *request = restore->request;
    GPUCR_AUTO_FD int config_fd = -1;
    struct gpucr_criu_start start = {
        .path = restore->engine->path,
        .hardware_breakpoints = restore->engine->hardware_breakpoints,
        .terminal_fd = terminal(&request->options),
        .images_fd = request->images_fd,
        .work_fd = request->work_fd,
    };
    int rc = gpucr_criu_options_config(&request->options, &config_fd, err);

    if (rc != 0)
        return rc;
    if (mkdirat(request->work_fd, GPUCR_CRIU_PLUGIN_DIR, 0700) != 0 && errno != EEXIST)
        return gpucr_error_errno(err, errno, "cannot create criu's empty plugin folder");
    start.config_fd = config_fd;
    if (request->pid_namespace)
        return gpucr_keeper_start(&start, &restore->keeper, &restore->channel, err);
    return gpucr_criu_channel_open(&start, &restore->channel, err);
}

static int ask(struct restore *restore, struct gpucr_error *err)
{
    const struct gpucr_engine_restore *request = restore->request;
    GpucrCriu__Options options = GPUCR_CRIU__OPTIONS__INIT;
    GpucrCriu__Request message = GPUCR_CRIU__REQUEST__INIT;

    options.images_dir_fd = -1;
    options.images_dir = (char *)GPUCR_CRIU_IMAGES_PATH;
    options.config_file = (char *)GPUCR_CRIU_CONFIG_PATH;
    options.has_rst_sibling = 1;
    options.rst_sibling = 1;
    options.has_log_level = 1;
    options.log_level = gpucr_criu_log_level();
    options.log_file = (char *)GPUCR_CRIU_RESTORE_LOG;
    /* Each question of criu's is a point at which the death of gpucr ends the restore. */
    options.has_notify_scripts = 1;
    options.notify_scripts = 1;
    options.has_unprivileged = 1;
    options.unprivileged = restore->rights == GPUCR_CRIU_RIGHTS_RESTRICTED;
    gpucr_criu_options_apply(&request->options, GPUCR_CRIU_VERB_RESTORE, &options);
    message.type = GPUCR_CRIU__KIND__RESTORE;
    message.opts = &options;
    restore->asked = true;
    return gpucr_criu_channel_send(&restore->channel, &message, err);
}

static int answer(struct restore *restore, struct gpucr_error *err)
{
    GpucrCriu__Request message = GPUCR_CRIU__REQUEST__INIT;

    message.type = GPUCR_CRIU__KIND__NOTIFY;
    message.has_notify_success = 1;
    message.notify_success = 1;
    return gpucr_criu_channel_send(&restore->channel, &message, err);
}

/* criu's final answer. */
static int judge(struct restore *restore, const GpucrCriu__Response *response,
                 struct gpucr_error *err)
{
    if (!response->success)
        return gpucr_criu_explain_answer(response, &restore->channel, "restore", err);
    if (!response->restore || response->restore->pid <= 0)
        return gpucr_error_set(err, GPUCR_ERR_ENGINE,
                               "criu reports a restore without naming the process");
    restore->root = response->restore->pid;
    return 0;
}

static int converse(struct restore *restore, struct gpucr_error *err)
{
    int rc = ask(restore, err);

    while (rc == 0) {
        GpucrCriu__Response *response = NULL;
        bool final;

        rc = gpucr_criu_watch_receive(&restore->watch, &response, err);
        if (rc != 0)
            return rc;
        final = response->type != GPUCR_CRIU__KIND__NOTIFY;
        rc = final ? judge(restore, response, err) : answer(restore, err);
        gpucr_criu__response__free_unpacked(response, NULL);
        if (final)
            return rc;
    }
    return rc;
}

/* A process of the restored tree that is neither stopped nor a zombie; 0 if there is none. */
static pid_t find_moving(pid_t root, struct gpucr_proc_stat *ret, struct gpucr_error *err)
{
    struct gpucr_tree tree = {0};
    pid_t found = 0;
    int rc = gpucr_tree_read(root, &tree, err);

    if (rc != 0)
        return rc;
    for (size_t i = 0; found == 0 && i < tree.count; i++) {
        bool is_dead = tree.items[i].state == 'Z' && tree.items[i].pid != root;

        if (tree.items[i].state == 'T' || is_dead)
            continue;
        *ret = tree.items[i];
        found = ret->pid;
    }
    gpucr_tree_done(&tree);
    return found;
}

/* criu stops the processes as it lets them go: see it happen. */
static int wait_stopped(pid_t root, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(STOPPED_MS);
    struct gpucr_proc_stat stat = {0};

    for (;;) {
        int rc = find_moving(root, &stat, err);

        if (rc <= 0)
            return rc;
        if (stat.state == 'Z' || gpucr_deadline_passed(deadline))
            return gpucr_error_pid(
                err,
                gpucr_error_set(err, GPUCR_ERR_VERIFY,
                                "process %d (%s) is in state %c after criu's restore instead of "
                                "stopped",
                                (int)stat.pid, stat.comm, stat.state),
                stat.pid);
        gpucr_sleep_us(1000);
    }
}

static int finish(struct restore *restore, struct gpucr_engine_restored *ret,
                  struct gpucr_error *err)
{
    struct gpucr_engine_restored restored = {.root = restore->root};
    int rc;

    if (restore->request->pid_namespace) {
        rc = gpucr_keeper_adopt(&restore->keeper, restore->root, &restored.root, err);
        if (rc != 0)
            return rc;
        restored.keeper = restore->keeper.pid;
    } else if (gpucr_spawn_reap(restore->channel.pid, restore->channel.pidfd, END_MS, NULL)) {
        restore->channel.pid = 0;
    }
    rc = wait_stopped(restored.root, err);
    if (rc == 0)
        *ret = restored;
    return rc;
}

static int fail(struct restore *restore, int code, struct gpucr_engine_log *log,
                struct gpucr_error *err)
{
    struct gpucr_criu_explain explain = {.work_fd = restore->request->work_fd,
                                         .images_fd = restore->request->images_fd,
                                         .log_name = GPUCR_CRIU_RESTORE_LOG,
                                         .verb = "restore"};
    struct gpucr_error undo = GPUCR_ERROR_INIT;

    code = gpucr_criu_explain(&explain, code, log, err);
    if (restore->request->pid_namespace)
        (void)gpucr_keeper_end(&restore->keeper, &undo);
    if (gpucr_criu_teardown_run(restore->teardown, &restore->channel, &undo) == 0)
        return code;
    return gpucr_criu_explain_unverified(err, &undo);
}

static int run(struct restore *restore, struct gpucr_engine_log *log,
               struct gpucr_engine_restored *ret, struct gpucr_error *err)
{
    const struct gpucr_engine_restore *request = restore->request;
    int rc = gpucr_criu_teardown_new(request, &restore->teardown, err);

    if (rc != 0)
        return rc;
    rc = start(restore, err);
    if (rc != 0)
        return rc;
    restore->watch = (struct gpucr_criu_watch){
        .channel = &restore->channel,
        .top = restore->keeper.pid,
        .images_fd = request->images_fd,
        .work_fd = request->work_fd,
        .log_name = GPUCR_CRIU_RESTORE_LOG,
        .pids = request->pid_namespace ? NULL : request->pids,
        .idle_timeout_ms = request->options.idle_timeout_ms ? request->options.idle_timeout_ms
                                                            : GPUCR_CRIU_IDLE_MS_DEFAULT,
        .cancel = request->cancel};
    gpucr_criu_watch_reset(&restore->watch);
    rc = converse(restore, err);
    if (rc == 0)
        rc = finish(restore, ret, err);
    return rc == 0 ? 0 : fail(restore, rc, log, err);
}

int gpucr_criu_restore(struct gpucr_engine *engine, const struct gpucr_engine_restore *request,
                       struct gpucr_engine_log *log, struct gpucr_engine_restored *ret,
                       struct gpucr_error *err)
{
    struct gpucr_error local = GPUCR_ERROR_INIT;
    struct restore restore = {.engine = engine,
                              .request = request,
                              .channel = GPUCR_CRIU_CHANNEL_INIT,
                              .keeper = GPUCR_KEEPER_INIT};
    int rc = gpucr_criu_rights(engine, &restore.rights, &local);

    if (rc == 0)
        rc = run(&restore, log, ret, &local);
    gpucr_criu_channel_done(&restore.channel);
    gpucr_criu_watch_done(&restore.watch);
    gpucr_keeper_done(&restore.keeper);
    gpucr_criu_teardown_free(restore.teardown);
    (void)unlinkat(request->work_fd, GPUCR_CRIU_PLUGIN_DIR, AT_REMOVEDIR);
    if (rc != 0 && err)
        *err = local;
    return rc;
}
