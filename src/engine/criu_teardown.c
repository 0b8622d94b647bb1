/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_teardown.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/criu_helpers.h"
#include "engine/criu_litter.h"
#include "engine/criu_remap.h"
#include "proc/procfs.h"
#include "proc/tree.h"

enum { ROUNDS_MAX = 50, FREE_MS = 10000, POLL_US = 1000 };

struct gpucr_criu_teardown {
    const struct gpucr_engine_restore *request;
    uint64_t begin_ticks; /* what began earlier was not made by this restore */
    bool *was_used;       /* as request->pids: the pid existed before */
    struct gpucr_criu_links *links;
    struct gpucr_criu_litter *litter;
    bool is_reaper;
};

/* The attribute is the whole process's; restores may run side by side. */
static pthread_mutex_t reaper_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned reaper_users;
static int reaper_before;

static void become_reaper(struct gpucr_criu_teardown *teardown)
{
    GPUCR_SCOPED_LOCK(lock, &reaper_mutex);

    if (reaper_users++ == 0) {
        (void)prctl(PR_GET_CHILD_SUBREAPER, &reaper_before, 0, 0, 0);
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
    teardown->is_reaper = true;
}

static void resign_reaper(const struct gpucr_criu_teardown *teardown)
{
    GPUCR_SCOPED_LOCK(lock, &reaper_mutex);

    if (teardown->is_reaper && --reaper_users == 0)
        (void)prctl(PR_SET_CHILD_SUBREAPER, reaper_before, 0, 0, 0);
}

/* Now, in the unit of the start times in /proc. */
static uint64_t now_ticks(void)
{
    uint64_t rate = (uint64_t)sysconf(_SC_CLK_TCK);
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * rate + (uint64_t)now.tv_nsec * rate / 1000000000;
}

static void record_pids(struct gpucr_criu_teardown *teardown)
{
    const struct gpucr_pids *pids = teardown->request->pids;
    struct gpucr_proc_stat stat;

    for (size_t i = 0; i < pids->count; i++)
        teardown->was_used[i] = gpucr_proc_stat_read(pids->ids[i], &stat, NULL) == 0;
}

int gpucr_criu_teardown_new(const struct gpucr_engine_restore *request,
                            struct gpucr_criu_teardown **ret, struct gpucr_error *err)
{
    struct gpucr_criu_teardown *teardown = calloc(1, sizeof(*teardown));
    int rc;

    if (!teardown)
        return gpucr_error_no_memory(err);
    teardown->request = request;
    teardown->begin_ticks = now_ticks();
    teardown->was_used = calloc(request->pids->count + 1, sizeof(*teardown->was_used));
    rc = teardown->was_used ? gpucr_criu_litter_record(&teardown->litter, err)
                            : gpucr_error_no_memory(err);
    if (rc == 0)
        rc = gpucr_criu_links_keep(request->images_fd, &teardown->links, err);
    if (rc != 0) {
        gpucr_criu_teardown_free(teardown);
        return rc;
    }
    record_pids(teardown);
    if (!request->pid_namespace)
        become_reaper(teardown);
    *ret = teardown;
    return 0;
}

void gpucr_criu_teardown_free(struct gpucr_criu_teardown *teardown)
{
    struct gpucr_error failure = GPUCR_ERROR_INIT;

    if (!teardown)
        return;
    /* After a failure this was done already and does nothing. */
    if (teardown->links && gpucr_criu_links_finish(teardown->links, false, &failure) != 0)
        gpucr_warn("%s", failure.text);
    resign_reaper(teardown);
    gpucr_criu_links_free(teardown->links);
    gpucr_criu_litter_free(teardown->litter);
    free(teardown->was_used);
    free(teardown);
}

static bool is_new(const struct gpucr_criu_teardown *teardown, pid_t pid)
{
    struct gpucr_proc_stat stat;

    return gpucr_proc_stat_read(pid, &stat, NULL) == 0 && stat.start_ticks >= teardown->begin_ticks;
}

/* Restored processes, by the pids that the image says. */
static void collect_restored(const struct gpucr_criu_teardown *teardown,
                             struct gpucr_criu_helpers *helpers)
{
    const struct gpucr_pids *pids = teardown->request->pids;

    for (size_t i = 0; i < pids->count; i++) {
        if (teardown->was_used[i] || !is_new(teardown, pids->ids[i]))
            continue;
        gpucr_criu_helpers_add(helpers, pids->ids[i]);
        gpucr_criu_helpers_collect(helpers, pids->ids[i]);
    }
}

/* Orphans of criu: they came to us, and are still in criu's process group. */
static void collect_orphans(const struct gpucr_criu_teardown *teardown, pid_t group,
                            struct gpucr_criu_helpers *helpers)
{
    struct gpucr_pids pids = {0};

    if (gpucr_proc_list(&pids, NULL) != 0)
        return;
    for (size_t i = 0; i < pids.count; i++) {
        struct gpucr_proc_stat stat;

        if (gpucr_proc_stat_read(pids.ids[i], &stat, NULL) != 0 || stat.pid == group ||
            stat.parent_pid != getpid() || stat.group != group ||
            stat.start_ticks < teardown->begin_ticks)
            continue;
        gpucr_criu_helpers_add(helpers, stat.pid);
        gpucr_criu_helpers_collect(helpers, stat.pid);
    }
    gpucr_pids_done(&pids);
}

/* Kill what there is until nothing new is found: what is being killed may fork. */
static void end_all(const struct gpucr_criu_teardown *teardown, struct gpucr_criu_channel *channel)
{
    struct gpucr_criu_helpers helpers = {0};
    pid_t group = channel->pid;

    gpucr_criu_helpers_collect(&helpers, channel->pid);
    gpucr_criu_channel_done(channel);
    for (int round = 0; round < ROUNDS_MAX; round++) {
        collect_restored(teardown, &helpers);
        if (group > 0)
            collect_orphans(teardown, group, &helpers);
        if (helpers.count == 0)
            break;
        gpucr_criu_helpers_end(&helpers);
        gpucr_criu_helpers_done(&helpers);
    }
    gpucr_criu_helpers_done(&helpers);
}

static int wait_free(const struct gpucr_criu_teardown *teardown, struct gpucr_error *err)
{
    const struct gpucr_pids *pids = teardown->request->pids;
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(FREE_MS);

    for (size_t i = 0; i < pids->count; i++) {
        while (!teardown->was_used[i] && is_new(teardown, pids->ids[i])) {
            if (gpucr_deadline_passed(deadline))
                return gpucr_error_pid(
                    err,
                    gpucr_error_set(err, GPUCR_ERR_VERIFY,
                                    "process %d of the failed restore does not end",
                                    (int)pids->ids[i]),
                    pids->ids[i]);
            gpucr_sleep_us(POLL_US);
        }
    }
    return 0;
}

int gpucr_criu_teardown_run(struct gpucr_criu_teardown *teardown,
                            struct gpucr_criu_channel *channel, struct gpucr_error *err)
{
    struct gpucr_error first = GPUCR_ERROR_INIT;
    struct gpucr_error failure = GPUCR_ERROR_INIT;

    if (teardown->request->pid_namespace) { /* the end of the keeper ended all */
        gpucr_criu_channel_done(channel);
    } else {
        end_all(teardown, channel);
        (void)wait_free(teardown, &first);
    }
    if (gpucr_criu_links_finish(teardown->links, true, &failure) != 0 && first.code == 0)
        first = failure;
    if (gpucr_criu_litter_remove(teardown->litter, &failure) != 0 && first.code == 0)
        first = failure;
    if (first.code != 0 && err)
        *err = first;
    return first.code;
}
