/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "engine/criu_engine.h"

#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40
#endif

static bool have(const struct __user_cap_data_struct *data, int capability)
{
    return (data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability)) != 0;
}

/* A criu with capabilities of its own, or of root, needs none of ours. */
static bool criu_has_own(const char *path)
{
    struct stat st;

    return getxattr(path, "security.capability", NULL, 0) > 0 ||
           (stat(path, &st) == 0 && (st.st_mode & S_ISUID) != 0 && st.st_uid == 0);
}

int gpucr_criu_rights(const struct gpucr_engine *engine, enum gpucr_criu_rights *ret,
                      struct gpucr_error *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    if (syscall(SYS_capget, &header, data) == 0 && have(data, CAP_SYS_ADMIN)) {
        *ret = GPUCR_CRIU_RIGHTS_FULL;
        return 0;
    }
    if (have(data, CAP_CHECKPOINT_RESTORE) || criu_has_own(engine->path)) {
        *ret = GPUCR_CRIU_RIGHTS_RESTRICTED;
        return 0;
    }
    return gpucr_error_set(err, GPUCR_ERR_PERMISSION,
                           "CRIU needs root or the capability CAP_CHECKPOINT_RESTORE; run gpucr as "
                           "root (sudo), or give %s the capability (setcap "
                           "cap_checkpoint_restore+eip)",
                           engine->path);
}
