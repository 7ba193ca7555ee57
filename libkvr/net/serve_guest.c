/*
 * Connections of clients. One request at a time; what a client sends behind it waits, first here,
 * then in the kernel. A client that closes, or only closes its sending side, is gone: whatever is
 * under way for it is cancelled at once.
 */
#include "net/serve_private.h"

#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

enum { ACCEPT_AT_ONCE = 64, KEEP_BYTES = 16 * 1024, REST_MS = 1000 };

static void ask(struct guest *guest)
{
    bool waits = guest->out_sent < guest->out.length;
    bool reads = guest->later.length < SERVE_NEXT_BYTES && !guest->closing;

    kvr_reactor_ask(&guest->serve->reactor, &guest->watch,
        EPOLLRDHUP | (reads ? EPOLLIN : 0u) | (waits ? EPOLLOUT : 0u));
}

/* A deadline that moves on leaves the timer where it is: it looks again when it is due. */
static void set_timeout(struct guest *guest, double after_ms)
{
    struct kvr_reactor *reactor = &guest->serve->reactor;

    guest->deadline_ms = reactor->now_ms + after_ms;
    if (!guest->timer.place || guest->timer.due_ms > guest->deadline_ms)
        kvr_reactor_set(reactor, &guest->timer, guest->deadline_ms);
}

static double head_timeout_ms(const struct kvr_serve *serve)
{
    return fmin(SERVE_HEAD_TIMEOUT_MS, serve->options.client_timeout_ms);
}

/* It has no call: it reads its answer, sends its next head, or has nothing to say. */
static void set_idle_timeout(struct guest *guest)
{
    bool unread = guest->out_sent < guest->out.length;

    set_timeout(guest, unread             ? guest->serve->options.client_timeout_ms
                       : guest->in.length ? head_timeout_ms(guest->serve)
                                          : REST_MS);
}

void guest_drop(struct guest *guest)
{
    struct kvr_serve *serve = guest->serve;
    struct call *call = guest->call;

    guest->call = NULL;
    if (call)
        call_client_gone(call);
    kvr_reactor_stop(&serve->reactor, &guest->timer);
    kvr_reactor_close(&serve->reactor, &guest->watch);
    if (guest->previous)
        guest->previous->next = guest->next;
    else
        serve->guests = guest->next;
    if (guest->next)
        guest->next->previous = guest->previous;
    serve->guest_count--;
    kvr_buffer_release(&guest->in);
    kvr_buffer_release(&guest->later);
    kvr_buffer_release(&guest->out);
    kvr_reactor_discard(&serve->reactor, guest);
}

void guest_flush(struct guest *guest)
{
    struct kvr_buffer *out = &guest->out;
    bool wrote = false;

    if (guest->watch.descriptor < 0)
        return;
    if (out->failed) { /* bytes of an answer are missing: it must not look whole */
        guest_drop(guest);
        return;
    }
    while (guest->out_sent < out->length) {
        ssize_t sent = send(guest->watch.descriptor, out->data + guest->out_sent,
            out->length - guest->out_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0 && errno != EINTR) {
            guest_drop(guest);
            return;
        }
        guest->out_sent += sent > 0 ? (size_t)sent : 0;
        wrote |= sent > 0;
    }
    if (wrote && guest->call)
        set_timeout(guest, guest->serve->options.client_timeout_ms);
    else if (wrote)
        set_idle_timeout(guest);
    size_t left = out->length - guest->out_sent;
    if (!left) {
        out->length = guest->out_sent = 0;
        if (out->capacity > KEEP_BYTES && !guest->call)
            kvr_buffer_release(out);
        if (guest->closing && !guest->call) {
            guest_drop(guest);
            return;
        }
    } else if (guest->out_sent > SERVE_OUT_HIGH) {
        memmove(out->data, out->data + guest->out_sent, left);
        out->length = left;
        guest->out_sent = 0;
    }
    if (guest->call && guest->call->state == CALL_PROXYING &&
        (left > SERVE_OUT_HIGH || guest->call->exchange.paused))
        kvr_exchange_pause(&guest->call->exchange, left > SERVE_OUT_LOW);
    ask(guest);
}

/* ---- reading ---- */

