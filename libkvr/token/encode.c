/*
 * Text to ids: added tokens are found first (in the text as it is, then in what normalization
 * makes of the rest), what lies between them is normalized, split into pieces and encoded. The
 * usual vocabularies need no copy of the text: nothing to normalize, one scanner for the split.
 */
#include "token/encode.h"
#include "token/normalize.h"
#include "token/unicode.h"

#include <stdlib.h>

#define BATCH 1024

enum kvr_status kvr_encoder_new(
    struct kvr_encoder **encoder, const struct kvr_tokenizer *tokenizer, struct kvr_error *error)
{
    *encoder = calloc(1, sizeof **encoder);
    if (!*encoder || !kvr_piece_cache_init(&(*encoder)->cache)) {
        free(*encoder);
        *encoder = NULL;
        return kvr_error_memory(error);
    }
    (*encoder)->tokenizer = tokenizer;
    return KVR_OK;
}

void kvr_encoder_release(struct kvr_encoder *encoder)
{
    if (!encoder)
        return;
    kvr_piece_cache_release(&encoder->cache);
    kvr_buffer_release(&encoder->normalized);
    kvr_buffer_release(&encoder->spare);
    kvr_pieces_release(&encoder->pieces);
    kvr_pieces_release(&encoder->spare_pieces);
    free(encoder);
}

/* Pieces of a whole text, found by one scanner. */
static void encode_scanned(
    struct kvr_encoder *encoder, const uint8_t *text, size_t length, struct kvr_ids *ids)
{
    const struct kvr_tokenizer *t = encoder->tokenizer;
    uint32_t ends[BATCH];
    size_t at = 0, start = 0, count;

    while ((count = t->scanner(text, length, &at, ends, BATCH)) && !ids->failed) {
        kvr_encode_pieces(&t->vocabulary, &encoder->cache, text, length, start, ends, count, ids);
        start = at;
    }
}

/* Cuts pieces further where no token of the vocabulary has these two bytes side by side: nothing
 * can merge across. What was one piece for the whole text becomes words, which the cache knows. */
static void encode_joined(struct kvr_encoder *encoder, const uint8_t *text, size_t length,
    const uint32_t *piece_ends, size_t piece_count, struct kvr_ids *ids)
{
    const struct kvr_vocabulary *v = &encoder->tokenizer->vocabulary;
    uint32_t ends[BATCH];
    size_t start = 0, count = 0, at = 0;

    for (size_t i = 0; i < piece_count && !ids->failed; i++) {
        for (at++; at <= piece_ends[i]; at++) {
            if (at < piece_ends[i] &&
                (v->joins[text[at - 1] << 8 | text[at]] || (text[at] & 0xc0) == 0x80))
                continue;
            ends[count++] = (uint32_t)at;
            if (count == BATCH) {
                kvr_encode_pieces(v, &encoder->cache, text, length, start, ends, count, ids);
                start = at;
                count = 0;
            }
        }
        at = piece_ends[i];
    }
    if (count)
        kvr_encode_pieces(v, &encoder->cache, text, length, start, ends, count, ids);
}

static void encode_cut(struct kvr_encoder *encoder, const uint8_t *text, size_t length,
    const uint32_t *ends, size_t count, struct kvr_ids *ids)
{
    if (encoder->tokenizer->joins)
        encode_joined(encoder, text, length, ends, count, ids);
    else
        kvr_encode_pieces(
            &encoder->tokenizer->vocabulary, &encoder->cache, text, length, 0, ends, count, ids);
}

/* Splits and encodes normalized text without added tokens. */
static enum kvr_status encode_text(struct kvr_encoder *encoder, const uint8_t *text, size_t length,
    bool at_start, struct kvr_ids *ids, struct kvr_error *error)
{
    const struct kvr_tokenizer *t = encoder->tokenizer;

    if (!length)
        return KVR_OK;
    if (length >= UINT32_MAX)
        return kvr_error_set(error, KVR_BAD_INPUT, "a text of 4 GiB or more");
    if (t->scanner) {
        encode_scanned(encoder, text, length, ids);
        return KVR_OK;
    }
    uint32_t whole = (uint32_t)length, steps;
    kvr_steps(t, KVR_PRETOKENIZERS, &steps);
    if (!steps && !(t->vocabulary.header->special_flags & KVR_VOCABULARY_FOLDED && !t->spaces)) {
        encode_cut(encoder, text, length, &whole, 1, ids);
        return KVR_OK;
    }
    struct kvr_pieces *pieces = &encoder->pieces;
    kvr_buffer_clear(&pieces->text);
    kvr_buffer_append(&pieces->text, text, length);
    pieces->count = 0;
    kvr_pieces_push(pieces, length);
    enum kvr_status status = kvr_pretokenize(t, pieces, &encoder->spare_pieces, at_start, error);
    if (!status && pieces->text.failed)
        status = kvr_error_memory(error);
    if (!status && t->vocabulary.header->special_flags & KVR_VOCABULARY_FOLDED)
        kvr_fold_pieces(pieces);
    if (!status && pieces->count)
        encode_cut(encoder, (const uint8_t *)pieces->text.data, pieces->text.length, pieces->ends,
            pieces->count, ids);
    return status;
}

/* Where the white space ends that starts at `at`. *known: a stretch of it that was looked at. */
static size_t spaces_end(const uint8_t *text, size_t at, size_t length, size_t known[2])
{
    if (at < known[0] || at > known[1]) {
        known[0] = at;
        known[1] = at + kvr_spaces_after(text + at, length - at);
    }
    return known[1];
}

