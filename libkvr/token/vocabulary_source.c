#include "token/vocabulary_source.h"

#include <inttypes.h>
#include <stdlib.h>

void kvr_source_release(struct kvr_source *source)
{
    kvr_buffer_release(&source->bytes);
    kvr_buffer_release(&source->text);
    free(source->tokens);
    free(source->merges);
    free(source->string_slots);
    free(source->hashes);
    for (int i = 0; i < KVR_PIPELINE_COUNT; i++)
        free(source->steps[i]);
    memset(source, 0, sizeof *source);
}

/* Grows *array of elements of `size` bytes to hold `wanted`, new ones zeroed. */
static bool grow(void **array, uint32_t *capacity, uint32_t wanted, size_t size)
{
    if (wanted <= *capacity)
        return true;
    uint32_t larger = wanted < 1024 ? 1024 : wanted + wanted / 2;
    void *moved = *array ? realloc(*array, larger * size) : kvr_pages_malloc(larger * size);
    if (!moved)
        return false;
    kvr_pages_advise((char *)moved + *capacity * size, (larger - *capacity) * size);
    memset((char *)moved + *capacity * size, 0, (larger - *capacity) * size);
    *array = moved;
    *capacity = larger;
    return true;
}

void kvr_source_expect(struct kvr_source *source, size_t tokens, size_t bytes)
{
    if (tokens < KVR_TOKEN_LIMIT)
        grow((void **)&source->tokens, &source->token_capacity, (uint32_t)tokens,
            sizeof *source->tokens);
    if (!source->bytes.data && (source->bytes.data = kvr_pages_malloc(bytes + 1)))
        source->bytes.capacity = bytes + 1;
}

void kvr_source_expect_merges(struct kvr_source *source, size_t merges)
{
    if (!source->merges && merges < UINT32_MAX / 2 &&
        (source->merges = kvr_pages_malloc(merges * sizeof *source->merges)))
        source->merge_capacity = (uint32_t)merges;
}

enum kvr_status kvr_source_add_token(struct kvr_source *source, uint64_t id, const void *bytes,
    size_t length, uint8_t flags, struct kvr_error *error)
{
    if (id >= KVR_TOKEN_LIMIT)
        return kvr_error_set(error, KVR_BAD_INPUT, "token id %" PRIu64 " is above %" PRIu32, id,
            KVR_TOKEN_LIMIT - 1);
    if (source->bytes.length + length > UINT32_MAX / 2)
        return kvr_error_set(error, KVR_BAD_INPUT, "the tokens are longer than 2 GiB");
    if (!grow((void **)&source->tokens, &source->token_capacity, (uint32_t)id + 1,
            sizeof *source->tokens))
        return kvr_error_memory(error);
    struct kvr_source_token *token = &source->tokens[id];
    if (token->flags & KVR_TOKEN_PRESENT)
        return kvr_error_set(error, KVR_BAD_INPUT, "two tokens have the id %" PRIu64, id);
    source->indexed = source->indexed && flags & KVR_TOKEN_ADDED; /* these are in no index */
    *token = (struct kvr_source_token){
        (uint32_t)source->bytes.length, (uint32_t)length, flags | KVR_TOKEN_PRESENT};
    kvr_buffer_append(&source->bytes, bytes, length);
    if (id >= source->token_count)
        source->token_count = (uint32_t)id + 1;
    return source->bytes.failed ? kvr_error_memory(error) : KVR_OK;
}

void kvr_source_forget_tokens(struct kvr_source *source)
{
    if (source->token_count)
        memset(source->tokens, 0, source->token_count * sizeof *source->tokens);
    source->token_count = 0;
    source->indexed = source->repeated = false;
    kvr_buffer_clear(&source->bytes);
}

enum kvr_status kvr_source_add_merge(struct kvr_source *source, uint32_t left, uint32_t right,
    uint32_t result, struct kvr_error *error)
{
    if (source->merge_count == source->merge_capacity &&
        !grow((void **)&source->merges, &source->merge_capacity, source->merge_count + 1,
            sizeof *source->merges))
        return kvr_error_memory(error);
    source->merges[source->merge_count++] = (struct kvr_merge){left, right, 0, result};
    return KVR_OK;
}

