/*
 * Ids to text. Decoder steps see a list of tokens; those that real vocabularies use fall into two
 * families: bytes (byte-level vocabularies: text is the tokens' bytes, one after another), and the
 * SentencePiece family: replace ▁, join byte tokens, fuse, strip a space at the start. Steps are
 * applied token by token up to `fuse`, after it to the whole.
 */
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

static void replace(struct kvr_buffer *text, struct kvr_buffer *spare, const char *what,
    size_t what_length, const char *by, size_t by_length)
{
    const char *p = text->data, *end = p + text->length, *match;

    if (!what_length || !memmem(p, text->length, what, what_length))
        return;
    kvr_buffer_clear(spare);
    for (; (match = memmem(p, (size_t)(end - p), what, what_length)); p = match + what_length) {
        kvr_buffer_append(spare, p, (size_t)(match - p));
        kvr_buffer_append(spare, by, by_length);
    }
    kvr_buffer_append(spare, p, (size_t)(end - p));
    struct kvr_buffer swapped = *text;
    *text = *spare;
    *spare = swapped;
}

static void strip(struct kvr_buffer *text, const char *what, size_t length, int start, int stop)
{
    size_t from = 0;

    for (;
         start > 0 && text->length - from >= length && memcmp(text->data + from, what, length) == 0;
         start--)
        from += length;
    memmove(text->data, text->data + from, text->length - from);
    text->length -= from;
    for (; stop > 0 && text->length >= length &&
           memcmp(text->data + text->length - length, what, length) == 0;
         stop--)
        text->length -= length;
}

/* Steps from `at` on for one token (or, after a fuse, all of them); the index of the fuse step, or
 * count. */
static uint32_t apply(const struct kvr_tokenizer *t, const struct kvr_step *steps, uint32_t at,
    uint32_t count, bool first, struct kvr_buffer *text, struct kvr_buffer *spare)
{
    for (; at < count && steps[at].kind != KVR_DECODE_FUSE && text->length; at++) {
        const struct kvr_step *s = &steps[at];
        const char *what = t->vocabulary.text + s->text, *by = t->vocabulary.text + s->other;
        switch (s->kind) {
        case KVR_DECODE_REPLACE:
            replace(text, spare, what, s->text_length, by, s->other_length);
            break;
        case KVR_DECODE_STRIP:
            if (s->text_length)
                strip(text, what, s->text_length, s->a, s->b);
            break;
        case KVR_DECODE_METASPACE:
            replace(text, spare, what, s->text_length, " ", 1);
            if (first && s->a)
                strip(text, " ", 1, 1, 0);
            break;
        default:
            break;
        }
    }
    while (at < count && steps[at].kind != KVR_DECODE_FUSE)
        at++;
    return at;
}

/* Bytes gathered from byte tokens: text if they are UTF-8, else U+FFFD for each. */
static void flush_bytes(struct kvr_buffer *bytes, struct kvr_buffer *out)
{
    const uint8_t *p = (const uint8_t *)bytes->data, *end = p + bytes->length;
    bool valid = true;
    unsigned size;

    for (; p < end && valid; p += size)
        valid = kvr_utf8_decode(p, end, &size) != 0xfffd || size > 1;
    if (valid)
        kvr_buffer_append(out, bytes->data, bytes->length);
    else
        for (size_t i = 0; i < bytes->length; i++)
            kvr_buffer_append_text(out, "\ufffd");
    kvr_buffer_clear(bytes);
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
    bool folded = t->vocabulary.header->special_flags & KVR_VOCABULARY_FOLDED;
    uint32_t head[2];

    for (size_t at = 0; at < t->forms.length; at += sizeof head + head[1]) {
        memcpy(head, t->forms.data + at, sizeof head);
        if (head[0] != id)
            continue;
        if (folded)
            append_unfolded(t->forms.data + at + sizeof head, head[1], out);
        else
            kvr_buffer_append(out, t->forms.data + at + sizeof head, head[1]);
        return true;
    }
    return false;
}

