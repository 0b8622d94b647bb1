/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From criu's log to a sentence: first cause, consequences, names for numbers, remedies. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/criu_explain.h"
#include "engine/criu_known.h"
#include "engine_support.h"

static struct gpucr_engine_log engine_log;
static struct gpucr_error err;

static void write_file(int dir_fd, const char *name, const void *data, size_t size)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), (ssize_t)size);
    (void)close(fd);
}

/* Explain a failure of that code with that log; the sentence is in err.text. */
static void explain(const struct fixture *f, const char *verb, int code, const char *log)
{
    struct gpucr_criu_explain request = {.verb = verb,
                                         .work_fd = f->work_fd,
                                         .log_name = "test.log",
                                         .images_fd =
                                             strcmp(verb, "restore") == 0 ? f->images_fd : -1};

    engine_log = (struct gpucr_engine_log){0};
    write_file(f->work_fd, "test.log", log, strlen(log));
    (void)gpucr_error_set(&err, code, "criu failed");
    assert_int_equal(gpucr_criu_explain(&request, code, &engine_log, &err), code);
}

static void assert_says(const char *text)
{
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void test_first_cause(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f, NULL);
    explain(&f, "dump", GPUCR_ERR_ENGINE,
            "(00.000100) Version: 4.1.1 (gitid 0)\n"
            "(00.000200) Error (criu/util.c:1533): rlimit: Can't setup RLIMIT_NOFILE for self: "
            "Operation not permitted\n"
            "(00.000300) Warn  (criu/x.c:1): something odd\n"
            "(00.000400) Error (criu/file-lock.c:110): Some file locks are hold by dumping tasks! "
            "You can try --file-locks to dump them.\n"
            "(00.000500) Error (criu/cr-dump.c:1698): Dump files (pid: 4711) failed with -1\n"
            "(00.000600) Error (criu/cr-dump.c:2111): Dumping FAILED.\n");
    assert_says("the program holds file locks");
    assert_says("use --file-locks");
    assert_int_equal(engine_log.count, 3);
    assert_true(engine_log.lines[0].is_cause);
    assert_non_null(strstr(engine_log.lines[0].text, "file locks are hold"));
    assert_false(engine_log.lines[1].is_cause);
    assert_non_null(strstr(engine_log.lines[1].text, "4711"));
    assert_non_null(strstr(engine_log.lines[2].text, "FAILED"));
    fixture_close(&f);
}

/* Numbers of descriptors become paths, by the process that a later line names. */
static void test_descriptor(void **state)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    char log[512];
    struct fixture f;

    (void)state;
    fixture_open(&f, NULL);
    (void)snprintf(log, sizeof(log),
                   "(00.1) Error (criu/files-ext.c:98): Can't dump file %d of that type [600] "
                   "(unknown something)\n"
                   "(00.2) Error (criu/cr-dump.c:1698): Dump files (pid: %d) failed with -1\n",
                   fd, (int)getpid());
    explain(&f, "dump", GPUCR_ERR_ENGINE, log);
    assert_says("anon_inode:[eventfd]");
    assert_says("test_engine_log");
    (void)close(fd);
    fixture_close(&f);
}

static void test_device(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f, NULL);
    /* Major 1 is "mem" everywhere. */
    explain(
        &f, "dump", GPUCR_ERR_ENGINE,
        "(00.1) Error (criu/files-ext.c:98): Can't dump file 7 of that type [20666] (chr 1:99)\n");
    assert_says("character device 1 is mem");
    assert_says("close it in the program");
    explain(&f, "dump", GPUCR_ERR_ENGINE,
            "(00.1) Error (criu/files-ext.c:98): Can't dump file 7 of that type [600] (unknown "
            "anon_inode:[io_uring])\n");
    assert_says("CRIU cannot dump io_uring");
    fixture_close(&f);
}

/* A restore writes who speaks; the holder of a wanted pid is named. */
static void test_pid_taken(void **state)
{
    char log[256];
    struct fixture f;

    (void)state;
    fixture_open(&f, NULL);
    (void)snprintf(log, sizeof(log),
                   "(00.1)   4711: Error (criu/cr-restore.c:1230): Can't fork for %d: File exists\n"
                   "(00.2) Error (criu/cr-restore.c:2311): Restoring FAILED.\n",
                   (int)getpid());
    explain(&f, "restore", GPUCR_ERR_ENGINE, log);
    assert_says("the process id is in use");
    assert_says("--pid-namespace");
    assert_says("test_engine_log");
    fixture_close(&f);
}

/* A small image: descriptor 5 of process 4711 is file 0x21, /srv/data; mount 77 is /mnt. */
static void write_image(const struct fixture *f)
{
    static const unsigned char ids[] = {0x19, 0x43, 0x56, 0x54, 0x30, 0x20, 0x43, 0x54,
                                        0x04, 0,    0,    0,    0x08, 0x01, 0x10, 0x03};
    static const unsigned char fdinfo[] = {0x19, 0x43, 0x56, 0x54, 0x32, 0x37, 0x21,
                                           0x56, 0x08, 0,    0,    0,    0x08, 0x21,
                                           0x10, 0x00, 0x18, 0x01, 0x20, 0x05};
    static const unsigned char files[] = {
        0x19, 0x43, 0x56, 0x54, 0x00, 0x00, 0x00, 0x00, 0x13, 0,   0,   0,   0x08, 0x01, 0x10, 0x21,
        0x1a, 0x0d, 0x08, 0x21, 0x32, 0x09, 's',  'r',  'v',  '/', 'd', 'a', 't',  'a',  '!'};
    static const unsigned char mounts[] = {0x19, 0x43, 0x56, 0x54, 0x00, 0x00, 0x00,
                                           0x00, 0x08, 0,    0,    0,    0x10, 0x4d,
                                           0x3a, 0x04, '/',  'm',  'n',  't'};

    write_file(f->images_fd, "ids-4711.img", ids, sizeof(ids));
    write_file(f->images_fd, "fdinfo-3.img", fdinfo, sizeof(fdinfo));
    write_file(f->images_fd, "files.img", files, sizeof(files));
    write_file(f->images_fd, "mountpoints-12.img", mounts, sizeof(mounts));
}

