/* ZMTP connections: where a peer is, and getting there. */
#include "net/zmtp_private.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LOOK_UP_MS = 20 }; /* how often the other thread is asked */

/* ---- endpoints ---- */

enum kvr_status kvr_zmtp_read_endpoint(
    struct kvr_zmtp *c, const char *endpoint, struct kvr_error *error)
{
    const char *at = endpoint + 6, *colon = strrchr(endpoint, ':');

    if (strncmp(endpoint, "ipc://", 6) == 0) {
        if (!at[*at == '@'] || strlen(at) >= sizeof((struct sockaddr_un *)0)->sun_path)
            return kvr_error_set(
                error, KVR_BAD_USAGE, "'%s': no path, or too long a one", endpoint);
        c->host = strdup(at);
        return c->host ? KVR_OK : kvr_error_memory(error);
    }
    char *end = NULL;
    unsigned long port = colon && colon > at ? strtoul(colon + 1, &end, 10) : 0;
    if (strncmp(endpoint, "tcp://", 6) != 0 || !port || port > 65535 || *end || colon[1] < '0' ||
        colon[1] > '9' || (*at == '[') != (colon[-1] == ']'))
        return kvr_error_set(
            error, KVR_BAD_USAGE, "'%s' is not tcp://HOST:PORT or ipc://PATH", endpoint);
    bool bracketed = *at == '[';
    c->host = strndup(at + bracketed, (size_t)(colon - at) - 2 * bracketed);
    c->port = strdup(colon + 1);
    return c->host && c->port ? KVR_OK : kvr_error_memory(error);
}

/* ---- attempts ---- */

void kvr_zmtp_forget_look_up(struct kvr_zmtp *c)
{
    if (c->state == LOOKING_UP) {
        const struct gaicb *const list[] = {&c->look_up};
        if (gai_cancel(&c->look_up) == EAI_NOTCANCELED)
            while (gai_suspend(list, 1, NULL) == EAI_INTR)
                ;
    }
    if (c->look_up.ar_result)
        freeaddrinfo(c->look_up.ar_result);
    c->look_up.ar_result = NULL;
}

bool kvr_zmtp_is_connected_to_itself(int descriptor)
{
    struct sockaddr_storage ours = {0}, theirs = {0};
    socklen_t our_length = sizeof ours, their_length = sizeof theirs;

    return getsockname(descriptor, (struct sockaddr *)&ours, &our_length) == 0 &&
           getpeername(descriptor, (struct sockaddr *)&theirs, &their_length) == 0 &&
           ours.ss_family != AF_UNIX && our_length == their_length &&
           memcmp(&ours, &theirs, our_length) == 0;
}

void kvr_zmtp_set_options(int descriptor)
{
    const int on = 1, idle_s = 10, every_s = 5, times = 3, most_ms = 25000;

    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &most_ms, sizeof most_ms);
}

static void connect_to(struct kvr_zmtp *c, const struct sockaddr *address, socklen_t length)
{
    int descriptor = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (descriptor < 0) {
        kvr_zmtp_lose_errno(c, errno);
        return;
    }
    if (address->sa_family != AF_UNIX)
        kvr_zmtp_set_options(descriptor);
    bool now = connect(descriptor, address, length) == 0;
    if (!now && errno != EINPROGRESS) {
        int number = errno;
        close(descriptor);
        kvr_zmtp_lose_errno(c, number);
        return;
    }
    c->watch = (struct kvr_watch){descriptor, now ? EPOLLIN : EPOLLOUT, kvr_zmtp_on_ready};
    if (!kvr_reactor_add(c->reactor, &c->watch)) {
        kvr_zmtp_lose_errno(c, errno);
        return;
    }
    c->state = CONNECTING;
    kvr_zmtp_set_timer(c, KVR_ZMTP_SHAKE_MS);
    if (now)
        kvr_zmtp_greet(c);
}

