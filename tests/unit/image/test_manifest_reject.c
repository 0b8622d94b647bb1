/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a reader refuses in a manifest. Every case is a valid manifest with one edit, so
 * that it is refused for this reason and no other. F5 … F25 are the lines of
 * docs/image-format.md.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_fixture.h"

struct edit {
    const char *line;
    const char *find;
    const char *put;
    const char *part; /* of the message */
};

#define P1      "\"pid\":1010"
#define DIGEST  "99aa06d3014798d86001c324468d497f"
#define LONG63  "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define LONG256 LONG63 LONG63 LONG63 LONG63 "xxxx"
#define FILE1   "{\"path\":\"criu/core-1.img\",\"size_bytes\":97,\"digest\":\"" DIGEST "\"}"
#define FILE2(path, size)                                                                          \
    FILE1 ",{\"path\":\"" path "\",\"size_bytes\":" size ",\"digest\":\"" DIGEST "\"}"
#define GPU1_START "{\"index\":3,\"uuid\":\"GPU-01234567-89ab-cdef-0123-456789abcdef\","
#define GPU2(index, uuid)                                                                          \
    "{\"index\":" index ",\"uuid\":\"" uuid "\",\"name\":\"\",\"memory_bytes\":0}," GPU1_START

static const struct edit edits[] = {
    {"F6", "\"cuda_version\":13000", "\"cuda_version\":-1", "offset"},
    {"F6", "\"cuda_version\":13000", "\"cuda_version\":+1", "offset"},
    {"F6", "\"cuda_version\":13000", "\"cuda_version\":1.0", "offset"},
    {"F6", "\"cuda_version\":13000", "\"cuda_version\":null", "offset"},
    {"F6", "\"cuda_version\":13000", "\"cuda_version\":NaN", "offset"},
    {"F6", "\"cuda_version\":13000", "\"cuda_version\":/**/13000", "offset"},
    {"F6", "\"cuda_version\":13000", "\"cuda_version\":\t13000", "offset"},
    {"F6", "\"cuda_version\"", "'cuda_version'", "offset"},
    {"F6", "\"node1\"", "\"node\\u0031\"", "offset"},
    {"F6", "\"node1\"", "\"node\\n\"", "offset"},
    {"F6", "\"node1\"", "\"node\n\"", "offset"},
    {"F5", "\"cuda_version\":13000", "\"cuda_version\":013000", "not JSON"},
    {"F12", "\"cuda_version\":13000", "\"cuda_version\":13e3", "of another type"},
    {"F5", "\"cuda_version\":13000,", "\"cuda_version\":13000", "not JSON"},
    {"F5", "\"node1\"", "\"node1\"}", "not JSON"},
    {"F5", "\"node1\"", "\"node1", "offset"},
    {"F7", "\"node1\"", "[[[[[[[[1]]]]]]]]", "too deep"},
    {"F8", "\"format\":\"gpucr-image\",", "", "format is missing"},
    {"F8", "\"gpucr-image\"", "\"gpucr-images\"", "format is not"},
    {"F8", "\"gpucr-image\"", "0", "format is of another type"},
    {"F8", "\"version\":0,", "", "version is missing"},
    {"F8", "\"version\":0", "\"version\":1", "version 1 of the format"},
    {"F8", "\"version\":0", "\"version\":-1", "version -1 of the format"},
    {"F8", "\"version\":0", "\"version\":18446744073709551616", "of the format"},
    /* What version 1 allows is not known: its number is what counts. */
    {"F8", "\"version\":0,", "\"version\":1,\"new\":null,", "version 1 of the format"},
    {"F9", "\"host\":\"node1\",", "", "host is missing"},
    {"F9", "\"gpus\":[{\"index\"", "\"gpu\":[{\"index\"", "gpus is missing"},
    {"F9", "\"index\":3,", "", "gpus[0].index is missing"},
    {"F9", "\"parent_pid\":1000,", "", "processes[1].parent_pid is missing"},
    {"F9", "\"threads\":[1010,1017],", "", "processes[1].threads is missing"},
    {"F9", ",\"gpus\":[3]", "", "processes[1].gpus is missing"},
    {"F9", ",\"value\":\"\"", "", "options[0].value is missing"},
    {"F9", "\"size_bytes\":97,", "", "files[0].size_bytes is missing"},
    {"F9", "\"files\"", "\"filez\"", "files is missing"},
    {"F10", "\"host\":", "\"hast\":1,\"host\":", "hast is a field"},
    {"F10", "\"index\":3,", "\"index\":3,\"indx\":3,", "gpus[0].indx is a field"},
    {"F10", P1, P1 ",\"path\":1", "processes[1].path is a field"},
    {"F10", ",\"value\":\"\"", ",\"value\":\"\",\"v\":\"\"", "options[0].v is a field"},
    {"F10", "\"bytes\":9108", "\"bytes\":9108,\"b\":1", "phases[0].b is a field"},
    {"F10", "\"size_bytes\":97,", "\"size_bytes\":97,\"mode\":7,", "files[0].mode is a field"},
    {"F11", "\"host\":", "\"host\":\"a\",\"host\":", "twice"},
    {"F11", P1, P1 "," P1, "twice"},
    {"F11", "\"version\":0", "\"version\":0,\"version\":0", "twice"},
    {"F12", "\"node1\"", "1", "host is of another type"},
    {"F12", "\"node1\"", "[]", "host is of another type"},
    {"F12", "\"cuda_version\":13000", "\"cuda_version\":\"13000\"", "cuda_version is of another"},
    {"F12", "\"cuda_version\":13000", "\"cuda_version\":true", "cuda_version is of another"},
    {"F12", "\"is_cuda\":true", "\"is_cuda\":1", "processes[1].is_cuda is of another"},
    {"F12", "\"threads\":[1010,1017]", "\"threads\":1010", "processes[1].threads is of another"},
    {"F12", "\"threads\":[1010,1017]", "\"threads\":[\"1010\"]", "processes[1].threads holds"},
    {"F12", ",\"gpus\":[3]", ",\"gpus\":[[3]]", "processes[1].gpus holds"},
    {"F12", "{\"name\":\"shell-job\",\"value\":\"\"}", "1", "options[0] is not an object"},
    {"F12", "{\"name\":\"shell-job\",\"value\":\"\"}", "[1]", "options[0] is not an object"},
    {"F12", "\"options\":[", "\"options\":{},\"o\":[", "options is of another type"},
    {"F13", "\"cuda_version\":13000", "\"cuda_version\":2147483648", "cuda_version is out"},
    {"F13", "\"cuda_version\":13000", "\"cuda_version\":99999999999999999999",
     "cuda_version is out"},
    {"F13", "\"root_pid\":1000", "\"root_pid\":0", "root_pid is out"},
    {"F13", P1, "\"pid\":4194305", "processes[1].pid is out"},
    {"F13", "\"ns_pid\":1010", "\"ns_pid\":0", "processes[1].ns_pid is out"},
    {"F13", "\"uid\":1", "\"uid\":4294967295", "processes[0].uid is out"},
    {"F13", "\"cuda_state\":1", "\"cuda_state\":3", "processes[1].cuda_state is out"},
    {"F13", "[1010,1017]", "[0,1017]", "processes[1].threads is out"},
    {"F13", "[1010,1017]", "[1010,4194305]", "processes[1].threads is out"},
    {"F13", "\"index\":3", "\"index\":4294967296", "gpus[0].index is out"},
    {"F13", "\"size_bytes\":97", "\"size_bytes\":9223372036854775808",
     "files[0].size_bytes is out"},
    {"F14", "\"engine\":\"criu\"", "\"engine\":\"\"", "engine has 0 bytes"},
    {"F14", "\"node1\"", "\"" LONG63 "xx\"", "host has 65 bytes"},
    {"F14", "\"shell-job\"", "\"\"", "options[0].name has 0 bytes"},
    {"F14", "\"shell-job\"", "\"" LONG63 "x\"", "options[0].name has 64 bytes"},
    {"F14", ",\"value\":\"\"", ",\"value\":\"" LONG256 "\"", "options[0].value has 256 bytes"},
    {"F14", "\"path\":\"criu/core-1.img\"", "\"path\":\"\"", "files[0].path has 0 bytes"},
    {"F15", "\"node1\"", "\"\xff\"", "host is not UTF-8"},
    {"F15", "\"node1\"", "\"\xed\xa0\x80\"", "host is not UTF-8"},
    {"F15", "\"node1\"", "\"\xc0\xaf\"", "host is not UTF-8"},
    {"F15", "\"node1\"", "\"\x7f\"", "host is not UTF-8"},
    {"F15", "\"node1\"", "\"\xc2\x9b\"", "host is not UTF-8"},
    {"F15", "core-1.img", "core\xff.img", "files[0].path is not UTF-8"},
    {"F16", FILE1, "", "files has 0 elements"},
    {"F17", "2026-01-31T12:00:00Z", "2026-01-31 12:00:00Z", "created is"},
    {"F17", "2026-01-31T12:00:00Z", "", "created is"},
    {"F17", "0f8fad5b-", "0F8fad5b-", "boot_id is"},
    {"F17", "0f8fad5b-", "", "boot_id is"},
    {"F18", "\"root_pid\":1000", "\"root_pid\":1010", "not the root"},
    {"F18", P1, "\"pid\":1000", "names pid 1000 twice"},
    {"F18", "\"parent_pid\":1000", "\"parent_pid\":1010", "parent 1010 of processes[1]"},
    {"F18", "\"parent_pid\":1000", "\"parent_pid\":1", "parent 1 of processes[1]"},
    {"F19", "[1010,1017]", "[1017,1010]", "processes[1].threads[1]"},
    {"F19", "[1010,1017]", "[1010,1010]", "processes[1].threads[1]"},
    {"F20", GPU1_START, GPU2("3", "GPU-1"), "index 3 occurs twice"},
    {"F20", GPU1_START, GPU2("4", "GPU-01234567-89ab-cdef-0123-456789abcdef"), "occurs twice"},
    {"F20", ",\"gpus\":[3]", ",\"gpus\":[3,3]", "names GPU 3 twice"},
    {"F20", ",\"gpus\":[3]", ",\"gpus\":[2]", "GPU 2, which is not listed"},
    {"F21", "\"is_cuda\":true", "\"is_cuda\":false", "processes[1] has no CUDA state"},
    {"F22", "criu/core-1.img", "/criu/core-1.img", "is absolute"},
    {"F22", "criu/core-1.img", "core-1.img", "is not below criu/"},
    {"F22", "criu/core-1.img", "criu", "is not below criu/"},
    {"F22", "criu/core-1.img", "logs/core-1.img", "is not below criu/"},
    {"F22", "criu/core-1.img", "criu/../core-1.img", "has a component . or .."},
    {"F22", "criu/core-1.img", "criu/./core-1.img", "has a component . or .."},
    {"F22", "criu/core-1.img", "criu/..", "has a component . or .."},
    {"F22", "criu/core-1.img", "criu//core-1.img", "has an empty component"},
    {"F22", "criu/core-1.img", "criu/", "has an empty component"},
    {"F22", "criu/core-1.img", "criu/a/b/c/d/e/f/g/h", "more than 8 components"},
    {"F22", "criu/core-1.img", "criu/" LONG256, "longer than 255"},
    {"F23", FILE1, FILE2("criu/core-1.img", "1"), "does not come after"},
    {"F23", FILE1, FILE2("criu/a", "1"), "does not come after"},
    {"F24", DIGEST, "99AA06d3014798d86001c324468d497f", "digest of criu/core-1.img"},
    {"F24", DIGEST, "99aa06d3014798d86001c324468d497", "digest of criu/core-1.img"},
    {"F24", DIGEST, "", "digest of criu/core-1.img"},
    {"F25", FILE1, FILE2("criu/d", "1125899906842624"), "1 PiB"},
};

