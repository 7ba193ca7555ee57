#include "token/vocabulary.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t kvr_piece_hash_of(const uint8_t *piece, size_t length)
{
    uint64_t words[2] = {0, 0};

    if (length > 16)
        return XXH3_64bits(piece, length);
    if (length) /* a text without bytes may be nowhere */
        memcpy(words, piece, length);
    return kvr_piece_hash(words[0], words[1]);
}

/* Everything that decides where a lookup reads is checked here, so that a damaged cache file can
 * give an error and never a bad read; the checksum of the image is the caller's to check. */
static bool indexes_are_inside(const struct kvr_vocabulary *v)
{
    const struct kvr_image_header *h = v->header;
    uint32_t count = h->token_count;
    uint64_t text_length = h->section[KVR_SECTION_TEXT].length;

    for (uint32_t id = 0; id < count; id++)
        if (v->token_offset[id] > v->token_offset[id + 1])
            return false;
    if (v->token_offset[count] != h->section[KVR_SECTION_TOKEN_BYTES].length)
        return false;
    for (uint32_t id = 0; id < count; id++) {
        const struct kvr_token_record *r = &v->records[id];
        if (r->order && (r->left >= count || r->right >= count))
            return false;
        if (r->shorter != KVR_NO_TOKEN && r->shorter >= count)
            return false;
    }
    for (uint32_t i = 0; i < h->pair_buckets; i++)
        for (int slot = 0; slot < KVR_BUCKET_PAIRS; slot++)
            if (v->pairs.buckets[i].tags[slot] != KVR_TAG_EMPTY &&
                (v->pairs.buckets[i].ids[slot] & ~KVR_BUCKET_OVERFLOWS) >= count)
                return false;
    for (uint32_t i = 0; i < h->merge_slots; i++)
        if (v->merges[i].order && v->merges[i].result >= count)
            return false;
    for (uint32_t i = 0; i < h->word_slots; i++)
        if (v->words[i] != UINT64_MAX && (uint32_t)v->words[i] >= count)
            return false;
    for (uint32_t i = 0; i < h->trie_units; i++)
        if (KVR_TRIE_BASE(v->trie[i]) >= h->trie_units ||
            (KVR_TRIE_TOKEN(v->trie[i]) != KVR_NO_TOKEN && KVR_TRIE_TOKEN(v->trie[i]) >= count))
            return false;
    for (int i = 0; i < 65536; i++)
        if (v->byte_pairs[i] != KVR_NO_TOKEN && v->byte_pairs[i] >= count)
            return false;
    for (int i = 0; i < 256; i++)
        if (v->byte_ids[i] != KVR_NO_TOKEN && v->byte_ids[i] >= count)
            return false;
    for (uint32_t i = 0; i < h->step_first[KVR_PIPELINE_COUNT]; i++) {
        const struct kvr_vocabulary_step *s = &v->steps[i];
        if ((uint64_t)s->text + s->text_length > text_length ||
            (uint64_t)s->other + s->other_length > text_length)
            return false;
    }
    return true;
}

static bool is_power_of_two(uint32_t n)
{
    return n && (n & (n - 1)) == 0;
}

/* Bits of a mixed key below those that choose one of `count`, a power of two. */
static uint32_t key_shift(uint32_t count)
{
    return KVR_PAIR_KEY_BITS - (uint32_t)__builtin_ctz(count);
}

