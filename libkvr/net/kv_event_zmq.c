#include "net/kv_event_zmq.h"

#include "base/grow.h"
#include "net/listener.h"

#include <endian.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STREAK = 32 }; /* messages of one guest before the next has its turn */

struct kvr_kv_socket {
    struct kvr_zmtp *subscription, *replay; /* NULL where publishers connect to us */
    uint64_t connections;                   /* of the subscription that were told */
    struct kvr_listener listener;
    struct kvr_reactor *reactor;
    struct kvr_zmtp_options guest; /* of those that connect to us */
    struct kvr_zmtp **guests;
    size_t guest_count, guest_room, turn, streak;
};

static void on_guest(struct kvr_watch *watch, unsigned events)
{
    struct kvr_kv_socket *socket =
        (struct kvr_kv_socket *)((char *)watch - offsetof(struct kvr_kv_socket, listener.watch));
    int descriptor;

    (void)events;
    while ((descriptor = kvr_listener_accept(&socket->listener, NULL, NULL)) >= 0) {
        struct kvr_zmtp **grown =
            kvr_grow(socket->guests, &socket->guest_room, socket->guest_count + 1, sizeof *grown);
        if (grown)
            socket->guests = grown;
        if (!grown || socket->guest_count >= KVR_KV_GUESTS)
            close(descriptor);
        else if (kvr_zmtp_adopt(&grown[socket->guest_count], socket->reactor, &socket->guest,
                     descriptor, NULL) == KVR_OK)
            socket->guest_count++;
    }
}

static enum kvr_status listen_for_guests(struct kvr_kv_socket *socket, struct kvr_reactor *reactor,
    const struct kvr_kv_socket_options *options, struct kvr_error *error)
{
    int descriptor;

    if (options->replay)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "'%s': those that connect to us cannot be asked for a replay", options->endpoint);
    enum kvr_status status = kvr_zmtp_listen(options->endpoint, &descriptor, error);
    if (status != KVR_OK)
        return status;
    socket->reactor = reactor;
    return kvr_listener_open(&socket->listener, reactor, descriptor, on_guest)
               ? KVR_OK
               : kvr_error_memory(error);
}

/* The next message of any guest, each in its turn; those that left are let go. */
static bool receive_from_guests(
    struct kvr_kv_socket *socket, struct kvr_frame *frames, size_t *count)
{
    for (size_t left = socket->guest_count; left && socket->guest_count; left--) {
        size_t at = socket->turn++ % socket->guest_count;
        struct kvr_zmtp *guest = socket->guests[at];
        if (kvr_zmtp_receive(guest, frames, count)) {
            /* It goes on for a while: to look at all the others for each message costs more. */
            socket->turn = at + (++socket->streak % STREAK == 0);
            return true;
        }
        if (kvr_zmtp_is_over(guest)) {
            kvr_zmtp_close(guest);
            socket->guests[at] = socket->guests[--socket->guest_count];
        }
    }
    return false;
}

enum kvr_status kvr_kv_socket_open(struct kvr_kv_socket **socket, struct kvr_reactor *reactor,
    const struct kvr_kv_socket_options *options, struct kvr_error *error)
{
    struct kvr_kv_socket *made = calloc(1, sizeof *made);
    struct kvr_zmtp_options each = {.endpoint = options->endpoint,
        .topic = options->topic,
        .message_limit_bytes = options->message_limit_bytes,
        .budget = options->budget};

    *socket = made;
    if (!made)
        return kvr_error_memory(error);
    made->listener.watch.descriptor = -1;
    made->guest = each;
    bool listens = kvr_zmtp_is_listening_endpoint(options->endpoint);
    enum kvr_status status = listens ? listen_for_guests(made, reactor, options, error)
                                     : kvr_zmtp_open(&made->subscription, reactor, &each, error);
    if (status == KVR_OK && options->replay) {
        each.endpoint = options->replay;
        each.dealer = true;
        status = kvr_zmtp_open(&made->replay, reactor, &each, error);
    }
    if (status != KVR_OK) {
        kvr_kv_socket_close(made);
        *socket = NULL;
    }
    return status;
}

void kvr_kv_socket_close(struct kvr_kv_socket *socket)
{
    if (!socket)
        return;
    kvr_zmtp_close(socket->subscription);
    kvr_zmtp_close(socket->replay);
    for (size_t i = 0; i < socket->guest_count; i++)
        kvr_zmtp_close(socket->guests[i]);
    kvr_listener_close(&socket->listener);
    free(socket->guests);
    free(socket);
}

bool kvr_kv_socket_receive(
    struct kvr_kv_socket *socket, struct kvr_frame *frames, size_t *count, bool *replayed)
{
    *replayed = false;
    if (socket->reactor)
        return receive_from_guests(socket, frames, count);
    *replayed = socket->replay && kvr_zmtp_receive(socket->replay, frames, count);
    return *replayed || kvr_zmtp_receive(socket->subscription, frames, count);
}

bool kvr_kv_socket_request(struct kvr_kv_socket *socket, uint64_t from)
{
    uint64_t number = htobe64(from);
    const struct kvr_frame frames[] = {{NULL, 0}, {(const uint8_t *)&number, sizeof number}};

    return socket->replay && kvr_zmtp_send(socket->replay, frames, 2);
}

bool kvr_kv_socket_reconnected(struct kvr_kv_socket *socket, bool *connected)
{
    *connected = true;
    if (socket->reactor)
        return false;
    uint64_t connections = kvr_zmtp_connections(socket->subscription);
    bool again = socket->connections && connections > socket->connections;

    socket->connections = connections;
    *connected = kvr_zmtp_is_connected(socket->subscription);
    return again;
}

bool kvr_kv_socket_stirred(struct kvr_kv_socket *socket)
{
    bool some = false;

    for (size_t i = 0; i < socket->guest_count; i++)
        some |= kvr_zmtp_stirred(socket->guests[i]);
    if (socket->reactor)
        return some;
    bool subscription = kvr_zmtp_stirred(socket->subscription);
    return (socket->replay && kvr_zmtp_stirred(socket->replay)) || subscription;
}

const char *kvr_kv_socket_trouble(const struct kvr_kv_socket *socket)
{
    return socket->subscription ? kvr_zmtp_trouble(socket->subscription) : NULL;
}
