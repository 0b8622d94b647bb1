/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Manifests survive writing and reading; the writer refuses what a reader would. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "image_fixture.h"

enum { ROUNDS = 300 };

static void random_text(uint64_t *seed, char *to, size_t size, size_t least)
{
    static const char *const letters[] = {"a", "Z", "0", " ", "\"", "\\", "/", "ä", "€", "𝄞", "~"};
    size_t want = least + fixture_random(seed) % (size - least);
    size_t n = 0;

    while (n < want) {
        const char *c = letters[fixture_random(seed) % 11];

        if (n + strlen(c) > want)
            c = "x";
        (void)memcpy(to + n, c, strlen(c));
        n += strlen(c);
    }
    to[n] = '\0';
}

#define RANDOM_TEXT(seed, field, least) random_text(seed, field, sizeof(field), least)

static uint64_t random_number(uint64_t *seed, uint64_t max)
{
    uint64_t x = fixture_random(seed);

    switch (x & 3) {
    case 0:
        return 0;
    case 1:
        return max;
    default:
        return (x >> 2) % (max >> (fixture_random(seed) % 32) | 1);
    }
}

static void random_process(uint64_t *seed, const struct gpucr_manifest *m, size_t i)
{
    struct gpucr_manifest_process *p = &m->processes[i];

    p->pid = (int32_t)(4194304 - i * 3); /* neither ascending nor dense */
    p->ns_pid = 1 + (int32_t)random_number(seed, 4194303);
    p->parent_pid =
        i == 0 ? (int32_t)random_number(seed, 4194304) : m->processes[fixture_random(seed) % i].pid;
    p->group = (int32_t)random_number(seed, 4194304);
    p->session = (int32_t)random_number(seed, 4194304);
    p->start_ticks = random_number(seed, INT64_MAX);
    p->uid = (uint32_t)random_number(seed, UINT32_MAX - 1);
    p->gid = (uint32_t)random_number(seed, UINT32_MAX - 1);
    RANDOM_TEXT(seed, p->name, 0);
    p->thread_count = fixture_random(seed) % 5;
    p->threads = calloc(p->thread_count + 1, sizeof(*p->threads));
    for (size_t t = 0; t < p->thread_count; t++)
        p->threads[t] = (int32_t)(p->pid / 2 + (int32_t)t * 3 + 1);
    p->was_stopped = fixture_random(seed) & 1;
    p->is_cuda = fixture_random(seed) & 1;
    p->cuda_state = p->is_cuda ? (uint32_t)random_number(seed, 2) : 0;
    p->device_bytes = random_number(seed, INT64_MAX);
    p->host_bytes = random_number(seed, INT64_MAX);
    for (size_t g = 0; g < m->gpu_count; g++) {
        if (fixture_random(seed) & 1)
            p->gpus[p->gpu_count++] = m->gpus[g].index;
    }
}

static void random_files(uint64_t *seed, struct gpucr_manifest *m)
{
    m->file_count = 1 + fixture_random(seed) % 20;
    m->files = calloc(m->file_count, sizeof(*m->files));
    for (size_t i = 0; i < m->file_count; i++) {
        struct gpucr_manifest_file *f = &m->files[i];
        char tail[64];

        random_text(seed, tail, sizeof(tail), 1);
        for (char *c = tail; *c; c++) {
            if (*c == '/')
                *c = '_';
        }
        assert_true(asprintf(&f->path, "criu/%04zu%s", i, tail) > 0);
        f->size_bytes = random_number(seed, UINT64_C(1) << 45);
        for (size_t k = 0; k < 32; k++)
            f->digest[k] = "0123456789abcdef"[fixture_random(seed) & 15];
    }
}

