/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage_text[] =
    "options:\n"
    "  --bytes N | --mib N | --gib N  pattern in the memory of each GPU (64 MiB)\n"
    "  --device N | --devices all|N,N use these GPUs (0)\n"
    "  --vmm | --managed              the pattern lies in VMM or in managed memory\n"
    "  --period-ms P                  pause between two increments (10); 0: none\n"
    "  --spin-ms P                    each turn also runs a kernel of that length\n"
    "  --pinned-poll BYTES            pinned memory with a pattern, polled all the time\n"
    "  --host BYTES                   ordinary memory with a pattern\n"
    "  --threads N                    threads without a GPU: spin, futex, sleep, read\n"
    "  --tick-file FILE               a thread counts in the first 8 bytes of this file\n"
    "  --fork-tree cuda=2,cpu=1       child processes with and without a GPU\n"
    "  --timer-us N                   a timer of that period; its ticks are counted\n"
    "  --term-counter                 SIGTERM is counted\n"
    "  --nvml                         NVML is initialised too\n"
    "  --leftover-fd FILE             open this file (a device, say) and keep it\n"
    "  --print-ptx                    print the kernels and end\n"
    "SIGUSR1: verify and say so. SIGUSR2: the same, then end.\n";

enum option_code {
    OPTION_BYTES = 256,
    OPTION_MIB,
    OPTION_GIB,
    OPTION_DEVICE,
    OPTION_DEVICES,
    OPTION_VMM,
    OPTION_MANAGED,
    OPTION_PERIOD,
    OPTION_SPIN,
    OPTION_PINNED,
    OPTION_HOST,
    OPTION_THREADS,
    OPTION_TICKS,
    OPTION_TREE,
    OPTION_TIMER,
    OPTION_TERM,
    OPTION_NVML,
    OPTION_LEFTOVER,
    OPTION_PTX,
    OPTION_HELP,
};

static const struct option long_options[] = {
    {"bytes", required_argument, NULL, OPTION_BYTES},
    {"mib", required_argument, NULL, OPTION_MIB},
    {"gib", required_argument, NULL, OPTION_GIB},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"devices", required_argument, NULL, OPTION_DEVICES},
    {"vmm", no_argument, NULL, OPTION_VMM},
    {"managed", no_argument, NULL, OPTION_MANAGED},
    {"period-ms", required_argument, NULL, OPTION_PERIOD},
    {"spin-ms", required_argument, NULL, OPTION_SPIN},
    {"pinned-poll", required_argument, NULL, OPTION_PINNED},
    {"host", required_argument, NULL, OPTION_HOST},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"tick-file", required_argument, NULL, OPTION_TICKS},
    {"fork-tree", required_argument, NULL, OPTION_TREE},
    {"timer-us", required_argument, NULL, OPTION_TIMER},
    {"term-counter", no_argument, NULL, OPTION_TERM},
    {"nvml", no_argument, NULL, OPTION_NVML},
    {"leftover-fd", required_argument, NULL, OPTION_LEFTOVER},
    {"print-ptx", no_argument, NULL, OPTION_PTX},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

__attribute__((noreturn)) static void usage(const char *wrong)
{
    if (wrong)
        fprintf(stderr, "not understood: %s\n", wrong);
    fputs(usage_text, stderr);
    exit(2);
}

static uint64_t parse_number(const char *text)
{
    unsigned long long value;
    char *end;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-')
        usage(text);
    return value;
}

static void parse_devices(struct sample_options *options, const char *text)
{
    char copy[256];
    char *save = NULL;

    options->device_count = -1;
    if (!strcmp(text, "all"))
        return;
    options->device_count = 0;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (options->device_count == SAMPLE_GPU_MAX)
            usage(text);
        options->devices[options->device_count++] = (int)parse_number(word);
    }
    if (!options->device_count)
        usage(text);
}

bool sample_tree_parse(const char *text, unsigned *cuda, unsigned *cpu)
{
    int end = 0;

    return sscanf(text, "cuda=%u,cpu=%u%n", cuda, cpu, &end) == 2 && !text[end] && *cuda <= 32 &&
           *cpu <= 32;
}

static void check_tree(const char *text)
{
    unsigned cuda, cpu;

    if (!sample_tree_parse(text, &cuda, &cpu))
        usage(text);
}

/* The options that are about memory and devices; false: it is none of them. */
static bool apply_gpu(struct sample_options *options, int code)
{
    switch (code) {
    case OPTION_BYTES:
        options->bytes = parse_number(optarg);
        return true;
    case OPTION_MIB:
        options->bytes = parse_number(optarg) << 20;
        return true;
    case OPTION_GIB:
        options->bytes = parse_number(optarg) << 30;
        return true;
    case OPTION_DEVICE:
    case OPTION_DEVICES:
        parse_devices(options, optarg);
        return true;
    case OPTION_VMM:
        options->memory = GPU_MEMORY_VMM;
        return true;
    case OPTION_MANAGED:
        options->memory = GPU_MEMORY_MANAGED;
        return true;
    case OPTION_PERIOD:
        options->period_ms = parse_number(optarg);
        return true;
    case OPTION_SPIN:
        options->spin_ms = parse_number(optarg);
        return true;
    case OPTION_PINNED:
        options->pinned_bytes = parse_number(optarg);
        return true;
    default:
        return false;
    }
}

static void apply(struct sample_options *options, int code)
{
    switch (code) {
    case OPTION_HOST:
        options->host_bytes = parse_number(optarg);
        break;
    case OPTION_THREADS:
        options->threads = parse_number(optarg);
        break;
    case OPTION_TICKS:
        options->tick_file = optarg;
        break;
    case OPTION_TREE:
        check_tree(optarg);
        options->fork_tree = optarg;
        break;
    case OPTION_TIMER:
        options->timer_us = parse_number(optarg);
        break;
    case OPTION_TERM:
        options->count_term = true;
        break;
    case OPTION_NVML:
        options->nvml = true;
        break;
    case OPTION_LEFTOVER:
        options->leftover_fd = optarg;
        break;
    case OPTION_PTX:
        options->print_ptx = true;
        break;
    case OPTION_HELP:
        fputs(usage_text, stdout);
        exit(0);
    default:
        usage(NULL);
    }
}

void sample_options_parse(struct sample_options *options, int argc, char **argv)
{
    int code;

    *options = (struct sample_options){.bytes = 64ull << 20, .device_count = 1, .period_ms = 10};
    while ((code = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (!apply_gpu(options, code))
            apply(options, code);
    }
    if (optind != argc)
        usage(argv[optind]);
    options->bytes &= ~7ull;
}
