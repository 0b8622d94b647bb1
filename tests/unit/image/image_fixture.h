/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file image_fixture.h
 * A scratch folder and small images for the tests of the image layer.
 */
#ifndef IMAGE_FIXTURE_H
#define IMAGE_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "image/manifest.h"
#include "image/reader.h"
#include "image/writer.h"

enum { FIXTURE_PATH_BYTES = 4096 };

/** The scratch folder of the running test; its path is *state. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/** "SCRATCH/name" in a buffer that is good until the eighth call from now. */
const char *fixture_path(void **state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** A valid manifest of two processes and one GPU, without files. */
void fixture_manifest(struct gpucr_manifest *ret);

/** The same with one file, as JSON; free() it. */
char *fixture_json(void);

void fixture_write(int dir_fd, const char *path, const void *data, size_t size_bytes);

/** Files of the small image: what they are called, and how large they are. */
struct fixture_file {
    const char *path;
    size_t size_bytes;
};
extern const struct fixture_file fixture_files[];
extern const size_t fixture_file_count;

/** Put the small image's files into criu/ of a writer, and a log into logs/. */
void fixture_fill(struct gpucr_image_writer *writer);

/** Write the small image. */
void fixture_image(const char *path);

/** 0, or the code of opening or verifying the image; @p err is filled. */
int fixture_check(const char *path, struct gpucr_error *err);

/** Fails the test unless opening or verifying gives @p code, with @p part in the text. */
void fixture_assert(const char *path, int code, const char *part);

/** Number of entries in a folder, . and .. left out. */
size_t fixture_count(const char *path);

/** Read a whole file; free() it. */
char *fixture_read(const char *path, size_t *ret_bytes);

/** Write @p json as manifest.json of an image, with a digest that fits. */
void fixture_put_manifest(const char *image, const char *json, size_t size_bytes);

/** Seed of this run, printed once: GPUCR_SEED or the clock. */
uint64_t fixture_seed(void);

/** Next number of a generator (xorshift64*). */
uint64_t fixture_random(uint64_t *state);

#endif
