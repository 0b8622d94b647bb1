/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* gpucr-sim: makes simulated roots, starts programs in them, shows what is in use. */
#define _GNU_SOURCE
#include "tool.h"

#include "../common/sim_fault.h"
#include "../common/sim_sys.h"
#include "../common/sim_vram.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tool_error(const char *format, ...)
{
    va_list args;

    fputs("gpucr-sim: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return 1;
}

bool tool_parse_bytes(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    char digits[32];
    size_t length = strcspn(text, "KMGT");
    const char *unit = text[length] ? strchr(units, text[length]) : NULL;

    if (length >= sizeof(digits) || (unit && text[length + 1] && strcmp(text + length + 1, "iB")))
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    if (!sim_parse_u64(digits, bytes))
        return false;
    return !unit || !__builtin_mul_overflow(*bytes, 1ull << (10 * (unit - units + 1)), bytes);
}

static int list_faults(void)
{
    puts("calls:");
    for (int i = 0; i < SIM_CALL_COUNT; i++)
        printf("%s\n", sim_call_rule((enum sim_call)i));
    puts("actions:");
#define SIM_CALL(id, rule, base, symbol)
#define SIM_ACTION(id, word, value, what) printf("%s%s\t%s\n", word, value ? "=N" : "", what);
#include "../common/sim_calls.def"
#undef SIM_ACTION
#undef SIM_CALL
    return 0;
}

static int show(const char *root)
{
    struct sim_vram_use users[256];
    struct sim_config config;
    uint64_t used[SIM_GPU_MAX];
    char uuid[48];

    setenv("GPUCR_SIM_ROOT", root, 1);
    if (!sim_config_read(&config))
        return tool_error("%s is no simulated root", root);
    sim_vram_used(used);
    for (unsigned gpu = 0; gpu < config.gpu_count; gpu++) {
        unsigned count = sim_vram_users(gpu, users, 256);

        sim_uuid_format(config.gpu[gpu].uuid, uuid, sizeof(uuid));
        printf("gpu=%u uuid=%s name=\"%s\" total=%llu used=%llu\n", gpu, uuid, config.gpu[gpu].name,
               (unsigned long long)config.gpu[gpu].vram_bytes, (unsigned long long)used[gpu]);
        for (unsigned i = 0; i < count && i < 256; i++)
            printf("gpu=%u pid=%d bytes=%llu\n", gpu, users[i].pid,
                   (unsigned long long)users[i].bytes);
    }
    return 0;
}

static int usage(void)
{
    fputs("usage: gpucr-sim create DIR [--gpus N] [--vram BYTES] [--libs DIR] [KEY=VALUE ...]\n"
          "       gpucr-sim env DIR\n"
          "       gpucr-sim run DIR [--log FILE] [--pidfile FILE] [--wait] -- COMMAND...\n"
          "       gpucr-sim show DIR\n"
          "       gpucr-sim faults --list\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc >= 3 && !strcmp(argv[1], "create"))
        return tool_create(argc - 2, argv + 2);
    if (argc == 3 && !strcmp(argv[1], "env"))
        return tool_print_env(argv[2]);
    if (argc >= 4 && !strcmp(argv[1], "run"))
        return tool_run(argc - 2, argv + 2);
    if (argc == 3 && !strcmp(argv[1], "show"))
        return show(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "faults") && !strcmp(argv[2], "--list"))
        return list_faults();
    return usage();
}
