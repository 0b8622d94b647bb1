/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that looks like a CUDA process to /proc: gpu_child FD [leader-ends]
 * starts a thread named like the driver's, writes a byte to FD and idles.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static pthread_barrier_t named;

static void *idle(void *arg)
{
    (void)arg;
    (void)prctl(PR_SET_NAME, "cuda0123456789a");
    (void)pthread_barrier_wait(&named);
    for (;;)
        (void)usleep(1000);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    if (argc < 2 || pthread_barrier_init(&named, NULL, 2) != 0 ||
        pthread_create(&thread, NULL, idle, NULL) != 0)
        return 1;
    (void)pthread_barrier_wait(&named);
    if (write((int)strtol(argv[1], NULL, 10), "r", 1) != 1)
        return 1;
    if (argc > 2 && strcmp(argv[2], "leader-ends") == 0)
        pthread_exit(NULL);
    for (;;)
        (void)pause();
    return 0;
}
