/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_resolve.h
 * From the numbers in criu's messages to names: descriptors and mappings to paths,
 * mounts to mount points, device numbers to drivers, process ids to their users.
 */
#ifndef GPUCR_ENGINE_CRIU_RESOLVE_H
#define GPUCR_ENGINE_CRIU_RESOLVE_H

#include <stddef.h>
#include <sys/types.h>

/**
 * Copy @p message to @p ret with what is known about its numbers added in brackets.
 * @p pid is the process that the message is about (0: not known). With @p images_fd
 * (restore) descriptors and mounts are looked up in the image, with -1 (dump) in /proc.
 */
void gpucr_criu_resolve(const char *message, pid_t pid, int images_fd, char *ret, size_t size);

#endif
