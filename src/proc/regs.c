/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/regs.h"

#include <elf.h>
#include <string.h>
#include <sys/uio.h>

#include "base/cleanup.h"
#include "proc/ptrace_op.h"

/* Newer than glibc 2.36 knows: Linux 5.13 and 6.6. */
#ifndef PTRACE_GET_RSEQ_CONFIGURATION
#define PTRACE_GET_RSEQ_CONFIGURATION 0x420f
#endif
#ifndef NT_X86_SHSTK
#define NT_X86_SHSTK 0x204
#endif

enum { RSEQ_CS_OFFSET = 8 };

/* struct ptrace_rseq_configuration of <linux/ptrace.h>. */
struct rseq_configuration {
    uint64_t address;
    uint32_t size;
    uint32_t signature;
    uint32_t flags;
    uint32_t pad;
};

void gpucr_rseq_get(pid_t tid, struct gpucr_rseq *ret)
{
    struct rseq_configuration conf = {0};

    *ret = (struct gpucr_rseq){0};
    /* Fails on kernels without rseq or without the request, before 5.13. */
    if (ptrace((enum __ptrace_request)PTRACE_GET_RSEQ_CONFIGURATION, tid, (void *)sizeof(conf),
               &conf) < 0 ||
        !conf.address)
        return;
    errno = 0;
    long value =
        ptrace(PTRACE_PEEKDATA, tid, (void *)(uintptr_t)(conf.address + RSEQ_CS_OFFSET), NULL);
    if (errno)
        return;
    ret->address = conf.address + RSEQ_CS_OFFSET;
    ret->value = (uint64_t)value;
}

void gpucr_rseq_put(pid_t tid, const struct gpucr_rseq *rseq)
{
    struct gpucr_rseq now;

    if (!rseq->address)
        return;
    gpucr_rseq_get(tid, &now);
    if (now.address == rseq->address && now.value != rseq->value)
        (void)ptrace(PTRACE_POKEDATA, tid, (void *)(uintptr_t)rseq->address,
                     (void *)(uintptr_t)rseq->value);
}

static int get_extended(pid_t tid, struct gpucr_thread_regs *regs, struct gpucr_error *err)
{
    GPUCR_AUTO_FREE void *buffer = calloc(1, GPUCR_XSTATE_BYTES_MAX);
    struct iovec io = {.iov_base = buffer, .iov_len = GPUCR_XSTATE_BYTES_MAX};

    if (!buffer)
        return gpucr_error_no_memory(err);
    if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_X86_XSTATE, &io))
        return gpucr_error_errno(err, errno, "cannot read the extended registers of thread %d",
                                 tid);
    if (io.iov_len == GPUCR_XSTATE_BYTES_MAX)
        return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                               "the extended registers of thread %d take more than %d bytes", tid,
                               GPUCR_XSTATE_BYTES_MAX);
    /* Thousands of threads: keep no more than needed. */
    void *fitted = realloc(buffer, io.iov_len ? io.iov_len : 1);
    if (fitted)
        buffer = fitted;
    regs->extended = gpucr_steal_ptr(&buffer);
    regs->extended_bytes = io.iov_len;
    return 0;
}

int gpucr_thread_regs_get(pid_t tid, struct gpucr_thread_regs *ret, struct gpucr_error *err)
{
    struct gpucr_thread_regs regs = {0};
    struct iovec io = {.iov_base = &regs.general, .iov_len = sizeof(regs.general)};

    if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &io))
        return gpucr_error_errno(err, errno, "cannot read the registers of thread %d", tid);
    regs.general_bytes = io.iov_len;
    int rc = gpucr_ptrace_mask_get(tid, &regs.mask, err);
    if (!rc)
        rc = get_extended(tid, &regs, err);
    if (rc)
        return rc;
    /* Only where the kernel, the processor and the program use shadow stacks. */
    io = (struct iovec){.iov_base = &regs.shadow_stack, .iov_len = sizeof(regs.shadow_stack)};
    regs.has_shadow_stack = !ptrace(PTRACE_GETREGSET, tid, (void *)NT_X86_SHSTK, &io) &&
                            io.iov_len == sizeof(regs.shadow_stack);
    if (!regs.has_shadow_stack)
        regs.shadow_stack = 0;
    gpucr_rseq_get(tid, &regs.rseq);
    *ret = regs;
    return 0;
}

int gpucr_thread_regs_put(pid_t tid, const struct gpucr_thread_regs *regs, struct gpucr_error *err)
{
    struct iovec io = {.iov_base = regs->extended, .iov_len = regs->extended_bytes};
    uint64_t shadow_stack = regs->shadow_stack;
    struct user_regs_struct general = regs->general;

    if (ptrace(PTRACE_SETREGSET, tid, (void *)NT_X86_XSTATE, &io))
        return gpucr_error_errno(err, errno, "cannot set the extended registers of thread %d", tid);
    io = (struct iovec){.iov_base = &shadow_stack, .iov_len = sizeof(shadow_stack)};
    if (regs->has_shadow_stack && ptrace(PTRACE_SETREGSET, tid, (void *)NT_X86_SHSTK, &io))
        return gpucr_error_errno(err, errno, "cannot set the shadow stack of thread %d", tid);
    io = (struct iovec){.iov_base = &general, .iov_len = regs->general_bytes};
    if (ptrace(PTRACE_SETREGSET, tid, (void *)NT_PRSTATUS, &io))
        return gpucr_error_errno(err, errno, "cannot set the registers of thread %d", tid);
    gpucr_rseq_put(tid, &regs->rseq);
    return gpucr_ptrace_mask_set(tid, regs->mask, err);
}

void gpucr_thread_regs_done(struct gpucr_thread_regs *regs)
{
    free(regs->extended);
    regs->extended = NULL;
}

bool gpucr_thread_regs_equal(const struct gpucr_thread_regs *a, const struct gpucr_thread_regs *b)
{
    return a->general_bytes == b->general_bytes &&
           !memcmp(&a->general, &b->general, a->general_bytes) &&
           a->extended_bytes == b->extended_bytes &&
           !memcmp(a->extended, b->extended, a->extended_bytes) &&
           a->has_shadow_stack == b->has_shadow_stack && a->shadow_stack == b->shadow_stack &&
           a->mask == b->mask && a->rseq.address == b->rseq.address &&
           a->rseq.value == b->rseq.value;
}