static bool header_is_sound(const struct kvr_image_header *h, size_t length)
{
    const uint64_t steps = h->step_first[KVR_PIPELINE_COUNT];
    const uint64_t wanted[KVR_SECTION_COUNT] = {
        [KVR_SECTION_TOKEN_OFFSET] = ((uint64_t)h->token_count + 1) * sizeof(uint32_t),
        [KVR_SECTION_TOKEN_BYTES] = h->section[KVR_SECTION_TOKEN_BYTES].length,
        [KVR_SECTION_TOKEN_FLAGS] = h->token_count,
        [KVR_SECTION_RECORDS] = h->token_count * sizeof(struct kvr_token_record),
        [KVR_SECTION_PAIRS] = h->pair_buckets * sizeof(struct kvr_pair_bucket),
        [KVR_SECTION_FILTER] = h->filter_words * sizeof(uint64_t),
        [KVR_SECTION_MERGES] = h->merge_slots * sizeof(struct kvr_merge),
        [KVR_SECTION_WORDS] = h->word_slots * sizeof(uint64_t),
        [KVR_SECTION_TRIE] = h->trie_units * sizeof(uint64_t),
        [KVR_SECTION_BYTE_IDS] = 256 * sizeof(uint32_t),
        [KVR_SECTION_BYTE_PAIRS] = 65536 * sizeof(uint32_t),
        [KVR_SECTION_JOINS] = 65536,
        [KVR_SECTION_BORDERS] = h->border_bits / 8,
        [KVR_SECTION_PARTIAL_LEFT] = 256,
        [KVR_SECTION_TEXT] = h->section[KVR_SECTION_TEXT].length,
        [KVR_SECTION_STEPS] = steps * sizeof(struct kvr_vocabulary_step),
    };

    if (memcmp(h->magic, "kvrvocab", 8) != 0 || h->header_bytes != sizeof *h ||
        h->image_bytes != length || h->token_count > KVR_TOKEN_LIMIT ||
        h->model > KVR_MODEL_CHAR_BPE || !is_power_of_two(h->merge_slots) ||
        !is_power_of_two(h->pair_buckets) || h->pair_buckets < KVR_BUCKETS_LEAST ||
        !is_power_of_two(h->filter_words) || h->filter_words < 2 ||
        !is_power_of_two(h->border_bits) || h->border_bits < 64 ||
        !is_power_of_two(h->word_slots) || h->trie_units % 256 || !h->trie_units ||
        h->step_first[0] != 0)
        return false;
    for (int i = 0; i < KVR_PIPELINE_COUNT; i++)
        if (h->step_first[i] > h->step_first[i + 1])
            return false;
    for (int i = 0; i < KVR_SECTION_COUNT; i++)
        if (h->section[i].length != wanted[i] || h->section[i].offset > length ||
            h->section[i].offset % 64 || h->section[i].length > length - h->section[i].offset)
            return false;
    return true;
}

void kvr_vocabulary_attach_own(struct kvr_vocabulary *vocabulary, const void *image)
{
    const struct kvr_image_header *h = image;

#define SECTION(name) (const void *)((const char *)image + h->section[KVR_SECTION_##name].offset)
    *vocabulary = (struct kvr_vocabulary){
        .header = h,
        .token_offset = SECTION(TOKEN_OFFSET),
        .token_bytes = SECTION(TOKEN_BYTES),
        .token_flags = SECTION(TOKEN_FLAGS),
        .records = SECTION(RECORDS),
        .pairs = {SECTION(PAIRS), SECTION(FILTER), key_shift(h->pair_buckets),
            key_shift(h->filter_words)},
        .merges = SECTION(MERGES),
        .words = SECTION(WORDS),
        .trie = SECTION(TRIE),
        .byte_ids = SECTION(BYTE_IDS),
        .byte_pairs = SECTION(BYTE_PAIRS),
        .joins = SECTION(JOINS),
        .borders = SECTION(BORDERS),
        .partial_left = SECTION(PARTIAL_LEFT),
        .border_mask = h->border_bits - 1,
        .text = SECTION(TEXT),
        .steps = SECTION(STEPS),
        .merge_mask = h->merge_slots - 1,
        .word_mask = h->word_slots - 1,
    };
#undef SECTION
}

enum kvr_status kvr_vocabulary_attach(
    struct kvr_vocabulary *vocabulary, const void *image, size_t length, struct kvr_error *error)
{
    memset(vocabulary, 0, sizeof *vocabulary);
    if (length < sizeof(struct kvr_image_header) || !header_is_sound(image, length))
        return kvr_error_set(error, KVR_BAD_INPUT, "not a compiled vocabulary of this version");
    kvr_vocabulary_attach_own(vocabulary, image);
    if (!indexes_are_inside(vocabulary))
        return kvr_error_set(error, KVR_BAD_INPUT, "a damaged compiled vocabulary");
    return KVR_OK;
}
