/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file keeper_protocol.h
 * What gpucr and the keeper of a pid namespace say to each other: records of one
 * size over a SOCK_SEQPACKET socket. End of file from gpucr before KEEP means that
 * the restore failed (or gpucr died): the keeper ends, and with it the namespace.
 */
#ifndef GPUCR_ENGINE_KEEPER_PROTOCOL_H
#define GPUCR_ENGINE_KEEPER_PROTOCOL_H

#include <stdint.h>

enum gpucr_keeper_kind {
    GPUCR_KEEPER_FAILED = 1,  /* to gpucr: a step failed; value: errno, step: which */
    GPUCR_KEEPER_STARTED = 2, /* to gpucr: criu was started; value: its pid inside */
    GPUCR_KEEPER_KEEP = 3,    /* to the keeper: stay until the root ends; value: its pid inside */
    GPUCR_KEEPER_KEPT = 4,    /* to gpucr: done */
};

enum gpucr_keeper_step {
    GPUCR_KEEPER_STEP_NONE = 0,
    GPUCR_KEEPER_STEP_PROPAGATION, /* making its mounts its own */
    GPUCR_KEEPER_STEP_PROC,        /* mounting /proc */
    GPUCR_KEEPER_STEP_JOIN,        /* entering the namespaces of the target */
    GPUCR_KEEPER_STEP_START,       /* starting criu */
};

struct gpucr_keeper_message {
    int32_t kind;
    int32_t step;
    int32_t value;
};

/* Descriptors of the keeper beside those that it hands to criu (0 to 6). */
enum {
    GPUCR_KEEPER_CONTROL_FD = 7,
    GPUCR_KEEPER_TARGET_FD = 8, /* pidfd of the process whose namespaces are joined */
};

/* First argument: what it is started for. */
#define GPUCR_KEEPER_MAKE "make" /* it is the first process of a fresh namespace */
#define GPUCR_KEEPER_JOIN "join" /* it starts criu in the namespaces of a process */

#endif
