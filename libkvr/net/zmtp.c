#include "base/clock.h"
#include "net/zmtp_private.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    GREETING_BYTES = 64,
    OUT_LIMIT = 1 << 16, /* bytes that the peer may leave unread */
    ALIVE_MS = 5000,
    SILENT_MS = 15000,
    TTL_DECISECONDS = 150,
    PAUSE_MS = 100,
    PAUSE_MOST_MS = 10000,
};

static const char strange[] = "it does not speak ZMTP 3 without security";
static const char greeting[] = "\xff\0\0\0\0\0\0\0\0\x7f\x03\0NULL";

/* ---- life and death of a connection ---- */

void kvr_zmtp_set_timer(struct kvr_zmtp *c, double after_ms)
{
    kvr_reactor_set(c->reactor, &c->timer, kvr_clock_ms() + after_ms);
}

void kvr_zmtp_lose(struct kvr_zmtp *c, const char *why)
{
    kvr_zmtp_forget_look_up(c);
    kvr_reactor_close(c->reactor, &c->watch);
    kvr_zmtp_reader_release(&c->reader);
    kvr_buffer_clear(&c->out);
    c->stirred = true;
    if (c->state == CONNECTED && c->useful) /* one that only misbehaves has to wait longer */
        c->pause_ms = PAUSE_MS;
    c->useful = false;
    c->state = PAUSED;
    c->readable = false;
    snprintf(c->trouble, sizeof c->trouble, "%s", why);
    if (c->adopted) {
        kvr_reactor_stop(c->reactor, &c->timer);
        return;
    }
    kvr_zmtp_set_timer(c, c->pause_ms * (0.75 + 0.5 * kvr_random_unit(&c->random)));
    c->pause_ms = c->pause_ms * 2 < PAUSE_MOST_MS ? c->pause_ms * 2 : PAUSE_MOST_MS;
}

void kvr_zmtp_lose_errno(struct kvr_zmtp *c, int number)
{
    char text[64];

    kvr_zmtp_lose(c, strerror_r(number, text, sizeof text));
}

