/*
 * Normalizers and pre-tokenizers in general, step by step as the vocabulary lists them: the path of
 * vocabularies whose steps no scanner stands for. A text is one buffer and the ends of its pieces;
 * each step reads one such list and writes the next.
 */
#include "token/alphabet.h"
#include "token/codepoints.h"
#include "token/normalize.h"
#include "token/tokenizer_internal.h"
#include "token/unicode.h"

#include <stdlib.h>

#define NORMALIZED_LIMIT                                                                           \
    (1u << 30) /* replacements that lengthen a text again and again end there */

void kvr_pieces_release(struct kvr_pieces *pieces)
{
    kvr_buffer_release(&pieces->text);
    free(pieces->ends);
    memset(pieces, 0, sizeof *pieces);
}

void kvr_pieces_push(struct kvr_pieces *pieces, size_t end)
{
    if (pieces->count == pieces->capacity) {
        size_t capacity = pieces->capacity ? pieces->capacity * 2 : 64;
        uint32_t *larger = realloc(pieces->ends, capacity * sizeof *larger);
        if (!larger) {
            pieces->text.failed = true;
            return;
        }
        pieces->ends = larger;
        pieces->capacity = capacity;
    }
    pieces->ends[pieces->count++] = (uint32_t)end;
}

/* Ends the piece that grew in pieces->text, unless nothing did. */
static void close_piece(struct kvr_pieces *pieces)
{
    size_t start = pieces->count ? pieces->ends[pieces->count - 1] : 0;

    if (pieces->text.length > start)
        kvr_pieces_push(pieces, pieces->text.length);
}

/* One step's search for its text or pattern, in one text. */
struct finder {
    const struct kvr_tokenizer *tokenizer;
    const struct kvr_vocabulary_step *step;
    struct kvr_search *search;
    const char *text;
    size_t length, at, last_stop; /* where the last match ended; SIZE_MAX: there was none */
};

static struct finder finder_of(const struct kvr_tokenizer *t,
    const struct kvr_vocabulary_step *step, struct kvr_search *search, const char *text,
    size_t length)
{
    const struct kvr_pattern *pattern = kvr_step_pattern(t, step);

    if (pattern)
        kvr_search_text(search, pattern, text, length);
    return (struct finder){t, step, pattern ? search : NULL, text, length, 0, SIZE_MAX};
}

static enum kvr_status find(
    struct finder *finder, bool *found, size_t *start, size_t *stop, struct kvr_error *error)
{
    const struct kvr_vocabulary_step *step = finder->step;
    size_t at = finder->at;
    enum kvr_status status = KVR_OK;

    if (finder->search) {
        status = kvr_search_next(finder->search, at, finder->last_stop, found, start, stop, error);
    } else {
        const char *literal = finder->tokenizer->vocabulary.text + step->text;
        const char *match =
            step->text_length && at < finder->length
                ? memmem(finder->text + at, finder->length - at, literal, step->text_length)
                : NULL;
        *found = match != NULL;
        *start = match ? (size_t)(match - finder->text) : 0;
        *stop = *start + step->text_length;
    }
    if (!status && *found)
        finder->at = finder->last_stop = *stop;
    return status;
}

static enum kvr_status replace_all(const struct kvr_tokenizer *t,
    const struct kvr_vocabulary_step *step, const struct kvr_buffer *in, struct kvr_buffer *out,
    struct kvr_error *error)
{
    struct kvr_search search = {0};
    struct finder finder = finder_of(t, step, &search, in->data, in->length);
    size_t at = 0, start, stop;
    bool found = true;
    enum kvr_status status = KVR_OK;

    while (!status && found) {
        status = find(&finder, &found, &start, &stop, error);
        if (status || !found)
            break;
        kvr_buffer_append(out, in->data + at, start - at);
        kvr_buffer_append(out, t->vocabulary.text + step->other, step->other_length);
        at = stop;
        if (out->length > NORMALIZED_LIMIT)
            status = kvr_error_set(error, KVR_BAD_INPUT, "normalized text of more than 1 GiB");
    }
    kvr_buffer_append(out, in->data + at, in->length - at);
    kvr_search_release(&search);
    return status;
}

