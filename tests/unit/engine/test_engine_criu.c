/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The engine with a real criu: dump, restore, refusals. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gpucr/log.h>

#include "engine_support.h"
#include "proc/tree.h"

static const char *criu;
static const char *const four_threads[] = {"4", "16", NULL};

static int good_commit(void *arg, struct gpucr_error *err)
{
    (void)err;
    ++*(int *)arg;
    return 0;
}

static int bad_commit(void *arg, struct gpucr_error *err)
{
    (void)arg;
    return gpucr_error_set(err, GPUCR_ERR_NO_SPACE, "the disk of the test is full");
}

/* Dump the stopped target away; it is reaped. */
static void dump_away(struct fixture *f)
{
    struct gpucr_engine_dump request = fixture_dump_request(f);
    bool committed = false;
    int commits = 0;
    int status;

    request.commit = good_commit;
    request.commit_arg = &commits;
    if (f->engine->ops->dump(f->engine, &request, &f->log, &committed, &f->err) != 0)
        fail_msg("%s", f->err.text);
    assert_true(committed);
    assert_int_equal(commits, 1);
    assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
    assert_true(WIFSIGNALED(status));
}

static void open_stopped(struct fixture *f, const char *const *arguments)
{
    fixture_open(f, criu);
    fixture_start(f, arguments);
    fixture_stop(f);
}

static void test_dump_and_restore(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct fixture f;
    uint64_t count;

    (void)state;
    open_stopped(&f, four_threads);
    count = f.page->counts[0];
    dump_away(&f);
    request = fixture_restore_request(&f);
    if (f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err) != 0)
        fail_msg("%s", f.err.text);
    assert_int_equal(restored.root, f.pid);
    assert_int_equal(restored.keeper, 0);
    sleep_ms(50);
    assert_int_equal(state_of(f.pid), 'T');
    assert_int_equal(f.page->counts[0], count); /* nothing has run */
    assert_no_children(f.pid);
    assert_goes_on(&f, f.pid, 4);
    fixture_close(&f);
}

static void test_leave_running(void **state)
{
    struct gpucr_engine_dump request;
    bool committed = false;
    int commits = 0;
    struct fixture f;

    (void)state;
    open_stopped(&f, four_threads);
    request = fixture_dump_request(&f);
    request.leave_running = true;
    request.commit = good_commit;
    request.commit_arg = &commits;
    if (f.engine->ops->dump(f.engine, &request, &f.log, &committed, &f.err) != 0)
        fail_msg("%s", f.err.text);
    assert_true(committed);
    assert_untouched(&f);
    assert_goes_on(&f, f.pid, 4);
    fixture_close(&f);
}

static void test_commit_fails(void **state)
{
    struct gpucr_engine_dump request;
    bool committed = true;
    struct fixture f;

    (void)state;
    open_stopped(&f, four_threads);
    request = fixture_dump_request(&f);
    request.commit = bad_commit;
    assert_int_equal(f.engine->ops->dump(f.engine, &request, &f.log, &committed, &f.err),
                     GPUCR_ERR_NO_SPACE);
    assert_false(committed);
    assert_string_equal(f.err.text, "the disk of the test is full");
    assert_untouched(&f);
    assert_goes_on(&f, f.pid, 4);
    fixture_close(&f);
}

/* What was restored into a namespace can be dumped again, from inside of it. */
static void again_in_namespace(struct fixture *f, struct gpucr_engine_restored *restored)
{
    struct gpucr_pids pids = {.ids = &restored->root, .count = 1, .capacity = 1};
    struct gpucr_pids ids = {0};
    struct gpucr_engine_restore restore = fixture_restore_request(f);
    struct gpucr_engine_dump request = fixture_dump_request(f);
    pid_t inside = f->pid;
    bool committed = true;
    int ended;

    f->pid = restored->root;
    fixture_empty(f);
    fixture_stop(f);
    request.root = restored->root;
    request.pids = &pids;
    request.commit = bad_commit;
    assert_int_equal(f->engine->ops->dump(f->engine, &request, &f->log, &committed, &f->err),
                     GPUCR_ERR_NO_SPACE);
    assert_untouched(f);
    assert_no_children(restored->keeper);
    assert_goes_on(f, f->pid, 4);
    fixture_empty(f);
    fixture_stop(f);
    request.commit = NULL;
    if (f->engine->ops->dump(f->engine, &request, &f->log, &committed, &f->err) != 0)
        fail_msg("%s", f->err.text);
    assert_int_equal(waitpid(restored->keeper, &ended, 0), restored->keeper);
    assert_int_equal(gpucr_engine_image_pids(f->images_fd, &ids, NULL), 0);
    assert_int_equal(ids.count, 4);
    assert_int_equal(ids.ids[0], inside);
    gpucr_pids_done(&ids);
    f->pid = inside;
    restore.pid_namespace = true;
    if (f->engine->ops->restore(f->engine, &restore, &f->log, restored, &f->err) != 0)
        fail_msg("%s", f->err.text);
    assert_goes_on(f, restored->root, 4);
}

