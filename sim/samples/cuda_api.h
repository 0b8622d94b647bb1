/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The CUDA driver interface as far as the samples use it, bound by name at run time. */
#ifndef SAMPLE_CUDA_API_H
#define SAMPLE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned long long cuda_pointer;

struct cuda_location {
    int type;
    int id;
};

struct cuda_allocation_properties {
    int type;
    int handle_types;
    struct cuda_location location;
    void *unused;
    uint8_t flags[8];
};

struct cuda_access {
    struct cuda_location location;
    int flags;
};

struct cuda_api {
    int (*init)(unsigned flags);
    int (*error_name)(int error, const char **name);
    int (*device_count)(int *count);
    int (*primary_retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*synchronize)(void);
    int (*mem_alloc)(cuda_pointer *pointer, size_t bytes);
    int (*mem_managed)(cuda_pointer *pointer, size_t bytes, unsigned flags);
    int (*host_alloc)(void **pointer, size_t bytes, unsigned flags);
    int (*memset_bytes)(cuda_pointer to, unsigned char value, size_t count);
    int (*copy_to_host)(void *to, cuda_pointer from, size_t bytes);
    int (*module_load)(void **module, const void *image);
    int (*module_function)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  void *stream, void **parameters, void **extra);
    int (*vmm_granularity)(size_t *bytes, const struct cuda_allocation_properties *properties,
                           int option);
    int (*vmm_reserve)(cuda_pointer *pointer, size_t bytes, size_t alignment, cuda_pointer wish,
                       unsigned long long flags);
    int (*vmm_create)(unsigned long long *handle, size_t bytes,
                      const struct cuda_allocation_properties *properties,
                      unsigned long long flags);
    int (*vmm_map)(cuda_pointer pointer, size_t bytes, size_t offset, unsigned long long handle,
                   unsigned long long flags);
    int (*vmm_access)(cuda_pointer pointer, size_t bytes, const struct cuda_access *access,
                      size_t count);
};

/* Opens libcuda.so.1; ends the program when it is not there or incomplete. */
const struct cuda_api *cuda_api(void);

/* Ends the program with a line that names the call when code is not 0. */
void cuda_expect(const char *call, int code);

#endif
