/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_img.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"

enum {
    IMG_BYTES_MAX = 256 << 20,
    MAGIC_BYTES = 8,
    COMMON_MAGIC = 0x54564319, /* first half of the magic of every file of this kind */
    MOUNT_FILES_MAX = 4096,
};

/* Numbers of fields, by message. */
enum {
    FILE_ENTRY_ID = 2,
    FILE_ENTRY_REG = 3,
    REG_NAME = 6,
    FDINFO_ID = 1,
    FDINFO_FD = 4,
    IDS_FILES_ID = 2,
    MOUNT_ID = 2,
    MOUNT_POINT = 7,
    REMAP_FILE_ID = 1,
    REMAP_ID = 2,
    REMAP_TYPE = 3,
    PSTREE_PID = 1,
    PSTREE_THREADS = 5,
};

enum { REMAP_LINKED = 0, REMAP_GHOST = 1 };

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static bool read_varint(struct gpucr_pb *pb, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && pb->at < pb->end; shift += 7) {
        uint8_t byte = *pb->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static bool read_fixed(struct gpucr_pb *pb, size_t size, uint64_t *ret)
{
    uint64_t value = 0;

    if ((size_t)(pb->end - pb->at) < size)
        return false;
    (void)memcpy(&value, pb->at, size); /* little endian, as this machine */
    pb->at += size;
    *ret = value;
    return true;
}

static bool read_bytes(struct gpucr_pb *pb, struct gpucr_pb *ret)
{
    uint64_t size;

    if (!read_varint(pb, &size) || size > (uint64_t)(pb->end - pb->at))
        return false;
    *ret = (struct gpucr_pb){.at = pb->at, .end = pb->at + size};
    pb->at += size;
    return true;
}

bool gpucr_pb_next(struct gpucr_pb *pb, struct gpucr_pb_field *ret)
{
    struct gpucr_pb_field field = {0};
    uint64_t key;

    if (!read_varint(pb, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return false;
    field.number = (uint32_t)(key >> 3);
    switch ((unsigned)key & 7) {
    case WIRE_VARINT:
        if (!read_varint(pb, &field.value))
            return false;
        break;
    case WIRE_64:
        if (!read_fixed(pb, 8, &field.value))
            return false;
        break;
    case WIRE_32:
        if (!read_fixed(pb, 4, &field.value))
            return false;
        break;
    case WIRE_BYTES:
        field.is_bytes = true;
        if (!read_bytes(pb, &field.bytes))
            return false;
        break;
    default:
        return false;
    }
    *ret = field;
    return true;
}

void gpucr_pb_text(const struct gpucr_pb *bytes, char *ret, size_t size)
{
    size_t length = 0;

    for (const uint8_t *p = bytes->at; p < bytes->end && length + 1 < size; p++)
        ret[length++] = (char)(*p < ' ' || *p == 0x7f ? (uint8_t)'?' : *p);
    ret[length] = '\0';
}

int gpucr_criu_img_open(int images_fd, const char *name, struct gpucr_criu_img *ret,
                        struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd =
        openat(images_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    GPUCR_AUTO_FREE char *data = NULL;
    uint32_t magic = 0;
    size_t size = 0;
    struct stat st;
    int rc;

    if (fd < 0)
        return gpucr_error_errno(err, errno, "cannot open %s of the image", name);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT, "%s of the image is no file", name);
    rc = gpucr_fd_read_all(fd, IMG_BYTES_MAX, &data, &size, err);
    if (rc != 0)
        return rc;
    if (size >= MAGIC_BYTES)
        (void)memcpy(&magic, data, sizeof(magic));
    if (magic != COMMON_MAGIC)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                               "%s of the image does not begin as CRIU's files do", name);
    ret->data = (uint8_t *)gpucr_steal_ptr(&data);
    ret->rest = (struct gpucr_pb){.at = ret->data + MAGIC_BYTES, .end = ret->data + size};
    return 0;
}

void gpucr_criu_img_done(struct gpucr_criu_img *img)
{
    free(img->data);
    *img = (struct gpucr_criu_img){0};
}

bool gpucr_criu_img_next(struct gpucr_criu_img *img, struct gpucr_pb *ret)
{
    uint64_t size;

    if (!read_fixed(&img->rest, sizeof(uint32_t), &size) ||
        size > (uint64_t)(img->rest.end - img->rest.at))
        return false;
    *ret = (struct gpucr_pb){.at = img->rest.at, .end = img->rest.at + size};
    img->rest.at += size;
    return true;
}

/* First field of that number in a message. */
static bool find_field(struct gpucr_pb message, uint32_t number, bool is_bytes,
                       struct gpucr_pb_field *ret)
{
    while (gpucr_pb_next(&message, ret)) {
        if (ret->number == number && ret->is_bytes == is_bytes)
            return true;
    }
    return false;
}

int gpucr_criu_img_walk_files(int images_fd, gpucr_criu_file_fn fn, void *arg)
{
    GPUCR_AUTO_FREE struct gpucr_criu_file *file = calloc(1, sizeof(*file));
    struct gpucr_criu_img img = {0};
    struct gpucr_pb record;
    int rc = 0;

    if (!file || gpucr_criu_img_open(images_fd, "files.img", &img, NULL) != 0)
        return 0;
    while (rc == 0 && gpucr_criu_img_next(&img, &record)) {
        struct gpucr_pb_field id, reg, name;

        if (!find_field(record, FILE_ENTRY_ID, false, &id) ||
            !find_field(record, FILE_ENTRY_REG, true, &reg) ||
            !find_field(reg.bytes, REG_NAME, true, &name))
            continue;
        file->id = (uint32_t)id.value;
        gpucr_pb_text(&name.bytes, file->path, sizeof(file->path));
        rc = fn(arg, file);
    }
    gpucr_criu_img_done(&img);
    return rc;
}

/* Which record, and which number in it. */
struct query {
    uint32_t key; /* 0: the first record; else the one whose field key is value */
    uint64_t value;
    uint32_t wanted;
};

static bool look_up(int images_fd, const char *name, const struct query *query, uint64_t *ret)
{
    struct gpucr_criu_img img = {0};
    struct gpucr_pb record;
    bool found = false;

    if (gpucr_criu_img_open(images_fd, name, &img, NULL) != 0)
        return false;
    while (!found && gpucr_criu_img_next(&img, &record)) {
        struct gpucr_pb_field field;

        if (query->key != 0 &&
            (!find_field(record, query->key, false, &field) || field.value != query->value))
            continue;
        found = find_field(record, query->wanted, false, &field);
        if (found)
            *ret = field.value;
    }
    gpucr_criu_img_done(&img);
    return found;
}

int gpucr_criu_img_walk_remaps(int images_fd, gpucr_criu_remap_fn fn, void *arg)
{
    struct gpucr_criu_img img = {0};
    struct gpucr_pb record;
    int rc = 0;

    if (gpucr_criu_img_open(images_fd, "remap-fpath.img", &img, NULL) != 0)
        return 0;
    while (rc == 0 && gpucr_criu_img_next(&img, &record)) {
        struct gpucr_criu_remap_entry entry = {0};
        struct gpucr_pb_field file, remap, type;
        uint64_t kind = REMAP_LINKED; /* what CRIU takes it for when it is not said */

        if (!find_field(record, REMAP_FILE_ID, false, &file) ||
            !find_field(record, REMAP_ID, false, &remap))
            continue;
        if (find_field(record, REMAP_TYPE, false, &type))
            kind = type.value;
        entry.file_id = (uint32_t)file.value;
        entry.remap_id = (uint32_t)remap.value;
        entry.is_ghost = kind == REMAP_GHOST;
        entry.is_linked = kind == REMAP_LINKED;
        rc = fn(arg, &entry);
    }
    gpucr_criu_img_done(&img);
    return rc;
}

static int tell_id(uint64_t id, gpucr_criu_id_fn fn, void *arg, struct gpucr_error *err)
{
    if (id == 0 || id > INT32_MAX)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT, "the image has a process %llu",
                               (unsigned long long)id);
    return fn(arg, (int32_t)id, err);
}

/* A repeated number may be written one by one or all in one field. */
static int walk_entry(struct gpucr_pb entry, gpucr_criu_id_fn fn, void *arg,
                      struct gpucr_error *err)
{
    struct gpucr_pb_field field;
    uint64_t id;
    int rc = 0;

    while (rc == 0 && gpucr_pb_next(&entry, &field)) {
        if (field.number != PSTREE_PID && field.number != PSTREE_THREADS)
            continue;
        if (!field.is_bytes)
            rc = tell_id(field.value, fn, arg, err);
        while (rc == 0 && field.is_bytes && read_varint(&field.bytes, &id))
            rc = tell_id(id, fn, arg, err);
    }
    return rc;
}

int gpucr_criu_img_walk_ids(int images_fd, gpucr_criu_id_fn fn, void *arg, struct gpucr_error *err)
{
    struct gpucr_criu_img img = {0};
    struct gpucr_pb record;
    bool found = false;
    int rc = gpucr_criu_img_open(images_fd, "pstree.img", &img, err);

    while (rc == 0 && gpucr_criu_img_next(&img, &record)) {
        found = true;
        rc = walk_entry(record, fn, arg, err);
    }
    gpucr_criu_img_done(&img);
    if (rc == 0 && !found)
        rc = gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT, "the image has no processes");
    return rc;
}

