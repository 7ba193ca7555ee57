/*
 * The entries of the piece cache as its two users see them: piece_cache.c, which writes them, and
 * encode_pieces.c, which looks pieces up by the batch. Of no interest to others.
 */
#ifndef KVR_TOKEN_PIECE_ENTRY_H
#define KVR_TOKEN_PIECE_ENTRY_H

#include "token/piece_cache.h"

/* What `count` of a key says where its ids are not in it. */
enum {
    KVR_PIECE_STORED = 255,  /* they lie in the store */
    KVR_PIECE_MISSING = 254, /* the cache has none */
    KVR_PIECE_CUT = 253,     /* those of the parts ids[0]...; ids[1] is how many */
    KVR_PIECE_WHOLE = 252,   /* the cache has none, and nothing cuts the piece */
};

/* A piece of a batch, and what the cache has for it. low and high are as in an entry. */
struct kvr_piece_key {
    uint64_t low, high, hash;
    uint32_t start, length;
    struct kvr_piece_ids found;
};

/* A record of the store; the bytes of a long piece follow, up to a multiple of 4, then the ids. */
struct kvr_piece_record {
    uint32_t count, length;
};

/* The line that a piece lies in, and the other one that it may lie in. */
static inline struct kvr_piece_entry *kvr_piece_line(
    const struct kvr_piece_cache *cache, const struct kvr_piece_key *key)
{
    return cache->lines[key->hash >> (64 - KVR_PIECE_LINES_LOG)];
}

static inline struct kvr_piece_entry *kvr_piece_second_line(
    const struct kvr_piece_cache *cache, const struct kvr_piece_key *key)
{
    return cache->lines[key->hash >> (64 - KVR_PIECE_LINES_LOG) ^ 1];
}

static inline bool kvr_piece_is(
    const struct kvr_piece_entry *entry, const struct kvr_piece_key *key)
{
    return !((entry->low ^ key->low) | (entry->high ^ key->high));
}

/* The record that a key's `found` names, if it is still there and for this piece. */
static inline const struct kvr_piece_record *kvr_piece_record_of(
    const struct kvr_piece_cache *cache, const struct kvr_piece_key *key, const uint8_t *piece)
{
    uint64_t position = (uint64_t)key->found.ids[1] << 32 | key->found.ids[0];
    const struct kvr_piece_record *record =
        (const void *)(cache->store + position % KVR_PIECE_STORE_BYTES);

    if (cache->written - position > KVR_PIECE_STORE_BYTES)
        return NULL;
    if (key->length > KVR_SHORT_BYTES &&
        (record->length != key->length || memcmp(record + 1, piece, key->length) != 0))
        return NULL;
    return record;
}

static inline const uint32_t *kvr_piece_record_ids(const struct kvr_piece_record *record)
{
    return (const void *)((const uint8_t *)(record + 1) + ((record->length + 3) & ~UINT32_C(3)));
}

/* Looks in all places of a piece: after kvr_piece_line() had nothing for it, which may have
 * changed, as a batch may bring a piece twice. */
void kvr_piece_look_further(struct kvr_piece_cache *cache, struct kvr_piece_key *key);

/* Gives a piece an entry, which key->found then is. */
void kvr_piece_remember(struct kvr_piece_cache *cache, struct kvr_piece_key *key,
    const uint8_t *piece, const uint32_t *ids, size_t count);

#endif