/* Sends what it can. False: the connection is lost. */
static bool flush(struct kvr_zmtp *c)
{
    while (c->out.length) {
        ssize_t sent = send(c->watch.descriptor, c->out.data, c->out.length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return kvr_zmtp_lose_errno(c, errno), false;
        if (sent < 0)
            break;
        c->out.length -= (size_t)sent;
        memmove(c->out.data, c->out.data + sent, c->out.length);
    }
    if (c->out.failed || c->out.length > OUT_LIMIT)
        return kvr_zmtp_lose(c, "it does not read what it asks for"), false;
    kvr_reactor_ask(c->reactor, &c->watch, EPOLLIN | (c->out.length ? EPOLLOUT : 0));
    return true;
}

static void append_frame(struct kvr_buffer *out, uint8_t flags, const void *bytes, size_t size)
{
    uint8_t header[9] = {flags, (uint8_t)size};
    size_t length = 2;

    if (size > 255) {
        header[0] |= 2;
        for (int i = 0; i < 8; i++)
            header[1 + i] = (uint8_t)((uint64_t)size >> (56 - 8 * i));
        length = 9;
    }
    kvr_buffer_append(out, header, length);
    kvr_buffer_append(out, bytes, size);
}

void kvr_zmtp_greet(struct kvr_zmtp *c)
{
    char bytes[GREETING_BYTES] = {0};

    memcpy(bytes, greeting, sizeof greeting - 1);
    kvr_buffer_append(&c->out, bytes, sizeof bytes);
    c->state = GREETING;
    flush(c);
}

static void append_property(struct kvr_buffer *out, const char *name, const char *value)
{
    uint8_t sizes[5] = {(uint8_t)strlen(name), 0, 0, 0, (uint8_t)strlen(value)};

    kvr_buffer_append(out, sizes, 1);
    kvr_buffer_append_text(out, name);
    kvr_buffer_append(out, sizes + 1, 4);
    kvr_buffer_append_text(out, value);
}

/* The peer's greeting came: who we are. */
static void introduce(struct kvr_zmtp *c)
{
    struct kvr_buffer ready = {0};

    kvr_buffer_append_text(&ready, "\5READY");
    append_property(&ready, "Socket-Type", c->dealer ? "DEALER" : "SUB");
    if (c->dealer)
        append_property(&ready, "Identity", "");
    append_frame(&c->out, 4, ready.data, ready.length);
    c->out.failed |= ready.failed;
    kvr_buffer_release(&ready);
    c->state = SHAKING;
    flush(c);
}

/* The peer is ready: what we want of it. */
static void enter(struct kvr_zmtp *c)
{
    c->state = CONNECTED;
    c->connections++;
    c->attempts = 0;
    c->stirred = true;
    c->silent_ms = 0;
    kvr_zmtp_set_timer(c, ALIVE_MS);
    if (c->dealer) {
        kvr_buffer_append(&c->out, c->waiting.data, c->waiting.length);
        kvr_buffer_clear(&c->waiting);
    } else {
        struct kvr_buffer wanted = {0};
        kvr_buffer_append_byte(&wanted, 1);
        kvr_buffer_append_text(&wanted, c->topic);
        append_frame(&c->out, 0, wanted.data, wanted.length);
        c->out.failed |= wanted.failed;
        kvr_buffer_release(&wanted);
    }
    flush(c);
}

/* ---- what comes ---- */

static bool is_command(struct kvr_frame command, const char *name)
{
    size_t length = strlen(name);

    return command.size > length && command.data[0] == length &&
           memcmp(command.data + 1, name, length) == 0;
}

static void take_command(struct kvr_zmtp *c, struct kvr_frame command)
{
    if (c->state == SHAKING && is_command(command, "READY")) {
        enter(c);
    } else if (is_command(command, "ERROR")) {
        kvr_zmtp_lose(c, "it refuses us");
    } else if (c->state == SHAKING) {
        kvr_zmtp_lose(c, strange);
    } else if (is_command(command, "PING") && command.size >= 7) {
        char pong[5 + 16] = "\4PONG";
        size_t context = command.size - 7 < 16 ? command.size - 7 : 16;
        memcpy(pong + 5, command.data + 7, context);
        append_frame(&c->out, 4, pong, 5 + context);
        flush(c);
    }
}

/* The peer's greeting, taken off what was read. False: it is not there yet, or is none. */
static bool take_greeting(struct kvr_zmtp *c)
{
    struct kvr_zmtp_reader *reader = &c->reader;
    const uint8_t *bytes = (const uint8_t *)reader->bytes.data + reader->start;
    size_t length = reader->bytes.length - reader->start;

    bool wrong = (length > 0 && bytes[0] != 0xff) || (length > 9 && !(bytes[9] & 1)) ||
                 (length > 10 && bytes[10] < 3) ||
                 (length >= GREETING_BYTES && memcmp(bytes + 12, "NULL", 5) != 0);
    if (wrong)
        kvr_zmtp_lose(c, strange);
    if (wrong || length < GREETING_BYTES)
        return false;
    c->pings = bytes[10] > 3 || bytes[11] >= 1;
    reader->start = reader->at = reader->start + GREETING_BYTES;
    introduce(c);
    return c->state == SHAKING;
}

/* One read. False: nothing came. */
static bool fill(struct kvr_zmtp *c)
{
    size_t room;

    if (!c->readable)
        return false;
    if (!kvr_zmtp_reader_room(&c->reader, &room)) {
        kvr_zmtp_lose(c, "no memory left for its message");
        return false;
    }
    ssize_t got = recv(c->watch.descriptor, c->reader.bytes.data + c->reader.bytes.length, room, 0);
    if (got > 0) {
        c->reader.bytes.length += (size_t)got;
        c->readable = (size_t)got == room; /* else epoll tells when there is more */
        c->heard = true;
        return true;
    }
    c->readable = false;
    if (got == 0)
        kvr_zmtp_lose(c, "it closed the connection");
    else if (errno == EINTR)
        c->readable = true;
    else if (errno != EAGAIN && errno != EWOULDBLOCK)
        kvr_zmtp_lose_errno(c, errno);
    return false;
}

/* One step towards a connection. False: no further for now. */
static bool advance(struct kvr_zmtp *c)
{
    struct kvr_frame frames[KVR_MESSAGE_FRAMES];
    const char *why = NULL;
    size_t count;

    if (c->state == GREETING)
        return take_greeting(c) || (c->state == GREETING && fill(c));
    if (c->state != SHAKING)
        return false;
    switch (kvr_zmtp_reader_next(&c->reader, frames, &count, &why)) {
    case KVR_ZMTP_COMMAND:
        take_command(c, frames[0]);
        return true;
    case KVR_ZMTP_MORE:
        return fill(c);
    case KVR_ZMTP_MESSAGE:
        why = strange;
        break;
    case KVR_ZMTP_BROKEN:
        break;
    }
    kvr_zmtp_lose(c, why);
    return false;
}

bool kvr_zmtp_receive(struct kvr_zmtp *c, struct kvr_frame *frames, size_t *count)
{
    const char *why = NULL;

    while (c->state == CONNECTED) {
        switch (kvr_zmtp_reader_next(&c->reader, frames, count, &why)) {
        case KVR_ZMTP_MESSAGE:
            return c->useful = true;
        case KVR_ZMTP_COMMAND:
            take_command(c, frames[0]);
            break;
        case KVR_ZMTP_BROKEN:
            kvr_zmtp_lose(c, why);
            break;
        case KVR_ZMTP_MORE:
            if (fill(c))
                break;
            if (kvr_zmtp_reader_is_empty(&c->reader))
                kvr_zmtp_reader_release(&c->reader);
            return false;
        }
    }
    return false;
}

/* ---- events ---- */

void kvr_zmtp_on_ready(struct kvr_watch *watch, unsigned events)
{
    struct kvr_zmtp *c = (struct kvr_zmtp *)((char *)watch - offsetof(struct kvr_zmtp, watch));
    int failure = 0;
    socklen_t size = sizeof failure;

    if (c->state == CONNECTING) {
        if (getsockopt(watch->descriptor, SOL_SOCKET, SO_ERROR, &failure, &size) != 0 || failure)
            kvr_zmtp_lose_errno(c, failure ? failure : errno);
        else if (kvr_zmtp_is_connected_to_itself(watch->descriptor))
            kvr_zmtp_lose_errno(c, ECONNREFUSED);
        else
            kvr_zmtp_greet(c);
        return;
    }
    if (events & EPOLLOUT && !flush(c))
        return;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        c->readable = c->stirred = c->heard = true;
        while (advance(c))
            ;
    }
}

