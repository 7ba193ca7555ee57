/*
 * A bounded cache from pieces of text to their ids, and the loop that text goes through.
 *
 * Nine pieces of ten are one token, and a handful of thousand pieces make most of any text. So the
 * cache is shaped for the hit: a piece of up to 15 bytes and its length are two words, an entry
 * holds them with up to three ids in 32 bytes, two entries make a line of the processor's cache,
 * and a lookup is one line. The loop (encode_pieces.c) first hashes a batch of pieces and asks for
 * their lines, then reads them: the memory's latency is paid once a batch instead of once a piece.
 *
 * What does not fit an entry (longer pieces, more ids) lies in a store, one record after another:
 * the bytes where they do not fit the entry, then the ids. The entry then says where. The store is
 * a ring: when it is full the oldest records are written over. A position counts all bytes ever
 * written, so an entry whose record is gone shows it.
 *
 *   entry   low high | id id id     count met    15 bytes of piece, its length, three ids
 *           low high | position     STORED met   the ids lie in the store
 *           low high | position     STORED met   LONG for the length: so does the piece; low and
 *                                                high are its hash, or some of its bytes
 *
 * A piece lies in its line or in the neighbour of that, which is read only where the first has
 * nothing. A new piece takes a free place or that of one that was never met again, so pieces that
 * come once do not drive out the others.
 *
 * Memory: 16 MiB and 8 MiB an encoder, whatever the text.
 */
#ifndef KVR_TOKEN_PIECE_CACHE_H
#define KVR_TOKEN_PIECE_CACHE_H

#include "base/pages.h"
#include "token/bpe.h"

#define KVR_PIECE_LINES_LOG 18
#define KVR_PIECE_STORE_BYTES (UINT32_C(1) << 23)
#define KVR_SHORT_BYTES 15 /* of a piece that lies in its entry */
#define KVR_SHORT_IDS 3
#define KVR_LONG_BYTES 2048 /* of a piece that is kept at all */

/* What a piece becomes: the second half of an entry. */
struct kvr_piece_ids {
    uint32_t ids[KVR_SHORT_IDS]; /* where STORED: the position, lower half first */
    uint8_t count;               /* of ids, or what piece_entry.h has for it */
    uint8_t met;                 /* again, since it was written or last looked over */
    uint8_t unused[2];
};

/* The length is the highest byte of `high`, so an entry that holds a piece is never zero there. */
struct kvr_piece_entry {
    uint64_t low, high;
    struct kvr_piece_ids found;
};

struct kvr_piece_cache {
    struct kvr_piece_entry (*lines)[2];
    uint8_t *store;
    uint64_t written; /* to the store, of all times */
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