static void random_manifest(uint64_t *seed, struct gpucr_manifest *m)
{
    *m = (struct gpucr_manifest){.created = "2031-12-09T23:59:07Z"};
    RANDOM_TEXT(seed, m->gpucr_version, 1);
    RANDOM_TEXT(seed, m->host, 0);
    RANDOM_TEXT(seed, m->kernel, 0);
    if (fixture_random(seed) & 1)
        (void)gpucr_copy_text(m->boot_id, sizeof(m->boot_id),
                              "0f8fad5b-d9cb-469f-a165-70867728950e");
    RANDOM_TEXT(seed, m->engine, 1);
    m->engine_version = (int32_t)random_number(seed, INT32_MAX);
    RANDOM_TEXT(seed, m->driver_name, 0);
    m->cuda_version = (int32_t)random_number(seed, INT32_MAX);
    m->gpu_count = fixture_random(seed) % 65;
    for (size_t i = 0; i < m->gpu_count; i++) {
        m->gpus[i].index = (uint32_t)(UINT32_MAX - i * 5);
        RANDOM_TEXT(seed, m->gpus[i].uuid, 1);
        (void)snprintf(m->gpus[i].uuid, sizeof(m->gpus[i].uuid), "GPU-%zu", i);
        RANDOM_TEXT(seed, m->gpus[i].name, 0);
        m->gpus[i].memory_bytes = random_number(seed, INT64_MAX);
    }
    m->process_count = 1 + fixture_random(seed) % 12;
    m->processes = calloc(m->process_count, sizeof(*m->processes));
    for (size_t i = 0; i < m->process_count; i++)
        random_process(seed, m, i);
    m->root_pid = m->processes[0].pid;
    m->option_count = fixture_random(seed) % 129;
    for (size_t i = 0; i < m->option_count; i++) {
        RANDOM_TEXT(seed, m->options[i].name, 1);
        RANDOM_TEXT(seed, m->options[i].value, 0);
    }
    m->phase_count = fixture_random(seed) % 33;
    for (size_t i = 0; i < m->phase_count; i++) {
        RANDOM_TEXT(seed, m->phases[i].name, 1);
        m->phases[i].bytes = random_number(seed, INT64_MAX);
        m->phases[i].ns = random_number(seed, INT64_MAX);
    }
    random_files(seed, m);
}

static void assert_same_process(const struct gpucr_manifest_process *a,
                                const struct gpucr_manifest_process *b)
{
    assert_int_equal(a->pid, b->pid);
    assert_int_equal(a->ns_pid, b->ns_pid);
    assert_int_equal(a->parent_pid, b->parent_pid);
    assert_int_equal(a->group, b->group);
    assert_int_equal(a->session, b->session);
    assert_true(a->start_ticks == b->start_ticks);
    assert_int_equal(a->uid, b->uid);
    assert_int_equal(a->gid, b->gid);
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->thread_count, b->thread_count);
    assert_memory_equal(a->threads, b->threads, a->thread_count * sizeof(*a->threads));
    assert_int_equal(a->was_stopped, b->was_stopped);
    assert_int_equal(a->is_cuda, b->is_cuda);
    assert_int_equal(a->cuda_state, b->cuda_state);
    assert_true(a->device_bytes == b->device_bytes);
    assert_true(a->host_bytes == b->host_bytes);
    assert_int_equal(a->gpu_count, b->gpu_count);
    assert_memory_equal(a->gpus, b->gpus, sizeof(a->gpus));
}

static void assert_same_lists(const struct gpucr_manifest *a, const struct gpucr_manifest *b)
{
    assert_int_equal(a->gpu_count, b->gpu_count);
    for (size_t i = 0; i < a->gpu_count; i++) {
        assert_int_equal(a->gpus[i].index, b->gpus[i].index);
        assert_string_equal(a->gpus[i].uuid, b->gpus[i].uuid);
        assert_string_equal(a->gpus[i].name, b->gpus[i].name);
        assert_true(a->gpus[i].memory_bytes == b->gpus[i].memory_bytes);
    }
    assert_int_equal(a->option_count, b->option_count);
    for (size_t i = 0; i < a->option_count; i++) {
        assert_string_equal(a->options[i].name, b->options[i].name);
        assert_string_equal(a->options[i].value, b->options[i].value);
    }
    assert_int_equal(a->phase_count, b->phase_count);
    for (size_t i = 0; i < a->phase_count; i++) {
        assert_string_equal(a->phases[i].name, b->phases[i].name);
        assert_true(a->phases[i].bytes == b->phases[i].bytes);
        assert_true(a->phases[i].ns == b->phases[i].ns);
    }
    assert_int_equal(a->file_count, b->file_count);
    for (size_t i = 0; i < a->file_count; i++) {
        assert_string_equal(a->files[i].path, b->files[i].path);
        assert_true(a->files[i].size_bytes == b->files[i].size_bytes);
        assert_string_equal(a->files[i].digest, b->files[i].digest);
    }
}

