/*
 * A merge is written as two tokens: each of some hundred thousand asks for three tokens by their
 * texts, and every question is a few visits to memory that no cache holds. So merges are gathered
 * in batches, and what all of a batch will need is asked for, step by step, before the first is
 * read. The result is guessed to be the token behind the one before, as merges are mostly in the
 * order of ids, or the same, as conversions list all pairs of a token.
 */
#include "token/load_merges.h"

#include <string.h>

#define BATCH 32

struct merge {
    uint32_t start, middle, end; /* of both tokens in the bytes of the batch */
    uint32_t number;             /* in the list */
    uint64_t left_hash, right_hash;
};

struct loading {
    struct kvr_source *source;
    struct kvr_buffer bytes;
    struct merge batch[BATCH];
    uint32_t count;
    uint32_t last; /* the result of the merge before */
};

/* "left right", or ["left", "right"]. */
static enum kvr_status read_merge(const struct kvr_json_walk *walk, struct kvr_value merge,
    struct kvr_buffer scratch[2], struct kvr_text parts[2], struct kvr_error *error)
{
    if (merge.type == KVR_ARRAY) {
        struct kvr_json_walk inner = kvr_json_walk_into(walk);
        struct kvr_value left, right, more;
        if (kvr_json_walk_element(&inner, &left) && kvr_json_walk_element(&inner, &right) &&
            !kvr_json_walk_element(&inner, &more) && kvr_value_text(left, &scratch[0], &parts[0]) &&
            kvr_value_text(right, &scratch[1], &parts[1]))
            return KVR_OK;
    } else if (kvr_value_text(merge, &scratch[0], &parts[0])) {
        const char *space = memchr(parts[0].text, ' ', parts[0].length);
        if (space &&
            !memchr(space + 1, ' ', parts[0].length - (size_t)(space + 1 - parts[0].text))) {
            parts[1].text = space + 1;
            parts[1].length = parts[0].length - (size_t)(space + 1 - parts[0].text);
            parts[0].length = (size_t)(space - parts[0].text);
            return KVR_OK;
        }
    }
    return kvr_error_set(error, KVR_BAD_INPUT, "a merge is not two tokens");
}

/* Adds a merge to the batch, unless one of its tokens never meets another. */
static void gather(struct loading *l, const struct kvr_text parts[2], uint32_t number)
{
    struct merge *merge = &l->batch[l->count];

    *merge = (struct merge){.start = (uint32_t)l->bytes.length, .number = number};
    if (!kvr_load_token_bytes(l->source, parts[0].text, parts[0].length, &l->bytes))
        return;
    merge->middle = (uint32_t)l->bytes.length;
    if (!kvr_load_token_bytes(l->source, parts[1].text, parts[1].length, &l->bytes)) {
        l->bytes.length = merge->start;
        return;
    }
    if (!kvr_buffer_reserve(&l->bytes, KVR_SOURCE_PADDING))
        return;
    merge->end = (uint32_t)l->bytes.length;
    const char *bytes = l->bytes.data;
    merge->left_hash = kvr_source_hash(bytes + merge->start, merge->middle - merge->start);
    merge->right_hash = kvr_source_hash(bytes + merge->middle, merge->end - merge->middle);
    kvr_source_ask_slot(l->source, merge->left_hash);
    kvr_source_ask_slot(l->source, merge->right_hash);
    l->count++;
}

/* The text of a likely token is asked for. */
static void ask_text(const struct kvr_source *source, uint32_t id)
{
    if (id != KVR_NO_TOKEN)
        __builtin_prefetch(source->bytes.data + source->tokens[id].offset);
}

static enum kvr_status add_merge(
    struct loading *l, const struct merge *merge, struct kvr_error *error)
{
    struct kvr_source *source = l->source;
    const char *bytes = l->bytes.data + merge->start, *right_bytes = l->bytes.data + merge->middle;
    size_t left_length = merge->middle - merge->start, length = merge->end - merge->start;
    uint32_t left = kvr_source_find_hashed(source, merge->left_hash, bytes, left_length);
    uint32_t right =
        kvr_source_find_hashed(source, merge->right_hash, right_bytes, length - left_length);
    uint32_t result = l->last + 1;
    if (!kvr_source_is(source, result, bytes, length))
        result = kvr_source_is(source, l->last, bytes, length)
                     ? l->last
                     : kvr_source_find(source, bytes, length);

    if (left == KVR_NO_TOKEN || right == KVR_NO_TOKEN || result == KVR_NO_TOKEN)
        return kvr_error_set(error, KVR_BAD_INPUT,
            "merge %u is of tokens that the vocabulary lacks", (unsigned)merge->number + 1);
    l->last = result;
    return kvr_source_add_merge(source, left, right, result, error);
}

/* Adds the merges of the batch, which is empty then. */
static enum kvr_status add_batch(struct loading *l, struct kvr_error *error)
{
    uint32_t likely[BATCH][2];
    enum kvr_status status = l->bytes.failed ? kvr_error_memory(error) : KVR_OK;

    for (uint32_t i = 0; i < l->count; i++) {
        likely[i][0] = kvr_source_ask_token(l->source, l->batch[i].left_hash);
        likely[i][1] = kvr_source_ask_token(l->source, l->batch[i].right_hash);
    }
    for (uint32_t i = 0; i < l->count; i++) {
        ask_text(l->source, likely[i][0]);
        ask_text(l->source, likely[i][1]);
    }
    for (uint32_t i = 0; i < l->count && !status; i++)
        status = add_merge(l, &l->batch[i], error);
    l->count = 0;
    kvr_buffer_clear(&l->bytes);
    return status;
}

enum kvr_status kvr_load_merges(
    struct kvr_source *source, struct kvr_json_walk merges, struct kvr_error *error)
{
    struct loading l = {.source = source};
    struct kvr_buffer scratch[2] = {{0}};
    struct kvr_value merge;
    enum kvr_status status = kvr_source_index(source, error);

    kvr_source_expect_merges(source, source->token_count);
    for (uint32_t number = 0; !status && kvr_json_walk_element(&merges, &merge); number++) {
        struct kvr_text parts[2];
        struct kvr_error wrong;
        if (merge.length > 9 && memcmp(merge.text, "\"#version", 9) == 0)
            continue; /* the first line of a merges.txt, in the list by mistake */
        if (read_merge(&merges, merge, scratch, parts, &wrong)) {
            status = add_batch(&l, error); /* what is wrong before this counts first */
            if (!status)
                status = kvr_error_set(error, wrong.status, "%s", wrong.text);
            break;
        }
        gather(&l, parts, number);
        if (l.count == BATCH)
            status = add_batch(&l, error);
    }
    if (!status)
        status = add_batch(&l, error);
    kvr_buffer_release(&scratch[0]);
    kvr_buffer_release(&scratch[1]);
    kvr_buffer_release(&l.bytes);
    return status;
}
