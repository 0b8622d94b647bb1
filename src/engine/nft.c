/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/nft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"

enum { BUFFER_BYTES = 64 << 10, REPLIES_MAX = 4096, ANSWER_SECONDS = 5 };

static int open_socket(void)
{
    GPUCR_AUTO_FD int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    struct sockaddr_nl address = {.nl_family = AF_NETLINK};
    struct timeval limit = {.tv_sec = ANSWER_SECONDS};

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        return -1;
    return gpucr_steal_fd(&fd);
}

static struct nlmsghdr *begin_message(char *buffer, size_t *used, int type, int flags)
{
    struct nlmsghdr *header = (struct nlmsghdr *)(buffer + *used);
    struct nfgenmsg *body;

    (void)memset(header, 0, NLMSG_SPACE(sizeof(*body)));
    header->nlmsg_len = NLMSG_LENGTH(sizeof(*body));
    header->nlmsg_type = (uint16_t)type;
    header->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
    header->nlmsg_seq = (uint32_t)*used + 1;
    body = NLMSG_DATA(header);
    body->version = NFNETLINK_V0;
    *used += NLMSG_ALIGN(header->nlmsg_len);
    return header;
}

static void set_body(struct nlmsghdr *header, uint8_t family, uint16_t resource)
{
    struct nfgenmsg *body = NLMSG_DATA(header);

    body->nfgen_family = family;
    body->res_id = htons(resource);
}

static int table_message(int kind)
{
    return NFNL_SUBSYS_NFTABLES << 8 | kind;
}

/* The table's name among the attributes of a message. */
static const char *table_name(const struct nlmsghdr *header)
{
    size_t at = NLMSG_LENGTH(sizeof(struct nfgenmsg));

    while (at + NLA_HDRLEN <= header->nlmsg_len) {
        const struct nlattr *attribute = (const struct nlattr *)((const char *)header + at);
        size_t size = attribute->nla_len;

        if (size < NLA_HDRLEN || at + size > header->nlmsg_len)
            return NULL;
        if ((attribute->nla_type & NLA_TYPE_MASK) == NFTA_TABLE_NAME) {
            const char *name = (const char *)attribute + NLA_HDRLEN;

            return memchr(name, '\0', size - NLA_HDRLEN) ? name : NULL;
        }
        at += NLA_ALIGN(size);
    }
    return NULL;
}

static int add_table(struct gpucr_nft_tables *tables, const char *name)
{
    char(*names)[GPUCR_NFT_NAME_BYTES];

    if (tables->count == GPUCR_NFT_TABLES_MAX)
        return -ENOSPC;
    names = realloc(tables->names, (tables->count + 1) * sizeof(*names));
    if (!names)
        return -ENOMEM;
    tables->names = names;
    if (gpucr_copy_text(names[tables->count], GPUCR_NFT_NAME_BYTES, name))
        tables->count++; /* criu's names are short: a long one is somebody else's */
    return 0;
}

/* One datagram of answers. Returns 1 at the end, 0 for more, -errno. */
static int take_answers(const char *buffer, size_t size, const char *prefix,
                        struct gpucr_nft_tables *tables)
{
    const struct nlmsghdr *header = (const struct nlmsghdr *)buffer;

