/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The first process of a fresh pid namespace: mounts its /proc, starts criu, reaps
 * orphans and lives as long as the restored root, with whose status it ends.
 *
 *   gpucr-keeper make CRIU ARGV0 ARG...    environment and descriptors 0-6 are criu's
 *
 * With "join" instead it enters the pid and mount namespaces of a process that is there
 * already, starts criu in them, and ends when criu ends.
 *
 * It is a program of its own, so that nothing of gpucr (memory, descriptors, device
 * mappings) stays alive with the restored tree, and it is built without any library,
 * because libgpucr carries it inside itself and must run it on any system.
 */
#include <asm/unistd.h>
#include <stddef.h>

#include "engine/keeper/keeper_protocol.h"

/* From the kernel's ABI; its own headers clash with each other. */
enum {
    K_SIGCHLD = 17,
    K_SIG_BLOCK = 0,
    K_SIG_SETMASK = 2,
    K_MS_NOSUID = 2,
    K_MS_NODEV = 4,
    K_MS_NOEXEC = 8,
    K_MS_REC = 16384,
    K_MS_SLAVE = 1 << 19,
    K_WNOHANG = 1,
    K_POLLIN = 1,
    K_EINTR = 4,
    K_SFD_FLAGS = 02004000, /* SFD_CLOEXEC | SFD_NONBLOCK */
    K_MSG_NOSIGNAL = 0x4000,
    K_MSG_DONTWAIT = 0x40,
    K_PR_SET_NAME = 15,
    K_CLONE_NEWNS = 0x00020000,
    K_CLONE_NEWPID = 0x20000000,
    KERNEL_SIGSET_BYTES = 8,
    HANDED_FDS = 7,
};

struct k_pollfd {
    int fd;
    short events;
    short revents;
};

struct keeper {
    long criu;
    long root;       /* 0: not told yet */
    int root_status; /* wait status, when it has ended */
    int ended;       /* root_status is valid */
    long early[64];  /* children that ended before KEEP came, and their statuses */
    int early_status[64];
    unsigned early_count;
    int control; /* -1: closed */
    int signals; /* signalfd */
};

/* The sixth argument of a system call is never used here. */
static long raw_call(long number, const long args[5])
{
    register long r10 __asm__("r10") = args[3];
    register long r8 __asm__("r8") = args[4];
    register long r9 __asm__("r9") = 0;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(args[0]), "S"(args[1]), "d"(args[2]), "r"(r10), "r"(r8),
                       "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#define call(number, a, b, c, d, e)                                                                \
    raw_call((number), (const long[5]){(long)(a), (long)(b), (long)(c), (long)(d), (long)(e)})

/* The compiler may ask for it when it clears or copies structures. */
void *memset(void *to, int value, size_t size);
void *memset(void *to, int value, size_t size)
{
    void *start = to;

    __asm__ volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(value) : "memory");
    return start;
}

_Noreturn static void leave(int status)
{
    for (;;)
        (void)call(__NR_exit_group, status, 0, 0, 0, 0);
}

static void tell(const struct keeper *keeper, int kind, int step, long value)
{
    struct gpucr_keeper_message message = {.kind = kind, .step = step, .value = (int)value};

    (void)call(__NR_sendto, keeper->control, (long)&message, sizeof(message), K_MSG_NOSIGNAL, 0);
}

static void require(const struct keeper *keeper, int step, long result)
{
    if (result >= 0)
        return;
    tell(keeper, GPUCR_KEEPER_FAILED, step, -result);
    leave(1);
}

/* What the children of a namespace's first process leave behind is its to reap. */
static void reap(struct keeper *keeper)
{
    int status = 0;
    long pid;

    while ((pid = call(__NR_wait4, -1, (long)&status, K_WNOHANG, 0, 0)) > 0) {
        if (pid == keeper->root) {
            keeper->root_status = status;
            keeper->ended = 1;
        } else if (keeper->root == 0 && pid != keeper->criu && keeper->early_count < 64) {
            keeper->early[keeper->early_count] = pid;
            keeper->early_status[keeper->early_count++] = status;
        }
    }
}

static void keep(struct keeper *keeper, long root)
{
    keeper->root = root;
    for (unsigned i = 0; i < keeper->early_count; i++) {
        if (keeper->early[i] == root) {
            keeper->root_status = keeper->early_status[i];
            keeper->ended = 1;
        }
    }
    tell(keeper, GPUCR_KEEPER_KEPT, 0, 0);
}

/* gpucr said something or has gone. */
static void listen(struct keeper *keeper)
{
    struct gpucr_keeper_message message = {0};
    long size =
        call(__NR_recvfrom, keeper->control, (long)&message, sizeof(message), K_MSG_DONTWAIT, 0);

    if (size == (long)sizeof(message) && message.kind == GPUCR_KEEPER_KEEP && message.value > 0) {
        keep(keeper, message.value);
        return;
    }
    if (size < 0 && keeper->root == 0 && size == -K_EINTR)
        return;
    if (keeper->root == 0)
        leave(1); /* the kernel ends everything else in the namespace */
    (void)call(__NR_close, keeper->control, 0, 0, 0, 0);
    keeper->control = -1;
}

