#include "net/kv_event_zmq.h"

#include <endian.h>
#include <stdlib.h>

struct kvr_kv_socket {
    struct kvr_zmtp *subscription, *replay;
    uint64_t connections; /* of the subscription that were told */
};

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
    enum kvr_status status = kvr_zmtp_open(&made->subscription, reactor, &each, error);
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
    free(socket);
}

bool kvr_kv_socket_receive(
    struct kvr_kv_socket *socket, struct kvr_frame *frames, size_t *count, bool *replayed)
{
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
    uint64_t connections = kvr_zmtp_connections(socket->subscription);
    bool again = socket->connections && connections > socket->connections;

    socket->connections = connections;
    *connected = kvr_zmtp_is_connected(socket->subscription);
    return again;
}

bool kvr_kv_socket_stirred(struct kvr_kv_socket *socket)
{
    bool subscription = kvr_zmtp_stirred(socket->subscription);

    return (socket->replay && kvr_zmtp_stirred(socket->replay)) || subscription;
}

const char *kvr_kv_socket_trouble(const struct kvr_kv_socket *socket)
{
    return kvr_zmtp_trouble(socket->subscription);
}