/** The fixture without the white space that the writer puts in for people, but for the last. */
static char *plain_json(void)
{
    char *json = fixture_json();
    bool in_string = false;
    size_t n = 0;

    for (const char *p = json; *p; p++) {
        if (*p == '"' && p[-1] != '\\')
            in_string = !in_string;
        if (in_string || (*p != ' ' && *p != '\n'))
            json[n++] = *p;
    }
    json[n++] = '\n';
    json[n] = '\0';
    return json;
}

static char *apply(const char *json, const struct edit *edit)
{
    const char *at = strstr(json, edit->find);
    char *edited = NULL;

    if (!at)
        fail_msg("%s: \"%s\" is not in the manifest", edit->line, edit->find);
    assert_true(asprintf(&edited, "%.*s%s%s", (int)(at - json), json, edit->put,
                         at + strlen(edit->find)) > 0);
    return edited;
}

static void assert_refused(const char *json, size_t n, const char *line, const char *part)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_manifest m;
    struct gpucr_manifest before;

    (void)memset(&m, 0x5a, sizeof(m));
    before = m;
    if (gpucr_manifest_from_json(json, n, &m, &err) != GPUCR_ERR_IMAGE_FORMAT)
        fail_msg("%s: accepted, or another code: %.2000s", line, json);
    if (memcmp(&m, &before, sizeof(m)) != 0)
        fail_msg("%s: the result was touched", line);
    if (!strstr(err.text, part))
        fail_msg("%s: \"%s\" is not in: %s", line, part, err.text);
}

