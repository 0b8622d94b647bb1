/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file nft.h
 * The tables of the kernel's packet filter (nf_tables, family inet), by netlink: no
 * program for it needs to be installed, as criu needs none to make them.
 */
#ifndef GPUCR_ENGINE_NFT_H
#define GPUCR_ENGINE_NFT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { GPUCR_NFT_NAME_BYTES = 64, GPUCR_NFT_TABLES_MAX = 1024 };

struct gpucr_nft_tables {
    char (*names)[GPUCR_NFT_NAME_BYTES];
    size_t count;
};

/** Tables whose name begins with @p prefix. A kernel without nf_tables has none. */
int gpucr_nft_list(const char *prefix, struct gpucr_nft_tables *ret, struct gpucr_error *err);
void gpucr_nft_tables_done(struct gpucr_nft_tables *tables);
bool gpucr_nft_tables_contain(const struct gpucr_nft_tables *tables, const char *name);

/** Delete a table with all that is in it. */
int gpucr_nft_delete(const char *name, struct gpucr_error *err);

#endif