static void test_pid_namespace(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct gpucr_proc_status status;
    struct fixture f;
    int ended;

    (void)state;
    open_stopped(&f, four_threads);
    dump_away(&f);
    request = fixture_restore_request(&f);
    request.pid_namespace = true;
    if (f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err) != 0)
        fail_msg("%s", f.err.text);
    assert_int_not_equal(restored.root, f.pid);
    assert_int_equal(gpucr_proc_status_read(restored.root, &status, NULL), 0);
    assert_int_equal(status.ns_pids[status.ns_level_count - 1], f.pid);
    assert_int_equal(state_of(restored.root), 'T');
    assert_no_children(restored.keeper);
    assert_goes_on(&f, restored.root, 4);
    again_in_namespace(&f, &restored);
    /* The keeper ends with its root, with a status that tells how. */
    assert_int_equal(kill(restored.root, SIGTERM), 0);
    assert_int_equal(waitpid(restored.keeper, &ended, 0), restored.keeper);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 128 + SIGTERM);
    f.pid = 0;
    fixture_close(&f);
}

static void test_pid_taken(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct fixture f;

    (void)state;
    open_stopped(&f, four_threads);
    {
        struct gpucr_engine_dump dump = fixture_dump_request(&f);
        bool committed = false;

        dump.leave_running = true; /* so the pid stays taken */
        assert_int_equal(f.engine->ops->dump(f.engine, &dump, &f.log, &committed, &f.err), 0);
    }
    request = fixture_restore_request(&f);
    assert_int_equal(f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err),
                     GPUCR_ERR_ENGINE);
    assert_non_null(strstr(f.err.text, "process id is in use"));
    assert_non_null(strstr(f.err.text, "engine_target"));
    assert_true(f.log.count > 0 && f.log.lines[0].is_cause);
    assert_no_children(f.pid);
    assert_untouched(&f); /* the one that has the pid */
    assert_goes_on(&f, f.pid, 4);
    fixture_close(&f);
}

static void hide(const struct fixture *f, const char *from, const char *to)
{
    assert_int_equal(renameat(f->images_fd, from, f->images_fd, to), 0);
}

/* criu's names beside the deleted file, and ours beside those. */
static int count_links(const struct fixture *f)
{
    DIR *dir = opendir(f->dir);
    struct dirent *entry;
    int count = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        count += strncmp(entry->d_name, "link_remap.", 11) == 0;
    (void)closedir(dir);
    return count;
}

/* A lock: refused, named, and nothing changed. */
static void test_refusal(void **state)
{
    struct gpucr_engine_dump request;
    bool committed = true;
    struct fixture f;

    (void)state;
    fixture_open(&f, criu);
    fixture_start(&f, (const char *const[]){"2", "0", "lock", NULL});
    fixture_stop(&f);
    request = fixture_dump_request(&f);
    assert_int_equal(f.engine->ops->dump(f.engine, &request, &f.log, &committed, &f.err),
                     GPUCR_ERR_ENGINE);
    assert_false(committed);
    assert_non_null(strstr(f.err.text, "--file-locks"));
    assert_true(f.log.count > 0);
    assert_true(f.log.lines[0].is_cause);
    assert_untouched(&f);
    assert_goes_on(&f, f.pid, 2);
    fixture_close(&f);
}

/* A deleted file with another name: refused unasked; with link_remap its helper name is
 * kept over a restore that fails and used up by one that succeeds. */
