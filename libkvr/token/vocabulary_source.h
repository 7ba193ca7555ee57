/*
 * What a loader gathers from a vocabulary file, and the compiler that turns it into an image.
 *
 * Tokens are raw bytes: loaders undo the byte-to-character alphabet of byte-level files. Where the
 * file turns every space into U+2581 before the model ("▁", SentencePiece style), the loader sets
 * `folded`: token texts then have U+2581 written as a space, and so has every text that reaches
 * the model, which spares the expansion of each space to three bytes.
 */
#ifndef KVR_TOKEN_VOCABULARY_SOURCE_H
#define KVR_TOKEN_VOCABULARY_SOURCE_H

#include "base/buffer.h"
#include "base/pages.h"
#include "token/text_order.h"
#include "token/vocabulary.h"

struct kvr_source {
    enum kvr_token_model model;
    bool ignore_merges, byte_fallback, fuse_unknown, folded;
    bool ranked;         /* no merges list: the id of a token is its rank, any split merges */
    uint32_t unknown_id; /* KVR_NO_TOKEN: none */
    struct kvr_buffer bytes;
    struct kvr_source_token *tokens; /* by id */
    uint32_t token_count, token_capacity;
    struct kvr_merge *merges; /* in rank order; order is filled by the compiler */
    uint32_t merge_count, merge_capacity;
    struct kvr_buffer text; /* the texts that steps refer to */
    struct kvr_vocabulary_step *steps[KVR_PIPELINE_COUNT];
    uint32_t step_count[KVR_PIPELINE_COUNT];
    uint32_t *string_slots; /* text -> id, hash:10 id + 1:22, built by kvr_source_index() */
    uint64_t *hashes;       /* of the texts of tokens that are indexed, by id */
    uint32_t string_mask;
    bool indexed;  /* no token was added since that belongs into the index */
    bool repeated; /* of the tokens indexed, some had the text of one before */
};

void kvr_source_release(struct kvr_source *source);

/* Makes room for about so many tokens of so many bytes together, or merges. */
void kvr_source_expect(struct kvr_source *source, size_t tokens, size_t bytes);
void kvr_source_expect_merges(struct kvr_source *source, size_t merges);

/* Gives id its bytes. An id that has bytes already, or lies at or above KVR_TOKEN_LIMIT, is an
 * error. */
enum kvr_status kvr_source_add_token(struct kvr_source *source, uint64_t id, const void *bytes,
    size_t length, uint8_t flags, struct kvr_error *error);

/* Takes all tokens away again. */
void kvr_source_forget_tokens(struct kvr_source *source);

enum kvr_status kvr_source_add_merge(struct kvr_source *source, uint32_t left, uint32_t right,
    uint32_t result, struct kvr_error *error);

/* Appends a step whose text and other are copied to the pool. */
enum kvr_status kvr_source_add_step(struct kvr_source *source, enum kvr_pipeline pipeline,
    struct kvr_vocabulary_step step, const char *text, size_t text_length, const char *other,
    size_t other_length, struct kvr_error *error);

/* Indexes the model tokens (those not only added) by text, for kvr_source_find(), and marks those
 * that it finds by their text: KVR_SOURCE_FIRST. */
enum kvr_status kvr_source_index(struct kvr_source *source, struct kvr_error *error);
uint32_t kvr_source_find(const struct kvr_source *source, const void *bytes, size_t length);

/* kvr_piece_hash_of() a text that has KVR_SOURCE_PADDING bytes behind it that can be read: those of
 * a source have them once it is indexed. */
#define KVR_SOURCE_PADDING 16
static inline uint64_t kvr_source_hash(const void *text, size_t length)
{
    uint64_t words[2];
    unsigned low = length < 8 ? (unsigned)length : 8, high = (unsigned)length - low;

    if (length > 16 || !length)
        return kvr_piece_hash_of(text, length);
    memcpy(words, text, sizeof words);
    words[0] &= UINT64_MAX >> (64 - 8 * low);
    words[1] = high ? words[1] & UINT64_MAX >> (64 - 8 * high) : 0;
    return kvr_piece_hash(words[0], words[1]);
}

/* The same in steps, where many texts are looked for: hash is kvr_piece_hash_of(bytes, length), and
 * what finding it will read is asked for first, the slot and then the token. */
uint32_t kvr_source_find_hashed(
    const struct kvr_source *source, uint64_t hash, const void *bytes, size_t length);

static inline void kvr_source_ask_slot(const struct kvr_source *source, uint64_t hash)
{
    __builtin_prefetch(&source->string_slots[(uint32_t)hash & source->string_mask]);
}

#define KVR_SLOT_ID_BITS (KVR_PAIR_ID_BITS + 1)

/* Whether a slot that is not empty may be that of a text of this hash. */
static inline bool kvr_slot_may_be(uint32_t slot, uint64_t hash)
{
    return (slot ^ (uint32_t)(hash >> 32)) >> KVR_SLOT_ID_BITS == 0;
}

static inline uint32_t kvr_slot_id(uint32_t slot)
{
    return (slot & ((UINT32_C(1) << KVR_SLOT_ID_BITS) - 1)) - 1;
}

/* Returns the token that is likely, or KVR_NO_TOKEN. */
static inline uint32_t kvr_source_ask_token(const struct kvr_source *source, uint64_t hash)
{
    uint32_t slot = source->string_slots[(uint32_t)hash & source->string_mask];

    if (!slot || !kvr_slot_may_be(slot, hash))
        return KVR_NO_TOKEN;
    __builtin_prefetch(&source->tokens[kvr_slot_id(slot)]);
    return kvr_slot_id(slot);
}

/* Whether kvr_source_find() of this text gives this id. */
bool kvr_source_is(const struct kvr_source *source, uint32_t id, const void *bytes, size_t length);

#define KVR_SOURCE_FIRST 128 /* a flag of a source's token: no lower id has this text */

/* Whether a token is one of the model's that merging may produce: indexed, with a text. */
static inline bool kvr_source_is_own(const struct kvr_source_token *token)
{
    return token->length && (token->flags & (KVR_TOKEN_ADDED | KVR_TOKEN_BYTE |
                                                KVR_SOURCE_FIRST)) == KVR_SOURCE_FIRST;
}

/* Compiles to an image at the start of *image, which must be empty, of *image_bytes bytes. */
enum kvr_status kvr_source_compile(struct kvr_source *source, struct kvr_pages *image,
    size_t *image_bytes, struct kvr_error *error);

/* trie.c: a double array over `count` texts in order (text_order.h), none of them empty. *out,
 * which must be empty, becomes the units. */
enum kvr_status kvr_trie_build(const struct kvr_ordered_text *order, uint32_t count,
    const uint8_t *bytes, const struct kvr_source_token *tokens, struct kvr_buffer *out,
    struct kvr_error *error);

#endif