static void assert_same(const struct gpucr_manifest *a, const struct gpucr_manifest *b)
{
    assert_string_equal(a->gpucr_version, b->gpucr_version);
    assert_string_equal(a->created, b->created);
    assert_string_equal(a->host, b->host);
    assert_string_equal(a->kernel, b->kernel);
    assert_string_equal(a->boot_id, b->boot_id);
    assert_string_equal(a->engine, b->engine);
    assert_int_equal(a->engine_version, b->engine_version);
    assert_string_equal(a->driver_name, b->driver_name);
    assert_int_equal(a->cuda_version, b->cuda_version);
    assert_int_equal(a->root_pid, b->root_pid);
    assert_int_equal(a->process_count, b->process_count);
    for (size_t i = 0; i < a->process_count; i++)
        assert_same_process(&a->processes[i], &b->processes[i]);
    assert_same_lists(a, b);
}

static void test_round_trip(void **state)
{
    uint64_t seed = fixture_seed();

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct gpucr_error err = GPUCR_ERROR_INIT;
        struct gpucr_manifest m;
        struct gpucr_manifest again = {0};
        char *json = NULL;

        random_manifest(&seed, &m);
        if (gpucr_manifest_to_json(&m, &json, &err) != 0 ||
            gpucr_manifest_from_json(json, strlen(json), &again, &err) != 0)
            fail_msg("round %d: %s", i, err.text);
        assert_same(&m, &again);
        gpucr_manifest_done(&m);
        gpucr_manifest_done(&again);
        free(json);
    }
}

