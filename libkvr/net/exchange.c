/* One exchange with one worker, over a connection that is new or was kept. */
#include "base/clock.h"
#include "net/upstream.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SCRATCH_BYTES = 128 * 1024, IDLE_LIMIT = 512 };

struct kvr_connection {
    struct kvr_watch watch; /* first: one is found from the other */
    struct kvr_upstream *upstream;
    struct kvr_upstream_worker *backend;
    struct kvr_exchange *exchange; /* NULL: it waits in the pool */
    struct kvr_connection *next;   /* in the pool */
    uint32_t moves;                /* its worker's, when it was opened */
    bool connecting, reused;
};

static void close_connection(struct kvr_connection *connection)
{
    kvr_reactor_close(connection->upstream->reactor, &connection->watch);
    kvr_reactor_discard(connection->upstream->reactor, connection);
}

static void leave_pool(struct kvr_connection *connection)
{
    struct kvr_connection **at = &connection->backend->idle;

    while (*at && *at != connection)
        at = &(*at)->next;
    if (*at) {
        *at = connection->next;
        connection->backend->idle_count--;
    }
}

void kvr_upstream_forget_idle(struct kvr_upstream_worker *backend)
{
    while (backend->idle) {
        struct kvr_connection *connection = backend->idle;
        leave_pool(connection);
        close_connection(connection);
    }
}

void kvr_upstream_remove(struct kvr_upstream *upstream, struct kvr_upstream_worker *backend)
{
    (void)upstream;
    backend->gone = true;
    kvr_upstream_forget_idle(backend);
}

/* The exchange and its connection part; the worker has one request less. */
static struct kvr_connection *detach(struct kvr_exchange *exchange)
{
    struct kvr_connection *connection = exchange->connection;

    kvr_reactor_stop(exchange->upstream->reactor, &exchange->timer);
    if (connection) {
        connection->exchange = NULL;
        exchange->connection = NULL;
    }
    exchange->backend->in_flight--;
    exchange->upstream = NULL;
    kvr_buffer_clear(&exchange->in);
    return connection;
}

static void fail(struct kvr_exchange *exchange, enum kvr_exchange_failure failure)
{
    struct kvr_upstream *upstream = exchange->upstream;
    struct kvr_connection *connection = exchange->connection;
    bool stale =
        connection && connection->reused && !exchange->any_byte && failure == KVR_EXCHANGE_BROKEN;
    struct kvr_upstream_worker *backend = exchange->backend;

    connection = detach(exchange);
    if (connection)
        close_connection(connection);
    if (stale) {
        /* The worker closed a kept connection as we wrote: nobody's fault, and it cannot have begun
         * to answer. All kept ones are as old; a new one decides. */
        kvr_upstream_forget_idle(backend);
        kvr_exchange_start(upstream, exchange, backend);
        return;
    }
    kvr_backend_failed(upstream, backend);
    exchange->failed(exchange, failure);
}

static void finish(struct kvr_exchange *exchange, bool keep)
{
    struct kvr_upstream *upstream = exchange->upstream;
    struct kvr_upstream_worker *backend = exchange->backend;
    struct kvr_connection *connection = detach(exchange);

    if (keep && !backend->gone && connection->moves == backend->moves &&
        backend->idle_count < IDLE_LIMIT) {
        connection->next = backend->idle;
        backend->idle = connection;
        backend->idle_count++;
        kvr_reactor_ask(upstream->reactor, &connection->watch, EPOLLIN | EPOLLRDHUP);
    } else {
        close_connection(connection);
    }
    kvr_backend_succeeded(upstream, backend);
    exchange->ended(exchange);
}

/* ---- writing ---- */

static void ask(struct kvr_exchange *exchange)
{
    bool writes =
        !exchange->refused && exchange->sent < exchange->head_length + exchange->body_length;
    unsigned events = EPOLLRDHUP | (writes ? EPOLLOUT : 0u) | (exchange->paused ? 0u : EPOLLIN);

    kvr_reactor_ask(exchange->upstream->reactor, &exchange->connection->watch, events);
}

/* False when the exchange has failed. */
static bool send_more(struct kvr_exchange *exchange)
{
    size_t whole = exchange->head_length + exchange->body_length;

    while (exchange->sent < whole && !exchange->refused) {
        struct iovec parts[2];
        int count = 0;
        if (exchange->sent < exchange->head_length)
            parts[count++] = (struct iovec){(char *)exchange->head_bytes + exchange->sent,
                exchange->head_length - exchange->sent};
        size_t of_body =
            exchange->sent > exchange->head_length ? exchange->sent - exchange->head_length : 0;
        if (exchange->body_length > of_body)
            parts[count++] = (struct iovec){
                (char *)exchange->body_bytes + of_body, exchange->body_length - of_body};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
        ssize_t sent = sendmsg(exchange->connection->watch.descriptor, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            break;
        /* It may have answered (413, 401) and closed before it had read all: what it said is read
         * before anything else is thought of it. */
        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            exchange->refused = true;
            break;
        }
        if (sent < 0 && errno != EINTR) {
            fail(exchange, KVR_EXCHANGE_BROKEN);
            return false;
        }
        exchange->sent += sent > 0 ? (size_t)sent : 0;
    }
    ask(exchange);
    return true;
}

