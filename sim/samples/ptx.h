/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SAMPLE_PTX_H
#define SAMPLE_PTX_H

/* The kernels of the samples as PTX text; the driver compiles it for whatever GPU there is. */
extern const char sample_ptx[];

#endif
