/*
 * The sockets of one publisher of KV events: a subscription and, where it has one, the socket that
 * replays are asked on. ZMQ connects, and connects again with growing pauses, on its own; a monitor
 * tells when it did.
 *
 * What a publisher can make us hold: KVR_KV_QUEUE messages, whose frames are at most the limit.
 * When they are full TCP holds the publisher back, and it drops what is too much: a gap, which is
 * asked for again.
 */
#ifndef KVR_NET_KV_EVENT_ZMQ_H
#define KVR_NET_KV_EVENT_ZMQ_H

#include "net/kv_event.h"

#define KVR_KV_QUEUE 64

struct kvr_kv_socket_options {
    const char *endpoint; /* "tcp://host:port", "ipc://path" */
    const char *replay;   /* the same; NULL: none */
    const char *topic;    /* a prefix; NULL: all */
    size_t message_limit_bytes;
};

struct kvr_kv_socket;

/* context is a ZMQ context. KVR_BAD_USAGE for an endpoint that is none; KVR_IO. */
enum kvr_status kvr_kv_socket_open(struct kvr_kv_socket **socket, void *context,
    const struct kvr_kv_socket_options *options, struct kvr_error *error);
void kvr_kv_socket_close(struct kvr_kv_socket *socket);

/* A message that has come, from either socket: true, with frames valid until the next call. Does
 * not wait. One with more frames than KVR_MESSAGE_FRAMES loses those that are too many. */
bool kvr_kv_socket_receive(
    struct kvr_kv_socket *socket, struct kvr_frame *frames, size_t *count, bool *replayed);

/* Asks for a replay. False when the publisher cannot be reached just now. */
bool kvr_kv_socket_request(struct kvr_kv_socket *socket, uint64_t from);

/* Whether the subscription was connected again, after it had been, since the last call. */
bool kvr_kv_socket_reconnected(struct kvr_kv_socket *socket, bool *connected);

/* Waits until one of them has something, at most so long; a signal ends it early. */
void kvr_kv_sockets_wait(struct kvr_kv_socket *const *sockets, size_t count, double timeout_ms);

#endif
