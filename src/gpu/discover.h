/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file discover.h
 * Which processes may have CUDA state. Evidence comes from /proc alone (device
 * files open or mapped in any thread, the driver's restore thread), so that it can
 * be had from stopped processes; the driver's answer decides afterwards.
 */
#ifndef GPUCR_GPU_DISCOVER_H
#define GPUCR_GPU_DISCOVER_H

#include "proc/procfs.h"

enum {
    GPUCR_EVIDENCE_DESCRIPTOR = 1 << 0,     /* a device file is open */
    GPUCR_EVIDENCE_MAPPING = 1 << 1,        /* a device file is mapped */
    GPUCR_EVIDENCE_RESTORE_THREAD = 1 << 2, /* has a thread with the restore thread's name */
};

struct gpucr_evidence {
    uint32_t flags;
    pid_t restore_tid;                         /* from the thread's name; 0 if none */
    int example_fd;                            /* -1 if none */
    char example_path[GPUCR_ERROR_PATH_BYTES]; /* device file open or mapped */
};

/** Complete look at one process. @p dev_root NULL means /dev. */
int gpucr_evidence_read(pid_t pid, const char *dev_root, struct gpucr_evidence *ret,
                        struct gpucr_error *err);

/**
 * Quick look for listing: only the restore thread's name, no descriptors. Returns
 * its tid, 0 if there is none. @p thread_count (from stat) avoids work for
 * processes with fewer threads than CUDA needs.
 */
pid_t gpucr_evidence_quick(pid_t pid, uint32_t thread_count);

#endif
