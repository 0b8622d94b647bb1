/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * One dump: ask criu, answer its questions, commit when it says that the images
 * are complete, and see that nothing is left behind when it fails.
 *
 * What criu does in the end (cr_dump_finish() of 4.0 to 4.2): it asks "post-dump";
 * a good answer makes it kill the tree (or let it go with leave_running), a bad one
 * makes it put every process back. A stopped process is stopped again in both cases.
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
#include "engine/criu_channel.h"
#include "engine/criu_engine.h"
#include "engine/criu_explain.h"
#include "engine/criu_guard.h"
#include "engine/criu_options.h"
#include "engine/criu_rollback.h"
#include "engine/criu_spawn.h"
#include "engine/criu_watch.h"
#include "engine/keeper.h"
#include "proc/ident.h"

enum { END_MS = 30000, GONE_MS = 10000 };

struct dump {
    const struct gpucr_engine *engine;
    const struct gpucr_engine_dump *request;
    enum gpucr_criu_rights rights;
    struct gpucr_criu_channel channel;
    struct gpucr_criu_watch watch;
    struct gpucr_keeper keeper; /* criu's parent, where criu works in another pid namespace */
    pid_t root;                 /* as criu sees it */
    struct gpucr_criu_guard *guard;
    struct gpucr_criu_rollback *rollback;
    bool asked;                      /* criu has the request: it may have touched the tree */
    bool answered;                   /* criu gave its final answer */
    bool committed;                  /* commit() succeeded */
    struct gpucr_error commit_error; /* code 0: none */
};

/* When memory runs out, the kernel should not choose the process whose sudden death can
 * harm others (criu_guard.h). Without CAP_SYS_RESOURCE this is refused. */
static void spare_from_oom(pid_t pid)
{
    GPUCR_AUTO_FD int fd = -1;
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "-1000", 5) != 5)
        gpucr_debug("criu is not spared from the lack of memory: %s", strerror(errno));
}

/*
 * criu dumps a tree whose root is the first process of another pid namespace from
 * outside. Any other tree there (one restored with a namespace of its own, where the
 * first process is the keeper) it dumps only from inside.
 */
static bool lives_elsewhere(pid_t root, pid_t *ret_inside)
{
    struct gpucr_proc_status status;
    struct stat own, other;
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)root);
    if (stat("/proc/self/ns/pid", &own) != 0 || stat(path, &other) != 0 ||
        own.st_ino == other.st_ino || gpucr_proc_status_read(root, &status, NULL) != 0 ||
        status.ns_level_count == 0 || status.ns_pids[status.ns_level_count - 1] == 1)
        return false;
    *ret_inside = status.ns_pids[status.ns_level_count - 1];
    return true;
}

static int start(struct dump *dump, struct gpucr_error *err)
{
    const struct gpucr_engine_dump *request = dump->request;
    GPUCR_AUTO_FD int config_fd = -1;
    struct gpucr_criu_start start = {.path = dump->engine->path,
                                     .block_sigchld = true,
                                     .hardware_breakpoints = dump->engine->hardware_breakpoints,
                                     .terminal_fd = -1,
                                     .images_fd = request->images_fd,
                                     .work_fd = request->work_fd};
    int rc = gpucr_criu_options_config(&request->options, &config_fd, err);

    if (rc != 0)
        return rc;
    if (mkdirat(request->work_fd, GPUCR_CRIU_PLUGIN_DIR, 0700) != 0 && errno != EEXIST)
        return gpucr_error_errno(err, errno, "cannot create criu's empty plugin folder");
    start.config_fd = config_fd;
    dump->root = request->root;
    if (lives_elsewhere(request->root, &dump->root))
        rc = gpucr_keeper_join(&start, request->root, &dump->keeper, &dump->channel, err);
    else
        rc = gpucr_criu_channel_open(&start, &dump->channel, err);
    if (rc == 0) {
        spare_from_oom(dump->channel.pid);
        dump->guard = gpucr_criu_guard_start(dump->channel.pid, dump->channel.pidfd);
    }
    return rc;
}