/* ---- reading ---- */

/* Takes the head off; false when it is not whole or the exchange is over. Interim answers (100
 * Continue and the like) are passed over. */
static bool take_head(struct kvr_exchange *exchange, const char **bytes, size_t *length)
{
    struct kvr_buffer *in = &exchange->in;
    const char *from = *bytes;
    size_t available = *length;
    struct kvr_error error;
    enum kvr_status status;

    if (in->length) {
        kvr_buffer_append(in, *bytes, *length);
        from = in->data;
        available = in->length;
    }
    while ((status = kvr_http_response(&exchange->head, from, available, &error)) == KVR_OK &&
           exchange->head.status < 200) {
        from += exchange->head.length;
        available -= exchange->head.length;
    }
    if (status == KVR_END && !in->failed) {
        if (in->length)
            memmove(in->data, from, available);
        in->length = in->length ? available : 0;
        if (!in->length)
            kvr_buffer_append(in, from, available);
        *length = 0;
        return false;
    }
    if (status != KVR_OK || in->failed) {
        fail(exchange, KVR_EXCHANGE_NONSENSE);
        return false;
    }
    size_t rest = available - exchange->head.length;
    *bytes += *length - rest;
    *length = rest;
    exchange->head_done = true;
    kvr_http_response_body(&exchange->body, &exchange->head, exchange->to_head);
    exchange->headed(exchange);
    kvr_buffer_clear(in);
    return kvr_exchange_active(exchange);
}

/* Bytes of an answer. False when the exchange is over. */
static bool read_bytes(struct kvr_exchange *exchange, const char *bytes, size_t length)
{
    struct kvr_text piece;
    struct kvr_error error;

    if (!exchange->head_done && !take_head(exchange, &bytes, &length))
        return kvr_exchange_active(exchange);
    while (!exchange->body.ended && length) {
        if (kvr_http_take(&exchange->body, &bytes, &length, &piece, &error) != KVR_OK) {
            fail(exchange, KVR_EXCHANGE_NONSENSE);
            return false;
        }
        if (piece.length)
            exchange->came(exchange, piece.text, piece.length);
        if (!kvr_exchange_active(exchange))
            return false;
    }
    if (exchange->body.ended) {
        bool sent = exchange->sent == exchange->head_length + exchange->body_length;
        finish(exchange, exchange->head.keeps_alive && sent && length == 0);
        return false;
    }
    if (exchange->batch)
        exchange->batch(exchange);
    return kvr_exchange_active(exchange);
}

/* A deadline that moves on leaves the timer where it is: it looks again when it is due. */
static void set_timeout(struct kvr_exchange *exchange, double after_ms)
{
    struct kvr_reactor *reactor = exchange->upstream->reactor;

    exchange->deadline_ms = reactor->now_ms + after_ms;
    if (!exchange->timer.place || exchange->timer.due_ms > exchange->deadline_ms)
        kvr_reactor_set(reactor, &exchange->timer, exchange->deadline_ms);
}

static void end_of_input(struct kvr_exchange *exchange)
{
    if (exchange->head_done && exchange->body.framing == KVR_HTTP_UNTIL_CLOSE)
        finish(exchange, false);
    else
        fail(exchange, KVR_EXCHANGE_BROKEN);
}

static void read_some(struct kvr_exchange *exchange)
{
    struct kvr_upstream *upstream = exchange->upstream;
    ssize_t got = recv(exchange->connection->watch.descriptor, upstream->scratch, SCRATCH_BYTES, 0);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        end_of_input(exchange);
        return;
    }
    set_timeout(exchange, upstream->stall_timeout_ms);
    exchange->any_byte = true;
    read_bytes(exchange, upstream->scratch, (size_t)got);
}

static void timed_out(struct kvr_timer *timer)
{
    struct kvr_exchange *exchange =
        (struct kvr_exchange *)((char *)timer - offsetof(struct kvr_exchange, timer));

    if (exchange->deadline_ms > exchange->upstream->reactor->now_ms)
        kvr_reactor_set(exchange->upstream->reactor, timer, exchange->deadline_ms);
    else if (exchange->connection && exchange->connection->connecting)
        fail(exchange, KVR_EXCHANGE_UNREACHED);
    else
        fail(exchange, KVR_EXCHANGE_TIMED_OUT);
}