static long start_criu(char **argv, char **envp, unsigned long unblocked)
{
    long pid = call(__NR_clone, K_SIGCHLD, 0, 0, 0, 0);

    if (pid != 0)
        return pid;
    (void)call(__NR_rt_sigprocmask, K_SIG_SETMASK, (long)&unblocked, 0, KERNEL_SIGSET_BYTES, 0);
    (void)call(__NR_close, GPUCR_KEEPER_CONTROL_FD, 0, 0, 0, 0);
    (void)call(__NR_execve, argv[2], argv + 3, envp, 0, 0);
    leave(127);
}

/* Only the descriptors that are its own stay open. */
static void start_and_tell(struct keeper *keeper, char **argv, char **envp)
{
    keeper->criu = start_criu(argv, envp, 0);
    require(keeper, GPUCR_KEEPER_STEP_START, keeper->criu);
    for (int fd = 0; fd < HANDED_FDS; fd++)
        (void)call(__NR_close, fd, 0, 0, 0, 0);
    tell(keeper, GPUCR_KEEPER_STARTED, 0, keeper->criu);
}

static void set_up(struct keeper *keeper, char **argv, char **envp)
{
    unsigned long mask = 1UL << (K_SIGCHLD - 1);

    /* Slave: mounts of the machine still arrive, our /proc does not leave. */
    require(keeper, GPUCR_KEEPER_STEP_PROPAGATION,
            call(__NR_mount, 0, "/", 0, K_MS_REC | K_MS_SLAVE, 0));
    require(keeper, GPUCR_KEEPER_STEP_PROC,
            call(__NR_mount, "proc", "/proc", "proc", K_MS_NOSUID | K_MS_NODEV | K_MS_NOEXEC, 0));
    (void)call(__NR_rt_sigprocmask, K_SIG_BLOCK, &mask, 0, KERNEL_SIGSET_BYTES, 0);
    keeper->signals = (int)call(__NR_signalfd4, -1, &mask, KERNEL_SIGSET_BYTES, K_SFD_FLAGS, 0);
    require(keeper, GPUCR_KEEPER_STEP_START, keeper->signals);
    start_and_tell(keeper, argv, envp);
}

/* A pid namespace is entered by the children of who enters it: by criu. */
_Noreturn static void join(char **argv, char **envp)
{
    struct keeper keeper = {.control = GPUCR_KEEPER_CONTROL_FD};
    int status = 0;

    require(&keeper, GPUCR_KEEPER_STEP_JOIN,
            call(__NR_setns, GPUCR_KEEPER_TARGET_FD, K_CLONE_NEWPID | K_CLONE_NEWNS, 0, 0, 0));
    (void)call(__NR_close, GPUCR_KEEPER_TARGET_FD, 0, 0, 0, 0);
    start_and_tell(&keeper, argv, envp);
    while (call(__NR_wait4, keeper.criu, &status, 0, 0, 0) == -K_EINTR)
        ;
    leave(0);
}

_Noreturn static void run(char **argv, char **envp)
{
    struct keeper keeper = {.control = GPUCR_KEEPER_CONTROL_FD};

    set_up(&keeper, argv, envp);
    for (;;) {
        struct k_pollfd fds[] = {{.fd = keeper.signals, .events = K_POLLIN},
                                 {.fd = keeper.control, .events = K_POLLIN}};
        char drained[128];

        (void)call(__NR_poll, (long)fds, 2, -1, 0, 0);
        (void)call(__NR_read, keeper.signals, (long)drained, sizeof(drained), 0, 0);
        reap(&keeper);
        if (fds[1].revents != 0)
            listen(&keeper);
        if (keeper.ended && keeper.control < 0) {
            int sig = keeper.root_status & 0x7f;

            leave(sig == 0 ? (keeper.root_status >> 8) & 0xff : 128 + sig);
        }
    }
}

/* The kernel's start: argc, argv, NULL, envp, NULL on the stack. */
__attribute__((used)) _Noreturn void gpucr_keeper_start_c(long *stack);
_Noreturn void gpucr_keeper_start_c(long *stack)
{
    long argc = stack[0];
    char **argv = (char **)(stack + 1);

    if (argc < 4)
        leave(2);
    (void)call(__NR_prctl, K_PR_SET_NAME, "gpucr-keeper", 0, 0, 0);
    if (argv[1][0] == GPUCR_KEEPER_JOIN[0])
        join(argv, argv + argc + 1);
    run(argv, argv + argc + 1);
}

__asm__(".globl _start\n"
        "_start:\n"
        "    xor %ebp, %ebp\n"
        "    mov %rsp, %rdi\n"
        "    and $-16, %rsp\n"
        "    call gpucr_keeper_start_c\n"
        "    hlt\n");
