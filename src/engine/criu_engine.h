/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_engine.h
 * What the files of the CRIU engine share.
 */
#ifndef GPUCR_ENGINE_CRIU_ENGINE_H
#define GPUCR_ENGINE_CRIU_ENGINE_H

#include "engine/engine.h"

enum {
    GPUCR_CRIU_VERSION_MIN = 40000, /* 4.0.0 */
    GPUCR_CRIU_IDLE_MS_DEFAULT = 120000,
};

/* Files in the work folder. */
#define GPUCR_CRIU_DUMP_LOG    "dump.log"
#define GPUCR_CRIU_RESTORE_LOG "restore.log"

/** criu acts with CAP_CHECKPOINT_RESTORE instead of CAP_SYS_ADMIN. */
enum gpucr_criu_rights {
    GPUCR_CRIU_RIGHTS_FULL,
    GPUCR_CRIU_RIGHTS_RESTRICTED,
};

/** Does the caller (or the criu file) have the rights? GPUCR_ERR_PERMISSION otherwise. */
int gpucr_criu_rights(const struct gpucr_engine *engine, enum gpucr_criu_rights *ret,
                      struct gpucr_error *err);

/** The parts of the vtable. */
int gpucr_criu_dump(struct gpucr_engine *engine, const struct gpucr_engine_dump *request,
                    struct gpucr_engine_log *log, bool *ret_committed, struct gpucr_error *err);
int gpucr_criu_restore(struct gpucr_engine *engine, const struct gpucr_engine_restore *request,
                       struct gpucr_engine_log *log, struct gpucr_engine_restored *ret,
                       struct gpucr_error *err);

#endif
