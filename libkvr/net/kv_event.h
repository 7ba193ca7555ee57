/*
 * The KV-event messages of vLLM, SGLang and Mooncake's store: from ZMQ frames to typed events.
 *
 * A message is some frames, the last two of which are a sequence number (8 bytes, big endian) and a
 * payload; what stands before them is a topic (subscription), an empty frame, or both (replies to a
 * replay request: vLLM to 0.25 sends ["", seq, payload], from 0.26 ["", topic, seq, payload]). The
 * end of a replay has a sequence number of all ones. A payload is msgpack: [time, events, rank],
 * Mooncake's without the rank.
 *
 * Nothing is configured: whatever a version sends says itself what it is.
 * - An event is an array that begins with its type's name, or a map with "type". Arrays may be
 *   longer than we know and maps may have names that we do not: both are passed over. What is left
 *   out, and null, are absent.
 * - A hash is an unsigned or a signed 64-bit number, bytes, or (Mooncake) text. All become one
 *   64-bit key: numbers their 64 bits, bytes the number that their last eight make big endian
 *   (which is what vLLM itself sends instead of them where it is told to), decimal and 0x text its
 *   number, other text its XXH3-64.
 * - Mooncake's BlockStoreEvent [type, key, replicas, model, block size, hash, parent, tokens],
 *   BlockUpdateEvent [type, key, replicas] and RemoveAllEvent [type], where replicas are pairs of a
 *   kind (memory, disk, local_disk) and a place. An update replaces the key's replicas; none means
 *   that it is gone. (As in mooncake-store/include/kv_event/kv_event.hpp and the project's
 *   subscriber guide.) Its newer publisher (RFC 1527) sends maps with "event_type" stored, removed
 * or cleared, and a block's "seq_hashes" or, where a key is no number, its "object_key".
 * - Token ids may come in pairs with the one that follows (SGLang with EAGLE).
 * - What is said with locality REMOTE lies with another: its medium is remote.
 *
 * Bytes come from another machine. A payload is walked once before anything of it is used, nothing
 * is allocated but room for hashes (8 bytes for each byte of payload at most) and tokens (4), and a
 * broken event fails alone.
 */
#ifndef KVR_NET_KV_EVENT_H
#define KVR_NET_KV_EVENT_H

#include "cache/engine.h"
#include "line/json.h"
#include "net/msgpack.h"

struct kvr_frame {
    const uint8_t *data;
    size_t size;
};

#define KVR_MESSAGE_FRAMES 8 /* at most */

struct kvr_kv_message {
    struct kvr_text topic; /* empty where there is none */
    uint64_t sequence;
    bool end; /* of a replay; nothing else is set */
    struct kvr_frame payload;
};

/* KVR_BAD_INPUT for frames that are no message. */
enum kvr_status kvr_kv_message_read(const struct kvr_frame *frames, size_t count,
    struct kvr_kv_message *message, struct kvr_error *error);

/* A payload, found whole. */
struct kvr_kv_batch {
    double time_s;
    uint64_t rank, epoch;
    bool has_rank, has_epoch;
    struct kvr_msgpack events; /* those not yet read */
    uint32_t left;             /* of them */
};

/* The memory of a decoder, reused from batch to batch. All zero bytes are a fresh one. */
struct kvr_kv_decoder {
    uint64_t *hashes;
    size_t hash_room;
    struct kvr_msgpack_numbers tokens; /* of the batch that was read last */
    size_t next_list;                  /* the first of its lists that was not yet asked for */
};

void kvr_kv_decoder_release(struct kvr_kv_decoder *decoder);

enum kvr_status kvr_kv_batch_read(struct kvr_frame payload, struct kvr_kv_decoder *decoder,
    struct kvr_kv_batch *batch, struct kvr_error *error);

enum kvr_kv_type {
    KVR_KV_STORED,
    KVR_KV_REMOVED,
    KVR_KV_CLEARED,
    KVR_KV_PUT,     /* Mooncake's BlockStoreEvent */
    KVR_KV_UPDATED, /* Mooncake's BlockUpdateEvent */
    KVR_KV_OTHER,   /* a type that we do not know */
};

#define KVR_KV_FIELDS(row)                                                                         \
    row(BLOCK_HASHES, "block_hashes") row(PARENT_BLOCK_HASH, "parent_block_hash")                  \
        row(TOKEN_IDS, "token_ids") row(BLOCK_SIZE, "block_size") row(LORA_ID, "lora_id")          \
            row(MEDIUM, "medium") row(LORA_NAME, "lora_name") row(EXTRA_KEYS, "extra_keys")        \
                row(GROUP_IDX, "group_idx") row(SPEC_KIND, "kv_cache_spec_kind") row(              \
                    SPEC_SLIDING_WINDOW, "kv_cache_spec_sliding_window") row(LOCALITY, "locality") \
                    row(OWNERSHIP, "ownership") row(SESSION_ID, "session_id")                      \
                        row(LOOKAHEAD_TOKEN_IDS, "lookahead_token_ids")                            \
                            row(CACHE_SALT, "cache_salt") row(MOONCAKE_KEY, "mooncake_key")        \
                                row(REPLICAS, "replicas") row(MODEL_NAME, "model_name")

enum kvr_kv_field {
#define KVR_KV_FIELD_ROW(name, text) KVR_KV_##name,
    KVR_KV_FIELDS(KVR_KV_FIELD_ROW)
#undef KVR_KV_FIELD_ROW
        KVR_KV_FIELD_COUNT,
};

struct kvr_kv_event {
    enum kvr_kv_type type;
    struct kvr_msgpack whole;                      /* the event as it came */
    struct kvr_text name;                          /* of its type */
    struct kvr_msgpack fields[KVR_KV_FIELD_COUNT]; /* at NULL: absent */
    const uint64_t *hashes;                        /* keys; of the decoder, until the next event */
    const uint32_t *tokens;
    size_t hash_count, token_count;
    bool has_parent;
    uint64_t parent;
    uint64_t block_size; /* tokens; 0: not given */
    enum kvr_medium medium;
    bool medium_unknown;        /* it has a name that we do not know: it counts as remote */
    struct kvr_text lora, salt; /* text NULL: none; lora may be a number's digits, see below */
    struct kvr_text kind;       /* of the attention; NULL: not said */
    bool sliding;               /* it has a window */
    bool has_group;
    uint64_t group;
    unsigned media;        /* Mooncake: a bit for each medium that has a replica */
    struct kvr_text model; /* Mooncake */
    uint64_t object;       /* Mooncake: XXH3-64 of the key */
    char digits[24];       /* lora of an engine that sends only a number */
};

/* The next event of the batch, by the decoder that read the batch. KVR_END after the last;
 * KVR_BAD_INPUT for a broken one, which is passed over; KVR_NO_MEMORY. Text and pieces point into
 * the payload. */
enum kvr_status kvr_kv_event_next(struct kvr_kv_batch *batch, struct kvr_kv_decoder *decoder,
    struct kvr_kv_event *event, struct kvr_error *error);

/* Appends the event as the engine sent it, with names for the fields of arrays: what its version
 * left out is left out. Fields beyond those known are "field_N", by place. */
bool kvr_kv_event_json(const struct kvr_kv_event *event, struct kvr_buffer *out);

/* A hash as an engine or Mooncake writes it. False for what is none. */
bool kvr_kv_hash(struct kvr_msgpack *reader, uint64_t *key);

/* The medium of a name, in any case; gpu for an empty one. False when it is not known. */
bool kvr_kv_medium(struct kvr_text name, enum kvr_medium *medium);

#endif
