/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The bytes are a list of things done to a good image: bits flipped, files cut, renamed,
 * linked, given away, manifests exchanged with a digest that fits. Then it is opened and
 * verified. What is accepted is looked at by a second, simpler judge.
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/digest.h"
#include "image/reader.h"
#include "image/tree_walk.h"
#include "image/writer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { OPS_MAX = 32, DEPTH = 16, PATH_BYTES = 512, BASE_FILES = 6 };

/** The good image, in memory: what every run begins with. */
static struct {
    char root[PATH_BYTES]; /* scratch folder */
    struct {
        const char *path;
        char *data;
        size_t size_bytes;
    } files[BASE_FILES];
} base = {.files = {{.path = "manifest.json"},
                    {.path = "manifest.digest"},
                    {.path = "logs/dump.log"},
                    {.path = "criu/core-1.img"},
                    {.path = "criu/empty.img"},
                    {.path = "criu/sub/pages-1.img"}}};

/** Names that things are created under, good ones among them. */
static const char *const names[] = {"manifest.json",
                                    "manifest.digest",
                                    "criu",
                                    "criu/core-1.img",
                                    "criu/empty.img",
                                    "criu/sub",
                                    "logs",
                                    "logs/x",
                                    "criu/x",
                                    "criu/sub/x",
                                    "x",
                                    "criu/\x1b[2J",
                                    "criu/a\xff",
                                    "logs/dump.log",
                                    "criu/sub/pages-1.img",
                                    "criu/x/x"};

struct input {
    const uint8_t *data;
    size_t left;
};

static void must(int condition)
{
    if (!condition)
        abort();
}

static unsigned take_byte(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->data++;
}

static unsigned take_word(struct input *in)
{
    unsigned low = take_byte(in);

    return low | take_byte(in) << 8;
}

static const char *take_name(struct input *in)
{
    return names[take_byte(in) % (sizeof(names) / sizeof(names[0]))];
}