/* Nothing came for a while: is it still there? Peers before ZMTP 3.1 need not answer; of those
 * TCP's own signs of life tell. */
static void ask_for_life(struct kvr_zmtp *c)
{
    static const char ping[] = {4, 'P', 'I', 'N', 'G', 0, (char)TTL_DECISECONDS};

    if (c->heard || !c->pings)
        c->silent_ms = 0;
    else
        c->silent_ms += ALIVE_MS;
    c->heard = false;
    if (c->silent_ms >= SILENT_MS) {
        kvr_zmtp_lose(c, "it is silent");
        return;
    }
    kvr_zmtp_set_timer(c, ALIVE_MS);
    if (c->silent_ms) {
        append_frame(&c->out, 4, ping, sizeof ping);
        flush(c);
    }
}

static void on_due(struct kvr_timer *timer)
{
    struct kvr_zmtp *c = (struct kvr_zmtp *)((char *)timer - offsetof(struct kvr_zmtp, timer));

    switch (c->state) {
    case PAUSED:
        kvr_zmtp_begin(c);
        break;
    case LOOKING_UP:
        kvr_zmtp_look_up_goes_on(c);
        break;
    case CONNECTING:
    case GREETING:
    case SHAKING:
        kvr_zmtp_lose(c, "no answer");
        break;
    case CONNECTED:
        ask_for_life(c);
        break;
    }
}

