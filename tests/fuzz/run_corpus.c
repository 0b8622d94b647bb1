/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stands in for libFuzzer's main(): gives every file of the named folders, or the named
 * files, to LLVMFuzzerTestOneInput() once. So the corpora are ordinary tests, with any
 * compiler and any sanitizer. Options of libFuzzer (beginning with a minus) are ignored.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INPUT_BYTES_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static int run_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    uint8_t *data;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > INPUT_BYTES_MAX) {
        (void)fprintf(stderr, "%s: cannot be read\n", path);
        return -1;
    }
    /* Of the exact size, so that a sanitizer sees every byte read past the end. */
    data = malloc((size_t)st.st_size + (st.st_size == 0));
    n = data ? read(fd, data, (size_t)st.st_size) : -1;
    (void)close(fd);
    if (n != st.st_size) {
        (void)fprintf(stderr, "%s: cannot be read\n", path);
        free(data);
        return -1;
    }
    (void)LLVMFuzzerTestOneInput(data, (size_t)n);
    free(data);
    return 1;
}

/** Number of inputs, or -1. */
static int run_path(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *e;
    int count = 0;

    if (!dir)
        return run_file(path);
    while (count >= 0 && (e = readdir(dir))) {
        char *file = NULL;
        int n;

        if (e->d_name[0] == '.')
            continue;
        n = asprintf(&file, "%s/%s", path, e->d_name) < 0 ? -1 : run_file(file);
        count = n < 0 ? -1 : count + n;
        free(file);
    }
    (void)closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    int total = 0;

    for (int i = 1; i < argc; i++) {
        int n = argv[i][0] == '-' ? 0 : run_path(argv[i]);

        if (n < 0)
            return 1;
        total += n;
    }
    (void)printf("%d inputs\n", total);
    /* An empty corpus means that it was not found. */
    return total > 0 ? 0 : 1;
}
