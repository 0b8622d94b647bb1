/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "proc/remote.h"

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "proc/ptrace_op.h"
#include "proc/regs.h"

enum {
    CALL_MS = 60000, /* unmapping hundreds of GiB is slow, but not this slow */
    CODE_BYTES = 16384,
    USER_CS = 0x33, /* selector of 64-bit user code */
};

/* Codes that never reach user space: "interrupted, to be restarted" (<linux/errno.h> of the
 * kernel).
 */
enum { ERESTART_FIRST = 512, ERESTART_LAST = 516 };

/* ---- finding an instruction ---- */

static int find_in(pid_t pid, uint64_t start, size_t size_bytes, uint64_t *ret_address)
{
    static const unsigned char syscall_code[2] = {0x0f, 0x05};
    unsigned char code[CODE_BYTES];
    struct iovec local = {.iov_base = code, .iov_len = sizeof(code)};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)start, .iov_len = size_bytes};

    if (remote.iov_len > sizeof(code))
        remote.iov_len = sizeof(code);
    ssize_t count = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (count <= 0)
        return GPUCR_ERR_NOT_FOUND;
    const unsigned char *found = memmem(code, (size_t)count, syscall_code, sizeof(syscall_code));
    if (!found)
        return GPUCR_ERR_NOT_FOUND;
    *ret_address = start + (uint64_t)(found - code);
    return 0;
}

/* The kernel tells a process where its vDSO is in the auxiliary vector: quicker than the maps. */
static int find_in_vdso(pid_t pid, uint64_t *ret_address)
{
    Elf64_auxv_t auxv[64];
    char path[32];
    uint64_t base = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/auxv", pid);
    GPUCR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return GPUCR_ERR_NOT_FOUND;
    ssize_t size = read(fd, auxv, sizeof(auxv));
    for (size_t i = 0; size > 0 && i < (size_t)size / sizeof(auxv[0]); i++) {
        if (auxv[i].a_type == AT_SYSINFO_EHDR)
            base = auxv[i].a_un.a_val;
    }
    if (!base)
        return GPUCR_ERR_NOT_FOUND;
    /* Two pages on all kernels so far; the read ends by itself where the mapping does. */
    return find_in(pid, base, 2 * (size_t)4096, ret_address);
}

int gpucr_remote_find(pid_t pid, uint64_t *ret_address, struct gpucr_error *err)
{
    GPUCR_CLEANUP(gpucr_maps_done) struct gpucr_maps maps = {0};

    if (!find_in_vdso(pid, ret_address))
        return 0;
    int rc = gpucr_maps_read(pid, &maps, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < maps.count; i++) {
        const struct gpucr_mapping *map = &maps.items[i];
        /* [vsyscall] shows as executable but cannot be read or stepped through. */
        if (!map->executable || !map->readable || !strcmp(map->path, "[vsyscall]"))
            continue;
        for (uint64_t at = map->start; at < map->end; at += CODE_BYTES) {
            if (!find_in(pid, at, map->end - at, ret_address))
                return 0;
        }
    }
    rc = gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                         "process %d has no system call instruction in its readable code", pid);
    return gpucr_error_pid(err, rc, pid);
}

/* ---- running one call ---- */

static int get_registers(pid_t tid, struct user_regs_struct *regs, struct gpucr_error *err)
{
    struct iovec io = {.iov_base = regs, .iov_len = sizeof(*regs)};

    if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &io))
        return gpucr_error_errno(err, errno, "cannot read the registers of thread %d", tid);
    if (io.iov_len != sizeof(*regs) || regs->cs != USER_CS)
        return gpucr_error_set(err, GPUCR_ERR_UNSUPPORTED,
                               "thread %d runs 32-bit code, where gpucr makes no system calls",
                               tid);
    return 0;
}

static int set_registers(pid_t tid, const struct user_regs_struct *regs, struct gpucr_error *err)
{
    struct iovec io = {.iov_base = (void *)(uintptr_t)regs, .iov_len = sizeof(*regs)};

    if (ptrace(PTRACE_SETREGSET, tid, (void *)NT_PRSTATUS, &io))
        return gpucr_error_errno(err, errno, "cannot set the registers of thread %d", tid);
    return 0;
}

/* Entry or exit of a system call? PTRACE_O_TRACESYSGOOD says it in bit 7; without it si_code does.
 */
static bool is_syscall_stop(pid_t tid, int status)
{
    siginfo_t info = {0};

    if (gpucr_ptrace_event(status))
        return false;
    if (WSTOPSIG(status) == (SIGTRAP | 0x80))
        return true;
    return WSTOPSIG(status) == SIGTRAP && !ptrace(PTRACE_GETSIGINFO, tid, NULL, &info) &&
           (info.si_code == SIGTRAP || info.si_code == (SIGTRAP | 0x80));
}