/* A process may call itself anything: that must not cost it its checkpoint. */
static void test_display_texts_are_cleaned(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_manifest m;
    struct gpucr_manifest again = {0};
    char *json = NULL;

    (void)state;
    fixture_manifest(&m);
    m.file_count = 1;
    m.files = calloc(1, sizeof(*m.files));
    m.files[0].path = strdup("criu/a");
    (void)gpucr_copy_text(m.files[0].digest, 33, "00000000000000000000000000000000");
    (void)gpucr_copy_text(m.processes[0].name, 64, "a\x1b[31m\n\xff\xc3\xa4\xc2\x9b");
    (void)memset(m.processes[1].name, 'y', sizeof(m.processes[1].name)); /* not terminated */
    if (gpucr_manifest_to_json(&m, &json, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(gpucr_manifest_from_json(json, strlen(json), &again, &err), 0);
    assert_string_equal(again.processes[0].name, "a?[31m??\xc3\xa4??");
    assert_int_equal(strlen(again.processes[1].name), 63);
    free(json);
    gpucr_manifest_done(&m);
    gpucr_manifest_done(&again);
}

static void test_options(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_manifest m = {0};
    char text[300];

    (void)state;
    assert_null(gpucr_manifest_option(&m, "a"));
    assert_int_equal(gpucr_manifest_add_option(&m, "a", "1", &err), 0);
    assert_int_equal(gpucr_manifest_add_option(&m, "a", "2", &err), 0);
    assert_string_equal(gpucr_manifest_option(&m, "a"), "1");
    assert_null(gpucr_manifest_option(&m, "b"));

    (void)memset(text, 'x', sizeof(text));
    text[256] = '\0';
    assert_int_equal(gpucr_manifest_add_option(&m, "long", text, &err), GPUCR_ERR_USAGE);
    text[255] = '\0';
    assert_int_equal(gpucr_manifest_add_option(&m, "long", text, &err), 0);
    text[64] = '\0';
    assert_int_equal(gpucr_manifest_add_option(&m, text, "", &err), GPUCR_ERR_USAGE);
    assert_int_equal(gpucr_manifest_add_option(&m, "", "", &err), GPUCR_ERR_USAGE);
    assert_int_equal(gpucr_manifest_add_option(&m, "a\n", "", &err), GPUCR_ERR_USAGE);
    assert_int_equal(gpucr_manifest_add_option(&m, "a", "\xff", &err), GPUCR_ERR_USAGE);
    assert_int_equal(m.option_count, 3);
    while (m.option_count < GPUCR_MANIFEST_OPTIONS_MAX)
        assert_int_equal(gpucr_manifest_add_option(&m, "n", "", &err), 0);
    assert_int_equal(gpucr_manifest_add_option(&m, "n", "", &err), GPUCR_ERR_USAGE);
    assert_int_equal(m.option_count, GPUCR_MANIFEST_OPTIONS_MAX);
}

/* One broken field each: the writer must say so rather than make an unreadable image. */
static void break_manifest(struct gpucr_manifest *m, int how)
{
    switch (how) {
    case 0:
        m->processes[1].pid = -5;
        break;
    case 1:
        m->engine[0] = '\0';
        break;
    case 2:
        m->created[10] = ' ';
        break;
    case 3:
        m->processes[1].parent_pid = 1010;
        break;
    case 4:
        m->processes[0].threads[1] = m->processes[0].threads[0];
        break;
    case 5:
        m->processes[1].gpus[0] = 4;
        break;
    case 6:
        m->process_count = 0;
        free(m->processes[0].threads);
        free(m->processes[1].threads);
        break;
    case 7:
        m->file_count = 0;
        free(m->files[0].path);
        break;
    case 8:
        m->files[0].path[0] = '/';
        break;
    case 9:
        m->processes[0].threads[0] = 0;
        break;
    case 10:
        m->gpu_count = GPUCR_MANIFEST_GPUS_MAX + 1;
        break;
    case 11:
        m->processes[1].gpu_count = GPUCR_MANIFEST_GPUS_MAX + 1;
        break;
    case 12:
        (void)memset(m->engine, 'e', sizeof(m->engine));
        break;
    case 13:
        m->cuda_version = -1;
        break;
    case 14:
        m->files[0].size_bytes = GPUCR_MANIFEST_IMAGE_BYTES_MAX + 1;
        break;
    default:
        m->processes[0].cuda_state = 1;
        break;
    }
}

static void test_facts(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_manifest m;

    (void)state;
    fixture_manifest(&m);
    if (gpucr_manifest_check_facts(&m, &err) != 0)
        fail_msg("%s", err.text);
    assert_null(m.files);
    assert_int_equal(m.file_count, 0);
    m.processes[1].device_bytes = UINT64_MAX;
    assert_int_equal(gpucr_manifest_check_facts(&m, &err), GPUCR_ERR_IMAGE_FORMAT);
    assert_non_null(strstr(err.text, "processes[1].device_bytes is out of range"));
    gpucr_manifest_done(&m);
}

static void test_writer_refuses(void **state)
{
    (void)state;
    for (int how = 0; how <= 15; how++) {
        struct gpucr_error err = GPUCR_ERROR_INIT;
        struct gpucr_manifest m;
        char *json = NULL;

        fixture_manifest(&m);
        m.file_count = 1;
        m.files = calloc(1, sizeof(*m.files));
        m.files[0].path = strdup("criu/a");
        (void)gpucr_copy_text(m.files[0].digest, 33, "00000000000000000000000000000000");
        break_manifest(&m, how);
        if (gpucr_manifest_to_json(&m, &json, &err) != GPUCR_ERR_IMAGE_FORMAT)
            fail_msg("case %d was written", how);
        assert_null(json);
        assert_true(err.text[0] != '\0');
        gpucr_manifest_done(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_display_texts_are_cleaned),
        cmocka_unit_test(test_options),        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_writer_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