/* What a match of an added token becomes after single_word, lstrip and rstrip; false: no match. */
static bool settle_match(const struct kvr_vocabulary_step *step, const uint8_t *text, size_t length,
    size_t floor, size_t spaces[2], size_t *start, size_t *stop)
{
    if (step->flags & KVR_ADDED_SINGLE_WORD &&
        (kvr_ends_with_word(text, *start) || kvr_starts_with_word(text + *stop, length - *stop)))
        return false;
    if (step->flags & KVR_ADDED_LSTRIP)
        *start = *start > floor ? *start - kvr_spaces_before(text + floor, *start - floor) : floor;
    if (step->flags & KVR_ADDED_RSTRIP)
        *stop = spaces_end(text, *stop, length, spaces);
    return true;
}

typedef enum kvr_status encode_part(struct kvr_encoder *encoder, const uint8_t *text, size_t length,
    bool at_start, unsigned flags, struct kvr_ids *ids, struct kvr_error *error);

/* Finds added tokens, gives their ids and hands what lies between them to `part`. */
static enum kvr_status split_added(struct kvr_encoder *encoder, const struct kvr_added *added,
    encode_part *part, const uint8_t *text, size_t length, bool at_start, unsigned flags,
    struct kvr_ids *ids, struct kvr_error *error)
{
    uint32_t count;
    const struct kvr_vocabulary_step *steps = kvr_steps(encoder->tokenizer, KVR_ADDED, &count);
    size_t floor = 0, from = 0, spaces[2] = {1, 0}, start, stop;
    struct kvr_backward_matches matches = {0};
    enum kvr_status status = KVR_OK;

    while (!(flags & KVR_ENCODE_NO_ADDED) && !status) {
        uint32_t found = kvr_added_find(added, &matches, text, from, length, &start, &stop);
        if (found == KVR_NO_TOKEN)
            break;
        const struct kvr_vocabulary_step *step = &steps[found];
        from = stop;
        if ((step->flags & KVR_ADDED_SPECIAL && !(flags & KVR_ENCODE_SPECIAL)) ||
            !settle_match(step, text, length, floor, spaces, &start, &stop))
            continue;
        if (floor < start)
            status = part(
                encoder, text + floor, start - floor, at_start && floor == 0, flags, ids, error);
        if (start < stop) /* else the token before it took all of it with the spaces behind */
            kvr_ids_push(ids, (uint32_t)step->a);
        floor = stop;
    }
    if (matches.failed && !status)
        status = kvr_error_memory(error);
    kvr_backward_matches_release(&matches);
    if (!status && floor < length)
        status =
            part(encoder, text + floor, length - floor, at_start && floor == 0, flags, ids, error);
    return status;
}

static enum kvr_status encode_last(struct kvr_encoder *encoder, const uint8_t *text, size_t length,
    bool at_start, unsigned flags, struct kvr_ids *ids, struct kvr_error *error)
{
    (void)flags;
    return encode_text(encoder, text, length, at_start, ids, error);
}

static enum kvr_status encode_normalized(struct kvr_encoder *encoder, const uint8_t *text,
    size_t length, bool at_start, unsigned flags, struct kvr_ids *ids, struct kvr_error *error)
{
    const struct kvr_tokenizer *t = encoder->tokenizer;

    if (!t->plain && !(t->nfc && kvr_is_nfc(text, length))) {
        struct kvr_buffer *out = &encoder->normalized;
        kvr_buffer_clear(out);
        kvr_buffer_append(out, text, length);
        enum kvr_status status = kvr_normalize(t, out, &encoder->spare, error);
        if (status)
            return status;
        text = (const uint8_t *)out->data;
        length = out->length;
    }
    return split_added(
        encoder, &t->normalized, encode_last, text, length, at_start, flags, ids, error);
}

static void encode_characters(
    enum kvr_token_model model, const uint8_t *text, size_t length, struct kvr_ids *ids)
{
    const uint8_t *end = text + length;

    if (!kvr_ids_reserve(ids, length))
        return;
    while (text < end) {
        unsigned size = 1;
        kvr_ids_push(ids, model == KVR_MODEL_BYTES ? *text : kvr_utf8_decode(text, end, &size));
        text += size;
    }
}

enum kvr_status kvr_encode(struct kvr_encoder *encoder, const char *text, size_t length,
    unsigned flags, struct kvr_ids *ids, struct kvr_error *error)
{
    const struct kvr_tokenizer *t = encoder->tokenizer;
    enum kvr_token_model model = (enum kvr_token_model)t->vocabulary.header->model;
    const uint8_t *bytes = (const uint8_t *)text;
    uint32_t count = 0, at = 0;
    const struct kvr_vocabulary_step *steps = kvr_steps(t, KVR_POSTPROCESSORS, &count);
    enum kvr_status status = KVR_OK;

    if (model <= KVR_MODEL_CHARS) {
        encode_characters(model, bytes, length, ids);
        return ids->failed ? kvr_error_memory(error) : KVR_OK;
    }
    for (; flags & KVR_ENCODE_MODEL && at < count && steps[at].kind == KVR_POST_TOKEN; at++)
        kvr_ids_push(ids, (uint32_t)steps[at].a);
    if (length)
        status = split_added(
            encoder, &t->raw, encode_normalized, bytes, length, true, flags, ids, error);
    for (; flags & KVR_ENCODE_MODEL && at < count; at++)
        if (steps[at].kind == KVR_POST_TOKEN)
            kvr_ids_push(ids, (uint32_t)steps[at].a);
    if (!status && ids->failed)
        status = kvr_error_memory(error);
    return status;
}
