/*
 * A bounded cache from pieces of text to their ids, and the loop that text goes through.
 *
 * Nine pieces of ten are one token, and a handful of thousand pieces make most of any text. So the
 * cache is shaped for the hit: a piece of up to 16 bytes is two words, an entry holds them with up
 * to three ids in 32 bytes, two entries make a line of the processor's cache, and a lookup is one
 * line. The loop first hashes a batch of pieces and asks for their lines, then reads them: the
 * memory's latency is paid once a batch instead of once a piece. A new piece takes the second place
 * of its line and moves to the first when it is met again, so pieces that come once do not drive
 * out the others. Longer pieces, and those of more ids, have entries of two lines with their text
 * inside; the rest is encoded each time.
 *
 * Memory: 8 MiB and 8 MiB an encoder, whatever the text.
 */
#ifndef KVR_TOKEN_PIECE_CACHE_H
#define KVR_TOKEN_PIECE_CACHE_H

#include "base/pages.h"
#include "token/bpe.h"

#define KVR_SHORT_LINES (UINT32_C(1) << 17)
#define KVR_LONG_ENTRIES (UINT32_C(1) << 16)
#define KVR_SHORT_BYTES 16
#define KVR_SHORT_IDS 3
#define KVR_LONG_BYTES 64
#define KVR_LONG_IDS 12

struct kvr_short_piece {
    uint64_t low, high;
    uint32_t ids[KVR_SHORT_IDS];
    uint16_t length; /* of the piece; 0: empty */
    uint16_t count;  /* of ids */
};

struct kvr_long_piece {
    uint64_t hash;
    uint32_t ids[KVR_LONG_IDS];
    uint8_t bytes[KVR_LONG_BYTES];
    uint16_t length, count;
    uint32_t reserved;
};

struct kvr_piece_cache {
    struct kvr_short_piece (*lines)[2];
    struct kvr_long_piece *longs;
    struct kvr_bpe_scratch scratch;
    struct kvr_pages pages;
};

bool kvr_piece_cache_init(struct kvr_piece_cache *cache);
void kvr_piece_cache_release(struct kvr_piece_cache *cache);

/* Appends the ids of pieces that end at ends[0..count) of text; the first starts at `start`. */
void kvr_encode_pieces(const struct kvr_vocabulary *vocabulary, struct kvr_piece_cache *cache,
    const uint8_t *text, size_t length, size_t start, const uint32_t *ends, size_t count,
    struct kvr_ids *ids);

#endif
