/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cli.h"
#include "out.h"

static void print_driver(FILE *out, const struct gpucr_machine *machine)
{
    if (!machine->driver_version) {
        (void)fprintf(out, "driver  none found\n");
        return;
    }
    (void)fprintf(out, "driver  %s, CUDA %d.%d; %s; %s\n",
                  machine->driver_name[0] ? machine->driver_name : "version unknown",
                  machine->driver_version / 1000, machine->driver_version % 1000 / 10,
                  machine->can_checkpoint ? "can checkpoint" : "cannot checkpoint",
                  machine->can_remap ? "can move to other GPUs" : "cannot move to other GPUs");
}

static void print_gpus(FILE *out, const struct gpucr_machine *machine)
{
    for (uint32_t i = 0; i < machine->gpu_count && i < GPUCR_GPUS_PER_PROCESS_MAX; i++) {
        char total[CLI_TEXT_BYTES], available[CLI_TEXT_BYTES];

        (void)fprintf(out, "GPU %-3u %s, %s, %s free\n        %s\n", i, machine->gpus[i].name,
                      cli_format_bytes(total, machine->gpus[i].memory_bytes),
                      cli_format_bytes(available, machine->gpus[i].free_bytes),
                      machine->gpus[i].uuid);
    }
}

void cli_text_machine(FILE *out, const struct gpucr_machine *machine)
{
    char version[CLI_TEXT_BYTES], path[GPUCR_ERROR_PATH_BYTES];

    print_driver(out, machine);
    print_gpus(out, machine);
    if (machine->criu_path[0])
        (void)fprintf(out, "criu    %s, %s\n",
                      machine->criu_version ? cli_format_version(version, machine->criu_version)
                                            : "does not run",
                      cli_clean_text(path, sizeof(path), machine->criu_path, true));
    else
        (void)fprintf(out, "criu    none found\n");
    (void)fprintf(out, "kernel  %s; hardware breakpoints %s\n", machine->kernel,
                  machine->hardware_breakpoints ? "work" : "do not work");
}
