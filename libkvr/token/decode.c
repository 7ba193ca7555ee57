/*
 * Ids to text. A decoder is a list of steps, each of which makes a list of tokens another one; the
 * text is what they are at the end, one after another, or, without any steps, with spaces between
 * them. Byte-level vocabularies with the one step that they have as a rule need no lists: the text
 * is their tokens' bytes. For all others tokens start as their file writes them.
 */
#include "token/alphabet.h"
#include "token/tokenizer_internal.h"
#include "token/unicode.h"

#include <inttypes.h>
#include <stdlib.h>

/* The byte of "<0xNN>", or -1. */
static int byte_token(const char *text, size_t length)
{
    static const char digits[] = "0123456789ABCDEF0123456789abcdef";

    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const char *high = memchr(digits, text[3], 32), *low = memchr(digits, text[4], 32);
    return high && low ? (int)((high - digits) % 16 * 16 + (low - digits) % 16) : -1;
}

/* Bytes of a folded vocabulary with their ▁ back, as the decoder steps expect them. */
static void append_unfolded(const char *bytes, size_t length, struct kvr_buffer *out)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] == ' ')
            kvr_buffer_append_text(out, "\u2581");
        else
            kvr_buffer_append_byte(out, bytes[i]);
    }
}

/* The normalized form of an added token, if it has one. */
static bool append_form(const struct kvr_tokenizer *t, uint32_t id, struct kvr_buffer *out)
{
    uint32_t head[2];

    for (size_t at = 0; at < t->forms.length; at += sizeof head + head[1]) {
        memcpy(head, t->forms.data + at, sizeof head);
        if (head[0] != id)
            continue;
        if (t->spaces) /* this normalizer leaves ▁ as a space */
            append_unfolded(t->forms.data + at + sizeof head, head[1], out);
        else
            kvr_buffer_append(out, t->forms.data + at + sizeof head, head[1]);
        return true;
    }
    return false;
}

/* What was appended from `before` on, if it is all of the byte-level alphabet, becomes bytes. */
static void read_alphabet(struct kvr_buffer *out, size_t before)
{
    struct kvr_buffer bytes = {0};

    if (kvr_bytes_from_alphabet(out->data + before, out->length - before, &bytes)) {
        out->length = before;
        kvr_buffer_append(out, bytes.data, bytes.length);
    }
    out->failed |= bytes.failed;
    kvr_buffer_release(&bytes);
}

static void append_token(const struct kvr_tokenizer *t, uint32_t id, struct kvr_buffer *out)
{
    const struct kvr_vocabulary *v = &t->vocabulary;
    const char *bytes = (const char *)v->token_bytes + v->token_offset[id];
    size_t length = kvr_token_length(v, id);

    size_t before = out->length;
    if (t->forms.length && append_form(t, id, out)) {
        if (v->header->model == KVR_MODEL_BYTE_BPE && !out->failed)
            read_alphabet(out, before);
        return;
    }
    if (v->header->special_flags & KVR_VOCABULARY_FOLDED && !(v->token_flags[id] & KVR_TOKEN_ADDED))
        append_unfolded(bytes, length, out);
    else
        kvr_buffer_append(out, bytes, length);
}

/* The token as the vocabulary's file writes it: bytes in the byte-level alphabet, ▁ for spaces.
 * Added tokens are their content: of that alphabet or not, of which the bytes would not tell. */
static void append_written(const struct kvr_tokenizer *t, uint32_t id, struct kvr_buffer *out)
{
    const struct kvr_vocabulary *v = &t->vocabulary;
    uint32_t count;
    const struct kvr_vocabulary_step *added = kvr_steps(t, KVR_ADDED, &count);
    struct kvr_buffer bytes = {0};

    for (uint32_t i = 0; v->header->model == KVR_MODEL_BYTE_BPE && i < count; i++) {
        if ((uint32_t)added[i].a == id) {
            if (!append_form(t, id, out))
                kvr_buffer_append(out, v->text + added[i].text, added[i].text_length);
            return;
        }
    }
    if (v->header->model != KVR_MODEL_BYTE_BPE || v->token_flags[id] & KVR_TOKEN_ADDED) {
        append_token(t, id, out);
        return;
    }
    append_token(t, id, &bytes);
    kvr_bytes_to_alphabet(bytes.data, bytes.length, out);
    out->failed |= bytes.failed;
    kvr_buffer_release(&bytes);
}

/* One list of tokens, and the one that a step makes of it. */
struct decoding {
    const struct kvr_tokenizer *tokenizer;
    struct kvr_pieces now, next;
    struct kvr_buffer bytes;
    struct kvr_search search;
};

