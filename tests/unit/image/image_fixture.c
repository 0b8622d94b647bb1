/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "image_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "image/digest.h"
#include "image/tree_walk.h"

const struct fixture_file fixture_files[] = {
    {"core-1.img", 97},           {"empty.img", 0}, {"inventory.img", 40}, {"pages-1.img", 4000},
    {"sub/deep/pages-2.img", 11},
};
const size_t fixture_file_count = sizeof(fixture_files) / sizeof(fixture_files[0]);

int fixture_setup(void **state)
{
    const char *base = getenv("TMPDIR");
    char *path = NULL;

    if (asprintf(&path, "%s/image-test-XXXXXX", base ? base : "/tmp") < 0 || !mkdtemp(path))
        return -1;
    *state = path;
    return 0;
}

int fixture_teardown(void **state)
{
    int rc = gpucr_image_tree_remove(AT_FDCWD, *state);

    if (rc < 0)
        print_message("cannot remove %s: %s\n", (char *)*state, strerror(-rc));
    free(*state);
    return rc;
}

const char *fixture_path(void **state, const char *format, ...)
{
    static char buffers[8][FIXTURE_PATH_BYTES];
    static unsigned next;
    char *to = buffers[next++ % 8];
    int n = snprintf(to, FIXTURE_PATH_BYTES, "%s/", (const char *)*state);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(to + n, FIXTURE_PATH_BYTES - (size_t)n, format, args);
    va_end(args);
    return to;
}

static void fill_process(struct gpucr_manifest_process *p, int32_t pid, int32_t parent)
{
    *p = (struct gpucr_manifest_process){.pid = pid,
                                         .ns_pid = pid,
                                         .parent_pid = parent,
                                         .group = 1000,
                                         .session = 1000,
                                         .start_ticks = 123456,
                                         .uid = 1,
                                         .gid = 2,
                                         .name = "counter",
                                         .thread_count = 2,
                                         .host_bytes = 1 << 20};
    p->threads = calloc(2, sizeof(*p->threads));
    assert_non_null(p->threads);
    p->threads[0] = pid;
    p->threads[1] = pid + 7;
}

void fixture_manifest(struct gpucr_manifest *ret)
{
    struct gpucr_manifest m = {.gpucr_version = "0.1.0",
                               .created = "2026-01-31T12:00:00Z",
                               .host = "node1",
                               .kernel = "6.1.0 #1 SMP",
                               .boot_id = "0f8fad5b-d9cb-469f-a165-70867728950e",
                               .engine = "criu",
                               .engine_version = 40101,
                               .driver_name = "580.159.04",
                               .cuda_version = 13000,
                               .root_pid = 1000,
                               .gpu_count = 1,
                               .process_count = 2,
                               .phase_count = 1};

    m.gpus[0] = (struct gpucr_manifest_gpu){.index = 3,
                                            .uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef",
                                            .name = "NVIDIA H200",
                                            .memory_bytes = 150754820096};
    m.phases[0] = (struct gpucr_manifest_phase){.name = "dump", .bytes = 9108, .ns = 5000000};
    m.processes = calloc(2, sizeof(*m.processes));
    assert_non_null(m.processes);
    fill_process(&m.processes[0], 1000, 1);
    fill_process(&m.processes[1], 1010, 1000);
    m.processes[1].is_cuda = true;
    m.processes[1].cuda_state = 1;
    m.processes[1].device_bytes = 4096;
    m.processes[1].gpu_count = 1;
    m.processes[1].gpus[0] = 3;
    assert_int_equal(gpucr_manifest_add_option(&m, "shell-job", "", NULL), 0);
    assert_int_equal(gpucr_manifest_add_option(&m, "external", "mnt[/a]:\"b\\c\"", NULL), 0);
    *ret = m;
}

