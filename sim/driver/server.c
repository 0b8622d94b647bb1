/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The driver's threads in the target: the restore thread answers, the other only waits. */
#define _GNU_SOURCE
#include "mailbox.h"

#include "../common/sim_sys.h"
#include "driver.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("hidden"))) struct sim_mailbox sim_mailbox;

/* The note: where the mailbox lies, counted from the note's own contents. */
__asm__(".pushsection .note.gpucr.sim, \"a\", @note\n"
        ".balign 4\n"
        ".long 2f - 1f\n"
        ".long 4f - 3f\n"
        ".long " SIM_STRING(SIM_NOTE_TYPE) "\n"
                                           "1: .asciz \"" SIM_NOTE_NAME "\"\n"
                                           "2: .balign 4\n"
                                           "3: .quad sim_mailbox - 3b\n"
                                           "4: .balign 4\n"
                                           ".popsection\n");

static int event_handler_fd = -1;
static atomic_bool event_handler_ready;

static struct sim_answer answer_state(const struct sim_outcome *outcome)
{
    if (outcome->state >= 0)
        return (struct sim_answer){.result = CUDA_SUCCESS, .value = outcome->state};
    if (atomic_load(&sim.poisoned))
        return (struct sim_answer){.result = CUDA_ERROR_OPERATING_SYSTEM};
    return (struct sim_answer){.result = CUDA_SUCCESS, .value = atomic_load(&sim.state)};
}

static struct sim_answer execute(const struct sim_request *request,
                                 const struct sim_outcome *outcome)
{
    struct sim_answer answer = {0};

    switch (request->call) {
    case SIM_CALL_GET_STATE:
        return answer_state(outcome);
    case SIM_CALL_GET_TID:
        answer.value = sim_mailbox.server_tid;
        if (atomic_load(&sim.poisoned))
            answer.result = CUDA_ERROR_OPERATING_SYSTEM;
        break;
    case SIM_CALL_LOCK:
        answer.result = sim_transition_lock(request->timeout_ms);
        break;
    case SIM_CALL_CHECKPOINT:
        answer.result = sim_transition_checkpoint();
        break;
    case SIM_CALL_RESTORE:
        answer.result = sim_transition_restore(request->pair, request->pair_count);
        break;
    case SIM_CALL_UNLOCK:
        answer.result = sim_transition_unlock();
        break;
    default:
        answer.result = CUDA_ERROR_INVALID_VALUE;
        break;
    }
    return answer;
}

static struct sim_answer serve(const struct sim_request *request)
{
    struct sim_fault_query query = {.call = (enum sim_call)request->call,
                                    .pid = sim_mailbox.server_pid,
                                    .other_pid = request->pid};
    struct sim_outcome outcome;
    struct sim_answer answer;

    if (request->call >= SIM_CALL_COUNT || request->pair_count > SIM_GPU_MAX)
        return (struct sim_answer){.result = CUDA_ERROR_INVALID_VALUE};
    outcome = sim_fault_apply(&query);
    if (outcome.decided && outcome.state < 0)
        return (struct sim_answer){.result = outcome.result};
    answer = execute(request, &outcome);
    query.late = true;
    outcome = sim_fault_apply(&query);
    if (outcome.decided)
        answer.result = outcome.result;
    return answer;
}

/*
 * No signal is blocked here: where all other threads are stopped, the process's signals come to
 * this thread, unless a tracer keeps them away.
 */
static void unblock_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
}

static void *restore_thread(void *arg)
{
    char name[16];
    uint64_t count;

    (void)arg;
    unblock_signals();
    snprintf(name, sizeof(name), "cuda%011x", 0x1400000u + ((unsigned)gettid() & 0xffffu));
    prctl(PR_SET_NAME, name);
    sim_mailbox.server_pid = getpid();
    sim_mailbox.server_tid = gettid();
    __atomic_store_n(&sim_mailbox.ready, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        uint64_t asked;

        if (read(sim_mailbox.wake_fd, &count, sizeof(count)) < 0 && errno != EINTR)
            return NULL;
        asked = atomic_load(&sim_mailbox.asked);
        if (asked == atomic_load(&sim_mailbox.done))
            continue;
        sim_mailbox.answer = serve(&sim_mailbox.request);
        atomic_store(&sim_mailbox.done, asked);
        count = 1;
        if (write(sim_mailbox.answer_fd, &count, sizeof(count)) < 0)
            continue;
    }
}

static void *event_handler_thread(void *arg)
{
    struct pollfd wait = {.fd = event_handler_fd, .events = POLLIN};

    (void)arg;
    unblock_signals();
    prctl(PR_SET_NAME, "cuda-EvtHandlr");
    atomic_store(&event_handler_ready, true);
    for (;;)
        poll(&wait, 1, -1);
    return NULL;
}

static bool start_thread(void *(*run)(void *arg))
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, run, NULL) != 0)
        return false;
    pthread_detach(thread);
    return true;
}

bool sim_server_start(void)
{
    sim_mailbox.version = SIM_MAILBOX_VERSION;
    sim_mailbox.wake_fd = eventfd(0, EFD_CLOEXEC);
    sim_mailbox.answer_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    event_handler_fd = eventfd(0, EFD_CLOEXEC);
    snprintf(sim_mailbox.root, sizeof(sim_mailbox.root), "%s", sim_root());
    if (sim_mailbox.wake_fd < 0 || sim_mailbox.answer_fd < 0 || event_handler_fd < 0 ||
        getrandom(&sim_mailbox.id, sizeof(sim_mailbox.id), 0) != sizeof(sim_mailbox.id))
        return false;
    if (!start_thread(restore_thread) || !start_thread(event_handler_thread))
        return false;
    while (!__atomic_load_n(&sim_mailbox.ready, __ATOMIC_SEQ_CST) ||
           !atomic_load(&event_handler_ready))
        sim_sleep_until_ns(sim_now_ns() + 50000);
    return true;
}

void sim_server_forked(void)
{
    sim_mailbox.ready = 0;
}
