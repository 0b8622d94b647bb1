/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A criu that misbehaves, by the name under which it is run (its environment is not
 * its own): it answers "swrk FD" with CRIU's RPC as the engine speaks it.
 *
 *   fake-mute      never answers
 *   fake-old       is version 3.17.1
 *   fake-text      prints a line and ends
 *   fake-dies      starts a dump, writes a log and kills itself
 *   fake-exits     the same, but exits
 *   fake-refuses   writes errors to its log and refuses
 *   fake-slow      works for two seconds with a log line now and then, then succeeds
 *   fake-stuck     ignores SIGTERM and does nothing
 *   fake-spins     ignores SIGTERM, burns processor time, repeats a line in its log
 *   fake-garbage   answers with bytes that are no message
 *   fake-after     succeeds in everything, but ends without an answer after the commit
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "criu_rpc.pb-c.h"

enum { MESSAGE_BYTES = 65536 };

static int channel;
static char name[64];

static int is(const char *wanted)
{
    return strcmp(name, wanted) == 0;
}

static void pause_ms(long ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static GpucrCriu__Request *receive(void)
{
    static uint8_t data[MESSAGE_BYTES];
    ssize_t size = recv(channel, data, sizeof(data), 0);

    return size > 0 ? gpucr_criu__request__unpack(NULL, (size_t)size, data) : NULL;
}

static void answer(const GpucrCriu__Response *response)
{
    static uint8_t data[MESSAGE_BYTES];
    size_t size = gpucr_criu__response__pack(response, data);

    if (send(channel, data, size, MSG_NOSIGNAL) < 0)
        _exit(1);
}

static void tell_version(void)
{
    GpucrCriu__Response response = GPUCR_CRIU__RESPONSE__INIT;
    GpucrCriu__Version version = GPUCR_CRIU__VERSION__INIT;

    version.major_number = is("fake-old") ? 3 : 4;
    version.minor_number = is("fake-old") ? 17 : 1;
    version.has_sublevel = 1;
    version.sublevel = 1;
    response.type = GPUCR_CRIU__KIND__VERSION;
    response.success = 1;
    response.version = &version;
    answer(&response);
}

static void write_log(const char *log_name, const char *text)
{
    /* The descriptor of the work folder, as the engine hands it over. */
    int fd = openat(6, log_name, O_WRONLY | O_CREAT | O_APPEND, 0600);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        _exit(1);
    close(fd);
}

static void finish(int kind, int success, int pid)
{
    GpucrCriu__Response response = GPUCR_CRIU__RESPONSE__INIT;
    GpucrCriu__Restored restored = GPUCR_CRIU__RESTORED__INIT;

    response.type = kind;
    response.success = success;
    restored.pid = pid;
    if (kind == GPUCR_CRIU__KIND__RESTORE)
        response.restore = &restored;
    answer(&response);
    _exit(success ? 0 : 1);
}

/* Ask "post-dump"; a bad answer is the end. */
static void ask_commit(void)
{
    GpucrCriu__Response response = GPUCR_CRIU__RESPONSE__INIT;
    GpucrCriu__Notification notify = GPUCR_CRIU__NOTIFICATION__INIT;
    GpucrCriu__Request *request;

    notify.script = (char *)"post-dump";
    response.type = GPUCR_CRIU__KIND__NOTIFY;
    response.success = 1;
    response.notify = &notify;
    answer(&response);
    request = receive();
    if (!request || !request->notify_success)
        finish(GPUCR_CRIU__KIND__DUMP, 0, 0);
}

static void refuse(int kind, const char *log_name)
{
    write_log(log_name,
              "(00.000100) Version: 4.1.1 (gitid 0)\n"
              "(00.000200) Error (criu/util.c:1533): rlimit: Can't setup RLIMIT_NOFILE for self: "
              "Operation not permitted\n"
              "(00.000300) Error (criu/sk-unix.c:874): unix: External socket is used. Consider "
              "using --ext-unix-sk option.\n"
              "(00.000400) Error (criu/cr-dump.c:1698): Dump files (pid: 4711) failed with -1\n"
              "(00.000500) Error (criu/cr-dump.c:2111): Dumping FAILED.\n");
    finish(kind, 0, 0);
}

static void hang(const char *log_name)
{
    signal(SIGTERM, SIG_IGN);
    write_log(log_name, "(00.000100) fake: about to do nothing\n");
    while (is("fake-stuck"))
        pause_ms(1000);
    for (unsigned long i = 0;; i++) {
        if (i % 50000000 == 0)
            write_log(log_name, "(00.000200) fake: the same again\n");
    }
}

static void die(const char *log_name)
{
    write_log(log_name, "(00.000100) fake: almost there\n");
    if (is("fake-exits"))
        _exit(3);
    kill(getpid(), SIGKILL);
    pause_ms(10000);
}

static void work(const char *log_name)
{
    for (int i = 0; i < 10; i++) {
        char line[64];

        snprintf(line, sizeof(line), "(00.%06d) fake: step %d\n", i * 200000, i);
        write_log(log_name, line);
        pause_ms(200);
    }
}

static void serve(const GpucrCriu__Request *request)
{
    int kind = request->type;
    const char *log_name = request->opts ? request->opts->log_file : NULL;

    if (kind == GPUCR_CRIU__KIND__VERSION)
        tell_version();
    if (kind != GPUCR_CRIU__KIND__DUMP && kind != GPUCR_CRIU__KIND__RESTORE)
        return;
    if (is("fake-refuses"))
        refuse(kind, log_name);
    if (is("fake-stuck") || is("fake-spins"))
        hang(log_name);
    if (is("fake-dies") || is("fake-exits"))
        die(log_name);
    if (is("fake-garbage") && send(channel, "\377\377\377", 3, MSG_NOSIGNAL) == 3)
        pause_ms(10000);
    if (is("fake-slow"))
        work(log_name);
    if (kind == GPUCR_CRIU__KIND__DUMP) {
        ask_commit();
        if (is("fake-after"))
            _exit(3);
        if (!request->opts->leave_running)
            kill(request->opts->pid, SIGKILL);
    }
    finish(kind, 1, 1);
}

int main(int argc, char **argv)
{
    char path[512];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    GpucrCriu__Request *request;

    if (n <= 0 || argc != 4 || strcmp(argv[2], "swrk") != 0)
        return 2;
    path[n] = '\0';
    snprintf(name, sizeof(name), "%.63s", strrchr(path, '/') + 1);
    channel = atoi(argv[3]);
    if (is("fake-text")) {
        fprintf(stderr, "this is not criu\n");
        return 4;
    }
    while (is("fake-mute"))
        pause_ms(1000);
    request = receive();
    if (request)
        serve(request);
    return 0;
}
