/*
 * The sockets of one publisher of KV events: a subscription and, where it has one, the socket that
 * replays are asked on, both by net/zmtp.h. When we are too slow TCP holds the publisher back, and
 * it drops what is too much: a gap, which is asked for again.
 *
 * Or one socket that many publishers connect to (host *, as llm-d has it).
 */
#ifndef KVR_NET_KV_EVENT_ZMQ_H
#define KVR_NET_KV_EVENT_ZMQ_H

#include "net/zmtp.h"

#define KVR_KV_GUESTS 8192 /* publishers that connect to one socket, at most */

struct kvr_kv_socket_options {
    const char *endpoint; /* "tcp://host:port", "ipc://path" */
    const char *replay;   /* the same; NULL: none */
    const char *topic;    /* a prefix; NULL: all */
    size_t message_limit_bytes;
    struct kvr_zmtp_budget *budget;
};

struct kvr_kv_socket;

/* KVR_BAD_USAGE for an endpoint that is none, KVR_NO_MEMORY. */
enum kvr_status kvr_kv_socket_open(struct kvr_kv_socket **socket, struct kvr_reactor *reactor,
    const struct kvr_kv_socket_options *options, struct kvr_error *error);
void kvr_kv_socket_close(struct kvr_kv_socket *socket);

/* A message that has come, from either socket: true, with frames valid until the next call. Does
 * not wait. One with more frames than KVR_MESSAGE_FRAMES loses those that are too many. */
bool kvr_kv_socket_receive(
    struct kvr_kv_socket *socket, struct kvr_frame *frames, size_t *count, bool *replayed);

/* Asks for a replay, or will where the publisher cannot be reached just now. False: there is no
 * socket for it, or the publisher does not read what is asked. */
bool kvr_kv_socket_request(struct kvr_kv_socket *socket, uint64_t from);

/* Whether the subscription was connected again, after it had been, since the last call. */
bool kvr_kv_socket_reconnected(struct kvr_kv_socket *socket, bool *connected);

/* Whether it wants to be seen: something came, or a connection came up or went down. */
bool kvr_kv_socket_stirred(struct kvr_kv_socket *socket);

/* Why the subscription is not connected; NULL: it never failed. */
const char *kvr_kv_socket_trouble(const struct kvr_kv_socket *socket);

#endif
