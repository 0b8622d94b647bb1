/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_known.h"

#include <stddef.h>
#include <string.h>

#include "base/cleanup.h"

/* Messages of CRIU 4.0 to 4.2; the first entry that fits counts. What gpucr itself
 * has added about a descriptor (its link in /proc) is matched too. */
static const struct gpucr_criu_known known[] = {
    {"io_uring", "CRIU cannot dump io_uring",
     "make the program do without it (libuv: UV_USE_IO_URING=0; liburing users have a switch of "
     "their own)"},
    {"nvidia", "a GPU device file or mapping was left open, which CRIU cannot dump",
     "it belongs to something other than CUDA (NVML before driver 570, graphics) or to a child "
     "that inherited it by fork without exec: close it there"},
    {"(chr ", "CRIU cannot dump that device file", "close it in the program before the checkpoint"},
    {"non-regular mapping", "CRIU cannot dump a mapping of that device",
     "unmap it in the program before the checkpoint"},
    {"--ext-unix-sk", "a unix socket is connected to a process outside of the tree",
     "close it, or use --ext-unix-sk if the program survives its loss"},
    {"name-less external socket",
     "one end of a socket pair belongs to a process outside of the tree",
     "close it in the program, or checkpoint the tree that holds both ends"},
    {"half of stream unix connection",
     "a unix stream socket is connected to a process outside of the tree",
     "close it in the program, or checkpoint the tree that holds both ends"},
    {"--tcp-established", "the program has an established TCP connection",
     "use --tcp-established at checkpoint and restore, or close the connection"},
    {"multipathtcp", "CRIU cannot dump multipath TCP",
     "start Go programs with "
     "GODEBUG=multipathtcp=0"},
    {"In-flight connection", "a TCP connection is waiting to be accepted",
     "try again, or use --criu-option skip-in-flight"},
    {"Can't get 1:16 opt", "CRIU before 4.2 cannot dump network sockets on kernels from 6.16 on",
     "use CRIU 4.2 or newer"},
    {"Can't get 1:34 opt", "CRIU before 4.2 cannot dump network sockets on kernels from 6.16 on",
     "use CRIU 4.2 or newer"},
    {"--file-locks", "the program holds file locks",
     "use --file-locks at checkpoint and restore, if nobody else needs these locks meanwhile"},
    {"--shell-job", "the program belongs to a terminal session that began outside of the tree",
     "use --shell-job at checkpoint and restore, or start the program with setsid"},
    {"outside of its pid namespace", "the program's session began outside of its pid namespace",
     "use --shell-job, or start the program with setsid"},
    {"Found dangling tty", "the program has a terminal whose session is outside of the tree",
     "use --shell-job at checkpoint and restore, or start the program with setsid and without it"},
    {"without correspond master peer",
     "the program has a terminal whose other end is outside of the tree",
     "use --shell-job at checkpoint and restore, or start the program without a terminal"},
    {"Can't create link remap", "the program has a deleted file open that still has another name",
     "use --link-remap"},
    {"increase limit", "a deleted file that the program has open is larger than CRIU's limit",
     "use --ghost-limit with a size above that of the file"},
    {"Can't lookup mount=", "a descriptor comes from a mount that the program itself does not see",
     "start the program with descriptors of its own mount namespace (</dev/null >file)"},
    {"unreachable sharing", "a mount of the program propagates from outside",
     "use --criu-option enable-external-masters"},
    {"doesn't have a proper root mount", "a mount of the program comes from outside",
     "use --criu-option external=mnt[]"},
    {"autodetected external mount", "a mount of the program came from outside",
     "use --criu-option external=mnt[]"},
    {"No mapping for", "a mount of the program came from outside and is not mapped for the restore",
     "use --criu-option external=mnt[KEY]:PATH"},
    {"uprobes vma", "the program is being traced with uprobes",
     "end the tracing, or use --criu-option allow-uprobes (CRIU 4.2)"},
    {"vDSO area bounds", "this CRIU does not know the layout of this kernel's vDSO",
     "use CRIU 4.0 or newer (scripts/get-criu fetches one)"},
    {"The criu itself is within dumped tree", "gpucr was started from inside the program's tree",
     "start gpucr from elsewhere"},
    {"Unseizable non-zombie", "CRIU may not trace the process, or something else does already",
     "end the debugger or tracer (TracerPid in /proc/PID/status names it), or run gpucr as root"},
    {"Can't fork for", "the process id is in use by something else",
     "end what uses it, or use --pid-namespace"},
    {"do not match expected", "the process id is in use by something else",
     "end what uses it, or use --pid-namespace"},
    {"bad build-ID", "a file is another one than at the checkpoint",
     "bring the same file back (an update of a library may have replaced it)"},
    {"has bad size", "a file has another size than at the checkpoint",
     "bring the file back as it was, or use --criu-option file-validation=filesize knowingly"},
    {"has bad mode", "a file has other access rights than at the checkpoint",
     "give it its mode back, or use --criu-option skip-file-rwx-check"},
    {"Missing required plugin", "the image was made with a CRIU plugin, which gpucr does not load",
     NULL},
    {"Unable to connect", "a service that the program was connected to does not answer",
     "start it before the restore"},
    {"iptables", "CRIU could not cut the TCP connections off with iptables",
     "install iptables or nftables support (kernel module nf_tables), or use --criu-option "
     "network-lock=nftables"},
    {"nftables", "CRIU could not cut the TCP connections off with nftables",
     "install iptables, or load the kernel module nf_tables"},
    {"Can't open file", "a file that the program had open is not there as it was",
     "bring it back and try again"},
    {"plugin", "CRIU wants a plugin, of which gpucr loads none", NULL},
    {"Unable to drop capability",
     "CRIU without full rights cannot restore this program's "
     "capabilities",
     "restore it as root"},
    {"No space left on device", "a disk is full", "free some space"},
};

static const char *const harmless[] = {
    "Can't setup RLIMIT_NOFILE", /* without CAP_SYS_RESOURCE; it goes on */
    "execvp(\"iptables\"",       /* looked for at every start, needed only for locking */
    "execvp(\"ip6tables\"",
    "execvp(\"ip\"",
};

static const char *const summaries[] = {
    "Dumping FAILED",      "Restoring FAILED",   "Dump files (pid:", "Dump mappings (pid:",
    "Dump core (pid:",     "Dump ids (pid:",     "Dump fs (pid:",    "Dump eventpoll (pid:",
    "exited, status=",     "killed by signal",   "Unable to wait",   "Killing processes because of",
    "RPC client reported", "Pre-dumping FAILED",
};

const struct gpucr_criu_known *gpucr_criu_known_find(const char *message)
{
    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(known); i++) {
        if (strstr(message, known[i].pattern))
            return &known[i];
    }
    return NULL;
}

static bool holds_any(const char *message, const char *const *texts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strstr(message, texts[i]))
            return true;
    }
    return false;
}

bool gpucr_criu_known_harmless(const char *message)
{
    return holds_any(message, harmless, GPUCR_ARRAY_SIZE(harmless));
}

bool gpucr_criu_known_summary(const char *message)
{
    return holds_any(message, summaries, GPUCR_ARRAY_SIZE(summaries));
}