static int resume(pid_t tid, enum __ptrace_request how, int sig, struct gpucr_error *err)
{
    if (ptrace(how, tid, NULL, (void *)(intptr_t)sig))
        return gpucr_error_errno(err, errno, "cannot continue thread %d", tid);
    return 0;
}

/* Run on to the next entry or exit of a system call. Traps on the way are passed over. */
static int to_syscall_stop(pid_t pid, pid_t tid, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(CALL_MS);
    int sig = 0;

    for (;;) {
        int status = 0;
        int rc = resume(tid, PTRACE_SYSCALL, sig, err);
        if (!rc)
            rc = gpucr_ptrace_wait(pid, tid, deadline, &status, err);
        if (rc || is_syscall_stop(tid, status))
            return rc;
        /* Signals are blocked, so what comes here is a trap or SIGSTOP, which must take effect. */
        sig = gpucr_ptrace_event(status) ? 0 : WSTOPSIG(status);
    }
}

/*
 * From the exit of the call to a trap. There the kernel has signal work to do before
 * it returns to user mode, and only then it looks at orig_rax and restarts what was
 * interrupted; from the exit of a call it would return -ERESTARTSYS to the program.
 */
static int to_trap(pid_t pid, pid_t tid, struct gpucr_error *err)
{
    struct gpucr_deadline deadline = gpucr_deadline_in_ms(CALL_MS);
    int sig = 0;

    if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL))
        return gpucr_error_errno(err, errno, "cannot interrupt thread %d", tid);
    for (;;) {
        int status = 0;
        int rc = resume(tid, PTRACE_CONT, sig, err);
        if (!rc)
            rc = gpucr_ptrace_wait(pid, tid, deadline, &status, err);
        if (rc || gpucr_ptrace_event(status) == PTRACE_EVENT_STOP)
            return rc;
        sig = gpucr_ptrace_event(status) ? 0 : WSTOPSIG(status);
    }
}

static int run_call(pid_t pid, pid_t tid, const struct user_regs_struct *regs, int64_t *ret,
                    struct gpucr_error *err)
{
    struct user_regs_struct after;
    int64_t result;
    int rc = set_registers(tid, regs, err);

    do {
        if (!rc)
            rc = to_syscall_stop(pid, tid, err); /* entry */
        if (!rc)
            rc = to_syscall_stop(pid, tid, err); /* exit */
        if (!rc)
            rc = get_registers(tid, &after, err);
        if (rc)
            return rc;
        result = (int64_t)after.rax;
        /* A trap interrupted it: the kernel runs it again by itself. */
    } while (result <= -ERESTART_FIRST && result >= -ERESTART_LAST);
    rc = to_trap(pid, tid, err);
    if (!rc)
        *ret = result;
    return rc;
}

/* With call->address set. */
static int run_at(pid_t pid, pid_t tid, const struct gpucr_remote_call *call, int64_t *ret,
                  struct gpucr_error *err)
{
    struct user_regs_struct saved, regs;
    struct gpucr_rseq rseq;
    uint64_t mask = 0;
    int64_t result = 0;
    int rc = get_registers(tid, &saved, err);

    if (!rc)
        rc = gpucr_ptrace_mask_get(tid, &mask, err);
    if (!rc)
        rc = gpucr_ptrace_mask_set(tid, UINT64_MAX, err);
    if (rc)
        return rc;
    gpucr_rseq_get(tid, &rseq);
    regs = saved;
    regs.rip = call->address;
    regs.rax = (uint64_t)call->number;
    regs.orig_rax = UINT64_MAX; /* not in a system call: no restart of the one we came upon */
    regs.rdi = call->args[0];
    regs.rsi = call->args[1];
    regs.rdx = call->args[2];
    regs.r10 = call->args[3];
    regs.r8 = call->args[4];
    regs.r9 = call->args[5];
    rc = run_call(pid, tid, &regs, &result, err);
    /* After a failed run the thread may still be in some stop: put back what can be. */
    int put_rc = set_registers(tid, &saved, rc ? NULL : err);
    gpucr_rseq_put(tid, &rseq);
    int mask_rc = gpucr_ptrace_mask_set(tid, mask, rc || put_rc ? NULL : err);
    if (!rc)
        rc = put_rc ? put_rc : mask_rc;
    if (!rc)
        *ret = result;
    return rc;
}

int gpucr_remote_syscall(pid_t pid, pid_t tid, const struct gpucr_remote_call *call, int64_t *ret,
                         struct gpucr_error *err)
{
    struct gpucr_remote_call found = *call;
    int rc = found.address ? 0 : gpucr_remote_find(tid, &found.address, err);

    if (!rc)
        rc = run_at(pid, tid, &found, ret, err);
    if (rc)
        return gpucr_error_wrap(err, rc, "cannot run a system call in process %d", pid);
    return 0;
}
