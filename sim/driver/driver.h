/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The state of the simulated driver in one process, and what its parts offer each other. */
#ifndef SIM_DRIVER_H
#define SIM_DRIVER_H

#include "../common/sim_fault.h"
#include "../common/sim_root.h"
#include "sim_cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_EXPORT __attribute__((visibility("default")))
/* The libraries are opened with dlopen: initial-exec keeps first use from allocating. */
#define SIM_THREAD __thread __attribute__((tls_model("initial-exec")))

#define SIM_OBJECT_MAX  16384
#define SIM_CONTEXT_MAX 64
#define SIM_STREAM_MAX  1024
#define SIM_MODULE_MAX  256
#define SIM_WINDOW_MAX  512

#define SIM_PAGE_BYTES    4096ull
#define SIM_GRANULE_BYTES (2ull << 20)

/* A GPU as this process knows it. */
struct sim_gpu {
    uint8_t uuid[SIM_UUID_SIZE];
    char name[SIM_NAME_MAX];
    uint64_t vram_bytes;
    char bus_id[16];   /* kept through a remap, as the real driver keeps it */
    unsigned physical; /* its number in the configuration and in /dev */
    bool opened;       /* a context has opened it */
    int arena_fd;      /* its memory: a sparse memfd, mapped where no application looks */
    uint8_t *arena;
    uint64_t arena_bytes;
};

enum sim_object_kind {
    SIM_OBJECT_FREE,
    SIM_OBJECT_PHYSICAL, /* memory of a GPU; start is its place in the arena */
    SIM_OBJECT_DEVICE,   /* cuMemAlloc: addresses backed by one physical object */
    SIM_OBJECT_PINNED,
    SIM_OBJECT_MANAGED,
    SIM_OBJECT_RESERVED, /* VMM: addresses */
    SIM_OBJECT_MAPPED,   /* VMM: part of a reservation with memory behind it */
};

struct sim_object {
    enum sim_object_kind kind;
    unsigned gpu;
    uint64_t start;
    uint64_t bytes;
    uint64_t offset;   /* into the physical object */
    uint32_t physical; /* index of that object */
    uint32_t references;
    int access;
    bool handle_held; /* a VMM handle that was not released yet */
};

struct CUctx_st {
    bool used;
    bool primary;
    unsigned gpu;
    uint32_t references;
    _Atomic uint64_t busy_until_ns; /* a long kernel is running until then */
};

struct sim_window {
    void *address;
    unsigned gpu; /* SIM_GPU_MAX: the uvm node */
};

struct sim_driver {
    atomic_bool initialized;
    atomic_bool forked;   /* this is a fork() child: no driver here */
    atomic_bool poisoned; /* 304 ever after */
    _Atomic int state;    /* CUprocessState */
    struct sim_config config;
    struct sim_gpu gpu[SIM_GPU_MAX];
    unsigned gpu_count;
    unsigned visible[SIM_GPU_MAX];
    unsigned visible_count;
    struct CUctx_st context[SIM_CONTEXT_MAX];
    struct sim_object object[SIM_OBJECT_MAX];
    uint32_t object_top;
    uint8_t *addresses; /* the PROT_NONE reservation that device pointers lie in */
    uint64_t addresses_bytes;
    uint8_t *window_area;
    struct sim_window window[SIM_WINDOW_MAX];
    unsigned window_count;
    uint8_t *staging; /* NULL unless checkpointed */
    uint64_t staging_bytes;
    pthread_mutex_t lock; /* tables above; no call holds it across a wait */
};

extern struct sim_driver sim;

/* gate.c */
/* Enters an API call: blocks while locked, applies faults. Non-zero: return it at once. */
CUresult sim_enter(enum sim_call call);
/* For the calls that work before cuInit. */
CUresult sim_enter_early(enum sim_call call);
CUresult sim_leave(enum sim_call call, CUresult result);
/* Closes the gate and waits for calls and kernels to end. False on time-out: open again. */
bool sim_gate_close(uint64_t timeout_ms);
void sim_gate_open(void);

/* fault.c */
struct sim_outcome {
    bool decided; /* result replaces the call */
    CUresult result;
    int state; /* for getstate, -1: the true one */
};
struct sim_outcome sim_fault_apply(const struct sim_fault_query *query);

/* device.c */
bool sim_devices_read(void);

/* context.c */
/* The thread's current context, NULL when there is none. */
CUcontext sim_context_current(void);
void sim_context_wait(CUcontext context);
/* When the last kernel of all contexts ends. */
uint64_t sim_contexts_busy_until(void);
bool sim_contexts_on(unsigned gpu);

/* objects.c: the caller holds sim.lock */
/* Finds a place for bytes among the objects of that space; returns an index or -1. */
int sim_object_place(enum sim_object_kind kind, unsigned gpu, uint64_t bytes, uint64_t alignment);
int sim_object_new(enum sim_object_kind kind);
int sim_object_find(enum sim_object_kind kind, uint64_t start);
void sim_object_drop(int index);
bool sim_addresses_reserve(void);

/* memory.c */
/* Claims and places memory of a GPU; returns an index or -1. The caller holds sim.lock. */
int sim_physical_new(unsigned gpu, uint64_t bytes);
void sim_physical_drop(int index);
/* The CPU address behind a device address and how far it goes; NULL when nothing is there. */
void *sim_translate(CUdeviceptr pointer, uint64_t *bytes);
/* Calls visit for the pieces of a device range. False when a part has no memory. */
typedef void (*sim_piece_visitor)(void *piece, uint64_t bytes, uint64_t at, void *arg);
bool sim_each_piece(CUdeviceptr pointer, uint64_t bytes, sim_piece_visitor visit, void *arg);
bool sim_arena_open(struct sim_gpu *gpu);
void sim_arena_close(struct sim_gpu *gpu);

/* host.c */
bool sim_pinned_map(const struct sim_object *object);
void sim_pinned_unmap(const struct sim_object *object);

/* devfds.c */
struct sim_device_fd {
    int fd;
    int node; /* -1 control, -2 uvm, else the index of the GPU in sim.gpu */
};
bool sim_device_open_process(void);
bool sim_device_open_gpu(unsigned gpu);
/* Puts eventfds in the place of the driver's device descriptors; returns how many. */
unsigned sim_device_fds_close(struct sim_device_fd *list, unsigned capacity);
bool sim_device_fds_reopen(const struct sim_device_fd *list, unsigned count);
void sim_device_windows_unmap(void);
bool sim_device_windows_map(void);

/* helpers.c */
#define SIM_HELPER_COUNT 2
bool sim_helpers_prepare(void);
/* Runs work(arg) on short-lived threads and waits for their end. */
void sim_helpers_run(void (*work)(void *arg), void *arg);

/* staging.c */
CUresult sim_staging_out(void);
/* False: the staging memory is not what was put there. */
bool sim_staging_in(void);
bool sim_staging_valid(void);

/* transition.c: run by the restore thread */
CUresult sim_transition_lock(uint64_t timeout_ms);
CUresult sim_transition_checkpoint(void);
CUresult sim_transition_restore(const CUcheckpointGpuPair *pairs, unsigned count);
CUresult sim_transition_unlock(void);

/* server.c */
bool sim_server_start(void);
void sim_server_forked(void);

#endif
