/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/fault.h"

#ifdef GPUCR_FAULTS

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gpucr_fault(const char *name, struct gpucr_error *err)
{
    const char *armed = getenv("GPUCR_FAULT");
    size_t n = strlen(name);
    const char *action;

    if (!armed || strncmp(armed, name, n) != 0 || (armed[n] != '\0' && armed[n] != ':'))
        return 0;
    action = armed[n] == ':' ? armed + n + 1 : "fail";
    if (strcmp(action, "kill") == 0)
        (void)raise(SIGKILL);
    while (strcmp(action, "hang") == 0)
        (void)pause();
    return gpucr_error_set(err, GPUCR_ERR_INTERNAL, "fault point %s is armed", name);
}

#endif
