/*
 * Byte-pair encoding without merging.
 *
 * Two neighbours a, b are compatible when encoding ab gives [a, b]; a sequence is the encoding of
 * its text exactly when all neighbours are compatible, and a text has one encoding (vocabulary.h).
 * So we look for any compatible sequence: take the longest token that matches here; if it is not
 * compatible with the one before, the next shorter; if none is, this position ends no encoding of
 * the text before it: mark it dead, drop the last token and go on from there with a shorter one.
 * A position has one encoding, so it dies once and is never tried again: the time is linear in the
 * text times the number of tokens that are prefixes of each other, whatever the text.
 *
 * Compatibility looks at the seam only. Undo the merges of a and b from the latest to the
 * earliest; between two undos the tokens x | y face each other at the seam, and if x, y merge
 * with an order before the undo just made, encoding ab would have joined them there. With equal
 * orders the left one goes first, hence the + 1 on the right side.
 *
 * (The idea of encoding by compatible neighbours is that of the `bpe` crate by GitHub, 2023.)
 */
#include "token/bpe.h"
#include "token/unicode.h"

#include <stdlib.h>

void kvr_ids_release(struct kvr_ids *ids)
{
    free(ids->data);
    memset(ids, 0, sizeof *ids);
}

bool kvr_ids_grow(struct kvr_ids *ids, size_t more)
{
    size_t wanted = ids->count + more, capacity = ids->capacity < 256 ? 256 : ids->capacity;

    if (wanted < more || wanted > SIZE_MAX / sizeof *ids->data / 2) {
        ids->failed = true;
        return false;
    }
    while (capacity < wanted)
        capacity += capacity / 2;
    uint32_t *data = realloc(ids->data, capacity * sizeof *data);
    if (!data) {
        ids->failed = true;
        return false;
    }
    ids->data = data;
    ids->capacity = capacity;
    return true;
}

void kvr_bpe_scratch_release(struct kvr_bpe_scratch *scratch)
{
    free(scratch->dead);
    free(scratch->nodes);
    free(scratch->heap);
    free(scratch->kept);
    memset(scratch, 0, sizeof *scratch);
}

/* Whether x, y are compatible. x_longest: x is the longest token at its place in the text; then no
 * token is x and y joined, and their pair need not be looked for. */
static bool compatible(const struct kvr_vocabulary *v, uint32_t x, uint32_t y, bool x_longest)
{
    uint32_t limit = UINT32_MAX;

    if (!x_longest && kvr_pair_find(v, x, y) != KVR_NO_TOKEN)
        return false;
    for (;;) {
        const struct kvr_token_record *left = &v->records[x], *right = &v->records[y];
        if (left->order > right->order) {
            limit = left->order;
            x = left->right;
        } else if (right->order) {
            limit = right->order + 1;
            y = right->left;
        } else {
            return true;
        }
        uint32_t merged = kvr_pair_find(v, x, y);
        if (merged != KVR_NO_TOKEN && v->records[merged].order < limit)
            return false;
    }
}

/* The longest token that text starts with; its length in *length. */
static inline uint32_t longest_token(
    const struct kvr_vocabulary *v, const uint8_t *text, const uint8_t *end, size_t *length)
{
    const uint64_t *trie = v->trie;
    const struct kvr_token_record *records = v->records; /* asked for ahead of compatible() */
    const uint8_t *start = text;
    uint32_t found = KVR_NO_TOKEN;
    uint64_t unit = trie[0];

    while (text < end) {
        uint8_t byte = *text++;
        unit = trie[KVR_TRIE_BASE(unit) ^ byte];
        if (KVR_TRIE_LABEL(unit) != byte)
            break;
        if (KVR_TRIE_TOKEN(unit) != KVR_NO_TOKEN) {
            found = KVR_TRIE_TOKEN(unit);
            *length = (size_t)(text - start);
            __builtin_prefetch(&records[found]);
        }
    }
    return found;
}

/* Clears bits 0..length of the dead marks. */
static bool reset_dead(struct kvr_bpe_scratch *scratch, size_t length)
{
    size_t words = length / 64 + 1;

    if (words > scratch->dead_words) {
        uint64_t *dead = realloc(scratch->dead, words * 2 * sizeof *dead);
        if (!dead)
            return false;
        scratch->dead = dead;
        scratch->dead_words = words * 2;
    }
    memset(scratch->dead, 0, words * sizeof *scratch->dead);
    return true;
}

/* Encodes from the start of text up to the first symbol that no token starts with, or to the end.
 * Returns the bytes encoded. */
