/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine_support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/nft.h"
#include "proc/procfs.h"
#include "proc/tracer.h"

enum { START_MS = 10000, COUNT_MS = 10000 };

void sleep_ms(unsigned ms)
{
    gpucr_sleep_us((uint64_t)ms * 1000);
}

static int open_folder(const char *dir, const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void map_page(struct fixture *fixture)
{
    char path[128];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/page", fixture->dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(*fixture->page)), 0);
    fixture->page = mmap(NULL, sizeof(*fixture->page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(fixture->page, MAP_FAILED);
    (void)close(fd);
}

void fixture_open(struct fixture *fixture, const char *criu)
{
    *fixture = (struct fixture){.dir = "/tmp/gpucr-engine.XXXXXX"};
    assert_non_null(mkdtemp(fixture->dir));
    fixture->images_fd = open_folder(fixture->dir, "img");
    fixture->work_fd = open_folder(fixture->dir, "work");
    map_page(fixture);
    assert_int_equal(gpucr_tracer_new(&fixture->tracer, &fixture->err), 0);
    if (criu && gpucr_engine_open_criu(criu, &fixture->engine, &fixture->err) != 0)
        fail_msg("%s", fixture->err.text);
}

static void read_fds(pid_t pid, char *ret)
{
    size_t used = 0;

    *ret = '\0';
    for (int fd = 0; fd < 64; fd++) {
        char path[64];
        char target[200];
        ssize_t n;

        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
        n = readlink(path, target, sizeof(target) - 1);
        if (n > 0)
            used += (size_t)snprintf(ret + used, FDS_TEXT_BYTES - used, "%d=%.*s\n", fd, (int)n,
                                     target);
    }
}

void fixture_start(struct fixture *fixture, const char *const *arguments)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(START_MS);
    const char *argv[8] = {"engine_target"};
    char page[128];
    int status;

    (void)snprintf(page, sizeof(page), "%s/page", fixture->dir);
    argv[1] = page;
    for (size_t i = 0; arguments && arguments[i] && i < 5; i++)
        argv[2 + i] = arguments[i];
    (void)memset(fixture->page, 0, sizeof(*fixture->page));
    fixture->pid = fork();
    assert_true(fixture->pid >= 0);
    if (fixture->pid == 0) {
        (void)execv(ENGINE_TARGET, (char *const *)argv);
        _exit(126);
    }
    while (__atomic_load_n(&fixture->page->pid, __ATOMIC_SEQ_CST) != fixture->pid ||
           fixture->page->counts[0] < 5) {
        if (waitpid(fixture->pid, &status, WNOHANG) == fixture->pid)
            fail_msg("the target ended at once with status %x", (unsigned)status);
        assert_false(gpucr_deadline_passed(deadline));
        sleep_ms(5);
    }
    fixture->pids = (struct gpucr_pids){.ids = &fixture->pid, .count = 1, .capacity = 1};
    read_fds(fixture->pid, fixture->fds);
}

char state_of(pid_t pid)
{
    struct gpucr_proc_stat stat;

    return gpucr_proc_stat_read(pid, &stat, NULL) == 0 ? stat.state : '-';
}

static bool all_stopped(pid_t pid)
{
    struct gpucr_pids tids = {0};
    bool stopped = gpucr_task_list(pid, &tids, NULL) == 0 && tids.count > 0;

    for (size_t i = 0; stopped && i < tids.count; i++) {
        struct gpucr_proc_stat stat;

        stopped = gpucr_task_stat_read(pid, tids.ids[i], &stat, NULL) == 0 && stat.state == 'T';
    }
    gpucr_pids_done(&tids);
    return stopped;
}

void fixture_stop(struct fixture *fixture)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(START_MS);

    assert_int_equal(kill(fixture->pid, SIGSTOP), 0);
    while (!all_stopped(fixture->pid)) {
        assert_false(gpucr_deadline_passed(deadline));
        sleep_ms(1);
    }
}

static void empty_folder(int fd)
{
    DIR *dir = fdopendir(dup(fd));
    struct dirent *entry;

    assert_non_null(dir);
    rewinddir(dir);
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] != '.' && unlinkat(fd, entry->d_name, 0) != 0)
            (void)unlinkat(fd, entry->d_name, AT_REMOVEDIR);
    }
    (void)closedir(dir);
}

void fixture_empty(struct fixture *fixture)
{
    empty_folder(fixture->images_fd);
    empty_folder(fixture->work_fd);
    fixture->log = (struct gpucr_engine_log){0};
    fixture->err = (struct gpucr_error)GPUCR_ERROR_INIT;
}

void fixture_close(struct fixture *fixture)
{
    int dir = open(fixture->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fixture->pid > 0) {
        (void)kill(fixture->pid, SIGKILL);
        (void)waitpid(fixture->pid, NULL, 0);
    }
    fixture->engine = gpucr_engine_close(fixture->engine);
    fixture->tracer = gpucr_tracer_free(fixture->tracer);
    (void)munmap(fixture->page, sizeof(*fixture->page));
    fixture_empty(fixture);
    (void)close(fixture->images_fd);
    (void)close(fixture->work_fd);
    empty_folder(dir);
    (void)close(dir);
    (void)rmdir(fixture->dir);
}

