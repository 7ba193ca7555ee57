#include "net/synthesize.h"

#include "base/random.h"
#include "token/vocabulary.h"

#include <stdlib.h>

enum { WORD_LIMIT = 4096, WORD_LEAST = 64, WORD_BYTES = 12 };

struct kvr_synthesizer {
    struct kvr_encoder *encoder;
    uint64_t seed;
    uint32_t word_count;
    uint64_t front;                     /* tokens that the model puts in front of a prompt */
    bool bare_start;                    /* the first word of a prompt has no space before it */
    char words[WORD_LIMIT][WORD_BYTES]; /* " word", terminated */
    struct kvr_ids ids;
};

static enum kvr_status count_tokens(struct kvr_synthesizer *synthesizer, const char *text,
    size_t length, unsigned flags, uint64_t *count, struct kvr_error *error)
{
    synthesizer->ids.count = 0;
    enum kvr_status status =
        kvr_encode(synthesizer->encoder, text, length, flags, &synthesizer->ids, error);
    *count = synthesizer->ids.count;
    return status;
}

/* " word": a space and four to nine small letters. */
static bool is_word(const char *text, size_t length)
{
    if (length < 5 || length > WORD_BYTES - 2 || text[0] != ' ')
        return false;
    for (size_t i = 1; i < length; i++)
        if (text[i] < 'a' || text[i] > 'z')
            return false;
    return true;
}

/* The text of an id where it stands after another: alone, some decoders take its space off. */
static bool text_within(const struct kvr_tokenizer *tokenizer, uint32_t id, struct kvr_buffer *text,
    const char **within, size_t *length)
{
    const uint32_t twice[] = {id, id};

    kvr_buffer_clear(text);
    if (kvr_decode(tokenizer, twice, 1, false, text, NULL) != KVR_OK)
        return false;
    size_t one = text->length;
    kvr_buffer_clear(text);
    if (kvr_decode(tokenizer, twice, 2, false, text, NULL) != KVR_OK || text->length < one)
        return false;
    *within = text->data + one;
    *length = text->length - one;
    return true;
}

static void find_words(struct kvr_synthesizer *synthesizer, const struct kvr_tokenizer *tokenizer)
{
    struct kvr_buffer text = {0};
    struct kvr_error ignored;
    const char *word;
    size_t length;
    uint64_t count, more;

    for (uint32_t id = 0;
         id < kvr_tokenizer_size(tokenizer) && synthesizer->word_count < WORD_LIMIT; id++) {
        size_t bytes = kvr_tokenizer_token_bytes(tokenizer, id);
        if (bytes < 5 || bytes > 3 + WORD_BYTES ||
            !text_within(tokenizer, id, &text, &word, &length) || !is_word(word, length))
            continue;
        /* Tried between words: one word more is one token more. */
        char trial[4 * WORD_BYTES + 1], *own = synthesizer->words[synthesizer->word_count];
        memcpy(own, word, length);
        own[length] = '\0';
        kvr_buffer_clear(&text);
        kvr_buffer_append_format(&text, "%s%s%s", own, own, own);
        memcpy(trial, text.data, text.length);
        if (count_tokens(synthesizer, trial, text.length, 0, &count, &ignored) == KVR_OK &&
            count_tokens(synthesizer, trial, text.length - length, 0, &more, &ignored) == KVR_OK &&
            count == more + 1)
            synthesizer->word_count++;
    }
    kvr_buffer_release(&text);
}

/* How a prompt of words begins: with or without the first space, whichever counts exactly. */
static enum kvr_status find_start(struct kvr_synthesizer *synthesizer, struct kvr_error *error)
{
    uint64_t front, with, without;
    struct kvr_buffer text = {0};

