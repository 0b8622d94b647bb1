/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "image/image_text.h"
#include "image/manifest_fields.h"

/** Place of a process in the manifest, to be sorted by pid. */
struct pid_place {
    int32_t pid;
    uint32_t index;
};

static int compare_pids(const void *a, const void *b)
{
    const struct pid_place *x = a;
    const struct pid_place *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

/** Does @p text look like @p form, where '0' is a decimal and 'x' a hexadecimal digit? */
static bool has_form(const char *text, const char *form)
{
    if (strlen(text) != strlen(form))
        return false;
    for (; *form; form++, text++) {
        bool fits = *form == '0'   ? *text >= '0' && *text <= '9'
                    : *form == 'x' ? *text && strchr("0123456789abcdef", *text)
                                   : *text == *form;
        if (!fits)
            return false;
    }
    return true;
}

static int check_forms(const struct gpucr_manifest *m, struct gpucr_error *err)
{
    if (!has_form(m->created, "0000-00-00T00:00:00Z"))
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                               "created is \"%s\", which is not of the form YYYY-MM-DDThh:mm:ssZ",
                               m->created);
    if (m->boot_id[0] && !has_form(m->boot_id, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"))
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                               "boot_id is \"%s\", which is not a boot id", m->boot_id);
    return 0;
}

static int check_gpus(const struct gpucr_manifest *m, struct gpucr_error *err)
{
    for (size_t i = 0; i < m->gpu_count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (m->gpus[i].index == m->gpus[j].index)
                return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                       "gpus[%zu].index %" PRIu32 " occurs twice", i,
                                       m->gpus[i].index);
            if (strcmp(m->gpus[i].uuid, m->gpus[j].uuid) == 0)
                return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                       "gpus[%zu].uuid %s occurs twice", i, m->gpus[i].uuid);
        }
    }
    return 0;
}

static bool has_gpu(const struct gpucr_manifest *m, uint32_t index)
{
    for (size_t i = 0; i < m->gpu_count; i++) {
        if (m->gpus[i].index == index)
            return true;
    }
    return false;
}

static int check_process_gpus(const struct gpucr_manifest *m, size_t i, struct gpucr_error *err)
{
    const struct gpucr_manifest_process *p = &m->processes[i];

    for (uint32_t g = 0; g < p->gpu_count; g++) {
        if (!has_gpu(m, p->gpus[g]))
            return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                   "processes[%zu] uses GPU %" PRIu32 ", which is not listed", i,
                                   p->gpus[g]);
        for (uint32_t other = 0; other < g; other++) {
            if (p->gpus[g] == p->gpus[other])
                return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                       "processes[%zu] names GPU %" PRIu32 " twice", i, p->gpus[g]);
        }
    }
    return 0;
}

static int check_process(const struct gpucr_manifest *m, size_t i, struct gpucr_error *err)
{
    const struct gpucr_manifest_process *p = &m->processes[i];

    for (size_t t = 1; t < p->thread_count; t++) {
        if (p->threads[t] <= p->threads[t - 1])
            return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                   "processes[%zu].threads[%zu] is not larger than the one before",
                                   i, t);
    }
    if (!p->is_cuda && p->cuda_state != 0)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                               "processes[%zu] has no CUDA state, but cuda_state %" PRIu32, i,
                               p->cuda_state);
    return check_process_gpus(m, i, err);
}

/** Each pid once, each parent before its children. @p sorted has all processes by pid. */
static int check_family(const struct gpucr_manifest *m, const struct pid_place *sorted,
                        struct gpucr_error *err)
{
    for (size_t i = 1; i < m->process_count; i++) {
        struct pid_place wanted = {.pid = m->processes[i].parent_pid};
        const struct pid_place *parent;

        if (sorted[i].pid == sorted[i - 1].pid)
            return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                   "processes names pid %" PRId32 " twice", sorted[i].pid);
        parent = bsearch(&wanted, sorted, m->process_count, sizeof(*sorted), compare_pids);
        if (!parent || parent->index >= i)
            return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                   "the parent %" PRId32 " of processes[%zu] is not before it",
                                   wanted.pid, i);
    }
    return 0;
}

static int check_processes(const struct gpucr_manifest *m, struct gpucr_error *err)
{
    GPUCR_AUTO_FREE struct pid_place *sorted = NULL;
    int rc;

    if (m->process_count == 0 || m->processes[0].pid != m->root_pid)
        return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                               "the first of the processes is not the root, pid %" PRId32,
                               m->root_pid);
    sorted = calloc(m->process_count, sizeof(*sorted));
    if (!sorted)
        return gpucr_error_no_memory(err);
    for (size_t i = 0; i < m->process_count; i++)
        sorted[i] = (struct pid_place){.pid = m->processes[i].pid, .index = (uint32_t)i};
    qsort(sorted, m->process_count, sizeof(*sorted), compare_pids);
    rc = check_family(m, sorted, err);
    for (size_t i = 0; rc == 0 && i < m->process_count; i++)
        rc = check_process(m, i, err);
    return rc;
}

static int check_files(const struct gpucr_manifest *m, struct gpucr_error *err)
{
    uint64_t total = 0;

    for (size_t i = 0; i < m->file_count; i++) {
        const struct gpucr_manifest_file *f = &m->files[i];
        const char *fault = gpucr_image_path_fault(f->path);
        char shown[GPUCR_MANIFEST_TEXT_BYTES];

        (void)gpucr_image_text_show(shown, sizeof(shown), f->path);
        if (fault)
            return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                   "the path of files[%zu], \"%s\", %s", i, shown, fault);
        if (i > 0 && strcmp(f->path, m->files[i - 1].path) <= 0)
            return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                   "the path of files[%zu], \"%s\", does not come after the one "
                                   "before",
                                   i, shown);
        if (!has_form(f->digest, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"))
            return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                   "the digest of %s is not 32 hexadecimal digits", shown);
        if (__builtin_add_overflow(total, f->size_bytes, &total) ||
            total > GPUCR_MANIFEST_IMAGE_BYTES_MAX)
            return gpucr_error_set(err, GPUCR_ERR_IMAGE_FORMAT,
                                   "the sizes of the files add up to more than 1 PiB");
    }
    return 0;
}

int gpucr_manifest_check(const struct gpucr_manifest *manifest, struct gpucr_error *err)
{
    int rc = check_forms(manifest, err);

    if (rc == 0)
        rc = check_gpus(manifest, err);
    if (rc == 0)
        rc = check_processes(manifest, err);
    if (rc == 0)
        rc = check_files(manifest, err);
    return rc;
}
