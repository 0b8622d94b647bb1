/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file writer.h
 * Building an image under a temporary name and making it appear complete.
 */
#ifndef GPUCR_IMAGE_WRITER_H
#define GPUCR_IMAGE_WRITER_H

#include <gpucr/image.h>

#include "image/manifest.h"

struct gpucr_image_writer;

/**
 * Begin an image that will be called @p path: the name must be free, its parent
 * a folder in which the caller may create. Makes a hidden folder beside it, mode
 * 0700, with criu/ and logs/. Nothing appears under @p path before the commit.
 * What crashed writers of the same name have left is removed.
 *
 * GPUCR_ERR_EXISTS the name is taken; GPUCR_ERR_NOT_FOUND no parent folder;
 * GPUCR_ERR_PERMISSION the caller may not create in it; GPUCR_ERR_IMAGE_UNSAFE everybody
 * may rename in it (no sticky bit); GPUCR_ERR_USAGE not a name for a new folder;
 * GPUCR_ERR_SYSTEM the rest, as a read-only file system.
 *
 * Threads: a writer is used by one thread at a time, except that
 * gpucr_image_writer_written_bytes() may be called beside everything but the end.
 */
int gpucr_image_writer_begin(const char *path, struct gpucr_image_writer **ret,
                             struct gpucr_error *err);

/** Descriptors of criu/ and logs/, owned by the writer. */
int gpucr_image_writer_criu_fd(const struct gpucr_image_writer *writer);
int gpucr_image_writer_logs_fd(const struct gpucr_image_writer *writer);

/** Bytes free for the caller on the file system of the image. */
int gpucr_image_writer_free_bytes(const struct gpucr_image_writer *writer, uint64_t *ret,
                                  struct gpucr_error *err);

/** Bytes in criu/ so far (progress); folders in it are not looked into. */
uint64_t gpucr_image_writer_written_bytes(const struct gpucr_image_writer *writer);

/**
 * The durable commit, in one place: modes 0600/0700; digest of every file (logs/
 * left out), several threads; every file fdatasync; manifest and its digest
 * written and fsync; folders fsync; rename to the final name without replacing
 * anything (RENAME_NOREPLACE); parent fsync. @p manifest's file list is filled, on
 * failure perhaps, too. When this returns 0 the image survives a power cut. On failure
 * nothing is under the final name; what was to be repaired (a full disk, a field of the
 * manifest) may be, and the commit be called again.
 *
 * The engine must have closed its files in criu/; in logs/ it may go on writing.
 * @p progress is called from any thread, one call at a time.
 */
int gpucr_image_writer_commit(struct gpucr_image_writer *writer, struct gpucr_manifest *manifest,
                              gpucr_image_progress_fn progress, void *arg, struct gpucr_error *err);

/** Size of the committed image without its logs. */
uint64_t gpucr_image_writer_size_bytes(const struct gpucr_image_writer *writer);

/** Ends the writer; an image that was not committed is removed. NULL is fine. */
void gpucr_image_writer_free(struct gpucr_image_writer *writer);

#endif
