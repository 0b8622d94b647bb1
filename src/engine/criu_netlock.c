/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/criu_netlock.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "engine/criu_channel.h"
#include "engine/criu_spawn.h"
#include "engine/netns.h"
#include "engine/nft.h"

/* criu's packets carry it (libsoccr): what has it passes. */
#define SOCCR_MARK "0xC114"

enum {
    PROGRAM_MS = 10000,
    ARGUMENTS_MAX = 24,
    NUMBER_BYTES = 8,
    LOG_HEAD_BYTES = 64 << 10,
};

/* Everything that removing needs, for a call on another thread. */
struct removal {
    const struct gpucr_criu_netlock *netlock;
    const struct gpucr_criu_descriptors *descriptors;
    int work_fd;
    const char *log_name;
};

struct gpucr_criu_netlock {
    pid_t root;
    bool own_namespace; /* the tree has a network namespace of its own */
    struct gpucr_nft_tables before;
};

static const char table_prefix[] = "CRIU-";

static int list_tables(void *arg, struct gpucr_error *err)
{
    return gpucr_nft_list(table_prefix, arg, err);
}

int gpucr_criu_netlock_record(pid_t root, struct gpucr_criu_netlock **ret, struct gpucr_error *err)
{
    GPUCR_AUTO_FREE struct gpucr_criu_netlock *netlock = calloc(1, sizeof(*netlock));
    int rc;

    if (!netlock)
        return gpucr_error_no_memory(err);
    netlock->root = root;
    netlock->own_namespace = gpucr_netns_differs(root);
    rc = gpucr_netns_call(root, list_tables, &netlock->before, err);
    if (rc == 0)
        *ret = gpucr_steal_ptr(&netlock);
    return rc;
}

void gpucr_criu_netlock_free(struct gpucr_criu_netlock *netlock)
{
    if (netlock)
        gpucr_nft_tables_done(&netlock->before);
    free(netlock);
}

