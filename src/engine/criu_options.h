/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file criu_options.h
 * From the engine's options to criu's: fields of the RPC for what gpucr knows, a
 * private configuration file for the rest. criu reads that file after the fields,
 * so what stands in it wins.
 */
#ifndef GPUCR_ENGINE_CRIU_OPTIONS_H
#define GPUCR_ENGINE_CRIU_OPTIONS_H

#include "criu_rpc.pb-c.h"
#include "engine/engine.h"

/* Empty, in the work folder, criu's plugin folder: no plugin is ever loaded. */
#define GPUCR_CRIU_PLUGIN_DIR "no-plugins"

enum gpucr_criu_verb { GPUCR_CRIU_VERB_DUMP = 1, GPUCR_CRIU_VERB_RESTORE = 2 };

/** How much criu writes to its log: more when somebody wants our own debug lines. */
int gpucr_criu_log_level(void);

/** Set the fields for @p options that apply to @p verb. */
void gpucr_criu_options_apply(const struct gpucr_engine_options *options, enum gpucr_criu_verb verb,
                              GpucrCriu__Options *to);

/** Are TCP connections to be dumped, and so to be cut off meanwhile? */
bool gpucr_criu_options_wants_tcp(const struct gpucr_engine_options *options);

/**
 * How criu cuts TCP connections off while it dumps them: not at all when there are
 * none to dump, by iptables where that is installed, else by nftables (criu needs no
 * program for that).
 */
void gpucr_criu_options_network_lock(const struct gpucr_engine_options *options,
                                     GpucrCriu__Options *to);

/**
 * The configuration file as a memory file (O_CLOEXEC). GPUCR_ERR_USAGE names an
 * extra option that criu cannot be given: a malformed name or value, or one that
 * gpucr sets itself.
 */
int gpucr_criu_options_config(const struct gpucr_engine_options *options, int *ret_fd,
                              struct gpucr_error *err);

/** Is the option among the extra ones? */
bool gpucr_criu_options_has_extra(const struct gpucr_engine_options *options, const char *name);

#endif