static void strip_marks(const struct kvr_buffer *in, struct kvr_buffer *out)
{
    const uint8_t *p = (const uint8_t *)in->data, *end = p + in->length;
    const struct kvr_unicode_script *marks = kvr_script_find("Tokenizers_Mark");
    unsigned size;

    for (; p < end; p += size) {
        uint32_t character = kvr_utf8_decode(p, end, &size);
        if (character < 0x300 || !kvr_script_has(marks, character))
            kvr_buffer_append(out, p, size);
    }
}

static void normalize_spaces(
    const struct kvr_vocabulary_step *step, const struct kvr_buffer *in, struct kvr_buffer *out)
{
    const char *p = in->data, *end = p + in->length;

    if (step->a && in->length)
        kvr_buffer_append_byte(out, ' ');
    while (p < end) {
        const char *mark = memmem(p, (size_t)(end - p), "\u2581", 3);
        kvr_buffer_append(out, p, (size_t)((mark ? mark : end) - p));
        if (mark)
            kvr_buffer_append_byte(out, ' ');
        p = mark ? mark + 3 : end;
    }
}

static enum kvr_status normalize_step(const struct kvr_tokenizer *t,
    const struct kvr_vocabulary_step *step, const struct kvr_buffer *in, struct kvr_buffer *out,
    struct kvr_error *error)
{
    const uint8_t *text = (const uint8_t *)in->data;

    switch (step->kind) {
    case KVR_NORMALIZE_NFC:
        kvr_normal_form(KVR_NFC, text, in->length, out);
        return KVR_OK;
    case KVR_NORMALIZE_NFD:
        kvr_normal_form(KVR_NFD, text, in->length, out);
        return KVR_OK;
    case KVR_NORMALIZE_NFKC:
        kvr_normal_form(KVR_NFKC, text, in->length, out);
        return KVR_OK;
    case KVR_NORMALIZE_NFKD:
        kvr_normal_form(KVR_NFKD, text, in->length, out);
        return KVR_OK;
    case KVR_NORMALIZE_REPLACE:
        return replace_all(t, step, in, out, error);
    case KVR_NORMALIZE_PREPEND:
        if (in->length)
            kvr_buffer_append(out, t->vocabulary.text + step->text, step->text_length);
        kvr_buffer_append(out, in->data, in->length);
        return KVR_OK;
    case KVR_NORMALIZE_STRIP: {
        size_t before = step->a ? kvr_spaces_after(text, in->length) : 0;
        size_t after = step->b ? kvr_spaces_before(text + before, in->length - before) : 0;
        kvr_buffer_append(out, text + before, in->length - before - after);
        return KVR_OK;
    }
    case KVR_NORMALIZE_STRIP_ACCENTS:
        strip_marks(in, out);
        return KVR_OK;
    case KVR_NORMALIZE_SPACES:
        normalize_spaces(step, in, out);
        return KVR_OK;
    default:
        return kvr_error_set(error, KVR_UNSUPPORTED, "normalizer %u", (unsigned)step->kind);
    }
}

enum kvr_status kvr_normalize(const struct kvr_tokenizer *tokenizer, struct kvr_buffer *text,
    struct kvr_buffer *spare, struct kvr_error *error)
{
    uint32_t count;
    const struct kvr_vocabulary_step *steps = kvr_steps(tokenizer, KVR_NORMALIZERS, &count);

    for (uint32_t i = 0; i < count; i++) {
        kvr_buffer_clear(spare);
        enum kvr_status status = normalize_step(tokenizer, &steps[i], text, spare, error);
        if (status)
            return status;
        if (spare->failed || text->failed)
            return kvr_error_memory(error);
        struct kvr_buffer swapped = *text;
        *text = *spare;
        *spare = swapped;
    }
    return text->failed ? kvr_error_memory(error) : KVR_OK;
}

/* Appends part of a piece as a piece of its own, or to the piece being built. */
static void put(struct kvr_pieces *out, const char *text, size_t length, bool close)
{
    kvr_buffer_append(&out->text, text, length);
    if (close)
        close_piece(out);
}

/* The two kinds of stretches that a split sees in a piece, one after the other. An empty match
 * divides what is on both sides of it. */
