/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * build/criu/criu: runs the criu of this folder with the libraries and the
 * loader of this folder, wherever the folder has been moved or copied to.
 *
 * An ELF interpreter has to be an absolute path, so the loader is started by
 * hand. --library-path reaches this one process only: unlike LD_LIBRARY_PATH it
 * is not inherited by the programs that criu starts (tar, ip, iptables, action
 * scripts), which need the machine's own libraries. The file is static, so that
 * it runs with any libc, and leaves fds and environment as they are (`criu swrk
 * FD` gets its socket that way).
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LAUNCHER_ARGS = 6, MAX_ARGS = 4096 };

struct paths {
    char loader[PATH_MAX];
    char libraries[PATH_MAX];
    char program[PATH_MAX];
};

static int join(char out[PATH_MAX], const char *dir, const char *name)
{
    int length = snprintf(out, PATH_MAX, "%s/%s", dir, name);

    return length > 0 && length < PATH_MAX ? 0 : -1;
}

/* The folder that this file lies in, with symbolic links to it followed. */
static int own_folder(char dir[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", dir, PATH_MAX - 1);
    char *slash;

    if (length <= 0 || length >= PATH_MAX - 1)
        return -1;
    dir[length] = '\0';
    slash = strrchr(dir, '/');
    if (slash == NULL)
        return -1;
    *slash = '\0';
    return 0;
}

static int find_paths(struct paths *paths)
{
    char dir[PATH_MAX];

    if (own_folder(dir) != 0 || join(paths->loader, dir, "lib/ld-linux-x86-64.so.2") != 0 ||
        join(paths->libraries, dir, "lib") != 0 || join(paths->program, dir, "bin/criu.bin") != 0)
        return -1;
    /* The loader would take it for a list of two folders. */
    return strpbrk(dir, ":;") == NULL ? 0 : -1;
}

int main(int argc, char **argv)
{
    static struct paths paths;
    static char *args[LAUNCHER_ARGS + MAX_ARGS + 1];
    char *head[LAUNCHER_ARGS] = {paths.loader, "--library-path", paths.libraries,
                                 "--argv0",    "criu",           paths.program};

    if (find_paths(&paths) != 0) {
        fputs("criu launcher: cannot tell the folder it lies in (is /proc mounted? its path must "
              "be short and have no ':' or ';')\n",
              stderr);
        return 127;
    }
    if (argc < 1 || argc - 1 > MAX_ARGS) {
        fprintf(stderr, "criu launcher: more than %d arguments\n", MAX_ARGS);
        return 127;
    }
    memcpy(args, head, sizeof(head));
    for (int i = 1; i < argc; i++)
        args[LAUNCHER_ARGS + i - 1] = argv[i];
    execv(paths.loader, args);
    fprintf(stderr, "criu launcher: cannot run %s: %s\n", paths.loader, strerror(errno));
    return 127;
}
