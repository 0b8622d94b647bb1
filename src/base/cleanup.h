/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file cleanup.h
 * Variables that release themselves at the end of their scope. Initialise at
 * the declaration; hand ownership out with gpucr_steal_fd() / gpucr_steal_ptr().
 */
#ifndef GPUCR_BASE_CLEANUP_H
#define GPUCR_BASE_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* errno survives a cleanup: the caller may still want to report it. */
static inline void gpucr_cleanup_free(void *p)
{
    int saved = errno;

    free(*(void **)p);
    errno = saved;
}

static inline void gpucr_cleanup_fd(const int *fd)
{
    int saved = errno;

    if (*fd >= 0)
        (void)close(*fd);
    errno = saved;
}

static inline void gpucr_cleanup_file(FILE **f)
{
    int saved = errno;

    if (*f)
        (void)fclose(*f);
    errno = saved;
}

static inline void gpucr_cleanup_dir(DIR **d)
{
    int saved = errno;

    if (*d)
        (void)closedir(*d);
    errno = saved;
}

static inline void gpucr_cleanup_mutex(pthread_mutex_t **m)
{
    if (*m)
        (void)pthread_mutex_unlock(*m);
}

#define GPUCR_CLEANUP(fn) __attribute__((cleanup(fn)))
#define GPUCR_AUTO_FREE   GPUCR_CLEANUP(gpucr_cleanup_free)
#define GPUCR_AUTO_FD     GPUCR_CLEANUP(gpucr_cleanup_fd)
#define GPUCR_AUTO_FILE   GPUCR_CLEANUP(gpucr_cleanup_file)
#define GPUCR_AUTO_DIR    GPUCR_CLEANUP(gpucr_cleanup_dir)

/** Hold @p mutex until the end of the scope. */
#define GPUCR_SCOPED_LOCK(name, mutex)                                                             \
    pthread_mutex_t *name GPUCR_CLEANUP(gpucr_cleanup_mutex) = (mutex);                            \
    (void)pthread_mutex_lock(name)

/** Define `void gpucr_cleanup_NAME(T **)` that calls @p fn, for types of our own. */
#define GPUCR_DEFINE_CLEANUP(type, name, fn)                                                       \
    static inline void gpucr_cleanup_##name(type **p)                                              \
    {                                                                                              \
        int saved_errno = errno;                                                                   \
        fn(*p);                                                                                    \
        errno = saved_errno;                                                                       \
    }

static inline int gpucr_steal_fd(int *fd)
{
    int out = *fd;

    *fd = -1;
    return out;
}

static inline void *gpucr_steal_pointer(void *p)
{
    void **slot = p;
    void *out = *slot;

    *slot = NULL;
    return out;
}

#define gpucr_steal_ptr(p) ((__typeof__(*(p)))gpucr_steal_pointer(p))

#define GPUCR_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