    for (; NLMSG_OK(header, size); header = NLMSG_NEXT(header, size)) {
        const char *name;
        int rc;

        if (header->nlmsg_type == NLMSG_DONE)
            return 1;
        if (header->nlmsg_type == NLMSG_ERROR) {
            const struct nlmsgerr *failure = NLMSG_DATA(header);

            if (header->nlmsg_len < NLMSG_LENGTH(sizeof(*failure)))
                return -EBADMSG;
            return failure->error == 0 ? 1 : failure->error;
        }
        if (!tables || header->nlmsg_type != table_message(NFT_MSG_NEWTABLE))
            continue;
        name = table_name(header);
        rc = name && gpucr_starts_with(name, prefix) ? add_table(tables, name) : 0;
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int exchange(int fd, const char *request, size_t request_bytes, const char *prefix,
                    struct gpucr_nft_tables *tables)
{
    GPUCR_AUTO_FREE char *buffer = malloc(BUFFER_BYTES);
    int rc = 0;

    if (!buffer)
        return -ENOMEM;
    if (send(fd, request, request_bytes, MSG_NOSIGNAL) < 0)
        return -errno;
    for (int i = 0; rc == 0 && i < REPLIES_MAX; i++) {
        ssize_t size = recv(fd, buffer, BUFFER_BYTES, 0);

        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0)
            return -errno;
        rc = take_answers(buffer, (size_t)size, prefix, tables);
    }
    return rc < 0 ? rc : 0;
}

int gpucr_nft_list(const char *prefix, struct gpucr_nft_tables *ret, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = open_socket();
    struct gpucr_nft_tables tables = {0};
    _Alignas(struct nlmsghdr) char request[64];
    size_t used = 0;
    int rc = fd < 0 ? -errno : 0;

    if (rc == 0) {
        set_body(begin_message(request, &used, table_message(NFT_MSG_GETTABLE), NLM_F_DUMP),
                 NFPROTO_INET, 0);
        rc = exchange(fd, request, used, prefix, &tables);
    }
    /* What a kernel without nf_tables says: no such protocol, or no such subsystem. */
    if (rc == -EPROTONOSUPPORT || rc == -EOPNOTSUPP || rc == -EINVAL || rc == -ENOENT)
        rc = 0;
    if (rc != 0) {
        gpucr_nft_tables_done(&tables);
        return gpucr_error_errno(err, -rc, "cannot list the tables of the packet filter");
    }
    *ret = tables;
    return 0;
}

void gpucr_nft_tables_done(struct gpucr_nft_tables *tables)
{
    free(tables->names);
    *tables = (struct gpucr_nft_tables){0};
}

bool gpucr_nft_tables_contain(const struct gpucr_nft_tables *tables, const char *name)
{
    for (size_t i = 0; i < tables->count; i++) {
        if (strcmp(tables->names[i], name) == 0)
            return true;
    }
    return false;
}

int gpucr_nft_delete(const char *name, struct gpucr_error *err)
{
    GPUCR_AUTO_FD int fd = open_socket();
    _Alignas(struct nlmsghdr) char request[512] = {0};
    struct nlmsghdr *header;
    struct nlattr *attribute;
    size_t length = strlen(name) + 1;
    size_t used = 0;
    int rc = fd < 0 ? -errno : 0;

    if (length > GPUCR_NFT_NAME_BYTES)
        return gpucr_error_set(err, GPUCR_ERR_INTERNAL, "%s is too long for a table", name);
    /* Changes come in a batch: begin, the change, end. Only the change is acknowledged. */
    set_body(begin_message(request, &used, NFNL_MSG_BATCH_BEGIN, 0), AF_UNSPEC,
             NFNL_SUBSYS_NFTABLES);
    header = begin_message(request, &used, table_message(NFT_MSG_DELTABLE), NLM_F_ACK);
    set_body(header, NFPROTO_INET, 0);
    attribute = (struct nlattr *)(request + used);
    attribute->nla_type = NFTA_TABLE_NAME;
    attribute->nla_len = (uint16_t)(NLA_HDRLEN + length);
    (void)memcpy((char *)attribute + NLA_HDRLEN, name, length);
    header->nlmsg_len += NLA_ALIGN(attribute->nla_len);
    used += NLA_ALIGN(attribute->nla_len);
    set_body(begin_message(request, &used, NFNL_MSG_BATCH_END, 0), AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    if (rc == 0)
        rc = exchange(fd, request, used, "", NULL);
    if (rc == 0 || rc == -ENOENT)
        return 0;
    return gpucr_error_errno(err, -rc, "cannot delete the packet filter's table %s", name);
}
