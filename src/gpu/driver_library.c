/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "gpu/driver_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

/* Where distributions, NVIDIA's installer and driver containers put the libraries. */
static const char *const folders[] = {
    "usr/lib/x86_64-linux-gnu", "usr/lib64", "lib64", "usr/lib", "lib", "lib/x86_64-linux-gnu", ".",
};

enum { UID_UNMAPPED = 65534 };

/*
 * In a user namespace that is not the first, files of the machine's root show
 * the overflow uid: nobody in here can change them.
 */
static bool in_user_namespace(void)
{
    static const char everything[] = "0 0 4294967295";
    char text[256];
    const char *p = text;
    const char *want = everything;

    if (gpucr_file_read_small(AT_FDCWD, "/proc/self/uid_map", text, sizeof(text)) <= 0)
        return false;
    while (*p == ' ')
        p++;
    for (; *want; want++) {
        if (*want != *p)
            return true;
        p++;
        while (*want == ' ' && *p == ' ')
            p++;
    }
    return false;
}

static bool is_roots(const struct stat *st)
{
    if (st->st_uid == 0)
        return true;
    return st->st_uid == UID_UNMAPPED && in_user_namespace();
}

static int check_node(const char *library, const char *node, struct gpucr_error *err)
{
    struct stat st;
    int rc;

    if (stat(node, &st) != 0) {
        rc = gpucr_error_errno(err, errno, "%s cannot be examined before %s is loaded", node,
                               library);
        return gpucr_error_path(err, rc, node);
    }
    if (!is_roots(&st)) {
        rc = gpucr_error_set(err, GPUCR_ERR_PERMISSION,
                             "%s is not loaded: %s belongs to uid %u, and as root gpucr loads only "
                             "what root owns",
                             library, node, (unsigned)st.st_uid);
        return gpucr_error_path(err, rc, node);
    }
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX))) {
        rc = gpucr_error_set(err, GPUCR_ERR_PERMISSION,
                             "%s is not loaded: %s can be written by others (mode %04o), and as "
                             "root gpucr loads only what nobody else can change",
                             library, node, (unsigned)(st.st_mode & 07777));
        return gpucr_error_path(err, rc, node);
    }
    return 0;
}

int gpucr_driver_library_check(const char *path, struct gpucr_error *err)
{
    char real[PATH_MAX];
    char *slash;
    int rc;

    if (!realpath(path, real)) {
        rc = gpucr_error_errno(err, errno, "the real place of %s cannot be found", path);
        return gpucr_error_path(err, rc, path);
    }
    rc = check_node(path, real, err);
    while (rc == 0 && (slash = strrchr(real, '/')) && slash != real) {
        *slash = '\0';
        rc = check_node(path, real, err);
    }
    return rc < 0 ? rc : check_node(path, "/", err);
}

static bool must_check(void)
{
    return geteuid() == 0 || getauxval(AT_SECURE) != 0;
}

/* NULL if it cannot be loaded. */
static void *load(const char *name, const char *soname, struct gpucr_error *err)
{
    void *handle;
    const char *why;

    (void)dlerror();
    handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle)
        return handle;
    why = dlerror();
    (void)gpucr_error_set(err, GPUCR_ERR_DRIVER_MISSING,
                          "the NVIDIA driver's library %s cannot be loaded: %s; where it is "
                          "installed in a folder of its own, name that as the driver root",
                          soname, why ? why : "the loader gives no reason");
    return NULL;
}

/* Open without following a link out of the root (a driver's root may hold absolute links). */
static int open_in_root(int root_fd, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

    /* ENOSYS and EPERM: a seccomp filter that does not know openat2. */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        fd = openat(root_fd, path, O_PATH | O_CLOEXEC);
    return (int)fd;
}

/* The path of the first candidate: 1 found, 0 none, negative error. */
static int find_in_root(const char *root, const char *soname, char *ret, size_t size,
                        struct gpucr_error *err)
{
    GPUCR_AUTO_FD int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc;

    if (root_fd < 0) {
        rc = gpucr_error_errno(err, errno, "the driver root %s cannot be opened", root);
        return gpucr_error_path(err, rc, root);
    }
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(folders); i++) {
        GPUCR_AUTO_FD int fd = -1;
        char name[PATH_MAX];
        char link[64];
        ssize_t n;

        (void)snprintf(name, sizeof(name), "%s/%s", folders[i], soname);
        fd = open_in_root(root_fd, name);
        if (fd < 0)
            continue;
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, ret, size - 1);
        if (n <= 0)
            continue;
        ret[n] = '\0';
        return 1;
    }
    return 0;
}

static int load_from_root(const char *root, const char *soname, void **ret, char *ret_path,
                          struct gpucr_error *err)
{
    char path[PATH_MAX];
    void *handle;
    int rc = find_in_root(root, soname, path, sizeof(path), err);

    if (rc < 0)
        return rc;
    if (rc == 0) {
        rc = gpucr_error_set(err, GPUCR_ERR_DRIVER_MISSING,
                             "there is no %s below the driver root %s (looked in "
                             "usr/lib/x86_64-linux-gnu, usr/lib64, lib64, usr/lib, lib, "
                             "lib/x86_64-linux-gnu and the folder itself)",
                             soname, root);
        return gpucr_error_path(err, rc, root);
    }
    rc = must_check() ? gpucr_driver_library_check(path, err) : 0;
    if (rc < 0)
        return rc;
    handle = load(path, soname, err);
    if (!handle)
        return gpucr_error_path(err, GPUCR_ERR_DRIVER_MISSING, path);
    *ret = handle;
    (void)gpucr_copy_text(ret_path, GPUCR_ERROR_PATH_BYTES, path);
    return 0;
}

/* Which file the loader took is known only afterwards: it is refused then, before any call. */
static int load_by_name(const char *soname, void **ret, char *ret_path, struct gpucr_error *err)
{
    struct link_map *map = NULL;
    char real[PATH_MAX];
    void *handle = load(soname, soname, err);
    int rc;

    if (!handle)
        return GPUCR_ERR_DRIVER_MISSING;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map || !realpath(map->l_name, real)) {
        (void)dlclose(handle);
        return gpucr_error_set(err, GPUCR_ERR_SYSTEM,
                               "the loader does not tell from where it took %s", soname);
    }
    rc = must_check() ? gpucr_driver_library_check(real, err) : 0;
    if (rc < 0) {
        (void)dlclose(handle);
        return rc;
    }
    (void)gpucr_copy_text(ret_path, GPUCR_ERROR_PATH_BYTES, real);
    *ret = handle;
    return 0;
}

int gpucr_driver_library_load(const char *driver_root, const char *soname, void **ret,
                              char *ret_path, struct gpucr_error *err)
{
    int rc = driver_root ? load_from_root(driver_root, soname, ret, ret_path, err)
                         : load_by_name(soname, ret, ret_path, err);

    if (rc == 0)
        gpucr_debug("loaded %s", ret_path);
    return rc;
}
