/*
 * The reading side of ZeroMQ, spoken by ourselves: a SUB or DEALER socket with one peer, by
 * ZMTP 3.0 (rfc.zeromq.org/spec/23) over TCP or a Unix socket, without security (mechanism NULL).
 *
 * Why not libzmq, which our own publisher uses? It gathers a message of many frames until the last
 * one has come, out of sight, and neither ZMQ_MAXMSGSIZE (one frame) nor ZMQ_RCVHWM (whole
 * messages) bounds that: a publisher that never ends a message takes all memory, half a gigabyte a
 * second, and a frame without bytes costs 64 of them. It also wants some descriptors and a place in
 * every poll for each socket. Here
 * - a message that is larger than the limit, its frames' headers included, ends the connection;
 * - nothing is read ahead but what one read brings: what waits, waits in the kernel, and TCP holds
 *   the publisher back;
 * - what all connections keep of unfinished messages is bounded together by a budget;
 * - thousands of connections share one epoll.
 *
 * A connection is kept up: names are looked up by another thread, attempts repeat with growing
 * pauses (0.1 to 10 s, some chance in each), a peer that is silent is asked for a sign of life
 * every 5 s (PING) and given up after 15.
 *
 *   wire   greeting 64 bytes: ff, 8, 7f | version | mechanism[20] | as-server | 0[31]
 *          then frames: flags (1 more, 2 long, 4 command) | size u8 or u64 be | bytes
 *          commands READY (with Socket-Type), PING (ttl u16 be, context), PONG (context)
 *          a subscription is a message of 01 and the topic's beginning
 */
#ifndef KVR_NET_ZMTP_H
#define KVR_NET_ZMTP_H

#include "base/buffer.h"
#include "net/kv_event.h"
#include "net/reactor.h"

/* Bytes that connections keep of messages that have not come whole; at most limit, and where that
 * is reached KVR_ZMTP_LEAST for each more. */
struct kvr_zmtp_budget {
    size_t used, limit;
};

#define KVR_ZMTP_CHUNK ((size_t)64 << 10)
#define KVR_ZMTP_LEAST ((size_t)4 << 10)

/* ---- zmtp_reader.c: bytes to messages; no socket ---- */

struct kvr_zmtp_reader {
    struct kvr_buffer bytes;
    size_t start, at; /* of the message under way, and of its next frame */
    struct {
        size_t place, size;
    } frames[KVR_MESSAGE_FRAMES]; /* so far, from start; those that are too many are not kept */
    size_t frame_count;
    size_t limit; /* bytes of a message */
    struct kvr_zmtp_budget *budget;
};

enum kvr_zmtp_piece { KVR_ZMTP_MORE, KVR_ZMTP_MESSAGE, KVR_ZMTP_COMMAND, KVR_ZMTP_BROKEN };

/* Room for more bytes at the end of reader->bytes (length is the caller's to raise), whatever was
 * handed out before is void. *room tells how many. False where the budget or memory forbids it. */
bool kvr_zmtp_reader_room(struct kvr_zmtp_reader *reader, size_t *room);
/* What comes next: a message (frames, valid until the next room), a command (frames[0] is all of
 * it), nothing yet, or what no peer sends (*why). */
enum kvr_zmtp_piece kvr_zmtp_reader_next(
    struct kvr_zmtp_reader *reader, struct kvr_frame *frames, size_t *count, const char **why);
/* Everything was handed out: nothing is kept. */
bool kvr_zmtp_reader_is_empty(const struct kvr_zmtp_reader *reader);
void kvr_zmtp_reader_release(struct kvr_zmtp_reader *reader);

/* ---- zmtp.c: a connection ---- */

struct kvr_zmtp;

struct kvr_zmtp_options {
    const char *endpoint; /* tcp://HOST:PORT, ipc://PATH, ipc://@NAME */
    bool dealer;          /* else SUB */
    const char *topic;    /* of a SUB: the beginning of what is wanted; NULL: all */
    size_t message_limit_bytes;
    struct kvr_zmtp_budget *budget;
};

/* Begins to connect; the caller closes before it releases the reactor. Texts are copied.
 * KVR_BAD_USAGE for an endpoint that is none, KVR_NO_MEMORY. */
enum kvr_status kvr_zmtp_open(struct kvr_zmtp **connection, struct kvr_reactor *reactor,
    const struct kvr_zmtp_options *options, struct kvr_error *error);
void kvr_zmtp_close(struct kvr_zmtp *connection);

/* The same with a peer that connected to us: the descriptor becomes the connection's (closed on
 * failure too). It is not kept up: once lost it is over. */
enum kvr_status kvr_zmtp_adopt(struct kvr_zmtp **connection, struct kvr_reactor *reactor,
    const struct kvr_zmtp_options *options, int descriptor, struct kvr_error *error);
bool kvr_zmtp_is_over(const struct kvr_zmtp *connection);

/* A socket that peers connect to by any of our addresses: TCP, with * for a host. Non-blocking.
 * KVR_BAD_USAGE, KVR_IO. */
bool kvr_zmtp_is_listening_endpoint(const char *endpoint);
enum kvr_status kvr_zmtp_listen(const char *endpoint, int *descriptor, struct kvr_error *error);

/* A message that has come: true, with frames valid until the next call. Does not wait. One with
 * more frames than KVR_MESSAGE_FRAMES loses those that are too many. */
bool kvr_zmtp_receive(struct kvr_zmtp *connection, struct kvr_frame *frames, size_t *count);
/* Sends a message now, or, where there is no connection, as soon as there is one; only the last
 * such message is kept. False when the peer does not take it. */
bool kvr_zmtp_send(struct kvr_zmtp *connection, const struct kvr_frame *frames, size_t count);

bool kvr_zmtp_is_connected(const struct kvr_zmtp *connection);
/* How often it was connected so far. */
uint64_t kvr_zmtp_connections(const struct kvr_zmtp *connection);
/* Whether anything happened to it since the last call: bytes came, or it came up or went down. */
bool kvr_zmtp_stirred(struct kvr_zmtp *connection);
/* Why it was not or is no longer connected. NULL: it never failed. */
const char *kvr_zmtp_trouble(const struct kvr_zmtp *connection);

#endif