/* Bytes of the body; what is behind it waits. False when the guest or the call is gone. */
static bool take_body(struct guest *guest, const char *bytes, size_t length)
{
    struct call *call = guest->call;
    struct kvr_serve *serve = guest->serve;
    struct kvr_text piece;
    struct kvr_error error;

    while (length && !call->framing.ended) {
        if (kvr_http_take(&call->framing, &bytes, &length, &piece, &error) != KVR_OK) {
            guest->closing = true;
            call_refuse(call, 400, error.text);
            return false;
        }
        if (call->body.length + piece.length > serve->options.max_body_bytes) {
            guest->closing = true;
            call_refuse(call, 413, "the body is larger than this server takes");
            return false;
        }
        if (serve->buffered_bytes + piece.length > serve->options.max_buffered_bytes) {
            guest->closing = true;
            call_refuse(call, 503, "too many large bodies at once");
            return false;
        }
        kvr_buffer_append(&call->body, piece.text, piece.length);
        call->counted_bytes += piece.length;
        serve->buffered_bytes += piece.length;
        if (call->body.failed) {
            guest->closing = true;
            call_refuse(call, 503, "no memory for the body");
            return false;
        }
    }
    if (length)
        kvr_buffer_append(&guest->later, bytes, length);
    if (call->framing.ended) {
        call->state = CALL_DECIDING;
        set_timeout(guest, serve->options.client_timeout_ms);
        call_begin(call);
        return false;
    }
    set_timeout(guest, serve->options.client_timeout_ms);
    return true;
}

/* A head that is whole begins a call. */
static void begin_call(struct guest *guest)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct kvr_serve *serve = guest->serve;
    struct call *call = guest->call;

    if (serve->draining)
        guest->closing = true;
    guest->closing |= !call->head.keeps_alive;
    kvr_http_request_body(&call->framing, &call->head);
    if (call->head.content_length > 0 &&
        (uint64_t)call->head.content_length > serve->options.max_body_bytes) {
        guest->closing = true;
        call_refuse(call, 413, "the body is larger than this server takes");
        return;
    }
    if (!admin_allows(call)) {
        guest->closing |= !call->framing.ended;
        call_refuse(call, 401, "no valid key");
        return;
    }
    if (call->head.expects_continue && !call->framing.ended &&
        guest->in.length == call->head.length) {
        kvr_buffer_append(&guest->out, go_on, sizeof go_on - 1);
        guest_flush(guest);
        if (guest->watch.descriptor < 0)
            return;
    }
    if (call->head.content_length > 0 && call->head.content_length < 1 << 20)
        kvr_buffer_reserve(&call->body, (size_t)call->head.content_length);
    take_body(guest, guest->in.data + call->head.length, guest->in.length - call->head.length);
}

/* Whether a line has ended since the head was last looked at. A head that comes byte by byte is
 * then read once a line and not once a byte. */
static bool has_news(struct guest *guest)
{
    const struct kvr_buffer *in = &guest->in;

    if (in->length >= KVR_HTTP_HEAD_BYTES ||
        memchr(in->data + guest->in_seen, '\n', in->length - guest->in_seen))
        return true;
    guest->in_seen = in->length;
    return false;
}

/* Requests one after the other out of what has come, until one has to wait. A call that is answered
 * inside comes back here through guest_call_ended(), which then leaves the next one to this loop.
 */
static void go_on(struct guest *guest)
{
    struct kvr_error error;

    if (guest->busy)
        return;
    guest->busy = true;
    while (!guest->call && guest->watch.descriptor >= 0 && !guest->closing && guest->in.length) {
        if (!has_news(guest))
            break;
        struct call *call = call_new(guest->serve, guest);
        if (!call) {
            guest_drop(guest);
            break;
        }
        enum kvr_status status =
            kvr_http_request(&call->head, guest->in.data, guest->in.length, &error);
        if (status == KVR_END) {
            guest->in_seen = guest->in.length;
            call->guest = NULL;
            call_free(call);
            break;
        }
        guest->call = call;
        if (status != KVR_OK) {
            guest->closing = true;
            guest->serve->gauges.bad_requests++;
            call_refuse(call, call->head.status, error.text);
            break;
        }
        begin_call(guest);
    }
    guest->busy = false;
    if (guest->watch.descriptor >= 0 && guest->out_sent < guest->out.length)
        guest_flush(guest);
    else if (guest->watch.descriptor >= 0 && guest->closing && !guest->call)
        guest_drop(guest);
}

void guest_call_ended(struct guest *guest, bool keeps)
{
    guest->call = NULL;
    guest->closing |= !keeps;
    kvr_buffer_clear(&guest->in);
    guest->in_seen = 0;
    guest->rests = false;
    if (guest->later.length) {
        struct kvr_buffer empty = guest->in;
        guest->in = guest->later;
        guest->later = empty;
    } else if (guest->in.capacity > KEEP_BYTES) {
        kvr_buffer_release(&guest->in);
    }
    set_idle_timeout(guest);
    if (guest->busy)
        return;
    guest_flush(guest);
    if (guest->watch.descriptor >= 0)
        go_on(guest);
}