static void end_token(struct decoding *d)
{
    kvr_pieces_push(&d->next, d->next.text.length);
}

/* Bytes gathered from byte tokens: a token if they are UTF-8, else U+FFFD for each. */
static void flush_bytes(struct decoding *d)
{
    bool valid = true;
    unsigned size;

    if (!d->bytes.length)
        return;
    const uint8_t *p = (const uint8_t *)d->bytes.data, *end = p + d->bytes.length;
    for (; p < end && valid; p += size)
        valid = kvr_utf8_decode(p, end, &size) != 0xfffd || size > 1;
    if (valid) {
        kvr_buffer_append(&d->next.text, d->bytes.data, d->bytes.length);
        end_token(d);
    }
    for (size_t i = 0; i < d->bytes.length && !valid; i++) {
        kvr_buffer_append_text(&d->next.text, "\ufffd");
        end_token(d);
    }
    kvr_buffer_clear(&d->bytes);
}

/* Copies a token with `what` written as `by` (NULL: left out). */
static void replace(struct decoding *d, const char *text, size_t length, const char *what,
    size_t what_length, const char *by, size_t by_length)
{
    const char *end = text + length, *match;

    while (what_length && text < end &&
           (match = memmem(text, (size_t)(end - text), what, what_length))) {
        kvr_buffer_append(&d->next.text, text, (size_t)(match - text));
        kvr_buffer_append(&d->next.text, by, by_length);
        text = match + what_length;
    }
    kvr_buffer_append(&d->next.text, text, (size_t)(end - text));
    end_token(d);
}

static enum kvr_status replace_pattern(struct decoding *d, const struct kvr_vocabulary_step *step,
    const char *text, size_t length, struct kvr_error *error)
{
    size_t at = 0, last_stop = SIZE_MAX, start, stop;
    enum kvr_status status;
    bool found;

    kvr_search_text(&d->search, kvr_step_pattern(d->tokenizer, step), text, length);
    for (;;) {
        status = kvr_search_next(&d->search, at, last_stop, &found, &start, &stop, error);
        if (status)
            return status;
        if (!found)
            break;
        kvr_buffer_append(&d->next.text, text + at, start - at);
        kvr_buffer_append(
            &d->next.text, d->tokenizer->vocabulary.text + step->other, step->other_length);
        at = last_stop = stop;
    }
    kvr_buffer_append(&d->next.text, text + at, length - at);
    end_token(d);
    return KVR_OK;
}

/* Copies a token without up to `start` times `what` before it and `stop` times behind it. */
static void strip(struct decoding *d, const char *text, size_t length, const char *what,
    size_t what_length, int start, int stop)
{
    for (;
         start > 0 && what_length && length >= what_length && memcmp(text, what, what_length) == 0;
         start--) {
        text += what_length;
        length -= what_length;
    }
    for (; stop > 0 && what_length && length >= what_length &&
           memcmp(text + length - what_length, what, what_length) == 0;
         stop--)
        length -= what_length;
    kvr_buffer_append(&d->next.text, text, length);
    end_token(d);
}

/* What a step makes of one token. */
static enum kvr_status decode_token(struct decoding *d, const struct kvr_vocabulary_step *step,
    const char *text, size_t length, bool first, bool last, struct kvr_error *error)
{
    const char *what = d->tokenizer->vocabulary.text + step->text;
    const char *by = d->tokenizer->vocabulary.text + step->other;
    int byte;

    switch (step->kind) {
    case KVR_DECODE_BYTES:
        if (!kvr_bytes_from_alphabet(text, length, &d->next.text))
            kvr_buffer_append(&d->next.text, text, length);
        if (last)
            end_token(d);
        break;
    case KVR_DECODE_FUSE:
        kvr_buffer_append(&d->next.text, text, length);
        if (last)
            end_token(d);
        break;
    case KVR_DECODE_BYTE_FALLBACK:
        byte = byte_token(text, length);
        if (byte >= 0) {
            kvr_buffer_append_byte(&d->bytes, (char)byte);
        } else {
            flush_bytes(d);
            kvr_buffer_append(&d->next.text, text, length);
            end_token(d);
        }
        if (last)
            flush_bytes(d);
        break;
    case KVR_DECODE_REPLACE:
        if (step->a)
            return replace_pattern(d, step, text, length, error);
        replace(d, text, length, what, step->text_length, by, step->other_length);
        break;
    case KVR_DECODE_STRIP:
        strip(d, text, length, what, step->text_length, step->a, step->b);
        break;
    case KVR_DECODE_METASPACE:
        replace(d, text, length, what, step->text_length, " ", !(first && step->a));
        break;
    case KVR_DECODE_SUFFIX:
        replace(d, text, length, what, step->text_length, " ", !last);
        break;
    default:
        return kvr_error_set(error, KVR_UNSUPPORTED, "decoder %u", (unsigned)step->kind);
    }
    return KVR_OK;
}

