#include "net/kv_event_zmq.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum {
    RECONNECT_MS = 100,
    RECONNECT_MOST_MS = 10000,
    HEARTBEAT_MS = 5000,
    HEARTBEAT_PATIENCE_MS = 15000,
};

struct kvr_kv_socket {
    void *subscription, *replay, *monitor;
    zmq_msg_t frames[KVR_MESSAGE_FRAMES];
    size_t frame_count; /* that are to be closed */
    unsigned connections;
    bool was_lost, connected_again;
};

static enum kvr_status failed(struct kvr_error *error, const char *what, const char *endpoint)
{
    return kvr_error_set(error,
        errno == EINVAL || errno == EPROTONOSUPPORT ? KVR_BAD_USAGE : KVR_IO, "cannot %s '%s': %s",
        what, endpoint, zmq_strerror(errno));
}

static void set(void *socket, int option, int value)
{
    zmq_setsockopt(socket, option, &value, sizeof value);
}

static void *make(void *context, int type, const struct kvr_kv_socket_options *options)
{
    void *socket = zmq_socket(context, type);
    int64_t limit = (int64_t)options->message_limit_bytes;

    if (!socket)
        return NULL;
    set(socket, ZMQ_LINGER, 0);
    set(socket, ZMQ_RCVHWM, KVR_KV_QUEUE);
    set(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS);
    set(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MOST_MS);
    set(socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS);
    set(socket, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_PATIENCE_MS);
    set(socket, ZMQ_TCP_KEEPALIVE, 1);
    zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &limit, sizeof limit);
    return socket;
}

static void *make_monitor(void *context, void *subscription)
{
    char name[64];
    void *monitor;

    snprintf(name, sizeof name, "inproc://kvr-monitor-%p", subscription);
    if (zmq_socket_monitor(subscription, name, ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED) != 0)
        return NULL;
    monitor = zmq_socket(context, ZMQ_PAIR);
    if (!monitor)
        return NULL;
    set(monitor, ZMQ_LINGER, 0);
    if (zmq_connect(monitor, name) == 0)
        return monitor;
    zmq_close(monitor);
    return NULL;
}

enum kvr_status kvr_kv_socket_open(struct kvr_kv_socket **socket, void *context,
    const struct kvr_kv_socket_options *options, struct kvr_error *error)
{
    struct kvr_kv_socket *made = calloc(1, sizeof *made);
    const char *topic = options->topic ? options->topic : "";
    enum kvr_status status = KVR_OK;

    *socket = made;
    if (!made)
        return kvr_error_memory(error);
    made->subscription = make(context, ZMQ_SUB, options);
    if (made->subscription)
        made->monitor = make_monitor(context, made->subscription);
    if (!made->monitor ||
        zmq_setsockopt(made->subscription, ZMQ_SUBSCRIBE, topic, strlen(topic)) != 0 ||
        zmq_connect(made->subscription, options->endpoint) != 0)
        status = failed(error, "subscribe to", options->endpoint);
    if (status == KVR_OK && options->replay) {
        made->replay = make(context, ZMQ_DEALER, options);
        if (!made->replay || zmq_connect(made->replay, options->replay) != 0)
            status = failed(error, "connect to", options->replay);
    }
    if (status != KVR_OK) {
        kvr_kv_socket_close(made);
        *socket = NULL;
    }
    return status;
}

static void drop_frames(struct kvr_kv_socket *socket)
{
    for (size_t i = 0; i < socket->frame_count; i++)
        zmq_msg_close(&socket->frames[i]);
    socket->frame_count = 0;
}

void kvr_kv_socket_close(struct kvr_kv_socket *socket)
{
    if (!socket)
        return;
    drop_frames(socket);
    if (socket->monitor)
        zmq_close(socket->monitor);
    if (socket->subscription)
        zmq_close(socket->subscription);
    if (socket->replay)
        zmq_close(socket->replay);
    free(socket);
}

/* All frames of a message; the first ones of too many. */
static bool receive(struct kvr_kv_socket *socket, void *from)
{
    zmq_msg_t rest;
    int more = 1;

    while (more && socket->frame_count < KVR_MESSAGE_FRAMES) {
        zmq_msg_t *frame = &socket->frames[socket->frame_count];
        zmq_msg_init(frame);
        if (zmq_msg_recv(frame, from, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(frame);
            return socket->frame_count > 0;
        }
        socket->frame_count++;
        more = zmq_msg_more(frame);
    }
    while (more) {
        zmq_msg_init(&rest);
        more = zmq_msg_recv(&rest, from, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&rest);
        zmq_msg_close(&rest);
    }
    return true;
}

bool kvr_kv_socket_receive(
    struct kvr_kv_socket *socket, struct kvr_frame *frames, size_t *count, bool *replayed)
{
    drop_frames(socket);
    *replayed = socket->replay && receive(socket, socket->replay);
    if (!*replayed && !receive(socket, socket->subscription))
        return false;
    for (size_t i = 0; i < socket->frame_count; i++) {
        frames[i].data = zmq_msg_data(&socket->frames[i]);
        frames[i].size = zmq_msg_size(&socket->frames[i]);
    }
    *count = socket->frame_count;
    return true;
}

bool kvr_kv_socket_request(struct kvr_kv_socket *socket, uint64_t from)
{
    uint64_t number = htobe64(from);

    return socket->replay && zmq_send(socket->replay, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) == 0 &&
           zmq_send(socket->replay, &number, sizeof number, ZMQ_DONTWAIT) == sizeof number;
}

bool kvr_kv_socket_reconnected(struct kvr_kv_socket *socket, bool *connected)
{
    uint8_t event[6];
    char address[256];
    uint16_t kind;

    while (zmq_recv(socket->monitor, event, sizeof event, ZMQ_DONTWAIT) == sizeof event) {
        zmq_recv(socket->monitor, address, sizeof address, ZMQ_DONTWAIT);
        memcpy(&kind, event, sizeof kind);
        if (kind == ZMQ_EVENT_DISCONNECTED) {
            socket->was_lost = true;
            socket->connections -= socket->connections > 0;
        } else {
            socket->connected_again |= socket->was_lost;
            socket->was_lost = false;
            socket->connections++;
        }
    }
    *connected = socket->connections > 0;
    bool again = socket->connected_again;
    socket->connected_again = false;
    return again;
}

void kvr_kv_sockets_wait(struct kvr_kv_socket *const *sockets, size_t count, double timeout_ms)
{
    zmq_pollitem_t *items = calloc(3 * count + 1, sizeof *items);
    size_t at = 0;

    if (!items)
        return;
    for (size_t i = 0; i < count; i++) {
        void *const each[] = {sockets[i]->subscription, sockets[i]->replay, sockets[i]->monitor};
        for (size_t j = 0; j < 3; j++)
            if (each[j])
                items[at++] = (zmq_pollitem_t){each[j], 0, ZMQ_POLLIN, 0};
    }
    zmq_poll(items, (int)at, timeout_ms <= 0 ? 0 : (long)ceil(timeout_ms));
    free(items);
}