static void connected(struct kvr_exchange *exchange)
{
    int code = 0;
    socklen_t size = sizeof code;

    getsockopt(exchange->connection->watch.descriptor, SOL_SOCKET, SO_ERROR, &code, &size);
    if (code) {
        fail(exchange, KVR_EXCHANGE_UNREACHED);
        return;
    }
    exchange->connection->connecting = false;
    set_timeout(exchange, exchange->answer_timeout_ms > 0 ? exchange->answer_timeout_ms
                                                          : exchange->upstream->answer_timeout_ms);
    send_more(exchange);
}

static void ready(struct kvr_watch *watch, unsigned events)
{
    struct kvr_connection *connection = (struct kvr_connection *)watch;
    struct kvr_exchange *exchange = connection->exchange;

    if (!exchange) { /* kept, and now closed or talking out of turn */
        leave_pool(connection);
        close_connection(connection);
        return;
    }
    if (connection->connecting) {
        if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
            connected(exchange);
        return;
    }
    if ((events & EPOLLOUT) && !send_more(exchange))
        return;
    if ((events & EPOLLIN) || ((events & (EPOLLHUP | EPOLLERR)) && !exchange->paused))
        read_some(exchange);
    else if (events & (EPOLLHUP | EPOLLERR))
        fail(exchange, KVR_EXCHANGE_BROKEN);
}

/* ---- beginning ---- */

static struct kvr_connection *open_connection(
    struct kvr_upstream *upstream, struct kvr_upstream_worker *backend)
{
    struct kvr_connection *connection = calloc(1, sizeof *connection);
    int one = 1;

    if (!connection)
        return NULL;
    *connection = (struct kvr_connection){
        .watch = {.events = EPOLLOUT | EPOLLIN | EPOLLRDHUP, .ready = ready},
        .upstream = upstream,
        .backend = backend,
        .moves = backend->moves,
        .connecting = true};
    int descriptor =
        socket(backend->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    connection->watch.descriptor = descriptor;
    if (descriptor >= 0) {
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        int begun = connect(
            descriptor, (const struct sockaddr *)&backend->address, backend->address_length);
        if ((begun == 0 || errno == EINPROGRESS) &&
            kvr_reactor_add(upstream->reactor, &connection->watch))
            return connection;
        close(descriptor);
    }
    free(connection);
    return NULL;
}

void kvr_exchange_start(struct kvr_upstream *upstream, struct kvr_exchange *exchange,
    struct kvr_upstream_worker *backend)
{
    struct kvr_connection *connection = backend->idle;

    exchange->upstream = upstream;
    exchange->backend = backend;
    exchange->sent = 0;
    exchange->head_done = exchange->paused = exchange->any_byte = exchange->refused = false;
    exchange->timer.due = timed_out;
    kvr_buffer_clear(&exchange->in);
    backend->in_flight++;
    backend->requests++;
    if (backend->breaker == KVR_BREAKER_OPEN && kvr_backend_usable(upstream, backend)) {
        backend->breaker = KVR_BREAKER_HALF_OPEN;
        backend->trying = true;
    }
    if (connection) {
        leave_pool(connection);
        connection->reused = true;
        connection->exchange = exchange;
        exchange->connection = connection;
        set_timeout(exchange, exchange->answer_timeout_ms > 0 ? exchange->answer_timeout_ms
                                                              : upstream->answer_timeout_ms);
        send_more(exchange);
        return;
    }
    connection = open_connection(upstream, backend);
    exchange->connection = connection;
    if (!connection) {
        fail(exchange, KVR_EXCHANGE_UNREACHED);
        return;
    }
    connection->exchange = exchange;
    set_timeout(exchange, upstream->connect_timeout_ms);
}

void kvr_exchange_cancel(struct kvr_exchange *exchange)
{
    if (!kvr_exchange_active(exchange))
        return;
    struct kvr_upstream_worker *backend = exchange->backend;
    backend->trying = false;
    struct kvr_connection *connection = detach(exchange);
    if (connection)
        close_connection(connection);
}

bool kvr_exchange_active(const struct kvr_exchange *exchange)
{
    return exchange->upstream != NULL;
}

void kvr_exchange_pause(struct kvr_exchange *exchange, bool pause)
{
    if (!kvr_exchange_active(exchange) || exchange->paused == pause)
        return;
    exchange->paused = pause;
    /* A client that reads slowly is no fault of the worker. */
    if (pause)
        kvr_reactor_stop(exchange->upstream->reactor, &exchange->timer);
    else
        set_timeout(exchange, exchange->upstream->stall_timeout_ms);
    ask(exchange);
}

void kvr_exchange_release(struct kvr_exchange *exchange)
{
    kvr_exchange_cancel(exchange);
    kvr_buffer_release(&exchange->in);
}