static void test_deleted_file(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct gpucr_engine_dump dump;
    bool committed = true;
    struct fixture f;

    (void)state;
    fixture_open(&f, criu);
    fixture_start(&f, (const char *const[]){"2", "0", "deleted", NULL});
    fixture_stop(&f);
    dump = fixture_dump_request(&f);
    assert_int_equal(f.engine->ops->dump(f.engine, &dump, &f.log, &committed, &f.err),
                     GPUCR_ERR_ENGINE);
    assert_non_null(strstr(f.err.text, "--link-remap"));
    assert_untouched(&f);
    fixture_empty(&f);
    dump.options.link_remap = true;
    dump.commit = bad_commit; /* after criu has made its link */
    assert_int_equal(f.engine->ops->dump(f.engine, &dump, &f.log, &committed, &f.err),
                     GPUCR_ERR_NO_SPACE);
    assert_int_equal(count_links(&f), 0);
    fixture_empty(&f);
    dump.commit = NULL;
    if (f.engine->ops->dump(f.engine, &dump, &f.log, &committed, &f.err) != 0)
        fail_msg("%s", f.err.text);
    assert_int_equal(waitpid(f.pid, NULL, 0), f.pid);
    assert_int_equal(count_links(&f), 1);
    request = fixture_restore_request(&f);
    request.options.link_remap = true;
    hide(&f, "pages-1.img", "hidden"); /* criu notices when the files are open already */
    assert_int_not_equal(f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err), 0);
    hide(&f, "hidden", "pages-1.img");
    assert_int_equal(count_links(&f), 1);
    if (f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err) != 0)
        fail_msg("%s", f.err.text);
    assert_int_equal(count_links(&f), 0);
    assert_goes_on(&f, f.pid, 2);
    fixture_close(&f);
}

/* A parent with a child and a zombie, each of which counts where it left off. */
static void test_tree(void **state)
{
    bool with_namespace = *state != NULL;
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct gpucr_engine_dump dump;
    bool committed = false;
    struct gpucr_tree tree = {0};
    struct gpucr_pids pids = {0};
    struct fixture f;

    fixture_open(&f, criu);
    fixture_start(&f, (const char *const[]){"2", "0", "tree", NULL});
    assert_int_equal(gpucr_tree_read(f.pid, &tree, NULL), 0);
    assert_int_equal(tree.count, 3);
    for (size_t i = 0; i < tree.count; i++) {
        assert_int_equal(gpucr_pids_add(&pids, tree.items[i].pid, NULL), 0);
        (void)kill(tree.items[i].pid, SIGSTOP);
    }
    fixture_stop(&f);
    for (size_t i = 0; i < pids.count; i++) {
        while (state_of(pids.ids[i]) != 'T' && state_of(pids.ids[i]) != 'Z')
            sleep_ms(1);
    }
    dump = fixture_dump_request(&f);
    dump.pids = &pids;
    if (f.engine->ops->dump(f.engine, &dump, &f.log, &committed, &f.err) != 0)
        fail_msg("%s", f.err.text);
    for (size_t i = 0; i < pids.count; i++) /* orphans came to us */
        assert_int_equal(waitpid(pids.ids[i], NULL, 0), pids.ids[i]);
    request = fixture_restore_request(&f);
    request.pids = &pids;
    request.pid_namespace = with_namespace;
    if (f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err) != 0)
        fail_msg("%s", f.err.text);
    gpucr_tree_done(&tree);
    assert_int_equal(gpucr_tree_read(restored.root, &tree, NULL), 0);
    assert_int_equal(tree.count, 3);
    for (size_t i = 1; i < tree.count; i++)
        (void)kill(tree.items[i].pid, SIGCONT);
    assert_goes_on(&f, restored.root, 3); /* the child counts in the third place */
    for (size_t i = tree.count; i > 0; i--)
        (void)kill(tree.items[i - 1].pid, SIGKILL);
    for (size_t i = 0; !with_namespace && i < tree.count; i++)
        assert_int_equal(waitpid(tree.items[i].pid, NULL, 0), tree.items[i].pid);
    if (with_namespace)
        assert_int_equal(waitpid(restored.keeper, NULL, 0), restored.keeper);
    f.pid = 0;
    gpucr_tree_done(&tree);
    gpucr_pids_done(&pids);
    fixture_close(&f);
}

/* Where hardware breakpoints do not fire, criu is told so. */
static void test_without_breakpoints(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct fixture f;

    (void)state;
    open_stopped(&f, four_threads);
    f.engine->hardware_breakpoints = false;
    dump_away(&f);
    request = fixture_restore_request(&f);
    if (f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err) != 0)
        fail_msg("%s", f.err.text);
    assert_goes_on(&f, f.pid, 4);
    fixture_close(&f);
}