    enum kvr_status status = count_tokens(synthesizer, "", 0, KVR_ENCODE_MODEL, &front, error);
    kvr_buffer_append_format(&text, "%s%s", synthesizer->words[0], synthesizer->words[1]);
    if (status == KVR_OK)
        status = count_tokens(synthesizer, text.data, text.length, KVR_ENCODE_MODEL, &with, error);
    if (status == KVR_OK)
        status = count_tokens(
            synthesizer, text.data + 1, text.length - 1, KVR_ENCODE_MODEL, &without, error);
    kvr_buffer_release(&text);
    if (status != KVR_OK)
        return status;
    synthesizer->front = front;
    synthesizer->bare_start = with != front + 2;
    if (synthesizer->bare_start && without != front + 2)
        return kvr_error_set(error, KVR_UNSUPPORTED,
            "--synthesize: no text of an exact length starts a prompt of this vocabulary");
    return KVR_OK;
}

enum kvr_status kvr_synthesizer_create(struct kvr_synthesizer **out,
    const struct kvr_tokenizer *tokenizer, uint64_t seed, struct kvr_error *error)
{
    struct kvr_synthesizer *synthesizer = calloc(1, sizeof *synthesizer);

    if (!synthesizer)
        return kvr_error_memory(error);
    synthesizer->seed = kvr_mix64(seed + 1);
    enum kvr_status status = kvr_encoder_new(&synthesizer->encoder, tokenizer, error);
    if (status == KVR_OK) {
        find_words(synthesizer, tokenizer);
        if (synthesizer->word_count < WORD_LEAST)
            status = kvr_error_set(error, KVR_UNSUPPORTED,
                "--synthesize: this vocabulary has too few words of one token");
    }
    if (status == KVR_OK)
        status = find_start(synthesizer, error);
    if (status != KVR_OK) {
        kvr_synthesizer_destroy(synthesizer);
        return status;
    }
    *out = synthesizer;
    return KVR_OK;
}

void kvr_synthesizer_destroy(struct kvr_synthesizer *synthesizer)
{
    if (!synthesizer)
        return;
    kvr_encoder_release(synthesizer->encoder);
    kvr_ids_release(&synthesizer->ids);
    free(synthesizer);
}

static void append_words(struct kvr_synthesizer *synthesizer, uint64_t id, uint64_t first,
    uint64_t end, struct kvr_buffer *prompt)
{
    for (uint64_t j = first; j < end && !prompt->failed; j++) {
        struct kvr_random random = {kvr_mix64(synthesizer->seed ^ id) + j};
        uint32_t word = kvr_random_below(&random, synthesizer->word_count);
        kvr_buffer_append_text(prompt, synthesizer->words[word]);
    }
}

enum kvr_status kvr_synthesize(struct kvr_synthesizer *synthesizer, const uint64_t *ids,
    size_t count, uint64_t block_tokens, uint64_t tokens, uint64_t own, struct kvr_buffer *prompt,
    struct kvr_error *error)
{
    uint64_t made = synthesizer->front, length;
    size_t start = prompt->length;

    if (tokens <= made)
        return kvr_error_set(error, KVR_BAD_INPUT, "a prompt of %llu tokens is too short to make",
            (unsigned long long)tokens);
    for (size_t i = 0; i < count && made < tokens; i++) {
        uint64_t left = tokens - i * block_tokens;
        uint64_t end = left < block_tokens ? left : block_tokens;
        uint64_t first = i == 0 ? made : 0;
        if (first < end)
            append_words(synthesizer, ids[i], first, end, prompt);
        made = i * block_tokens + end;
    }
    if (made < tokens)
        append_words(synthesizer, kvr_mix64(own) ^ 0x5eed, made, tokens, prompt);
    if (prompt->failed)
        return kvr_error_memory(error);
    if (synthesizer->bare_start) {
        memmove(prompt->data + start, prompt->data + start + 1, prompt->length - start - 1);
        prompt->length--;
    }
    enum kvr_status status = count_tokens(synthesizer, prompt->data + start, prompt->length - start,
        KVR_ENCODE_MODEL, &length, error);
    if (status != KVR_OK)
        return status;
    if (length != tokens)
        return kvr_error_set(error, KVR_UNSUPPORTED,
            "the prompt made for a block has %llu tokens in place of %llu",
            (unsigned long long)length, (unsigned long long)tokens);
    return KVR_OK;
}