struct path_wanted {
    uint32_t id;
    char path[sizeof(((struct gpucr_criu_file *)NULL)->path) + 1];
};

static int take_path(void *arg, const struct gpucr_criu_file *file)
{
    struct path_wanted *wanted = arg;

    if (file->id != wanted->id)
        return 0;
    (void)snprintf(wanted->path, sizeof(wanted->path), "/%s", file->path);
    return 1;
}

bool gpucr_criu_img_file_path(int images_fd, uint32_t id, char *ret, size_t size)
{
    struct path_wanted wanted = {.id = id};

    if (gpucr_criu_img_walk_files(images_fd, take_path, &wanted) != 1)
        return false;
    (void)gpucr_copy_text(ret, size, wanted.path);
    return true;
}

bool gpucr_criu_img_fd_path(int images_fd, int32_t pid, uint32_t fd, char *ret, size_t size)
{
    char name[64];
    uint64_t files_id, id;

    (void)snprintf(name, sizeof(name), "ids-%d.img", (int)pid);
    if (!look_up(images_fd, name, &(struct query){.wanted = IDS_FILES_ID}, &files_id))
        return false;
    (void)snprintf(name, sizeof(name), "fdinfo-%llu.img", (unsigned long long)files_id);
    if (!look_up(images_fd, name,
                 &(struct query){.key = FDINFO_FD, .value = fd, .wanted = FDINFO_ID}, &id))
        return false;
    return gpucr_criu_img_file_path(images_fd, (uint32_t)id, ret, size);
}

