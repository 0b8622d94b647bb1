/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The two tables: commands and options. Help, manual and completions follow them. */
#include "opt.h"

#define BIT(id)    (1U << (id))
#define ALL_VERBS  (BIT(CLI_VERB_COUNT) - 1)
#define TREE_VERBS (BIT(CLI_SUSPEND) | BIT(CLI_RESUME) | BIT(CLI_CHECKPOINT))
#define PID_VERBS  (TREE_VERBS | BIT(CLI_LIST) | BIT(CLI_CHECK))
#define CRIU_VERBS (BIT(CLI_CHECKPOINT) | BIT(CLI_RESTORE))
#define DIR_VERBS  (CRIU_VERBS | BIT(CLI_IMAGE_INSPECT) | BIT(CLI_IMAGE_VERIFY))
#define AT(field)  offsetof(struct cli_options, field)

const struct cli_verb cli_verbs[CLI_VERB_COUNT] = {
    [CLI_LIST] =
        {
            .name = "list",
            .synopsis = "[--all] [--pid PID]",
            .summary = "Show the processes that use CUDA",
            .text = "One line for each process with CUDA state: its state, the GPUs it uses, "
                    "its device memory and its host memory. Nothing is touched.",
            .operand = CLI_OPERAND_PID,
        },
    [CLI_CHECK] =
        {
            .name = "check",
            .synopsis = "[--pid PID]",
            .summary = "Is this machine, is that process fit?",
            .text = "Shows what the machine has (driver, GPUs, criu, kernel) and the findings "
                    "that would warn or refuse. With a process, everything that suspend and "
                    "checkpoint check beforehand is checked on its tree. Nothing is touched.",
            .operand = CLI_OPERAND_PID,
        },
    [CLI_SUSPEND] =
        {
            .name = "suspend",
            .synopsis = "--pid PID [OPTIONS]",
            .summary = "Move GPU state to host memory, free the GPUs",
            .text = "The tree of the process is stopped, its device memory moves to host memory "
                    "and its GPUs are free for others, until \"gpucr resume\". The end state is "
                    "read back: device memory fell and the driver no longer lists the processes.",
            .operand = CLI_OPERAND_PID,
            .needs_pid = true,
        },
    [CLI_RESUME] =
        {
            .name = "resume",
            .synopsis = "--pid PID [OPTIONS]",
            .summary = "Bring suspended processes back to their GPUs",
            .text = "The reverse of \"gpucr suspend\". A process that its owner had stopped "
                    "before is stopped afterwards.",
            .operand = CLI_OPERAND_PID,
            .needs_pid = true,
        },
    [CLI_CHECKPOINT] =
        {
            .name = "checkpoint",
            .synopsis = "--pid PID -o DIR [OPTIONS]",
            .summary = "Write a process tree to an image on disk",
            .text = "The tree is suspended and written to the new folder DIR, which appears "
                    "under its name only when it is complete. Then the processes end, unless "
                    "--leave-running is given. Whatever fails before leaves the program running "
                    "as it was.\n"
                    "A tree without CUDA state is checkpointed as well, and said so. The image "
                    "holds the memory of the program: keep it as secret as the program.",
            .operand = CLI_OPERAND_PID,
            .needs_pid = true,
            .needs_dir = true,
        },
    [CLI_RESTORE] =
        {
            .name = "restore",
            .synopsis = "DIR [OPTIONS]",
            .summary = "Bring an image back to life",
            .text = "The image is verified first, then the tree is created and its device memory "
                    "filled; it runs only when all of it succeeded. After a failure the image is "
                    "untouched and nothing has run.\n"
                    "Whoever restores an image runs the code in it.",
            .operand = CLI_OPERAND_DIR,
            .needs_dir = true,
        },
    [CLI_IMAGE_INSPECT] =
        {
            .name = "image inspect",
            .synopsis = "DIR",
            .summary = "Show what an image holds",
            .text = "Machine, GPUs, process tree, options, phases and size, from the manifest; "
                    "with --json the manifest itself. Only the manifest is read: \"gpucr image "
                    "verify\" reads all of the image.",
            .operand = CLI_OPERAND_DIR,
            .needs_dir = true,
        },
    [CLI_IMAGE_VERIFY] =
        {
            .name = "image verify",
            .synopsis = "DIR",
            .summary = "Read all of an image and compare its checksums",
            .text = "Every file is read and its size and digest compared with the manifest; a "
                    "file that the manifest does not name is an error too.",
            .operand = CLI_OPERAND_DIR,
            .needs_dir = true,
        },
    [CLI_HELP] =
        {
            .name = "help",
            .synopsis = "[COMMAND]",
            .summary = "Show help on a command",
            .text = "The same as \"gpucr COMMAND --help\".",
            .operand = CLI_OPERAND_WORDS,
        },
};