/* The host's address is known: each attempt takes the next one. */
static void connect_to_found(struct kvr_zmtp *c, struct addrinfo *found)
{
    unsigned count = 0, wanted;

    for (struct addrinfo *at = found; at; at = at->ai_next)
        count++;
    wanted = c->attempts % count;
    struct addrinfo *at = found;
    while (wanted--)
        at = at->ai_next;
    struct sockaddr_storage address;
    socklen_t length = at->ai_addrlen;
    memcpy(&address, at->ai_addr, length);
    freeaddrinfo(found);
    c->state = PAUSED;
    connect_to(c, (struct sockaddr *)&address, length);
}

void kvr_zmtp_begin(struct kvr_zmtp *c)
{
    struct addrinfo *found = NULL;
    struct gaicb *list[] = {&c->look_up};

    c->attempts++;
    if (!c->port) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        size_t length = strlen(c->host);
        memcpy(address.sun_path, c->host, length);
        if (*c->host == '@') /* a name without a file */
            address.sun_path[0] = 0;
        connect_to(c, (struct sockaddr *)&address,
            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (*c->host != '@')));
        return;
    }
    c->hints = (struct addrinfo){.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    if (getaddrinfo(c->host, c->port, &c->hints, &found) == 0) {
        connect_to_found(c, found);
        return;
    }
    c->hints.ai_flags = AI_ADDRCONFIG;
    c->look_up = (struct gaicb){.ar_name = c->host, .ar_service = c->port, .ar_request = &c->hints};
    int failure = getaddrinfo_a(GAI_NOWAIT, list, 1, NULL);
    if (failure) {
        kvr_zmtp_lose(c, gai_strerror(failure));
        return;
    }
    c->state = LOOKING_UP;
    kvr_zmtp_set_timer(c, LOOK_UP_MS);
}

void kvr_zmtp_look_up_goes_on(struct kvr_zmtp *c)
{
    int status = gai_error(&c->look_up);

    if (status == EAI_INPROGRESS) {
        kvr_zmtp_set_timer(c, LOOK_UP_MS);
        return;
    }
    struct addrinfo *found = c->look_up.ar_result;
    c->look_up.ar_result = NULL;
    c->state = PAUSED;
    if (status == 0 && found)
        connect_to_found(c, found);
    else
        kvr_zmtp_lose(c, gai_strerror(status));
}

/* ---- the other way round ---- */

bool kvr_zmtp_is_listening_endpoint(const char *endpoint)
{
    return strncmp(endpoint, "tcp://*:", 8) == 0;
}

enum kvr_status kvr_zmtp_listen(const char *endpoint, int *descriptor, struct kvr_error *error)
{
    const struct addrinfo hints = {
        .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL, *at;
    const int on = 1, off = 0;
    const char *port = endpoint + 8;

    *descriptor = -1;
    /* getaddrinfo takes 65537 for port 1. */
    if (!kvr_zmtp_is_listening_endpoint(endpoint) || strspn(port, "0123456789") != strlen(port) ||
        strlen(port) > 5 || atoi(port) < 1 || atoi(port) > 65535 ||
        getaddrinfo(NULL, port, &hints, &found) != 0)
        return kvr_error_set(error, KVR_BAD_USAGE, "'%s' is not tcp://*:PORT", endpoint);
    /* An IPv6 socket takes IPv4 too. */
    for (at = found; at && at->ai_family != AF_INET6; at = at->ai_next)
        ;
    for (int attempt = at ? 0 : 1; attempt < 2 && *descriptor < 0; attempt++) {
        struct addrinfo *address = attempt ? found : at;
        int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (address->ai_family == AF_INET6)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
            *descriptor = fd;
        } else {
            int number = errno;
            close(fd);
            errno = number;
        }
    }
    freeaddrinfo(found);
    return *descriptor >= 0 ? KVR_OK
                            : kvr_error_errno(error, KVR_IO, "cannot listen on '%s'", endpoint);
}
