/*
 * Extra keys of a block: what vLLM mixes into its hash besides tokens. A list with one entry a
 * block, each null or a list of: the LoRA's name, the content behind placeholder tokens as
 * (identifier, its start relative to the block), the salt (first block only); or the same tagged
 * as ("lora", name, path), ("mm", identifier, start), ("cache_salt", salt), or as maps with a type
 * of these names. LoRA and salt are the
 * namespace's; content goes into kvr's hash as kvr-tokenize puts it there; anything else is hashed
 * as content that starts with the block, so that blocks that differ stay different.
 */
#ifndef KVR_NET_KV_EVENT_EXTRA_H
#define KVR_NET_KV_EVENT_EXTRA_H

#include "net/kv_event.h"
#include "token/hash.h"

#define KVR_KV_PLACED_LIMIT 64

struct kvr_kv_extra {
    struct kvr_msgpack list; /* what is left of it */
    uint32_t left;
    struct kvr_text salt; /* found in the block just read; text NULL: none */
    struct kvr_placed placed[KVR_KV_PLACED_LIMIT];
    size_t placed_count;
};

/* Blocks begin here, so that content can start before its block. */
#define KVR_KV_EXTRA_BASE (SIZE_MAX / 4)

/* False where extra_keys is no list. */
bool kvr_kv_extra_open(const struct kvr_kv_event *event, struct kvr_kv_extra *extra);

/* The keys of the next block; first: it starts a prompt. False for what cannot be understood. */
bool kvr_kv_extra_next(const struct kvr_kv_event *event, bool first, struct kvr_kv_extra *extra);

#endif