char *fixture_json(void)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_manifest m;
    char *json = NULL;

    fixture_manifest(&m);
    m.files = calloc(1, sizeof(*m.files));
    assert_non_null(m.files);
    m.file_count = 1;
    m.files[0].path = strdup("criu/core-1.img");
    m.files[0].size_bytes = 97;
    (void)gpucr_copy_text(m.files[0].digest, sizeof(m.files[0].digest),
                          "99aa06d3014798d86001c324468d497f");
    if (gpucr_manifest_to_json(&m, &json, &err) != 0)
        fail_msg("%s", err.text);
    gpucr_manifest_done(&m);
    return json;
}

void fixture_write(int dir_fd, const char *path, const void *data, size_t size_bytes)
{
    int fd = openat(dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(gpucr_fd_write_all(fd, data, size_bytes, NULL), 0);
    (void)close(fd);
}

void fixture_fill(struct gpucr_image_writer *writer)
{
    int fd = gpucr_image_writer_criu_fd(writer);

    (void)mkdirat(fd, "sub", 0777);
    (void)mkdirat(fd, "sub/deep", 0777);
    for (size_t i = 0; i < fixture_file_count; i++) {
        char data[4000];

        for (size_t k = 0; k < sizeof(data); k++)
            data[k] = (char)(k * 7 + i);
        fixture_write(fd, fixture_files[i].path, data, fixture_files[i].size_bytes);
    }
    fixture_write(gpucr_image_writer_logs_fd(writer), "dump.log", "done\n", 5);
}

void fixture_image(const char *path)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_image_writer *writer = NULL;
    struct gpucr_manifest m;

    fixture_manifest(&m);
    if (gpucr_image_writer_begin(path, &writer, &err) != 0)
        fail_msg("%s", err.text);
    fixture_fill(writer);
    if (gpucr_image_writer_commit(writer, &m, NULL, NULL, &err) != 0)
        fail_msg("%s", err.text);
    gpucr_image_writer_free(writer);
    gpucr_manifest_done(&m);
}

int fixture_check(const char *path, struct gpucr_error *err)
{
    struct gpucr_image *image = NULL;
    int rc = gpucr_image_open(path, &image, err);

    if (rc == 0)
        rc = gpucr_image_verify(image, NULL, NULL, err);
    (void)gpucr_image_close(image);
    return rc;
}

void fixture_assert(const char *path, int code, const char *part)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    int rc = fixture_check(path, &err);

    if (rc != code)
        fail_msg("%s expected, but %s: %s", gpucr_code_name(code), gpucr_code_name(rc), err.text);
    if (code == 0)
        return;
    assert_int_equal(err.code, code);
    assert_int_equal(err.stage, GPUCR_STAGE_VERIFY);
    assert_true(err.path[0] != '\0');
    if (!strstr(err.text, part))
        fail_msg("\"%s\" is not in: %s", part, err.text);
}

size_t fixture_count(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *e;
    size_t n = 0;

    assert_non_null(dir);
    while ((e = readdir(dir)))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    (void)closedir(dir);
    return n;
}

char *fixture_read(const char *path, size_t *ret_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *data = NULL;

    assert_true(fd >= 0);
    assert_int_equal(gpucr_fd_read_all(fd, 1 << 26, &data, ret_bytes, NULL), 0);
    (void)close(fd);
    return data;
}

void fixture_put_manifest(const char *image, const char *json, size_t size_bytes)
{
    int fd = open(image, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char digest[GPUCR_DIGEST_TEXT_BYTES];

    assert_true(fd >= 0);
    gpucr_digest_buffer(json, size_bytes, digest);
    digest[sizeof(digest) - 1] = '\n';
    fixture_write(fd, "manifest.json", json, size_bytes);
    fixture_write(fd, "manifest.digest", digest, sizeof(digest));
    (void)close(fd);
}

uint64_t fixture_seed(void)
{
    const char *text = getenv("GPUCR_SEED");
    uint64_t seed = 0;

    if (!text || !gpucr_parse_u64(text, 10, &seed))
        seed = (uint64_t)time(NULL);
    print_message("GPUCR_SEED=%llu\n", (unsigned long long)seed);
    return seed | 1;
}

uint64_t fixture_random(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545f4914f6cdd1dULL;
}