static size_t encode_known(const struct kvr_vocabulary *v, struct kvr_bpe_scratch *scratch,
    const uint8_t *text, size_t length, struct kvr_ids *ids)
{
    const uint8_t *end = text + length;
    size_t first = ids->count, at = 0, size = 0;
    uint32_t next = longest_token(v, text, end, &size);
    bool longest = true, last_longest = false; /* of next, and of the token before it */

    if (next != KVR_NO_TOKEN && size == length) {
        kvr_ids_push(ids, next);
        return length;
    }
    if (!reset_dead(scratch, length)) {
        ids->failed = true;
        return length;
    }
    while (next != KVR_NO_TOKEN && !ids->failed) {
        bool start = ids->count == first;
        uint32_t last = start ? KVR_NO_TOKEN : ids->data[ids->count - 1];
        for (;;) {
            size_t stop = at + size;
            if (!(scratch->dead[stop / 64] >> stop % 64 & 1) &&
                (start || compatible(v, last, next, last_longest)))
                break;
            next = v->records[next].shorter;
            if (next == KVR_NO_TOKEN)
                break;
            size = kvr_token_length(v, next);
            longest = false;
        }
        if (next != KVR_NO_TOKEN) {
            kvr_ids_push(ids, next);
            at += size;
            last_longest = longest;
            longest = true;
            next = at < length ? longest_token(v, text + at, end, &size) : KVR_NO_TOKEN;
        } else if (!start) {
            scratch->dead[at / 64] |= UINT64_C(1) << at % 64;
            ids->count--;
            size = kvr_token_length(v, last);
            at -= size;
            last_longest = false;
            next = last; /* its end is dead now: a shorter one follows */
        }
    }
    return at;
}

static bool symbol_is_known(const struct kvr_vocabulary *v, const uint8_t *symbol, size_t length)
{
    size_t size;

    if (v->header->model == KVR_MODEL_BYTE_BPE)
        return v->byte_ids[*symbol] != KVR_NO_TOKEN;
    return longest_token(v, symbol, symbol + length, &size) != KVR_NO_TOKEN;
}

static unsigned symbol_length(
    const struct kvr_vocabulary *v, const uint8_t *text, const uint8_t *end)
{
    unsigned length = 1;

    if (v->header->model == KVR_MODEL_CHAR_BPE)
        kvr_utf8_decode(text, end, &length);
    return length;
}

/* The ids of a symbol that is no token. Returns whether the unknown token stands for it. */
static bool encode_unknown(const struct kvr_vocabulary *v, const uint8_t *symbol, size_t length,
    bool after_unknown, struct kvr_ids *ids)
{
    const struct kvr_image_header *h = v->header;
    bool bytes = h->special_flags & KVR_VOCABULARY_BYTE_FALLBACK;

    for (size_t i = 0; i < length; i++)
        bytes = bytes && v->byte_ids[symbol[i]] != KVR_NO_TOKEN;
    if (bytes) {
        for (size_t i = 0; i < length; i++)
            kvr_ids_push(ids, v->byte_ids[symbol[i]]);
        return false;
    }
    if (h->unknown_id == KVR_NO_TOKEN)
        return false;
    if (!(after_unknown && h->special_flags & KVR_VOCABULARY_FUSE_UNKNOWN))
        kvr_ids_push(ids, h->unknown_id);
    return true;
}

/* Where unknown symbols vanish, those around them become neighbours. */
static const uint8_t *drop_unknown(const struct kvr_vocabulary *v, struct kvr_bpe_scratch *scratch,
    const uint8_t *piece, size_t *length)
{
    size_t kept = 0;

    if (scratch->kept_capacity < *length) {
        uint8_t *larger = realloc(scratch->kept, *length);
        if (!larger)
            return NULL;
        scratch->kept = larger;
        scratch->kept_capacity = *length;
    }
    for (size_t at = 0; at < *length;) {
        unsigned size = symbol_length(v, piece + at, piece + *length);
        if (symbol_is_known(v, piece + at, size)) {
            memcpy(scratch->kept + kept, piece + at, size);
            kept += size;
        }
        at += size;
    }
    *length = kept;
    return scratch->kept;
}

static size_t known_prefix(const struct kvr_vocabulary *v, const uint8_t *piece, size_t length)
{
    size_t at = 0;

    while (at < length) {
        unsigned size = symbol_length(v, piece + at, piece + length);
        if (!symbol_is_known(v, piece + at, size))
            break;
        at += size;
    }
    return at;
}

void kvr_bpe_encode(const struct kvr_vocabulary *v, struct kvr_bpe_scratch *scratch,
    const uint8_t *piece, size_t length, struct kvr_ids *ids)
{
    bool irregular = v->header->special_flags & KVR_VOCABULARY_IRREGULAR, unknown = false;

    if (length <= KVR_SHORT_SYMBOLS && v->header->special_flags & KVR_VOCABULARY_SHORT_MERGES) {
        if (!kvr_ids_reserve(ids, length))
            return;
        struct kvr_short_piece whole = {piece, (uint32_t)length, ids->data + ids->count, 0};
        kvr_short_merge(v, &whole, 1);
        ids->count += whole.id_count;
        return;
    }
    if (!irregular && kvr_bpe_has_runs(v, piece, length) &&
        kvr_bpe_merge_runs(v, scratch, piece, length, ids))
        return;
    bool vanish = v->header->unknown_id == KVR_NO_TOKEN &&
                  !(v->header->special_flags & KVR_VOCABULARY_BYTE_FALLBACK);

    if (vanish && known_prefix(v, piece, length) < length) {
        piece = drop_unknown(v, scratch, piece, &length);
        ids->failed |= !piece;
    }
    for (size_t at = 0; at < length && !ids->failed;) {
        size_t done;
        if (irregular) {
            done = known_prefix(v, piece + at, length - at);
            if (done)
                kvr_bpe_merge(v, scratch, piece + at, done, ids);
        } else {
            done = encode_known(v, scratch, piece + at, length - at, ids);
        }
        at += done;
        if (at < length) {
            unsigned size = symbol_length(v, piece + at, piece + length);
            unknown = encode_unknown(v, piece + at, size, unknown && !done, ids);
            at += size;
        }
    }
}