static void write_at(int dir_fd, const char *path, const void *data, size_t size_bytes)
{
    int fd = openat(dir_fd, path,
                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

    if (fd < 0)
        return;
    (void)gpucr_fd_write_all(fd, data, size_bytes, NULL);
    (void)close(fd);
}

static void remove_root(void)
{
    (void)gpucr_image_tree_remove(AT_FDCWD, base.root);
}

static void fill_manifest(struct gpucr_manifest *m)
{
    *m = (struct gpucr_manifest){.gpucr_version = "0.1.0",
                                 .created = "2026-01-31T12:00:00Z",
                                 .engine = "criu",
                                 .root_pid = 7,
                                 .process_count = 1};
    m->processes = calloc(1, sizeof(*m->processes));
    must(m->processes != NULL);
    m->processes[0] = (struct gpucr_manifest_process){.pid = 7, .ns_pid = 7, .name = "p"};
}

static void make_base(void)
{
    const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    struct gpucr_image_writer *writer = NULL;
    struct gpucr_manifest m;
    char path[PATH_BYTES + 16];
    char page[200];

    /* The same in every run, so that an input always does the same. */
    for (size_t i = 0; i < sizeof(page); i++)
        page[i] = (char)(i * 7);
    (void)snprintf(base.root, sizeof(base.root), "%s/fuzz-image-XXXXXX", tmp);
    must(mkdtemp(base.root) != NULL);
    (void)atexit(remove_root);
    (void)snprintf(path, sizeof(path), "%s/base", base.root);
    fill_manifest(&m);
    must(gpucr_image_writer_begin(path, &writer, NULL) == 0);
    must(mkdirat(gpucr_image_writer_criu_fd(writer), "sub", 0700) == 0);
    write_at(gpucr_image_writer_criu_fd(writer), "core-1.img", "0123456789", 10);
    write_at(gpucr_image_writer_criu_fd(writer), "empty.img", "", 0);
    write_at(gpucr_image_writer_criu_fd(writer), "sub/pages-1.img", page, sizeof(page));
    write_at(gpucr_image_writer_logs_fd(writer), "dump.log", "log\n", 4);
    must(gpucr_image_writer_commit(writer, &m, NULL, NULL, NULL) == 0);
    gpucr_image_writer_free(writer);
    gpucr_manifest_done(&m);
    for (size_t i = 0; i < BASE_FILES; i++) {
        int fd;

        (void)snprintf(path, sizeof(path), "%s/base/%s", base.root, base.files[i].path);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        must(fd >= 0);
        must(gpucr_fd_read_all(fd, 1 << 20, &base.files[i].data, &base.files[i].size_bytes, NULL) ==
             0);
        (void)close(fd);
    }
}

/** A fresh copy of the good image; its descriptor. */
static int make_run(const char *path)
{
    int fd;

    must(mkdir(path, 0700) == 0);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(fd >= 0);
    must(mkdirat(fd, "criu", 0700) == 0 && mkdirat(fd, "criu/sub", 0700) == 0 &&
         mkdirat(fd, "logs", 0700) == 0);
    for (size_t i = 0; i < BASE_FILES; i++)
        write_at(fd, base.files[i].path, base.files[i].data, base.files[i].size_bytes);
    return fd;
}

static void put_manifest(int fd, const void *json, size_t size_bytes)
{
    char digest[GPUCR_DIGEST_TEXT_BYTES];

    gpucr_digest_buffer(json, size_bytes, digest);
    digest[sizeof(digest) - 1] = '\n';
    write_at(fd, "manifest.json", json, size_bytes);
    write_at(fd, "manifest.digest", digest, sizeof(digest));
}

/** Overwrite some bytes of the good manifest, and make its digest fit. */
static void edit_manifest(int fd, struct input *in)
{
    size_t size_bytes = base.files[0].size_bytes;
    size_t at = take_word(in) % size_bytes;
    size_t n = take_byte(in) % 64;
    char *json = malloc(size_bytes);

    must(json != NULL);
    (void)memcpy(json, base.files[0].data, size_bytes);
    for (size_t i = 0; i < n && at + i < size_bytes; i++)
        json[at + i] = (char)take_byte(in);
    put_manifest(fd, json, size_bytes);
    free(json);
}

static void flip(int fd, struct input *in)
{
    int file = openat(fd, take_name(in), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    off_t at = (off_t)take_word(in);
    unsigned char byte;

    if (file >= 0 && pread(file, &byte, 1, at) == 1) {
        byte ^= (unsigned char)take_byte(in);
        (void)!pwrite(file, &byte, 1, at);
    }
    if (file >= 0)
        (void)close(file);
}

static void resize(int fd, struct input *in)
{
    int file = openat(fd, take_name(in), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (file >= 0) {
        (void)!ftruncate(file, (off_t)take_word(in));
        (void)close(file);
    }
}

/** Folders stay accessible, so that they can be removed by a user without rights, too. */
static void set_mode(int fd, struct input *in)
{
    const char *name = take_name(in);
    mode_t mode = take_word(in) & 07777;
    struct stat st;

    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISLNK(st.st_mode))
        (void)fchmodat(fd, name, S_ISDIR(st.st_mode) ? mode | 0700 : mode, 0);
}

static void apply(int fd, struct input *in)
{
    const char *name;

    switch (take_byte(in) % 12) {
    case 0:
        flip(fd, in);
        break;
    case 1:
        resize(fd, in);
        break;
    case 2:
        (void)unlinkat(fd, take_name(in), 0);
        break;
    case 3:
        name = take_name(in);
        write_at(fd, name, "new", take_byte(in) % 4);
        break;
    case 4:
        (void)mkdirat(fd, take_name(in), 0700);
        break;
    case 5:
        name = take_name(in);
        (void)symlinkat(name, fd, take_name(in));
        break;
    case 6:
        set_mode(fd, in);
        break;
    case 7:
        name = take_name(in);
        (void)linkat(fd, name, fd, take_name(in), 0);
        break;
    case 8:
        name = take_name(in);
        (void)renameat(fd, name, fd, take_name(in));
        break;
    case 9:
        put_manifest(fd, in->data, in->left);
        in->left = 0;
        break;
    case 10:
        edit_manifest(fd, in);
        break;
    default:
        (void)mkfifoat(fd, take_name(in), 0600);
        break;
    }
}

/* The second judge. nftw() has no argument for its function. */
static const struct gpucr_manifest *judge_manifest;
static size_t judge_files;
static size_t judge_prefix;

static int judge(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    const char *rel = path + judge_prefix;
    size_t i = 0;

    (void)type;
    (void)ftw;
    must(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode));
    must((st->st_mode & 022) == 0);
    must(st->st_uid == 0 || st->st_uid == geteuid());
    if (S_ISDIR(st->st_mode))
        return 0;
    must(st->st_nlink == 1 && (st->st_mode & 06000) == 0);
    if (strncmp(rel, "logs/", 5) == 0 || strcmp(rel, "manifest.json") == 0 ||
        strcmp(rel, "manifest.digest") == 0)
        return 0;
    while (i < judge_manifest->file_count && strcmp(judge_manifest->files[i].path, rel) != 0)
        i++;
    must(i < judge_manifest->file_count);
    must((uint64_t)st->st_size == judge_manifest->files[i].size_bytes);
    judge_files++;
    return 0;
}

/** The text of a file of the image; free() it. */
static char *read_text(const char *image, const char *name, size_t *ret_bytes)
{
    char path[PATH_BYTES + 64];
    char *data = NULL;
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", image, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0 && gpucr_fd_read_all(fd, 1 << 20, &data, ret_bytes, NULL) == 0);
    (void)close(fd);
    return data;
}

static void judge_manifest_digest(const char *path, const struct gpucr_image *image)
{
    const char *json = gpucr_image_manifest_json(image);
    char digest[GPUCR_DIGEST_TEXT_BYTES];
    size_t n = 0;
    char *text = read_text(path, "manifest.digest", &n);

    gpucr_digest_buffer(json, strlen(json), digest);
    digest[sizeof(digest) - 1] = '\n';
    must(n == sizeof(digest) && memcmp(text, digest, n) == 0);
    free(text);
}

static void judge_image(const char *path, const struct gpucr_image *image)
{
    judge_manifest_digest(path, image);
    judge_manifest = gpucr_image_manifest(image);
    judge_prefix = strlen(path) + 1;
    judge_files = 0;
    must(nftw(path, judge, DEPTH, FTW_PHYS) == 0);
    must(judge_files == judge_manifest->file_count);
    /* The manifest is the good one: then all the rest is, too. */
    if (strcmp(gpucr_image_manifest_json(image), base.files[0].data) != 0)
        return;
    for (size_t i = 3; i < BASE_FILES; i++) {
        size_t n = 0;
        char *data = read_text(path, base.files[i].path, &n);

        must(n == base.files[i].size_bytes && memcmp(data, base.files[i].data, n) == 0);
        free(data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct input in = {.data = data, .left = size_bytes};
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_image *image = NULL;
    char path[PATH_BYTES + 16];
    int rc;
    int fd;

    if (!base.root[0])
        make_base();
    (void)snprintf(path, sizeof(path), "%s/run", base.root);
    fd = make_run(path);
    for (int i = 0; i < OPS_MAX && in.left > 0; i++)
        apply(fd, &in);
    rc = gpucr_image_open(path, &image, &err);
    if (rc == 0)
        rc = gpucr_image_verify(image, NULL, NULL, &err);
    if (rc == 0)
        judge_image(path, image);
    else
        must(rc == GPUCR_ERR_IMAGE_UNSAFE || rc == GPUCR_ERR_IMAGE_FORMAT ||
             rc == GPUCR_ERR_IMAGE_DAMAGED || rc == GPUCR_ERR_PERMISSION);
    (void)gpucr_image_close(image);
    (void)close(fd);
    must(gpucr_image_tree_remove(AT_FDCWD, path) == 0);
    return 0;
}