const char *const cli_group_titles[CLI_GROUP_COUNT] = {
    [CLI_GROUP_OWN] = "Options",
    [CLI_GROUP_CRIU] = "Options for criu",
    [CLI_GROUP_COMMON] = "Common options",
};

const struct cli_option cli_option_table[] = {
    {"all", 'a', NULL, CLI_FLAG, CLI_GROUP_OWN, BIT(CLI_LIST), AT(job.list_all), NULL,
     "Also show processes that have GPU device files open but no CUDA state"},
    {"pid", 'p', "PID", CLI_PID, CLI_GROUP_OWN, PID_VERBS, AT(job.pid), NULL,
     "The process at the root of the tree; may also be given without --pid"},
    {"tree", 't', "PID", CLI_PID, CLI_GROUP_OWN, PID_VERBS, AT(job.pid), NULL,
     "The same as --pid, as criu spells it"},
    {"single-process", 0, NULL, CLI_FLAG, CLI_GROUP_OWN, BIT(CLI_SUSPEND) | BIT(CLI_RESUME),
     AT(job.single_process), NULL, "Handle this process only, not its descendants"},
    {"output", 'o', "DIR", CLI_DIRECTORY, CLI_GROUP_OWN, BIT(CLI_CHECKPOINT), AT(job.image_dir),
     NULL, "The image to write; the folder must not exist yet"},
    {"images-dir", 'D', "DIR", CLI_DIRECTORY, CLI_GROUP_OWN, DIR_VERBS, AT(job.image_dir), NULL,
     "The folder of the image, as criu spells it"},
    {"leave-running", 'R', NULL, CLI_FLAG, CLI_GROUP_OWN, BIT(CLI_CHECKPOINT),
     AT(job.leave_running), NULL, "The program goes on running on its GPUs afterwards"},
    {"detach", 'd', NULL, CLI_FLAG, CLI_GROUP_OWN, BIT(CLI_RESTORE), AT(detach), NULL,
     "Return as soon as the program runs; this is the default"},
    {"restore-detached", 0, NULL, CLI_FLAG, CLI_GROUP_OWN, BIT(CLI_RESTORE), AT(detach), NULL,
     "The same as --detach, as criu spells it"},
    {"foreground", 'F', NULL, CLI_FLAG, CLI_GROUP_OWN, BIT(CLI_RESTORE), AT(job.foreground), NULL,
     "Stay until the program ends, pass signals on to it and exit with its status"},
    {"pid-namespace", 0, NULL, CLI_FLAG, CLI_GROUP_OWN, BIT(CLI_RESTORE), AT(job.pid_namespace),
     NULL, "Restore into a pid namespace of its own, so that no pid can be taken"},
    {"pid-wait", 0, "DURATION", CLI_DURATION, CLI_GROUP_OWN, BIT(CLI_RESTORE), AT(job.pid_wait_ms),
     NULL, "How long to wait for a pid of the image to become free; default 10s"},

    {"shell-job", 'j', NULL, CLI_FLAG, CLI_GROUP_CRIU, CRIU_VERBS, AT(job.shell_job), NULL,
     "Allow a program that was started from a shell and shares its terminal"},
    {"tcp-established", 0, NULL, CLI_FLAG, CLI_GROUP_CRIU, CRIU_VERBS, AT(job.tcp_established),
     NULL, "Save and restore open TCP connections"},
    {"file-locks", 'l', NULL, CLI_FLAG, CLI_GROUP_CRIU, CRIU_VERBS, AT(job.file_locks), NULL,
     "Save and restore file locks"},
    {"link-remap", 0, NULL, CLI_FLAG, CLI_GROUP_CRIU, CRIU_VERBS, AT(job.link_remap), NULL,
     "Allow deleted files that other links still name"},
    {"ext-unix-sk", 'x', NULL, CLI_FLAG, CLI_GROUP_CRIU, CRIU_VERBS, AT(job.ext_unix_sk), NULL,
     "Allow unix sockets that lead to processes outside the tree"},
    {"ghost-limit", 0, "SIZE", CLI_SIZE, CLI_GROUP_CRIU, BIT(CLI_CHECKPOINT),
     AT(job.ghost_limit_bytes), NULL, "Largest deleted file that is saved with the image"},
    {"criu", 0, "PATH", CLI_PATH, CLI_GROUP_CRIU, CRIU_VERBS | BIT(CLI_CHECK), AT(job.criu_path),
     "GPUCR_CRIU", "The criu to use; otherwise the first one on PATH"},
    {"criu-option", 0, "NAME[=VALUE]", CLI_NAME_VALUE, CLI_GROUP_CRIU, CRIU_VERBS,
     AT(job.criu_options), NULL, "Any further option of criu, without dashes; may be repeated"},

    {"json", 0, NULL, CLI_FLAG, CLI_GROUP_COMMON, ALL_VERBS, AT(json), NULL,
     "Print one JSON document on standard output, also on failure"},
    {"timeout", 0, "DURATION", CLI_DURATION, CLI_GROUP_COMMON, ALL_VERBS, AT(job.timeout_ms), NULL,
     "Deadline for locking and stopping the tree; default 30s"},
    {"engine-timeout", 0, "DURATION", CLI_DURATION, CLI_GROUP_COMMON, ALL_VERBS,
     AT(job.engine_timeout_ms), NULL,
     "How long criu may work without progress before it is ended; default 2m"},
    {"force", 0, "NAME", CLI_FINDING, CLI_GROUP_COMMON, ALL_VERBS, AT(job.forced), NULL,
     "Go on in spite of the finding NAME; may be repeated"},
    {"sequential", 0, NULL, CLI_FLAG, CLI_GROUP_COMMON, ALL_VERBS, AT(job.sequential), NULL,
     "Call the driver for one process after the other"},
    {"verbose", 'v', NULL, CLI_COUNT, CLI_GROUP_COMMON, ALL_VERBS, AT(verbosity), NULL,
     "Say each step; -vv each process and call, -vvv everything"},
    {"quiet", 'q', NULL, CLI_FLAG, CLI_GROUP_COMMON, ALL_VERBS, AT(quiet), NULL,
     "Say nothing but errors: no report of success, no warnings, no progress"},
    {"log", 0, "FILE", CLI_PATH, CLI_GROUP_COMMON, ALL_VERBS, AT(log_file), NULL,
     "Append what -vv says to FILE, with times; created with mode 0600"},
    {"driver-root", 0, "DIR", CLI_DIRECTORY, CLI_GROUP_COMMON, ALL_VERBS, AT(job.driver_root),
     "GPUCR_DRIVER_ROOT", "Look for the libraries of the driver below DIR"},
    {"dev-root", 0, "DIR", CLI_DIRECTORY, CLI_GROUP_COMMON, ALL_VERBS, AT(job.dev_root),
     "GPUCR_DEV_ROOT", "Folder with the GPU device files; default /dev"},
    {"state-dir", 0, "DIR", CLI_DIRECTORY, CLI_GROUP_COMMON, ALL_VERBS, AT(job.state_dir),
     "GPUCR_STATE_DIR",
     "Folder with the records of suspended trees; default /run/gpucr, or gpucr in "
     "XDG_RUNTIME_DIR"},
    {"help", 'h', NULL, CLI_FLAG, CLI_GROUP_COMMON, ALL_VERBS, AT(help), NULL, "Show help"},
    {"version", 'V', NULL, CLI_FLAG, CLI_GROUP_COMMON, 0, AT(version), NULL, "Show the version"},
};

const size_t cli_option_count = sizeof(cli_option_table) / sizeof(cli_option_table[0]);

const struct cli_exit_status cli_exit_table[] = {
    {"0", "Done, and the end state was verified"},
    {"1", "The command line makes no sense; nothing was changed"},
    {"2", "Refused before anything was changed; check: a finding refuses; image: "
          "the image is missing, damaged or not to be trusted"},
    {"3", "Failed, and everything is as it was before"},
    {"4", "Failed, and something is not as it was before; the report says what"},
    {"5", "Internal error, or the report could not be written"},
    {"N", "restore --foreground: the status of the program, 128+N when signal N ended it"},
};

const size_t cli_exit_count = sizeof(cli_exit_table) / sizeof(cli_exit_table[0]);