static void test_image_numbers(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f, NULL);
    write_image(&f);
    explain(&f, "restore", GPUCR_ERR_ENGINE,
            "(00.1)   4711: Error (criu/files.c:1221): Unable to open fd=5 id=0x21\n");
    assert_says("descriptor 5 of process 4711 was /srv/data!");
    explain(&f, "restore", GPUCR_ERR_ENGINE,
            "(00.1) Error (criu/mount.c:3100): mnt: No mapping for 77:(null) mountpoint\n");
    assert_says("mount 77 is /mnt");
    fixture_close(&f);
}

static void test_hung(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f, NULL);
    explain(&f, "dump", GPUCR_ERR_ENGINE_HUNG,
            "(00.1) Dumping pages\n(00.2) pie: 12: new_sp=0x7f1 ip 0x42\n");
    assert_says("new_sp=0x7f1");
    explain(&f, "restore", GPUCR_ERR_ENGINE_HUNG,
            "(00.1) pie: 12: Error (criu/pie/restorer.c:317): Unable to drop capability 24: -1\n"
            "(00.2) waiting\n");
    assert_says("restore it as root");
    /* No log at all is no crash. */
    (void)unlinkat(f.work_fd, "test.log", 0);
    explain(&f, "dump", GPUCR_ERR_ENGINE, "");
    assert_string_equal(err.text, "criu failed");
    fixture_close(&f);
}

/* Long lines, binary and half lines are taken as they come. */
static void test_garbage(void **state)
{
    size_t size = 1 << 20;
    char *log = malloc(size + 1);
    struct fixture f;

    (void)state;
    fixture_open(&f, NULL);
    assert_non_null(log);
    for (size_t i = 0; i < size; i++)
        log[i] = (char)(i % 251 + 1);
    log[size] = '\0';
    (void)memcpy(log, "(00.1) Error (x): ", 18);
    explain(&f, "dump", GPUCR_ERR_ENGINE, log);
    assert_true(strlen(err.text) < sizeof(err.text));
    explain(&f, "restore", GPUCR_ERR_ENGINE,
            "(00.1) Error (criu/files.c:1221): Unable to open fd=99999999999999999999\n"
            "(00.1) Error (x): Can't lookup mount=4294967296 for fd=-1\n"
            "Error (");
    assert_true(engine_log.count >= 2);
    free(log);
    fixture_close(&f);
}

/* More errors than there is room for: the cause is never lost. */
static void test_many_errors(void **state)
{
    char log[8192];
    size_t used = 0;
    struct fixture f;

    (void)state;
    fixture_open(&f, NULL);
    for (int i = 0; i < 60; i++)
        used += (size_t)snprintf(log + used, sizeof(log) - used,
                                 "(00.%d) Error (criu/a.c:%d): thing number %d broke\n", i, i, i);
    explain(&f, "dump", GPUCR_ERR_ENGINE, log);
    assert_says("thing number 0 broke");
    assert_int_equal(engine_log.count, GPUCR_LOG_LINES_MAX);
    assert_true(engine_log.lines[0].is_cause);
    fixture_close(&f);
}

static void test_remedies(void **state)
{
    static const char *const messages[][2] = {
        {"unix: External socket is used. Consider using --ext-unix-sk option.", "--ext-unix-sk"},
        {"inet: Connected TCP socket, consider using --tcp-established option.",
         "--tcp-established"},
        {"The root process 12 is not a session leader. Consider using --shell-job option",
         "--shell-job"},
        {"Can't create link remap for /a. Use link-remap option.", "--link-remap"},
        {"Can't dump ghost file /a of 2097152 size, increase limit", "--ghost-limit"},
        {"Can't open file tmp/a on restore: No such file or directory", "bring it back"},
        {"File usr/lib/a.so has bad build-ID", "the same file"},
        {"Unseizable non-zombie 12 found, state S, err -1/10", "TracerPid"},
        {"sockets: Can't get 1:16 opt: Operation not supported", "CRIU 4.2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        const struct gpucr_criu_known *known = gpucr_criu_known_find(messages[i][0]);

        if (!known || !known->remedy || !strstr(known->remedy, messages[i][1]))
            fail_msg("no remedy \"%s\" for: %s", messages[i][1], messages[i][0]);
    }
    assert_null(gpucr_criu_known_find("something new"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_cause),   cmocka_unit_test(test_descriptor),
        cmocka_unit_test(test_device),        cmocka_unit_test(test_pid_taken),
        cmocka_unit_test(test_image_numbers), cmocka_unit_test(test_hung),
        cmocka_unit_test(test_garbage),       cmocka_unit_test(test_many_errors),
        cmocka_unit_test(test_remedies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
