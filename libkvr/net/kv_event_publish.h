/*
 * The other side: event lines become the stream of a vLLM worker, so that whatever makes such lines
 * (kvr-sim, kvr-evict, a record) can stand in for a worker to any router that reads KV events.
 *
 *     line ──► kvr_kv_pack_line ──► events of a batch ──► kvr_kv_pack_end ──► payload
 *     payload ──► kvr_kv_publisher_send ──► subscribers, and a buffer for replays
 *
 * A publisher is a thread of its own with the subscribers' socket, the replay socket and the last
 * messages, so that replays are answered while the caller waits for lines. It sends
 * [topic, sequence, payload] and answers a request from number n with ["", topic, sequence,
 * payload] for each kept message from n on and the end mark.
 *
 * Blocks keep their ids as engine hashes. Their token_ids are the line's, or, where it has none,
 * numbers below 32768 drawn from the block's id: equal ids have equal tokens everywhere.
 */
#ifndef KVR_NET_KV_EVENT_PUBLISH_H
#define KVR_NET_KV_EVENT_PUBLISH_H

#include "line/line.h"
#include "net/kv_event.h"

struct kvr_kv_packer;

/* array: events as arrays (vLLM to 0.23), else as maps. */
enum kvr_status kvr_kv_packer_create(
    struct kvr_kv_packer **packer, bool array, struct kvr_error *error);
void kvr_kv_packer_destroy(struct kvr_kv_packer *packer);

/* Adds a stored, removed or cleared line. *taken: it was one. A line of very many blocks becomes
 * several events, so that no message is larger than readers take: *next is 0 for a new line, and is
 * set to where the next call goes on with it, or to 0. KVR_BAD_INPUT for a wrong member. */
enum kvr_status kvr_kv_pack_line(struct kvr_kv_packer *packer, const struct kvr_line *line,
    uint64_t block_size, size_t *next, bool *taken, struct kvr_error *error);

/* Events so far, and their bytes; and the payload of them, valid until the next is added. */
size_t kvr_kv_packed(const struct kvr_kv_packer *packer, size_t *bytes);
enum kvr_status kvr_kv_pack_end(struct kvr_kv_packer *packer, double time_s, uint64_t rank,
    struct kvr_frame *payload, struct kvr_error *error);

/* ---- sending ---- */

struct kvr_kv_publisher_options {
    const char *endpoint; /* bound, as "tcp://127.0.0.1:5557" */
    const char *replay;   /* bound; NULL: none */
    uint64_t keep;        /* messages kept for replays */
    size_t keep_bytes;    /* and bytes, at most */
};

struct kvr_kv_publisher;

enum kvr_status kvr_kv_publisher_open(struct kvr_kv_publisher **publisher, void *context,
    const struct kvr_kv_publisher_options *options, struct kvr_error *error);

/* Sends a message, or (only_keep) just keeps it for replays. Waits while the thread is behind.
 * False when a signal came or the thread is gone. */
bool kvr_kv_publisher_send(struct kvr_kv_publisher *publisher, struct kvr_text topic,
    uint64_t sequence, struct kvr_frame payload, bool only_keep);

/* Subscriptions now. */
unsigned kvr_kv_publisher_subscribers(struct kvr_kv_publisher *publisher);
uint64_t kvr_kv_publisher_replays(struct kvr_kv_publisher *publisher);

/* Ends it, when all has been handed to the network or about two seconds have passed. */
void kvr_kv_publisher_close(struct kvr_kv_publisher *publisher);

#endif
