/*
 * Compiling a source: the order of its texts, the pair that forms each token, the image.
 */
#include "token/compile.h"

#include <stdlib.h>

static enum kvr_status order_texts(struct kvr_compiler *c, struct kvr_error *error)
{
    const struct kvr_source *source = c->source;

    for (uint32_t id = 0; id < source->token_count; id++) {
        c->halves[id] = (struct kvr_halves){id, id};
        c->flags[id] = source->tokens[id].flags & (uint8_t)~KVR_SOURCE_FIRST;
        if (kvr_source_is_own(&source->tokens[id]))
            c->order[c->order_count++].id = id;
    }
    if (!kvr_text_order(c->order, c->order_count, c->bytes, source->tokens) ||
        !kvr_text_order_shorter(c->order, c->order_count, c->shorter))
        return kvr_error_memory(error);
    return KVR_OK;
}

/* Leaves the tokens in order that merging can reach. */
static enum kvr_status keep_reachable(struct kvr_compiler *c, struct kvr_error *error)
{
    uint32_t kept = kvr_text_order_keep(c->order, c->order_count, c->flags, KVR_TOKEN_REACHABLE);

    if (kept < c->order_count && !kvr_text_order_shorter(c->order, kept, c->shorter))
        return kvr_error_memory(error);
    c->order_count = kept;
    return KVR_OK;
}

/* A rank file turns out irregular: list every split of every token as a merge. */
static enum kvr_status list_all_splits(struct kvr_source *source, struct kvr_error *error)
{
    const char *bytes = source->bytes.data;

    for (uint32_t id = 0; id < source->token_count; id++) {
        const struct kvr_source_token *token = &source->tokens[id];
        for (uint32_t cut = 1; cut < token->length; cut++) {
            uint32_t left = kvr_source_find(source, bytes + token->offset, cut);
            uint32_t right =
                kvr_source_find(source, bytes + token->offset + cut, token->length - cut);
            if (left == KVR_NO_TOKEN || right == KVR_NO_TOKEN)
                continue;
            enum kvr_status status = kvr_source_add_merge(source, left, right, id, error);
            if (status)
                return status;
            source->merges[source->merge_count - 1].order = id + 1;
        }
    }
    return KVR_OK;
}

/* The table of all merges; of equal pairs the last counts, as in the reference. */
static enum kvr_status index_merges(struct kvr_compiler *c, struct kvr_error *error)
{
    const struct kvr_source *source = c->source;

    c->merge_slots = 16;
    while (c->merge_slots < source->merge_count * 2)
        c->merge_slots *= 2;
    c->merges.random = true;
    if (!kvr_pages_grow(&c->merges, c->merge_slots * sizeof(struct kvr_merge)))
        return kvr_error_memory(error);
    struct kvr_merge *merges = c->merges.data;
    for (uint32_t i = 0; i < source->merge_count; i++) {
        const struct kvr_merge *merge = &source->merges[i];
        uint32_t mask = c->merge_slots - 1;
        uint32_t slot = kvr_pair_slot(kvr_pair_hash(merge->left, merge->right)) & mask;
        while (merges[slot].order &&
               (merges[slot].left != merge->left || merges[slot].right != merge->right))
            slot = (slot + 1) & mask;
        merges[slot] = *merge;
        if (!merge->order)
            merges[slot].order = i + 1;
    }
    return KVR_OK;
}

enum kvr_status kvr_source_compile(struct kvr_source *source, struct kvr_pages *image,
    size_t *image_bytes, struct kvr_error *error)
{
    struct kvr_compiler c = {.source = source};
    size_t count = (size_t)source->token_count + 1;
    enum kvr_status status = kvr_source_index(source, error);

    if (status)
        return status;
    c.bytes = (const uint8_t *)source->bytes.data;
    c.halves = kvr_pages_malloc(count * sizeof *c.halves);
    c.orders = source->ranked ? NULL : calloc(count, sizeof *c.orders);
    c.flags = malloc(count);
    c.order = kvr_pages_malloc(count * sizeof *c.order);
    c.shorter = kvr_pages_malloc(count * sizeof *c.shorter);
    if (!c.halves || (!c.orders && !source->ranked) || !c.flags || !c.order || !c.shorter)
        status = kvr_error_memory(error);
    if (!status)
        status = order_texts(&c, error);
    if (!status)
        status = kvr_compile_pairs(&c, error);
    if (!status)
        status = keep_reachable(&c, error);
    if (!status && c.irregular && source->ranked)
        status = list_all_splits(source, error);
    if (!status && c.irregular)
        status = index_merges(&c, error);
    if (!status)
        status = kvr_compile_layout(&c, image, image_bytes, error);
    free(c.halves);
    free(c.orders);
    free(c.flags);
    free(c.order);
    free(c.shorter);
    kvr_pages_release(&c.merges);
    return status;
}