static void put_stretch(struct kvr_pieces *out, enum kvr_behaviour behaviour, bool match,
    const char *text, size_t length, bool *last_was_match)
{
    switch (behaviour) {
    case KVR_SPLIT_ISOLATED:
        put(out, text, length, true);
        break;
    case KVR_SPLIT_REMOVED:
        if (!match)
            put(out, text, length, true);
        break;
    case KVR_SPLIT_WITH_PREVIOUS:
        if (match && !*last_was_match && out->count &&
            out->ends[out->count - 1] == out->text.length && out->text.length) {
            kvr_buffer_append(&out->text, text, length);
            out->ends[out->count - 1] = (uint32_t)out->text.length;
        } else {
            put(out, text, length, true);
        }
        break;
    case KVR_SPLIT_WITH_NEXT:
        if (match)
            close_piece(out); /* a match before it stands alone */
        put(out, text, length, !match);
        break;
    case KVR_SPLIT_CONTIGUOUS:
        if (match != *last_was_match)
            close_piece(out);
        put(out, text, length, false);
        break;
    }
    /* what follows an empty stretch would be merged into that: it starts a piece */
    *last_was_match = match || (behaviour == KVR_SPLIT_WITH_PREVIOUS && !length);
}

/* *first: the piece starts where the input does; false after what stood there is removed. */
static enum kvr_status split_piece(
    struct finder finder, bool *first, struct kvr_pieces *out, struct kvr_error *error)
{
    const struct kvr_vocabulary_step *step = finder.step;
    const char *text = finder.text;
    enum kvr_behaviour behaviour = (enum kvr_behaviour)step->a;
    bool inverted = step->b & 1, found, last_was_match = true;
    size_t length = finder.length, at = 0, start, stop;

    for (;;) {
        enum kvr_status status = find(&finder, &found, &start, &stop, error);
        if (status)
            return status;
        if (!found)
            break;
        if (!at && behaviour == KVR_SPLIT_REMOVED && (inverted ? start > 0 : !start && stop > 0))
            *first = false;
        if (start > at)
            put_stretch(out, behaviour, inverted, text + at, start - at, &last_was_match);
        put_stretch(out, behaviour, !inverted, text + start, stop - start, &last_was_match);
        at = stop;
    }
    if (!at && behaviour == KVR_SPLIT_REMOVED && inverted)
        *first = false;
    if (length > at)
        put_stretch(out, behaviour, inverted, text + at, length - at, &last_was_match);
    close_piece(out);
    return KVR_OK;
}

static void scan_piece(enum kvr_scan scan, const char *text, size_t length, struct kvr_pieces *out)
{
    size_t at = 0, base = out->text.length, count;
    uint32_t ends[64];

    kvr_buffer_append(&out->text, text, length);
    while ((count = kvr_scan_kinds[scan].scan((const uint8_t *)text, length, &at, ends, 64)))
        for (size_t i = 0; i < count; i++)
            kvr_pieces_push(out, base + ends[i]);
}

/* Spaces become the replacement; one is put before the piece; each starts a new piece. */
static void metaspace_piece(const struct kvr_tokenizer *t, const struct kvr_vocabulary_step *step,
    const char *text, size_t length, bool first, struct kvr_pieces *out)
{
    const char *mark = t->vocabulary.text + step->text;
    size_t size = step->text_length;
    bool starts = length >= size && memcmp(text, mark, size) == 0;

    if ((step->a == 1 || (step->a == 2 && first)) && !starts && text[0] != ' ')
        kvr_buffer_append(&out->text, mark, size);
    for (size_t at = 0; at < length;) {
        bool space = text[at] == ' ';
        bool marked = space || (length - at >= size && memcmp(text + at, mark, size) == 0);
        if (marked && step->b)
            close_piece(out);
        if (marked)
            kvr_buffer_append(&out->text, mark, size);
        else
            kvr_buffer_append_byte(&out->text, text[at]);
        at += marked && !space ? size : 1;
    }
    close_piece(out);
}