enum kvr_status kvr_source_add_step(struct kvr_source *source, enum kvr_pipeline pipeline,
    struct kvr_vocabulary_step step, const char *text, size_t text_length, const char *other,
    size_t other_length, struct kvr_error *error)
{
    uint32_t count = source->step_count[pipeline];

    if (source->text.length + text_length + other_length > UINT32_MAX / 2)
        return kvr_error_set(error, KVR_BAD_INPUT, "the texts of the vocabulary exceed 2 GiB");
    if ((count & (count - 1)) == 0) { /* at each power of two the room doubles */
        struct kvr_vocabulary_step *moved =
            realloc(source->steps[pipeline], (count ? count * 2 : 1) * sizeof *moved);
        if (!moved)
            return kvr_error_memory(error);
        source->steps[pipeline] = moved;
    }
    step.text = (uint32_t)source->text.length;
    step.text_length = (uint32_t)text_length;
    kvr_buffer_append(&source->text, text, text_length);
    step.other = (uint32_t)source->text.length;
    step.other_length = (uint32_t)other_length;
    kvr_buffer_append(&source->text, other, other_length);
    source->steps[pipeline][count] = step;
    source->step_count[pipeline]++;
    return source->text.failed ? kvr_error_memory(error) : KVR_OK;
}

/* The slot of a text, or the free one where it would be. */
static inline uint32_t *find_slot(
    const struct kvr_source *source, uint64_t hash, const void *bytes, size_t length)
{
    for (uint32_t at = (uint32_t)hash & source->string_mask;; at = (at + 1) & source->string_mask) {
        uint32_t slot = source->string_slots[at];
        if (!slot)
            return &source->string_slots[at];
        if (!kvr_slot_may_be(slot, hash))
            continue;
        const struct kvr_source_token *token = &source->tokens[kvr_slot_id(slot)];
        if (token->length == length &&
            (!length || memcmp(source->bytes.data + token->offset, bytes, length) == 0))
            return &source->string_slots[at];
    }
}

#define AHEAD 16

static void enter(struct kvr_source *source, uint32_t id)
{
    struct kvr_source_token *token = &source->tokens[id];

    token->flags &= (uint8_t)~KVR_SOURCE_FIRST;
    if (!(token->flags & KVR_TOKEN_PRESENT) || token->flags & KVR_TOKEN_ADDED)
        return;
    uint64_t hash = source->hashes[id];
    uint32_t *slot = find_slot(source, hash, source->bytes.data + token->offset, token->length);
    if (!*slot) { /* the first of equal texts counts */
        *slot = (uint32_t)(hash >> 32) >> KVR_SLOT_ID_BITS << KVR_SLOT_ID_BITS | (id + 1);
        token->flags |= KVR_SOURCE_FIRST;
    } else {
        source->repeated = true;
    }
}

enum kvr_status kvr_source_index(struct kvr_source *source, struct kvr_error *error)
{
    uint32_t slots = 16;

    if (!kvr_buffer_reserve(&source->bytes, KVR_SOURCE_PADDING))
        return kvr_error_memory(error);
    if (source->indexed)
        return KVR_OK;
    while (slots < source->token_count * 2)
        slots *= 2;
    free(source->string_slots);
    free(source->hashes);
    source->string_slots = kvr_pages_malloc(slots * sizeof *source->string_slots);
    source->hashes = kvr_pages_malloc(((size_t)source->token_count + 1) * sizeof *source->hashes);
    if (!source->string_slots || !source->hashes)
        return kvr_error_memory(error);
    memset(source->string_slots, 0, slots * sizeof *source->string_slots);
    source->string_mask = slots - 1;
    source->repeated = false;
    /* a token's slot is asked for while those before it are entered */
    for (uint32_t id = 0; id < source->token_count + AHEAD; id++) {
        if (id < source->token_count) {
            const struct kvr_source_token *token = &source->tokens[id];
            source->hashes[id] = kvr_source_hash(source->bytes.data + token->offset, token->length);
            __builtin_prefetch(
                &source->string_slots[(uint32_t)source->hashes[id] & source->string_mask]);
        }
        if (id >= AHEAD)
            enter(source, id - AHEAD);
    }
    source->indexed = true;
    return KVR_OK;
}

uint32_t kvr_source_find_hashed(
    const struct kvr_source *source, uint64_t hash, const void *bytes, size_t length)
{
    uint32_t slot = *find_slot(source, hash, bytes, length);

    return slot ? kvr_slot_id(slot) : KVR_NO_TOKEN;
}

uint32_t kvr_source_find(const struct kvr_source *source, const void *bytes, size_t length)
{
    return kvr_source_find_hashed(source, kvr_piece_hash_of(bytes, length), bytes, length);
}

bool kvr_source_is(const struct kvr_source *source, uint32_t id, const void *bytes, size_t length)
{
    if (id >= source->token_count)
        return false;
    const struct kvr_source_token *token = &source->tokens[id];
    return token->flags & KVR_SOURCE_FIRST && token->length == length &&
           (!length || memcmp(source->bytes.data + token->offset, bytes, length) == 0);
}
