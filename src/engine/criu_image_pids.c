/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_img.h"
#include "engine/engine.h"

static int add(void *arg, int32_t id, struct gpucr_error *err)
{
    struct gpucr_pids *pids = arg;

    /* The first thread has the process's own id. */
    if (pids->count > 0 && pids->ids[pids->count - 1] == id)
        return 0;
    return gpucr_pids_add(pids, id, err);
}

int gpucr_engine_image_pids(int images_fd, struct gpucr_pids *ret, struct gpucr_error *err)
{
    struct gpucr_pids pids = {0};
    int rc = gpucr_criu_img_walk_ids(images_fd, add, &pids, err);

    if (rc == 0)
        *ret = pids;
    else
        gpucr_pids_done(&pids);
    return rc;
}