static enum kvr_status pretokenize_piece(const struct kvr_tokenizer *t,
    const struct kvr_vocabulary_step *step, struct kvr_search *search, const char *text,
    size_t length, bool *first, struct kvr_pieces *out, struct kvr_error *error)
{
    switch (step->kind) {
    case KVR_PRETOKENIZE_SCAN:
        scan_piece((enum kvr_scan)step->a, text, length, out);
        return KVR_OK;
    case KVR_PRETOKENIZE_SPLIT:
        return split_piece(finder_of(t, step, search, text, length), first, out, error);
    case KVR_PRETOKENIZE_PREFIX:
        if (text[0] != ' ')
            kvr_buffer_append_byte(&out->text, ' ');
        put(out, text, length, true);
        return KVR_OK;
    case KVR_PRETOKENIZE_METASPACE:
        metaspace_piece(t, step, text, length, *first, out);
        return KVR_OK;
    case KVR_PRETOKENIZE_TO_ALPHABET:
        kvr_bytes_to_alphabet(text, length, &out->text);
        close_piece(out);
        return KVR_OK;
    case KVR_PRETOKENIZE_FROM_ALPHABET:
        kvr_bytes_from_alphabet(text, length, &out->text);
        close_piece(out);
        return KVR_OK;
    default:
        return kvr_error_set(error, KVR_UNSUPPORTED, "pre-tokenizer %u", (unsigned)step->kind);
    }
}

/* The bytes that a split's matches start with; NULL: every piece has to be searched. */
static const uint64_t *starts_of(
    const struct kvr_tokenizer *t, const struct kvr_vocabulary_step *step)
{
    bool inverted = step->b & 1;

    return step->kind == KVR_PRETOKENIZE_SPLIT && !inverted && kvr_step_pattern(t, step)
               ? kvr_pattern_starts(kvr_step_pattern(t, step))
               : NULL;
}

/* Passes pieces on as they are, from the one at `start` to the first that may hold a match: most do
 * not, where one split follows another. Returns how many. */
static size_t pass_on(const uint64_t *starts, const struct kvr_pieces *pieces, size_t number,
    size_t start, struct kvr_pieces *out)
{
    const uint8_t *text = (const uint8_t *)pieces->text.data;
    size_t base = out->text.length, last = number, at = start;

    for (; last < pieces->count; last++) {
        while (at < pieces->ends[last] && !kvr_byte_in(starts, text[at]))
            at++;
        if (at < pieces->ends[last])
            break;
    }
    if (last == number)
        return 0;
    kvr_buffer_append(&out->text, text + start, pieces->ends[last - 1] - start);
    for (size_t k = number; k < last; k++)
        kvr_pieces_push(out, base + pieces->ends[k] - start);
    return last - number;
}

enum kvr_status kvr_pretokenize(const struct kvr_tokenizer *tokenizer, struct kvr_pieces *pieces,
    struct kvr_pieces *spare, bool at_start, struct kvr_error *error)
{
    uint32_t count;
    const struct kvr_vocabulary_step *steps = kvr_steps(tokenizer, KVR_PRETOKENIZERS, &count);
    struct kvr_search search = {0};
    enum kvr_status status = KVR_OK;

    for (uint32_t i = 0; i < count && !status; i++) {
        const uint64_t *starts = starts_of(tokenizer, &steps[i]);
        size_t start = 0;
        kvr_buffer_clear(&spare->text);
        spare->count = 0;
        for (size_t k = 0; k < pieces->count && !status; k++) {
            size_t passed = starts ? pass_on(starts, pieces, k, start, spare) : 0;
            if (passed) {
                k += passed - 1;
                start = pieces->ends[k];
                continue;
            }
            size_t end = pieces->ends[k];
            bool first = at_start && k == 0;
            status = pretokenize_piece(tokenizer, &steps[i], &search, pieces->text.data + start,
                end - start, &first, spare, error);
            at_start = at_start && (k || first);
            start = end;
        }
        if (!status && (spare->text.failed || spare->text.length >= UINT32_MAX))
            status = kvr_error_memory(error);
        struct kvr_pieces swapped = *pieces;
        *pieces = *spare;
        *spare = swapped;
    }
    kvr_search_release(&search);
    return status;
}

void kvr_fold_pieces(struct kvr_pieces *pieces)
{
    char *text = pieces->text.data;
    size_t in = 0, out = 0;

    for (size_t k = 0; k < pieces->count; k++) {
        size_t end = pieces->ends[k];
        while (in < end) {
            bool mark = end - in >= 3 && memcmp(text + in, "\u2581", 3) == 0;
            text[out++] = mark ? ' ' : text[in];
            in += mark ? 3 : 1;
        }
        pieces->ends[k] = (uint32_t)out;
    }
    pieces->text.length = out;
}
