/*
 * A compiled vocabulary: every table that encoding and decoding read, in one relocatable image
 * that is either built from a source (compile.c) or mapped from the cache on disk.
 *
 * What the tables rest on. Byte-pair encoding joins, again and again, the adjacent pair of lowest
 * rank, the leftmost first. Restricted to the bytes of one token t, that process is the same as
 * the one on these bytes alone for as long as nothing crosses the borders of t. So wherever t is
 * formed, it is formed from the one pair (left, right) that forms it in isolation, however many
 * pairs of the merges list yield t: one record a token describes all of BPE. Two adjacent tokens
 * are compatible when encoding their concatenation gives them back; a sequence is the encoding of
 * its text exactly when all its neighbours are compatible (if not, look at the first merge that
 * crosses a border). bpe.c uses both facts; they need order(t) > order(left), order(right), and a
 * vocabulary where that fails keeps its full merges list instead (`irregular`).
 *
 *   token_offset[id] .. token_offset[id + 1]   bytes of the token in token_bytes
 *   records[id]     left, right, order of its merge (0: a symbol), longest shorter prefix token
 *   pairs           pair_table.h: what two tokens merge to
 *   merges          the full list, only if irregular: open addressing by (left, right)
 *   words           open addressing, hash tag:32 id:32: pieces that are one token as a whole
 *   trie            double array over the tokens that merging can reach
 */
#ifndef KVR_TOKEN_VOCABULARY_H
#define KVR_TOKEN_VOCABULARY_H

#include "base/error.h"
#include "token/pair_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KVR_TOKEN_LIMIT (UINT32_C(1) << KVR_PAIR_ID_BITS)

struct kvr_token_record {
    uint32_t left, right;
    uint32_t order;   /* 1 + rank of the merge that forms the token; 0: a symbol or unreachable */
    uint32_t shorter; /* longest reachable token that is a proper prefix, or KVR_NO_TOKEN */
};

struct kvr_merge {
    uint32_t left, right, order, result; /* order 0: empty slot */
};

enum kvr_token_flag {
    KVR_TOKEN_PRESENT = 1,   /* the id has bytes */
    KVR_TOKEN_REACHABLE = 2, /* merging can produce it */
    KVR_TOKEN_SPECIAL = 4,   /* added and marked special */
    KVR_TOKEN_ADDED = 8,     /* added: matched before the model, decoded verbatim */
    KVR_TOKEN_BYTE = 16,     /* a <0xNN> token of byte fallback */
};

/* One step of a pipeline (normalizer, pre-tokenizer, decoder, post-processor) or an added token;
 * meanings of the fields are those of the kind, see pipeline.h. Texts lie in the text pool. */
struct kvr_vocabulary_step {
    uint32_t kind, flags;
    uint32_t text, text_length;
    uint32_t other, other_length;
    int32_t a, b;
};

enum kvr_section {
    KVR_SECTION_TOKEN_OFFSET,
    KVR_SECTION_TOKEN_BYTES,
    KVR_SECTION_TOKEN_FLAGS,
    KVR_SECTION_RECORDS,
    KVR_SECTION_PAIRS,
    KVR_SECTION_FILTER,
    KVR_SECTION_MERGES,
    KVR_SECTION_WORDS,
    KVR_SECTION_TRIE,
    KVR_SECTION_BYTE_IDS,
    KVR_SECTION_BYTE_PAIRS,
    KVR_SECTION_JOINS,
    KVR_SECTION_BORDERS,
    KVR_SECTION_PARTIAL_LEFT,
    KVR_SECTION_TEXT,
    KVR_SECTION_STEPS,
    KVR_SECTION_COUNT,
};

enum kvr_pipeline {
    KVR_NORMALIZERS,
    KVR_PRETOKENIZERS,
    KVR_DECODERS,
    KVR_POSTPROCESSORS,
    KVR_ADDED,
    KVR_PIPELINE_COUNT,
};

enum kvr_token_model {
    KVR_MODEL_BYTES,    /* id = byte */
    KVR_MODEL_CHARS,    /* id = code point */
    KVR_MODEL_BYTE_BPE, /* symbols are bytes */
    KVR_MODEL_CHAR_BPE, /* symbols are characters */
};

/* The image starts with this header; sections are aligned to 64 bytes. */
struct kvr_image_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t image_bytes, checksum;                    /* XXH3-64 of all after the header */
    uint64_t source_bytes, source_mtime_ns, source_id; /* the file it was made from */
    uint32_t model, token_count;
    uint32_t unknown_id, special_flags; /* KVR_VOCABULARY_* */
    uint32_t pair_buckets, filter_words, border_bits, merge_slots, word_slots, trie_units;
    uint32_t step_first[KVR_PIPELINE_COUNT + 1];
    uint32_t longest_token_bytes;
    struct {
        uint64_t offset, length;
    } section[KVR_SECTION_COUNT];
};