/* The end of gpucr's interest in a namespace ends all of it. */
static void test_pid_namespace_fails(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct fixture f;

    (void)state;
    open_stopped(&f, four_threads);
    dump_away(&f);
    hide(&f, "pages-1.img", "hidden");
    request = fixture_restore_request(&f);
    request.pid_namespace = true;
    assert_int_not_equal(f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err), 0);
    assert_int_not_equal(f.err.code, GPUCR_ERR_VERIFY);
    assert_no_children(0);
    hide(&f, "hidden", "pages-1.img");
    if (f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err) != 0)
        fail_msg("%s", f.err.text);
    assert_goes_on(&f, restored.root, 4);
    (void)kill(restored.root, SIGKILL);
    assert_int_equal(waitpid(restored.keeper, NULL, 0), restored.keeper);
    f.pid = 0;
    fixture_close(&f);
}

static void test_unknown_option(void **state)
{
    static const struct gpucr_name_value extra[] = {{"no-such-thing", "1"}};
    struct gpucr_engine_dump request;
    bool committed = true;
    struct fixture f;

    (void)state;
    open_stopped(&f, four_threads);
    request = fixture_dump_request(&f);
    request.options.extra = extra;
    request.options.extra_count = 1;
    assert_int_equal(f.engine->ops->dump(f.engine, &request, &f.log, &committed, &f.err),
                     GPUCR_ERR_ENGINE);
    assert_non_null(strstr(f.err.text, "no-such-thing"));
    assert_untouched(&f);
    assert_goes_on(&f, f.pid, 4);
    fixture_close(&f);
}

static void swallow(void *arg, enum gpucr_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

/* A truncated memory image makes criu spin for ever, with an endless log when debug lines
 * are wanted (@p state); it is ended and nothing is left. */
static void test_truncated_image(void **state)
{
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct fixture f;
    int rc;

    open_stopped(&f, four_threads);
    dump_away(&f);
    {
        int fd = openat(f.images_fd, "pages-1.img", O_WRONLY | O_CLOEXEC);

        assert_int_equal(ftruncate(fd, 4096), 0);
        (void)close(fd);
    }
    gpucr_log_set(*state ? swallow : NULL, NULL, GPUCR_LOG_DEBUG);
    request = fixture_restore_request(&f);
    request.options.idle_timeout_ms = 1500;
    rc = f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err);
    gpucr_log_set(NULL, NULL, GPUCR_LOG_ERROR);
    assert_true(rc == GPUCR_ERR_ENGINE_HUNG || rc == GPUCR_ERR_ENGINE);
    assert_no_children(0);
    assert_int_equal(state_of(f.pid), '-');
    f.pid = 0;
    fixture_close(&f);
}

static void test_cancel(void **state)
{
    static const volatile int cancel = 1;
    struct gpucr_engine_restored restored = {0};
    struct gpucr_engine_restore request;
    struct fixture f;

    (void)state;
    open_stopped(&f, (const char *const[]){"2", "0", NULL});
    dump_away(&f);
    {
        int fd = openat(f.images_fd, "pages-1.img", O_WRONLY | O_CLOEXEC);

        assert_int_equal(ftruncate(fd, 4096), 0); /* so that it cannot finish first */
        (void)close(fd);
    }
    request = fixture_restore_request(&f);
    request.cancel = &cancel;
    assert_int_equal(f.engine->ops->restore(f.engine, &request, &f.log, &restored, &f.err),
                     GPUCR_ERR_CANCELLED);
    assert_no_children(0);
    assert_int_equal(state_of(f.pid), '-');
    f.pid = 0;
    fixture_close(&f);
}

int main(void)
{
    static int with_debug = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dump_and_restore),
        cmocka_unit_test(test_leave_running),
        cmocka_unit_test(test_commit_fails),
        cmocka_unit_test(test_pid_namespace),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_without_breakpoints),
        cmocka_unit_test(test_deleted_file),
        cmocka_unit_test(test_pid_namespace_fails),
        {"test_tree_pid_namespace", test_tree, NULL, NULL, &with_debug},
        cmocka_unit_test(test_pid_taken),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_unknown_option),
        cmocka_unit_test(test_truncated_image),
        {"test_truncated_image_debug", test_truncated_image, NULL, NULL, &with_debug},
        cmocka_unit_test(test_cancel),
    };

    criu = real_criu();
    if (!criu || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
