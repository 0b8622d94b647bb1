/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_descriptors.h
 * The state of open files that criu changes while it dumps and would put back
 * itself if it were not ended before: TCP connections in repair mode (which also
 * forgets SO_REUSEADDR), the peek offset of sockets, the file flags of terminals.
 * The descriptors are duplicated from the stopped processes (pidfd_getfd).
 */
#ifndef GPUCR_ENGINE_CRIU_DESCRIPTORS_H
#define GPUCR_ENGINE_CRIU_DESCRIPTORS_H

#include <sys/socket.h>

#include "proc/procfs.h"

/** A connected TCP socket. */
struct gpucr_criu_connection {
    pid_t pid;
    struct sockaddr_storage local;
    struct sockaddr_storage peer;
};

struct gpucr_criu_descriptors;

/** Record the sockets and terminals of all processes. */
int gpucr_criu_descriptors_record(const struct gpucr_pids *pids,
                                  struct gpucr_criu_descriptors **ret, struct gpucr_error *err);

/** NULL is fine. */
void gpucr_criu_descriptors_free(struct gpucr_criu_descriptors *descriptors);

/**
 * Put them back as they were recorded and read back that they are; @p ret_count
 * tells how many differed. GPUCR_ERR_VERIFY names one that stays changed.
 */
int gpucr_criu_descriptors_restore(const struct gpucr_criu_descriptors *descriptors,
                                   size_t *ret_count, struct gpucr_error *err);

/** Call @p fn for each recorded TCP connection. */
void gpucr_criu_descriptors_walk(const struct gpucr_criu_descriptors *descriptors,
                                 void (*fn)(void *arg, const struct gpucr_criu_connection *c),
                                 void *arg);

#endif