enum kvr_vocabulary_flag {
    KVR_VOCABULARY_IGNORE_MERGES = 1, /* a piece that is a token is that token, reachable or not */
    KVR_VOCABULARY_BYTE_FALLBACK = 2,
    KVR_VOCABULARY_FUSE_UNKNOWN = 4,
    KVR_VOCABULARY_IRREGULAR = 8,
    KVR_VOCABULARY_IDS_IN_ORDER = 32, /* of two merged tokens the lower id has the lower order */
    KVR_VOCABULARY_SHORT_MERGES = 64, /* ids in order, regular, and all bytes are symbols; an
                                         id is left for what merges with nothing */
    KVR_VOCABULARY_CUTS = 128,        /* pieces may be cut at safe borders: no piece is a token that
                                         merging cannot reach */
    KVR_VOCABULARY_FOLDED = 16, /* U+2581 stands as ' ' in token_bytes: see vocabulary_source.h */
};

struct kvr_vocabulary {
    const struct kvr_image_header *header;
    const uint32_t *token_offset;
    const uint8_t *token_bytes;
    const uint8_t *token_flags;
    const struct kvr_token_record *records;
    struct kvr_pair_table pairs;
    const struct kvr_merge *merges;
    const uint64_t *words;
    const uint64_t *trie;
    const uint32_t *byte_ids;    /* 256: the token of a byte (symbol or <0xNN>), or KVR_NO_TOKEN */
    const uint32_t *byte_pairs;  /* 65536: the token that bytes p, q merge to, at [p << 8 | q] */
    const uint8_t *joins;        /* 65536: some token holds byte p before byte q, at [p << 8 | q] */
    const uint64_t *borders;     /* see borders.h */
    const uint8_t *partial_left; /* 256 */
    const char *text;
    const struct kvr_vocabulary_step *steps;
    uint32_t merge_mask, word_mask, border_mask;
};

/* Points into an image of `length` bytes after checking that every section and every index in it
 * is inside. The image stays the caller's and must outlive the vocabulary. */
enum kvr_status kvr_vocabulary_attach(
    struct kvr_vocabulary *vocabulary, const void *image, size_t length, struct kvr_error *error);

/* The same for an image that the compiler has just made, which needs no check. */
void kvr_vocabulary_attach_own(struct kvr_vocabulary *vocabulary, const void *image);

/* Hash of a piece of up to 16 bytes, given as two little-endian words padded with zeros: a product
 * of 128 bits, folded. Its upper bits choose a line of the piece cache, its lower ones a word. */
static inline uint64_t kvr_piece_hash(uint64_t low, uint64_t high)
{
    unsigned __int128 product = (unsigned __int128)(low ^ UINT64_C(0x9e3779b97f4a7c15)) *
                                (high ^ UINT64_C(0xd6e8feb86659fd93));

    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

/* The same for any length; what `words` is indexed by. */
uint64_t kvr_piece_hash_of(const uint8_t *piece, size_t length);

static inline uint32_t kvr_token_length(const struct kvr_vocabulary *vocabulary, uint32_t id)
{
    return vocabulary->token_offset[id + 1] - vocabulary->token_offset[id];
}

/* The token that a whole piece is, or KVR_NO_TOKEN. hash is kvr_piece_hash_of(piece, length). */
static inline uint32_t kvr_word_find(
    const struct kvr_vocabulary *vocabulary, uint64_t hash, const uint8_t *piece, size_t length)
{
    for (uint32_t slot = (uint32_t)hash & vocabulary->word_mask;;
         slot = (slot + 1) & vocabulary->word_mask) {
        uint64_t entry = vocabulary->words[slot];
        if (entry == UINT64_MAX)
            return KVR_NO_TOKEN;
        if (entry >> 32 == hash >> 32) {
            uint32_t id = (uint32_t)entry;
            if (kvr_token_length(vocabulary, id) == length &&
                memcmp(vocabulary->token_bytes + vocabulary->token_offset[id], piece, length) == 0)
                return id;
        }
    }
}

/* The token that kvr_word_find() will compare with first, if any. */
static inline uint32_t kvr_word_candidate(const struct kvr_vocabulary *vocabulary, uint64_t hash)
{
    uint64_t entry = vocabulary->words[(uint32_t)hash & vocabulary->word_mask];

    return entry >> 32 == hash >> 32 && entry != UINT64_MAX ? (uint32_t)entry : KVR_NO_TOKEN;
}

static inline uint64_t kvr_pair_hash(uint32_t left, uint32_t right)
{
    return ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline uint32_t kvr_pair_slot(uint64_t hash)
{
    return (uint32_t)(hash >> 32) ^ (uint32_t)(hash >> 47);
}

/* The token that left and right merge to in some text, or KVR_NO_TOKEN. */
static inline uint32_t kvr_pair_find(
    const struct kvr_vocabulary *vocabulary, uint32_t left, uint32_t right)
{
    const struct kvr_pair_table *pairs = &vocabulary->pairs;
    struct kvr_pair_place place = kvr_pair_place_of(pairs, kvr_pair_mix(left, right));

    return kvr_pair_at(&place, pairs);
}

/* A unit of a double array: base:27 label:9 token + 1:28. The child of a node for byte b is at
 * base ^ b if its label is b (256: a free unit); bases are unique, so no parent need be kept. */
#define KVR_TRIE_LABEL(unit) ((uint32_t)((unit) >> 28) & 511)
#define KVR_TRIE_BASE(unit) ((uint32_t)((unit) >> 37))
#define KVR_TRIE_TOKEN(unit) (((uint32_t)(unit)&0xfffffff) - 1)

#endif