/* ---- the caller's side ---- */

static struct kvr_zmtp *make(struct kvr_reactor *reactor, const struct kvr_zmtp_options *options)
{
    struct kvr_zmtp *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->watch.descriptor = -1;
    c->reactor = reactor;
    c->timer.due = on_due;
    c->dealer = options->dealer;
    c->pause_ms = PAUSE_MS;
    c->random.state = (uint64_t)(uintptr_t)c ^ (uint64_t)(kvr_clock_ms() * 1e3);
    c->reader.limit = options->message_limit_bytes;
    c->reader.budget = options->budget;
    c->topic = strdup(options->topic ? options->topic : "");
    if (c->topic)
        return c;
    free(c);
    return NULL;
}

enum kvr_status kvr_zmtp_open(struct kvr_zmtp **connection, struct kvr_reactor *reactor,
    const struct kvr_zmtp_options *options, struct kvr_error *error)
{
    struct kvr_zmtp *c = make(reactor, options);

    *connection = NULL;
    if (!c)
        return kvr_error_memory(error);
    enum kvr_status status = kvr_zmtp_read_endpoint(c, options->endpoint, error);
    if (status != KVR_OK) {
        kvr_zmtp_close(c);
        return status;
    }
    *connection = c;
    kvr_zmtp_begin(c);
    return KVR_OK;
}

enum kvr_status kvr_zmtp_adopt(struct kvr_zmtp **connection, struct kvr_reactor *reactor,
    const struct kvr_zmtp_options *options, int descriptor, struct kvr_error *error)
{
    struct kvr_zmtp *c = make(reactor, options);

    *connection = c;
    if (!c) {
        close(descriptor);
        return kvr_error_memory(error);
    }
    kvr_zmtp_set_options(descriptor);
    c->adopted = true;
    c->watch = (struct kvr_watch){descriptor, EPOLLIN, kvr_zmtp_on_ready};
    if (!kvr_reactor_add(reactor, &c->watch)) {
        kvr_zmtp_close(c);
        *connection = NULL;
        return kvr_error_memory(error);
    }
    kvr_zmtp_set_timer(c, KVR_ZMTP_SHAKE_MS);
    kvr_zmtp_greet(c);
    return KVR_OK;
}

bool kvr_zmtp_is_over(const struct kvr_zmtp *c)
{
    return c->adopted && c->state == PAUSED;
}

void kvr_zmtp_close(struct kvr_zmtp *c)
{
    if (!c)
        return;
    kvr_zmtp_forget_look_up(c);
    kvr_reactor_stop(c->reactor, &c->timer);
    kvr_reactor_close(c->reactor, &c->watch);
    kvr_zmtp_reader_release(&c->reader);
    kvr_buffer_release(&c->out);
    kvr_buffer_release(&c->waiting);
    free(c->topic);
    free(c->host);
    free(c->port);
    free(c);
}

bool kvr_zmtp_send(struct kvr_zmtp *c, const struct kvr_frame *frames, size_t count)
{
    struct kvr_buffer *to = c->state == CONNECTED ? &c->out : &c->waiting;

    if (c->state != CONNECTED)
        kvr_buffer_clear(to);
    for (size_t i = 0; i < count; i++)
        append_frame(to, i + 1 < count, frames[i].data, frames[i].size);
    return c->state == CONNECTED ? flush(c) : !to->failed;
}

bool kvr_zmtp_is_connected(const struct kvr_zmtp *c)
{
    return c->state == CONNECTED;
}

uint64_t kvr_zmtp_connections(const struct kvr_zmtp *c)
{
    return c->connections;
}

bool kvr_zmtp_stirred(struct kvr_zmtp *c)
{
    bool stirred = c->stirred;

    c->stirred = false;
    return stirred;
}

const char *kvr_zmtp_trouble(const struct kvr_zmtp *c)
{
    return *c->trouble ? c->trouble : NULL;
}
