/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_remap.h
 * The names that criu gives to deleted files beside where they were: hard links
 * "link_remap.N" made by a dump and used up by the restore, and "NAME.cr.N.ghost"
 * files that exist for a moment in a restore.
 */
#ifndef GPUCR_ENGINE_CRIU_REMAP_H
#define GPUCR_ENGINE_CRIU_REMAP_H

#include "proc/procfs.h"

struct gpucr_criu_remap;

/** Before a dump: the folders of deleted files that the processes hold, and what is in them. */
int gpucr_criu_remap_record(const struct gpucr_pids *pids, struct gpucr_criu_remap **ret,
                            struct gpucr_error *err);

/** After a failed dump: remove the links that are new and belong to those files. */
int gpucr_criu_remap_remove(const struct gpucr_criu_remap *remap, struct gpucr_error *err);

/** NULL is fine. */
void gpucr_criu_remap_free(struct gpucr_criu_remap *remap);

struct gpucr_criu_links;

/**
 * Before a restore: criu unlinks each link_remap.N of the image when it has opened it,
 * even if it fails afterwards, and the image could never be restored again. So each
 * gets a second name for the time of the restore.
 */
int gpucr_criu_links_keep(int images_fd, struct gpucr_criu_links **ret, struct gpucr_error *err);

/**
 * After the restore: the second names go; after a failed one (@p failed) the first
 * names are back, and what criu left under other names is removed.
 */
int gpucr_criu_links_finish(struct gpucr_criu_links *links, bool failed, struct gpucr_error *err);

/** NULL is fine. */
void gpucr_criu_links_free(struct gpucr_criu_links *links);

#endif
