/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/criu_channel.h"

enum { LINE_BYTES = 4352, NAME_BYTES_MAX = 63, VALUE_BYTES_MAX = 4095 };

/* One switch of ours and the field it sets. */
struct flag {
    enum gpucr_criu_verb verbs; /* bits */
    size_t from;                /* offset of a bool in gpucr_engine_options */
    size_t to;                  /* offset of a protobuf_c_boolean in GpucrCriu__Options */
    size_t has;                 /* offset of its presence flag */
};

#define FLAG(verbs, name)                                                                          \
    {                                                                                              \
        verbs, offsetof(struct gpucr_engine_options, name), offsetof(GpucrCriu__Options, name),    \
            offsetof(GpucrCriu__Options, has_##name)                                               \
    }
#define BOTH (GPUCR_CRIU_VERB_DUMP | GPUCR_CRIU_VERB_RESTORE)

static const struct flag flags[] = {
    FLAG(BOTH, shell_job),  FLAG(BOTH, tcp_established), FLAG(BOTH, file_locks),
    FLAG(BOTH, link_remap), FLAG(BOTH, ext_unix_sk),
};

/* What gpucr relies on: where the images and the log are and that they are complete,
 * what becomes of the processes, how criu is talked to. */
static const char *const reserved[] = {
    "address",
    "auto-dedup",
    "close",
    "config",
    "daemon",
    "exec-cmd",
    "help",
    "images-dir",
    "lazy-pages",
    "leave-running",
    "leave-stopped",
    "libdir",
    "log-file",
    "log-pid",
    "no-default-config",
    "page-server",
    "pidfile",
    "port",
    "prev-images-dir",
    "ps-socket",
    "status-fd",
    "restore-detached",
    "restore-sibling",
    "stream",
    "tree",
    "verbosity",
    "version",
    "work-dir",
};

int gpucr_criu_log_level(void)
{
    enum { LEVEL_INFO = 3, LEVEL_DEBUG = 4 };

    return gpucr_log_wants(GPUCR_LOG_DEBUG) ? LEVEL_DEBUG : LEVEL_INFO;
}

void gpucr_criu_options_apply(const struct gpucr_engine_options *options, enum gpucr_criu_verb verb,
                              GpucrCriu__Options *to)
{
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(flags); i++) {
        const struct flag *flag = &flags[i];
        bool wanted = *(const bool *)((const char *)options + flag->from);

        if (wanted && (flag->verbs & verb) != 0) {
            *(protobuf_c_boolean *)((char *)to + flag->to) = 1;
            *(protobuf_c_boolean *)((char *)to + flag->has) = 1;
        }
    }
    if (options->ghost_limit_bytes > 0) {
        to->has_ghost_limit = 1;
        /* criu's own limit is a 32-bit number. */
        to->ghost_limit = options->ghost_limit_bytes > UINT32_MAX
                              ? UINT32_MAX
                              : (uint32_t)options->ghost_limit_bytes;
    }
}

bool gpucr_criu_options_wants_tcp(const struct gpucr_engine_options *options)
{
    return options->tcp_established || gpucr_criu_options_has_extra(options, "tcp-established");
}

void gpucr_criu_options_network_lock(const struct gpucr_engine_options *options,
                                     GpucrCriu__Options *to)
{
    bool wanted = gpucr_criu_options_wants_tcp(options);

    if (wanted && gpucr_criu_program("iptables", NULL, 0))
        return; /* criu's default */
    to->has_network_lock = 1;
    to->network_lock = wanted ? GPUCR_CRIU__NETWORK_LOCK__NFTABLES : GPUCR_CRIU__NETWORK_LOCK__SKIP;
}

bool gpucr_criu_options_has_extra(const struct gpucr_engine_options *options, const char *name)
{
    for (size_t i = 0; i < options->extra_count; i++) {
        if (strcmp(options->extra[i].name, name) == 0)
            return true;
    }
    return false;
}

static int check_name(const char *name, struct gpucr_error *err)
{
    const char *bare = gpucr_starts_with(name, "no-") ? name + 3 : name;
    size_t length = strlen(name);

    if (length == 0 || length > NAME_BYTES_MAX || name[0] == '-' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != length)
        return gpucr_error_set(err, GPUCR_ERR_USAGE,
                               "\"%s\" is no name of a criu option: write it without the leading "
                               "dashes, as NAME or NAME=VALUE",
                               name);
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(reserved); i++) {
        if (strcmp(reserved[i], name) == 0 || strcmp(reserved[i], bare) == 0)
            return gpucr_error_set(err, GPUCR_ERR_USAGE,
                                   "the criu option %s cannot be given: gpucr sets it itself or "
                                   "its image would not be complete",
                                   name);
    }
    return 0;
}

static int check_value(const struct gpucr_name_value *option, struct gpucr_error *err)
{
    const char *value = option->value;

    if (!value)
        return 0;
    if (*value == '\0' || strlen(value) > VALUE_BYTES_MAX)
        return gpucr_error_set(err, GPUCR_ERR_USAGE,
                               "the value of the criu option %s is empty or too long",
                               option->name);
    /* criu's file knows no way to write these (its quoting breaks at spaces). */
    for (const char *p = value; *p; p++) {
        if ((unsigned char)*p <= ' ' || *p == 0x7f || *p == '"' || *p == '\\' || *p == '#')
            return gpucr_error_set(err, GPUCR_ERR_USAGE,
                                   "the value of the criu option %s contains a space, quote, "
                                   "backslash or '#', which criu's configuration cannot hold",
                                   option->name);
    }
    return 0;
}

static int write_line(int fd, const char *name, const char *value, struct gpucr_error *err)
{
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof(line), "%s%s%s\n", name, value ? " " : "", value ? value : "");

    if (n < 0 || (size_t)n >= sizeof(line))
        return gpucr_error_set(err, GPUCR_ERR_USAGE, "the criu option %s is too long", name);
    return gpucr_fd_write_all(fd, line, (size_t)n, err);
}

int gpucr_criu_options_config(const struct gpucr_engine_options *options, int *ret_fd,
                              struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = memfd_create("gpucr-criu-config", MFD_CLOEXEC);
    int rc;

    if (fd < 0)
        return gpucr_error_errno(err, errno, "cannot create a memory file");
    rc = write_line(fd, "work-dir", GPUCR_CRIU_WORK_PATH, err);
    if (rc == 0)
        rc = write_line(fd, "libdir", GPUCR_CRIU_PLUGIN_DIR, err);
    for (size_t i = 0; rc == 0 && i < options->extra_count; i++) {
        const struct gpucr_name_value *option = &options->extra[i];

        rc = check_name(option->name, err);
        if (rc == 0)
            rc = check_value(option, err);
        if (rc == 0)
            rc = write_line(fd, option->name, option->value, err);
    }
    if (rc == 0)
        *ret_fd = gpucr_steal_fd(&fd);
    return rc;
}