/* criu writes its number to the head of its log when it starts. */
static bool log_names(const struct removal *removal, const char *number)
{
    GPUCR_AUTO_FD int fd =
        openat(removal->work_fd, removal->log_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    GPUCR_AUTO_FREE char *head = malloc(LOG_HEAD_BYTES);
    ssize_t size = fd >= 0 && head ? read(fd, head, LOG_HEAD_BYTES) : -1;

    return size > 0 && *number && memmem(head, (size_t)size, number, strlen(number)) != NULL;
}

/* In 4.0 a table is named after the root's pid, later after a random number. */
static bool is_ours(const struct removal *removal, const char *name)
{
    char own[GPUCR_NFT_NAME_BYTES];

    (void)snprintf(own, sizeof(own), "%s%d", table_prefix, (int)removal->netlock->root);
    return strcmp(name, own) == 0 || log_names(removal, name + strlen(table_prefix));
}

static int remove_tables(const struct removal *removal, struct gpucr_error *err)
{
    struct gpucr_nft_tables now = {0};
    int rc = gpucr_nft_list(table_prefix, &now, err);

    for (size_t i = 0; rc == 0 && i < now.count; i++) {
        if (gpucr_nft_tables_contain(&removal->netlock->before, now.names[i]) ||
            !is_ours(removal, now.names[i]))
            continue;
        gpucr_debug("the packet filter's table %s of criu is removed", now.names[i]);
        rc = gpucr_nft_delete(now.names[i], err);
    }
    gpucr_nft_tables_done(&now);
    return rc;
}

/* Run a program of the iptables family; its exit status (127 if it did not run). */
static int run(const char *program, const char *const *arguments)
{
    const char *argv[ARGUMENTS_MAX + 3] = {program, "-w"};
    const char *envp[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
    struct gpucr_spawn spawn = {
        .argv = argv, .envp = envp, .fds = {-1, -1, -1}, .fd_count = 3, .own_group = true};
    GPUCR_AUTO_FD int pidfd = -1;
    char path[64];
    int status = 127 << 8;
    pid_t pid;

    if (!gpucr_criu_program(program, path, sizeof(path)))
        return 127;
    spawn.path = path;
    for (size_t i = 0; arguments[i] && i < ARGUMENTS_MAX; i++)
        argv[2 + i] = arguments[i];
    if (gpucr_spawn(&spawn, &pid, &pidfd, NULL) != 0)
        return 127;
    if (!gpucr_spawn_reap(pid, pidfd, PROGRAM_MS, &status))
        gpucr_spawn_end(pid, pidfd);
    return status >> 8;
}

struct address {
    char ip[INET6_ADDRSTRLEN];
    char port[NUMBER_BYTES];
};

/* False for families without TCP. IPv4 inside IPv6 is written as IPv4, as criu does. */
static bool write_address(const struct sockaddr_storage *from, struct address *to, bool *ret_v6)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
    const void *bytes;
    in_port_t port;

    *ret_v6 = from->ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
    if (from->ss_family == AF_INET6) {
        bytes = *ret_v6 ? (const void *)&v6->sin6_addr : (const void *)&v6->sin6_addr.s6_addr[12];
        port = v6->sin6_port;
    } else if (from->ss_family == AF_INET) {
        bytes = &v4->sin_addr;
        port = v4->sin_port;
    } else {
        return false;
    }
    (void)snprintf(to->port, sizeof(to->port), "%u", (unsigned)ntohs(port));
    return inet_ntop(*ret_v6 ? AF_INET6 : AF_INET, bytes, to->ip, sizeof(to->ip)) != NULL;
}

static void remove_rule(const char *program, const char *chain, const struct address *source,
                        const struct address *destination)
{
    const char *const arguments[] = {"-t",
                                     "filter",
                                     "-D",
                                     chain,
                                     "--protocol",
                                     "tcp",
                                     "-m",
                                     "mark",
                                     "!",
                                     "--mark",
                                     SOCCR_MARK,
                                     "--source",
                                     source->ip,
                                     "--sport",
                                     source->port,
                                     "--destination",
                                     destination->ip,
                                     "--dport",
                                     destination->port,
                                     "-j",
                                     "DROP",
                                     NULL};

    if (run(program, arguments) == 0)
        gpucr_debug("a rule of criu for %s port %s is removed from %s", source->ip, source->port,
                    program);
}

static void remove_rules(void *arg, const struct gpucr_criu_connection *connection)
{
    struct address local, peer;
    bool local_v6, peer_v6;
    const char *program;

    (void)arg;
    if (!write_address(&connection->local, &local, &local_v6) ||
        !write_address(&connection->peer, &peer, &peer_v6))
        return;
    program = peer_v6 ? "ip6tables" : "iptables";
    remove_rule(program, "INPUT", &peer, &local);
    remove_rule(program, "OUTPUT", &local, &peer);
}

/* In a network namespace of its own the tree is cut off as a whole, by a chain. */
static void remove_chain(const char *program)
{
    static const char *const steps[][6] = {{"-D", "INPUT", "-j", "CRIU", NULL},
                                           {"-D", "OUTPUT", "-j", "CRIU", NULL},
                                           {"-F", "CRIU", NULL},
                                           {"-X", "CRIU", NULL}};

    for (size_t i = 0; i < GPUCR_ARRAY_SIZE(steps); i++)
        (void)run(program, steps[i]);
}

static int remove_all(void *arg, struct gpucr_error *err)
{
    const struct removal *removal = arg;

    if (gpucr_criu_program("iptables", NULL, 0)) {
        gpucr_criu_descriptors_walk(removal->descriptors, remove_rules, NULL);
        if (removal->netlock->own_namespace) {
            remove_chain("iptables");
            remove_chain("ip6tables");
        }
    }
    return remove_tables(removal, err);
}

int gpucr_criu_netlock_remove(const struct gpucr_criu_netlock *netlock,
                              const struct gpucr_criu_descriptors *descriptors, int work_fd,
                              const char *log_name, struct gpucr_error *err)
{
    struct removal removal = {
        .netlock = netlock, .descriptors = descriptors, .work_fd = work_fd, .log_name = log_name};

    return gpucr_netns_call(netlock->root, remove_all, &removal, err);
}