static void append_token(const struct kvr_tokenizer *t, uint32_t id, struct kvr_buffer *out)
{
    const struct kvr_vocabulary *v = &t->vocabulary;
    const char *bytes = (const char *)v->token_bytes + v->token_offset[id];
    size_t length = kvr_token_length(v, id);

    if (t->forms.length && append_form(t, id, out))
        return;
    if (v->header->special_flags & KVR_VOCABULARY_FOLDED && !(v->token_flags[id] & KVR_TOKEN_ADDED))
        append_unfolded(bytes, length, out);
    else
        kvr_buffer_append(out, bytes, length);
}

struct decoding {
    const struct kvr_tokenizer *tokenizer;
    const struct kvr_step *steps;
    uint32_t count;
    bool fallback; /* byte tokens are bytes */
    struct kvr_buffer token, spare, bytes, joined;
};

static void decode_token(struct decoding *d, uint32_t id, bool first)
{
    kvr_buffer_clear(&d->token);
    append_token(d->tokenizer, id, &d->token);
    int byte = d->fallback ? byte_token(d->token.data, d->token.length) : -1;
    if (byte >= 0) {
        kvr_buffer_append_byte(&d->bytes, (char)byte);
        return;
    }
    if (d->bytes.length)
        flush_bytes(&d->bytes, &d->joined);
    apply(d->tokenizer, d->steps, 0, d->count, first, &d->token, &d->spare);
    kvr_buffer_append(&d->joined, d->token.data, d->token.length);
}

static enum kvr_status decode_steps(struct decoding *d, const uint32_t *ids, size_t count,
    bool skip_special, struct kvr_buffer *text, struct kvr_error *error)
{
    const struct kvr_vocabulary *v = &d->tokenizer->vocabulary;
    bool first = true;

    for (size_t i = 0; i < count; i++) {
        if (skip_special && v->token_flags[ids[i]] & KVR_TOKEN_SPECIAL)
            continue;
        decode_token(d, ids[i], first);
        first = false;
    }
    if (d->bytes.length)
        flush_bytes(&d->bytes, &d->joined);
    uint32_t fuse = 0;
    while (fuse < d->count && d->steps[fuse].kind != KVR_DECODE_FUSE)
        fuse++;
    if (fuse < d->count)
        apply(d->tokenizer, d->steps, fuse + 1, d->count, true, &d->joined, &d->spare);
    kvr_buffer_append(text, d->joined.data, d->joined.length);
    bool failed = text->failed || d->joined.failed || d->token.failed || d->spare.failed;
    return failed ? kvr_error_memory(error) : KVR_OK;
}

enum kvr_status kvr_decode(const struct kvr_tokenizer *tokenizer, const uint32_t *ids, size_t count,
    bool skip_special, struct kvr_buffer *text, struct kvr_error *error)
{
    const struct kvr_vocabulary *v = &tokenizer->vocabulary;
    uint32_t model = v->header->model, steps;
    const struct kvr_step *decoders = kvr_steps(tokenizer, KVR_DECODERS, &steps);

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
    if (!steps || decoders[0].kind == KVR_DECODE_BYTES) {
        for (size_t i = 0; i < count; i++)
            if (!(skip_special && v->token_flags[ids[i]] & KVR_TOKEN_SPECIAL))
                append_token(tokenizer, ids[i], text);
        return text->failed ? kvr_error_memory(error) : KVR_OK;
    }
    struct decoding d = {.tokenizer = tokenizer, .steps = decoders, .count = steps};
    for (uint32_t i = 0; i < steps; i++)
        d.fallback |= decoders[i].kind == KVR_DECODE_BYTE_FALLBACK;
    enum kvr_status status = decode_steps(&d, ids, count, skip_special, text, error);
    kvr_buffer_release(&d.token);
    kvr_buffer_release(&d.spare);
    kvr_buffer_release(&d.bytes);
    kvr_buffer_release(&d.joined);
    return status;
}
