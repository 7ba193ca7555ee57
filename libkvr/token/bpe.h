/*
 * From one piece of text to token ids.
 */
#ifndef KVR_TOKEN_BPE_H
#define KVR_TOKEN_BPE_H

#include "token/vocabulary.h"

/* A list of ids that grows. All zero bytes is an empty list. */
struct kvr_ids {
    uint32_t *data;
    size_t count, capacity;
    bool failed; /* an append could not be stored */
};

void kvr_ids_release(struct kvr_ids *ids);
bool kvr_ids_grow(struct kvr_ids *ids, size_t more);

static inline bool kvr_ids_reserve(struct kvr_ids *ids, size_t more)
{
    return ids->capacity - ids->count >= more || kvr_ids_grow(ids, more);
}

static inline void kvr_ids_push(struct kvr_ids *ids, uint32_t id)
{
    if (ids->count < ids->capacity || kvr_ids_grow(ids, 1))
        ids->data[ids->count++] = id;
}

/* Working memory that pieces share. All zero bytes is ready; release frees. */
struct kvr_bpe_scratch {
    uint64_t *dead; /* a bit a byte of the piece: no encoding ends here */
    size_t dead_words;
    void *nodes, *heap; /* of the merging encoders */
    size_t node_bytes, heap_bytes;
    uint8_t *kept; /* a piece without its unknown symbols */
    size_t kept_capacity;
};

void kvr_bpe_scratch_release(struct kvr_bpe_scratch *scratch);

/* Appends the encoding of a piece (already pre-tokenized; not empty). Symbols that the vocabulary
 * lacks become byte tokens, the unknown token, or nothing, as it says. Sets ids->failed when
 * memory is short. */
void kvr_bpe_encode(const struct kvr_vocabulary *vocabulary, struct kvr_bpe_scratch *scratch,
    const uint8_t *piece, size_t length, struct kvr_ids *ids);

/* The same by merging pairs in rank order: slower; for irregular vocabularies, and what tests
 * compare with. `piece` must consist of known symbols. */
void kvr_bpe_merge(const struct kvr_vocabulary *vocabulary, struct kvr_bpe_scratch *scratch,
    const uint8_t *piece, size_t length, struct kvr_ids *ids);

/* Whether a piece has runs of one symbol that are long enough for kvr_bpe_merge_runs(). */
bool kvr_bpe_has_runs(const struct kvr_vocabulary *vocabulary, const uint8_t *piece, size_t length);

/* The same by merging runs, see merge_runs.c; for vocabularies that are not irregular. False, and
 * nothing appended: the piece has a symbol that the vocabulary lacks. */
bool kvr_bpe_merge_runs(const struct kvr_vocabulary *vocabulary, struct kvr_bpe_scratch *scratch,
    const uint8_t *piece, size_t length, struct kvr_ids *ids);

/* A piece of up to KVR_SHORT_SYMBOLS bytes that is to be merged, see merge_short.c. */
#define KVR_SHORT_SYMBOLS 32

struct kvr_short_piece {
    const uint8_t *bytes;
    uint32_t length;
    uint32_t *ids; /* room for `length` of them, the caller's */
    uint32_t id_count;
};

/* Encodes `count` pieces, many side by side; for vocabularies with KVR_VOCABULARY_SHORT_MERGES. */
void kvr_short_merge(
    const struct kvr_vocabulary *vocabulary, struct kvr_short_piece *pieces, size_t count);

#endif
