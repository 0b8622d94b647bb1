/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "support.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char root[256];
static pid_t root_owner;

void test_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
    exit(1);
}

void test_check_equal(const char *file, int line, const char *what, long long wanted, long long got)
{
    if (wanted == got)
        return;
    fprintf(stderr, "%s:%d: failed: %s is %lld, not %lld\n", file, line, what, got, wanted);
    exit(1);
}

uint64_t test_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void test_sleep_ms(unsigned ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

static int run(char *const arguments[])
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);

        dup2(null, 1);
        execvp(arguments[0], arguments);
        _exit(127);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void remove_root(void)
{
    char *arguments[] = {"rm", "-rf", root, NULL};

    if (getpid() == root_owner)
        run(arguments);
}

void test_root_create(unsigned gpus, const char *vram)
{
    char count[16], memory[32], libs[300];
    char *arguments[] = {SIM_TOOL, "create", root, "--gpus", count, "--vram", memory, NULL};
    const char *base = getenv("TMPDIR");

    snprintf(root, sizeof(root), "%s/gpucr-sim-XXXXXX", base ? base : "/tmp");
    CHECK(mkdtemp(root));
    root_owner = getpid();
    atexit(remove_root);
    snprintf(count, sizeof(count), "%u", gpus);
    snprintf(memory, sizeof(memory), "%s", vram);
    CHECK_EQUAL(0, run(arguments));
    snprintf(libs, sizeof(libs), "%s/lib", root);
    setenv("GPUCR_SIM_ROOT", root, 1);
    setenv("LD_LIBRARY_PATH", libs, 1);
}

const char *test_root(void)
{
    return root;
}

static void write_state(const char *name, const char *mode, const char *text)
{
    char path[300];
    FILE *file;

    snprintf(path, sizeof(path), "%s/state/%s", root, name);
    file = fopen(path, mode);
    CHECK(file);
    fprintf(file, "%s\n", text);
    CHECK(fclose(file) == 0);
}

void test_config_add(const char *line)
{
    write_state("config", "ae", line);
}

void test_faults_set(const char *rules)
{
    char path[300];

    if (rules) {
        write_state("faults", "we", rules);
        return;
    }
    snprintf(path, sizeof(path), "%s/state/faults", root);
    unlink(path);
}

struct test_program test_program_start(const char *command)
{
    struct test_program program = {0};
    char copy[512], path[600];
    char *arguments[32] = {path};
    char *save = NULL, *word;
    int count = 1, ends[2];

    snprintf(copy, sizeof(copy), "%s", command);
    word = strtok_r(copy, " ", &save);
    CHECK(word);
    snprintf(path, sizeof(path), "%s/%s", SIM_SAMPLES, word);
    while ((word = strtok_r(NULL, " ", &save)) && count < 31)
        arguments[count++] = word;
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    program.pid = fork();
    CHECK(program.pid >= 0);
    if (program.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setsid();
        dup2(ends[1], 1);
        execv(path, arguments);
        _exit(127);
    }
    close(ends[1]);
    program.out = ends[0];
    if (!test_program_expect(&program, "ready ", 20000)) {
        fprintf(stderr, "%s is not ready; its last line: %s\n", command, program.line);
        exit(1);
    }
    return program;
}

static bool read_line(struct test_program *program, uint64_t deadline)
{
    size_t length = 0;

    while (length + 1 < sizeof(program->line)) {
        struct pollfd wait = {.fd = program->out, .events = POLLIN};
        ssize_t got;

        if (test_now_ms() > deadline)
            return false;
        if (poll(&wait, 1, 20) <= 0)
            continue;
        got = read(program->out, program->line + length, 1);
        if (got <= 0)
            return false;
        if (program->line[length] == '\n') {
            program->line[length] = '\0';
            return true;
        }
        length++;
    }
    return false;
}

bool test_program_expect(struct test_program *program, const char *prefix, unsigned timeout_ms)
{
    uint64_t deadline = test_now_ms() + timeout_ms;

    while (read_line(program, deadline)) {
        if (strncmp(program->line, prefix, strlen(prefix)) == 0)
            return true;
    }
    return false;
}

uint64_t test_program_field(const struct test_program *program, const char *name)
{
    char key[64];
    const char *found;

    snprintf(key, sizeof(key), " %s=", name);
    found = strstr(program->line, key);
    if (!found) {
        fprintf(stderr, "no %s in: %s\n", name, program->line);
        exit(1);
    }
    return strtoull(found + strlen(key), NULL, 10);
}

static void check_line(const struct test_program *program)
{
    CHECK_EQUAL(0, test_program_field(program, "bad"));
    CHECK_EQUAL(0, test_program_field(program, "pinned_bad"));
    CHECK_EQUAL(test_program_field(program, "expected"), test_program_field(program, "counter"));
}

uint64_t test_program_verify(struct test_program *program)
{
    kill(program->pid, SIGUSR1);
    if (!test_program_expect(program, "verify ", 20000)) {
        fprintf(stderr, "no answer from %d; its last line: %s\n", program->pid, program->line);
        exit(1);
    }
    check_line(program);
    return test_program_field(program, "counter");
}

int test_program_wait(struct test_program *program, unsigned timeout_ms)
{
    uint64_t deadline = test_now_ms() + timeout_ms;
    int status;

    do {
        if (waitpid(program->pid, &status, WNOHANG) == program->pid) {
            close(program->out);
            return status;
        }
        test_sleep_ms(2);
    } while (test_now_ms() < deadline);
    return -1;
}

void test_program_end(struct test_program *program)
{
    kill(program->pid, SIGUSR2);
    CHECK_EQUAL(0, test_program_wait(program, 20000));
}

int test_program_kill(struct test_program *program)
{
    kill(program->pid, SIGKILL);
    return test_program_wait(program, 20000);
}

static void *library;

void *test_symbol(const char *name)
{
    if (!library) {
        char path[300];

        snprintf(path, sizeof(path), "%s/lib/libcuda.so.1", root);
        library = dlopen(path, RTLD_NOW);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            exit(1);
        }
    }
    return dlsym(library, name);
}

static void bind(void *to, const char *name)
{
    void *found = test_symbol(name);

    CHECK(found);
    memcpy(to, &found, sizeof(found));
}

const struct test_driver *test_driver(void)
{
    static struct test_driver driver;

    if (driver.init)
        return &driver;
    bind(&driver.get_state, "cuCheckpointProcessGetState");
    bind(&driver.get_tid, "cuCheckpointProcessGetRestoreThreadId");
    bind(&driver.lock, "cuCheckpointProcessLock");
    bind(&driver.checkpoint, "cuCheckpointProcessCheckpoint");
    bind(&driver.restore, "cuCheckpointProcessRestore");
    bind(&driver.unlock, "cuCheckpointProcessUnlock");
    bind(&driver.init, "cuInit");
    return &driver;
}

int test_state(int pid)
{
    CUprocessState state;

    CHECK_EQUAL(0, test_driver()->get_state(pid, &state));
    return (int)state;
}

CUresult test_lock(int pid, unsigned timeout_ms)
{
    CUcheckpointLockArgs args = {.timeoutMs = timeout_ms};

    return test_driver()->lock(pid, &args);
}

CUresult test_checkpoint(int pid)
{
    CUcheckpointCheckpointArgs args = {0};

    return test_driver()->checkpoint(pid, &args);
}

CUresult test_restore(int pid)
{
    CUcheckpointRestoreArgs args = {0};

    return test_driver()->restore(pid, &args);
}

CUresult test_unlock(int pid)
{
    CUcheckpointUnlockArgs args = {0};

    return test_driver()->unlock(pid, &args);
}