static int ask(struct dump *dump, struct gpucr_error *err)
{
    const struct gpucr_engine_dump *request = dump->request;
    GpucrCriu__Options options = GPUCR_CRIU__OPTIONS__INIT;
    GpucrCriu__Request message = GPUCR_CRIU__REQUEST__INIT;

    options.images_dir_fd = -1;
    options.images_dir = (char *)GPUCR_CRIU_IMAGES_PATH;
    options.config_file = (char *)GPUCR_CRIU_CONFIG_PATH;
    options.has_pid = 1;
    options.pid = dump->root;
    options.has_leave_running = 1;
    options.leave_running = request->leave_running;
    options.has_log_level = 1;
    options.log_level = gpucr_criu_log_level();
    options.log_file = (char *)GPUCR_CRIU_DUMP_LOG;
    options.has_notify_scripts = 1;
    options.notify_scripts = 1;
    options.has_unprivileged = 1;
    options.unprivileged = dump->rights == GPUCR_CRIU_RIGHTS_RESTRICTED;
    gpucr_criu_options_apply(&request->options, GPUCR_CRIU_VERB_DUMP, &options);
    if (!gpucr_criu_options_has_extra(&request->options, "network-lock"))
        gpucr_criu_options_network_lock(&request->options, &options);
    message.type = GPUCR_CRIU__KIND__DUMP;
    message.opts = &options;
    dump->asked = true;
    return gpucr_criu_channel_send(&dump->channel, &message, err);
}

/* Answer a notification; commit at "post-dump". */
static int answer(struct dump *dump, const char *script, struct gpucr_error *err)
{
    GpucrCriu__Request message = GPUCR_CRIU__REQUEST__INIT;
    bool good = true;
    int rc;

    if (strcmp(script, "post-dump") == 0 && !dump->committed) {
        struct gpucr_error failure = GPUCR_ERROR_INIT;

        rc = dump->request->commit ? dump->request->commit(dump->request->commit_arg, &failure) : 0;
        good = rc == 0;
        dump->committed = good;
        if (!good)
            dump->commit_error = failure;
        if (!good && failure.code == 0)
            dump->commit_error.code = rc;
    }
    message.type = GPUCR_CRIU__KIND__NOTIFY;
    message.has_notify_success = 1;
    message.notify_success = good;
    rc = gpucr_criu_channel_send(&dump->channel, &message, err);
    gpucr_criu_watch_reset(&dump->watch); /* the commit was our time, not criu's */
    return rc;
}

/* Everything until criu's final answer. */
static int converse(struct dump *dump, struct gpucr_error *err)
{
    int rc = ask(dump, err);

    while (rc == 0) {
        GpucrCriu__Response *response = NULL;
        bool final;

        /* Once committed, the images count: only criu's end or a hang ends the waiting. */
        dump->watch.cancel = dump->committed ? NULL : dump->request->cancel;
        rc = gpucr_criu_watch_receive(&dump->watch, &response, err);
        if (rc != 0)
            return rc;
        final = response->type != GPUCR_CRIU__KIND__NOTIFY;
        dump->answered = final;
        if (!final)
            rc = answer(
                dump, response->notify && response->notify->script ? response->notify->script : "",
                err);
        else if (!response->success)
            rc = gpucr_criu_explain_answer(response, &dump->channel, "dump", err);
        gpucr_criu__response__free_unpacked(response, NULL);
        if (final)
            return rc;
    }
    return rc;
}

/* After a success without leave_running criu has sent SIGKILL to all: see them end. */
static int wait_gone(const struct dump *dump, struct gpucr_error *err)
{
    const struct gpucr_pids *pids = dump->request->pids;
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(GONE_MS);

    for (size_t i = 0; i < pids->count; i++) {
        struct gpucr_proc_stat stat;

        while (gpucr_proc_stat_read(pids->ids[i], &stat, NULL) == 0 && stat.state != 'Z' &&
               stat.state != 'X' && gpucr_criu_rollback_is_same(dump->rollback, i, &stat)) {
            if (gpucr_deadline_passed(deadline))
                return gpucr_error_pid(
                    err,
                    gpucr_error_set(err, GPUCR_ERR_VERIFY,
                                    "the image is complete, but process %d (%s) has not ended",
                                    (int)stat.pid, stat.comm),
                    stat.pid);
            gpucr_sleep_us(1000);
        }
    }
    return 0;
}