static void test_edits(void **state)
{
    char *json = plain_json();
    struct gpucr_manifest m;

    (void)state;
    assert_int_equal(gpucr_manifest_from_json(json, strlen(json), &m, NULL), 0);
    gpucr_manifest_done(&m);
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        char *edited = apply(json, &edits[i]);

        assert_refused(edited, strlen(edited), edits[i].line, edits[i].part);
        free(edited);
    }
    free(json);
}

/* F5 */
static void test_truncation(void **state)
{
    char *json = plain_json();
    size_t n = strlen(json);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        /* A buffer of the exact size, so that a read behind it is found. */
        char *part = malloc(i + 1);

        assert_non_null(part);
        (void)memcpy(part, json, i);
        assert_refused(part, i, "F5", "");
        /* And as it would be with the closing bytes still there. */
        if (i >= 2 && i < n - 2) {
            part[i - 2] = '}';
            part[i - 1] = '\n';
            assert_refused(part, i, "F5", "");
        }
        free(part);
    }
    free(json);
}

/* F5: something before or behind it, and bytes that end a string in C but not in JSON */
static void test_garbage(void **state)
{
    static const char *const tails[] = {"\n", " ", "x", "{}\n", "}\n"};
    char *json = plain_json();
    size_t n = strlen(json);

    (void)state;
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        char *longer = NULL;

        assert_true(asprintf(&longer, "%s%s", json, tails[i]) > 0);
        assert_refused(longer, strlen(longer), "F5", "");
        free(longer);
        assert_true(asprintf(&longer, "%s%s", tails[i], json) > 0);
        assert_refused(longer, strlen(longer), "F5", "");
        free(longer);
    }
    for (size_t i = 0; i < n; i++) {
        char was = json[i];

        json[i] = '\0';
        assert_refused(json, n, "F6", "");
        json[i] = was;
    }
    assert_refused("", 0, "F5", "");
    assert_refused("{}\n", 3, "F8", "format is missing");
    assert_refused("[]\n", 3, "F5", "");
    free(json);
}