static enum kvr_status decode_step(
    struct decoding *d, const struct kvr_vocabulary_step *step, struct kvr_error *error)
{
    size_t start = 0;

    kvr_buffer_clear(&d->next.text);
    d->next.count = 0;
    for (size_t i = 0; i < d->now.count; i++) {
        size_t end = d->now.ends[i];
        enum kvr_status status = decode_token(
            d, step, d->now.text.data + start, end - start, i == 0, i + 1 == d->now.count, error);
        if (status)
            return status;
        start = end;
    }
    struct kvr_pieces swapped = d->now;
    d->now = d->next;
    d->next = swapped;
    bool failed = d->now.text.failed || d->next.text.failed || d->bytes.failed;
    return failed || d->now.text.length >= UINT32_MAX ? kvr_error_memory(error) : KVR_OK;
}

static enum kvr_status decode_steps(struct decoding *d, const uint32_t *ids, size_t count,
    bool skip_special, struct kvr_buffer *text, struct kvr_error *error)
{
    const struct kvr_vocabulary *v = &d->tokenizer->vocabulary;
    uint32_t steps;
    const struct kvr_vocabulary_step *decoders = kvr_steps(d->tokenizer, KVR_DECODERS, &steps);
    enum kvr_status status = KVR_OK;

    for (size_t i = 0; i < count; i++) {
        if (skip_special && v->token_flags[ids[i]] & KVR_TOKEN_SPECIAL)
            continue;
        if (!steps && d->now.count)
            kvr_buffer_append_byte(&d->now.text, ' ');
        append_written(d->tokenizer, ids[i], &d->now.text);
        kvr_pieces_push(&d->now, d->now.text.length);
        if (d->now.text.failed || d->now.text.length >= UINT32_MAX)
            return kvr_error_memory(error);
    }
    for (uint32_t i = 0; i < steps && !status; i++)
        status = decode_step(d, &decoders[i], error);
    kvr_buffer_append(text, d->now.text.data, d->now.text.length);
    return status ? status : text->failed ? kvr_error_memory(error) : KVR_OK;
}

enum kvr_status kvr_decode(const struct kvr_tokenizer *tokenizer, const uint32_t *ids, size_t count,
    bool skip_special, struct kvr_buffer *text, struct kvr_error *error)
{
    const struct kvr_vocabulary *v = &tokenizer->vocabulary;
    uint32_t model = v->header->model, steps;
    const struct kvr_vocabulary_step *decoders = kvr_steps(tokenizer, KVR_DECODERS, &steps);
    bool bytes = model == KVR_MODEL_BYTE_BPE && steps == 1 && decoders[0].kind == KVR_DECODE_BYTES;

    for (size_t i = 0; i < count; i++) {
        bool known = model == KVR_MODEL_BYTES   ? ids[i] < 256
                     : model == KVR_MODEL_CHARS ? ids[i] < 0x110000 && ids[i] >> 11 != 27
                                                : ids[i] < v->header->token_count &&
                                                      v->token_flags[ids[i]] & KVR_TOKEN_PRESENT;
        if (!known)
            return kvr_error_set(
                error, KVR_BAD_INPUT, "the vocabulary has no token %" PRIu32, ids[i]);
    }
    if (model <= KVR_MODEL_CHARS) {
        for (size_t i = 0; i < count; i++) {
            uint8_t bytes[4] = {(uint8_t)ids[i]};
            kvr_buffer_append(
                text, bytes, model == KVR_MODEL_BYTES ? 1 : kvr_utf8_encode(ids[i], bytes));
        }
        return text->failed ? kvr_error_memory(error) : KVR_OK;
    }
    if (bytes) {
        for (size_t i = 0; i < count; i++)
            if (!(skip_special && v->token_flags[ids[i]] & KVR_TOKEN_SPECIAL))
                append_token(tokenizer, ids[i], text);
        return text->failed ? kvr_error_memory(error) : KVR_OK;
    }
    struct decoding d = {.tokenizer = tokenizer};
    enum kvr_status status = decode_steps(&d, ids, count, skip_special, text, error);
    kvr_pieces_release(&d.now);
    kvr_pieces_release(&d.next);
    kvr_buffer_release(&d.bytes);
    kvr_search_release(&d.search);
    return status;
}