static void take_bytes(struct guest *guest, const char *bytes, size_t length)
{
    if (guest->call && guest->call->state == CALL_BODY) {
        guest->busy = true;
        take_body(guest, bytes, length);
        guest->busy = false;
        if (guest->watch.descriptor < 0)
            return;
        guest_flush(guest);
        if (guest->watch.descriptor >= 0 && !guest->call)
            go_on(guest);
        return;
    }
    struct kvr_buffer *to = guest->call ? &guest->later : &guest->in;
    if (!guest->in.length && !guest->call)
        set_timeout(guest, head_timeout_ms(guest->serve));
    kvr_buffer_append(to, bytes, length);
    if (to->failed) {
        guest_drop(guest);
        return;
    }
    if (guest->call)
        ask(guest);
    else
        go_on(guest);
}

static void ready(struct kvr_watch *watch, unsigned events)
{
    struct guest *guest = (struct guest *)watch;
    struct kvr_serve *serve = guest->serve;

    if (events & (EPOLLERR | EPOLLHUP)) {
        guest_drop(guest);
        return;
    }
    if (events & EPOLLOUT) {
        guest_flush(guest);
        if (guest->watch.descriptor < 0)
            return;
    }
    if (!(events & EPOLLIN)) {
        if (events & EPOLLRDHUP)
            guest_drop(guest);
        return;
    }
    ssize_t got = recv(watch->descriptor, serve->scratch, SERVE_SCRATCH_BYTES, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        guest_drop(guest);
    else
        take_bytes(guest, serve->scratch, (size_t)got);
}

/* Too long without a head, a body's next byte, a reader, or a next request. */
static void timed_out(struct kvr_timer *timer)
{
    struct guest *guest = (struct guest *)((char *)timer - offsetof(struct guest, timer));
    struct kvr_serve *serve = guest->serve;
    bool unread = guest->out_sent < guest->out.length;

    if (guest->deadline_ms > serve->reactor.now_ms) {
        kvr_reactor_set(&serve->reactor, timer, guest->deadline_ms);
    } else if (guest->call && guest->call->state != CALL_BODY && !unread) {
        set_timeout(guest, serve->options.client_timeout_ms); /* it waits for the worker */
    } else if (!guest->call && !guest->in.length && !unread && !guest->rests) {
        /* Nothing came at once: until something does, it needs no buffers. */
        kvr_buffer_release(&guest->in);
        kvr_buffer_release(&guest->later);
        kvr_buffer_release(&guest->out);
        guest->rests = true;
        set_timeout(guest, SERVE_KEEP_TIMEOUT_MS);
    } else if (guest->call && guest->call->state == CALL_BODY) {
        guest->closing = true;
        call_refuse(guest->call, 408, "the body did not come");
    } else {
        guest_drop(guest);
    }
}

static bool is_local(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

    if (address->ss_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == 127);
}

void guest_accept(struct kvr_watch *watch, unsigned events)
{
    struct kvr_serve *serve =
        (struct kvr_serve *)((char *)watch - offsetof(struct kvr_serve, listener.watch));
    static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
                               "Content-Length: 0\r\nConnection: close\r\n\r\n";

    (void)events;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        struct sockaddr_storage address = {0};
        socklen_t size = sizeof address;
        int one = 1,
            descriptor = kvr_listener_accept(&serve->listener, (struct sockaddr *)&address, &size);
        if (descriptor < 0)
            return;
        struct guest *guest =
            serve->guest_count < serve->options.max_connections ? calloc(1, sizeof *guest) : NULL;
        if (!guest) {
            serve->gauges.unavailable++;
            send(descriptor, full, sizeof full - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
            close(descriptor);
            continue;
        }
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        guest->serve = serve;
        guest->local = is_local(&address);
        guest->timer.due = timed_out;
        guest->watch = (struct kvr_watch){descriptor, EPOLLIN | EPOLLRDHUP, ready};
        guest->next = serve->guests;
        if (serve->guests)
            serve->guests->previous = guest;
        serve->guests = guest;
        serve->guest_count++;
        guest->rests = true; /* it has no buffers yet */
        set_timeout(guest, head_timeout_ms(serve));
        if (!kvr_reactor_add(&serve->reactor, &guest->watch))
            guest_drop(guest);
    }
}