/** The fixture with @p count copies of @p element put behind @p mark. */
static char *repeat(const char *mark, const char *element, size_t count)
{
    char *json = plain_json();
    const char *at = strstr(json, mark);
    size_t size = strlen(json) + count * strlen(element) + 1;
    char *whole = malloc(size);
    size_t n;

    assert_non_null(at);
    assert_non_null(whole);
    n = (size_t)(at - json) + strlen(mark);
    (void)memcpy(whole, json, n);
    for (size_t i = 0; i < count; i++) {
        (void)memcpy(whole + n, element, strlen(element));
        n += strlen(element);
    }
    (void)snprintf(whole + n, size - n, "%s", at + strlen(mark));
    free(json);
    return whole;
}

/* F7, F16: counts beyond the limits */
static void test_counts(void **state)
{
    static const struct {
        const char *line;
        const char *mark;
        const char *element;
        size_t count;
        const char *part;
    } cases[] = {
        {"F16", "\"options\":[", "{\"name\":\"a\",\"value\":\"\"},", 127, "options has 129"},
        {"F16", "\"phases\":[", "{\"name\":\"a\",\"bytes\":0,\"ns\":0},", 32, "phases has 33"},
        {"F16", "\"gpus\":[", "0,", 64, "gpus has 65"},
        {"F16", ",\"gpus\":[3", ",1", 64, "processes[1].gpus has 65"},
        {"F16", "\"threads\":[", "1,", 1048575, "processes[0].threads has 1048577"},
        {"F16", "\"threads\":[", "1,", 1048574, "processes[1].threads has 2"},
        {"F16", "\"processes\":[", "0,", 32767, "processes has 32769"},
        {"F16", "\"files\":[", "0,", 1048576, "files has 1048577"},
        {"F7", "\"options\":[", "0,", 8388608, "more than 8388608 values"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *json = repeat(cases[i].mark, cases[i].element, cases[i].count);

        assert_refused(json, strlen(json), cases[i].line, cases[i].part);
        free(json);
    }
}

/* F16: the limit holds for all processes together; the writer keeps to it, too */
static void test_threads_in_all(void **state)
{
    struct gpucr_error err = GPUCR_ERROR_INIT;
    struct gpucr_manifest m;
    char *text = NULL;

    (void)state;
    fixture_manifest(&m);
    for (size_t i = 0; i < 2; i++) {
        free(m.processes[i].threads);
        m.processes[i].thread_count = GPUCR_MANIFEST_THREADS_MAX / 2 + i;
        m.processes[i].threads = calloc(m.processes[i].thread_count, sizeof(int32_t));
        assert_non_null(m.processes[i].threads);
        for (size_t t = 0; t < m.processes[i].thread_count; t++)
            m.processes[i].threads[t] = (int32_t)t + 1;
    }
    assert_int_equal(gpucr_manifest_to_json(&m, &text, &err), GPUCR_ERR_IMAGE_FORMAT);
    assert_non_null(strstr(err.text, "threads"));
    gpucr_manifest_done(&m);
}

/* F3 is about the file; the parser has the same limit. */
static void test_size(void **state)
{
    size_t n = GPUCR_MANIFEST_BYTES_MAX + 1;
    char *json = malloc(n);

    (void)state;
    assert_non_null(json);
    (void)memset(json, ' ', n);
    json[0] = '{';
    json[n - 2] = '}';
    json[n - 1] = '\n';
    assert_refused(json, n, "F3", "larger than");
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edits),          cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_garbage),        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_threads_in_all), cmocka_unit_test(test_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