static bool find_mount(int images_fd, const char *name, uint32_t mount_id, char *ret, size_t size)
{
    struct gpucr_criu_img img = {0};
    struct gpucr_pb record;
    bool found = false;

    if (gpucr_criu_img_open(images_fd, name, &img, NULL) != 0)
        return false;
    while (!found && gpucr_criu_img_next(&img, &record)) {
        struct gpucr_pb_field field;

        if (!find_field(record, MOUNT_ID, false, &field) || field.value != mount_id)
            continue;
        found = find_field(record, MOUNT_POINT, true, &field);
        if (found)
            gpucr_pb_text(&field.bytes, ret, size);
    }
    gpucr_criu_img_done(&img);
    return found;
}

/* One file for each mount namespace of the image. */
bool gpucr_criu_img_mount_path(int images_fd, uint32_t mount_id, char *ret, size_t size)
{
    GPUCR_AUTO_FD int fd = openat(images_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    GPUCR_AUTO_DIR DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    int files = 0;

    if (!dir)
        return false;
    (void)gpucr_steal_fd(&fd); /* belongs to the stream now */
    while (files < MOUNT_FILES_MAX && (entry = readdir(dir))) {
        if (!gpucr_starts_with(entry->d_name, "mountpoints-"))
            continue;
        files++;
        if (find_mount(images_fd, entry->d_name, mount_id, ret, size))
            return true;
    }
    return false;
}