static int finish(struct dump *dump, struct gpucr_error *err)
{
    gpucr_criu_guard_stop(dump->guard);
    if (gpucr_spawn_reap(dump->channel.pid, dump->channel.pidfd, END_MS, NULL))
        dump->channel.pid = 0;
    if (!dump->request->leave_running)
        return wait_gone(dump, err);
    return gpucr_criu_rollback_verify(dump->rollback, err);
}

/* Explain the failure, end criu, put everything back, and merge what there is to say. */
static int fail(struct dump *dump, int code, struct gpucr_engine_log *log, struct gpucr_error *err)
{
    const struct gpucr_engine_dump *request = dump->request;
    struct gpucr_criu_explain explain = {.work_fd = request->work_fd,
                                         .images_fd = -1,
                                         .log_name = GPUCR_CRIU_DUMP_LOG,
                                         .verb = "dump"};
    struct gpucr_error undo = GPUCR_ERROR_INIT;

    if (dump->commit_error.code != 0) {
        *err = dump->commit_error;
        code = err->code;
    } else {
        code = gpucr_criu_explain(&explain, code, log, err);
    }
    gpucr_criu_guard_stop(dump->guard);
    if (!dump->asked)
        return code;
    if (gpucr_criu_rollback_run(dump->rollback, &dump->channel, dump->answered, &undo) == 0)
        return code;
    return gpucr_criu_explain_unverified(err, &undo);
}

/*
 * The images were complete when criu asked for the commit, and all that was left to it
 * was to end the processes. That is done here, so the dump has succeeded. (This is how a
 * dump inside a pid namespace ends whose first process ends with the tree: the kernel
 * kills criu with the namespace.)
 */
static int finish_without_criu(struct dump *dump, const struct gpucr_error *why,
                               struct gpucr_error *err)
{
    gpucr_debug("after the commit: %s", why->text);
    /* While criu still holds them, so that none of their code runs again. */
    gpucr_criu_rollback_kill(dump->rollback);
    gpucr_criu_guard_stop(dump->guard);
    gpucr_criu_channel_done(&dump->channel);
    return wait_gone(dump, err);
}

static int run(struct dump *dump, struct gpucr_engine_log *log, struct gpucr_error *err)
{
    const struct gpucr_engine_dump *request = dump->request;
    int rc = gpucr_criu_rollback_new(request, &dump->rollback, err);

    if (rc != 0)
        return rc;
    rc = start(dump, err);
    if (rc != 0)
        return rc;
    dump->watch = (struct gpucr_criu_watch){
        .guard = dump->guard,
        .channel = &dump->channel,
        .images_fd = request->images_fd,
        .work_fd = request->work_fd,
        .log_name = GPUCR_CRIU_DUMP_LOG,
        .idle_timeout_ms = request->options.idle_timeout_ms ? request->options.idle_timeout_ms
                                                            : GPUCR_CRIU_IDLE_MS_DEFAULT};
    gpucr_criu_watch_reset(&dump->watch);
    rc = converse(dump, err);
    if (rc == 0)
        return finish(dump, err);
    if (dump->committed && !request->leave_running) {
        struct gpucr_error why = *err;

        return finish_without_criu(dump, &why, err);
    }
    return fail(dump, rc, log, err);
}

int gpucr_criu_dump(struct gpucr_engine *engine, const struct gpucr_engine_dump *request,
                    struct gpucr_engine_log *log, bool *ret_committed, struct gpucr_error *err)
{
    struct gpucr_error local = GPUCR_ERROR_INIT;
    struct dump dump = {.engine = engine,
                        .request = request,
                        .channel = GPUCR_CRIU_CHANNEL_INIT,
                        .keeper = GPUCR_KEEPER_INIT};
    int rc = gpucr_criu_rights(engine, &dump.rights, &local);

    if (rc == 0)
        rc = run(&dump, log, &local);
    gpucr_criu_guard_stop(dump.guard);
    gpucr_criu_channel_done(&dump.channel);
    gpucr_criu_watch_done(&dump.watch);
    gpucr_criu_guard_free(dump.guard);
    gpucr_keeper_done(&dump.keeper);
    gpucr_criu_rollback_free(dump.rollback);
    (void)unlinkat(request->work_fd, GPUCR_CRIU_PLUGIN_DIR, AT_REMOVEDIR);
    *ret_committed = dump.committed;
    if (rc != 0 && err)
        *err = local;
    return rc;
}