struct gpucr_engine_dump fixture_dump_request(struct fixture *fixture)
{
    return (struct gpucr_engine_dump){.options = {.idle_timeout_ms = 20000},
                                      .root = fixture->pid,
                                      .pids = &fixture->pids,
                                      .images_fd = fixture->images_fd,
                                      .work_fd = fixture->work_fd,
                                      .tracer = fixture->tracer};
}

struct gpucr_engine_restore fixture_restore_request(struct fixture *fixture)
{
    return (struct gpucr_engine_restore){.options = {.idle_timeout_ms = 20000},
                                         .root = fixture->pid,
                                         .pids = &fixture->pids,
                                         .images_fd = fixture->images_fd,
                                         .work_fd = fixture->work_fd};
}

static void assert_no_criu_mapping(pid_t pid)
{
    struct gpucr_maps maps = {0};

    assert_int_equal(gpucr_maps_read(pid, &maps, NULL), 0);
    for (size_t i = 0; i < maps.count; i++) {
        if (strstr(maps.items[i].path, "CRIU") || strstr(maps.items[i].path, "memfd"))
            fail_msg("a mapping is left: %s", maps.items[i].path);
    }
    gpucr_maps_done(&maps);
}

void assert_untouched(struct fixture *fixture)
{
    struct gpucr_proc_status status;
    char fds[FDS_TEXT_BYTES];

    assert_true(all_stopped(fixture->pid));
    assert_int_equal(gpucr_proc_status_read(fixture->pid, &status, NULL), 0);
    assert_int_equal(status.tracer_pid, 0);
    assert_no_criu_mapping(fixture->pid);
    read_fds(fixture->pid, fds);
    assert_string_equal(fds, fixture->fds);
}

static void assert_counts(const struct engine_target_page *page, size_t thread, uint64_t before)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(COUNT_MS);

    while (__atomic_load_n(&page->counts[thread], __ATOMIC_SEQ_CST) < before + 5) {
        if (gpucr_deadline_passed(deadline))
            fail_msg("thread %zu does not count on: %llu, then %llu", thread,
                     (unsigned long long)before, (unsigned long long)page->counts[thread]);
        sleep_ms(2);
    }
}

void assert_goes_on(struct fixture *fixture, pid_t pid, size_t threads)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(COUNT_MS);
    struct engine_target_page *page = fixture->page;
    struct engine_target_page before = *page;

    assert_int_equal(kill(pid, SIGCONT), 0);
    for (size_t i = 0; i < threads; i++)
        assert_counts(page, i, before.counts[i]);
    page->verify_wanted = before.verify_done + 1;
    while (__atomic_load_n(&page->verify_done, __ATOMIC_SEQ_CST) != page->verify_wanted) {
        assert_false(gpucr_deadline_passed(deadline));
        sleep_ms(2);
    }
    assert_int_equal(page->memory_good, 1);
    if (page->broken != 0)
        fail_msg("the connection broke: %d sent %d got %d round %d exch %d now %d", page->broken,
                 (int)page->counts[14], (int)page->counts[15], (int)page->counts[13],
                 (int)page->counts[12], (int)page->exchanged);
    if (before.exchanged > 0)
        assert_true(page->exchanged > before.exchanged);
}

void assert_no_children(pid_t expected)
{
    struct gpucr_pids pids = {0};

    assert_int_equal(gpucr_proc_list(&pids, NULL), 0);
    for (size_t i = 0; i < pids.count; i++) {
        struct gpucr_proc_stat stat;

        if (pids.ids[i] == expected || gpucr_proc_stat_read(pids.ids[i], &stat, NULL) != 0)
            continue;
        if (stat.parent_pid == getpid())
            fail_msg("process %d (%s, state %c) is left", (int)stat.pid, stat.comm, stat.state);
    }
    gpucr_pids_done(&pids);
}

/* Another criu on this machine may have one for a moment. */
void assert_no_tables(void)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(START_MS);
    size_t count;

    do {
        struct gpucr_nft_tables tables = {0};

        assert_int_equal(gpucr_nft_list("CRIU-", &tables, NULL), 0);
        count = tables.count;
        if (count > 0 && gpucr_deadline_passed(deadline))
            fail_msg("the packet filter's table %s is left", tables.names[0]);
        gpucr_nft_tables_done(&tables);
        sleep_ms(count > 0 ? 50 : 0);
    } while (count > 0);
}

const char *real_criu(void)
{
    const char *path = getenv("GPUCR_CRIU");

    if (geteuid() != 0) {
        (void)printf("only root can dump and restore here: skipped\n");
        return NULL;
    }
    if (!path || !*path)
        path = ENGINE_CRIU;
    if (access(path, X_OK) == 0)
        return path;
    (void)printf("there is no criu at %s (scripts/get-criu makes one): skipped\n", path);
    return NULL;
}
