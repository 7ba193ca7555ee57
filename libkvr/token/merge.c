/*
 * Byte-pair encoding as it is defined: a linked list of parts and a heap of mergeable pairs, lowest
 * order first, leftmost among equals. O(n log n). A heap entry is stale when either of its parts
 * has changed since; parts carry the result they would merge to, which tells.
 */
#include "token/merge_heap.h"
#include "token/unicode.h"

#include <stdlib.h>

struct node {
    uint32_t id, previous, next; /* indexes of nodes; the ends point to UINT32_MAX */
};

/* The token that left and right merge to and the order of that merge. */
static uint32_t merge_of(
    const struct kvr_vocabulary *v, uint32_t left, uint32_t right, uint32_t *order)
{
    if (v->header->special_flags & KVR_VOCABULARY_IRREGULAR) {
        uint32_t slot = kvr_pair_slot(kvr_pair_hash(left, right)) & v->merge_mask;
        while (v->merges[slot].order) {
            if (v->merges[slot].left == left && v->merges[slot].right == right) {
                *order = v->merges[slot].order;
                return v->merges[slot].result;
            }
            slot = (slot + 1) & v->merge_mask;
        }
        return KVR_NO_TOKEN;
    }
    uint32_t id = kvr_pair_find(v, left, right);
    if (id != KVR_NO_TOKEN)
        *order = v->records[id].order;
    return id;
}

static void consider(const struct kvr_vocabulary *v, const struct node *nodes, uint32_t at,
    struct kvr_candidate *heap, size_t *count)
{
    uint32_t next = at == UINT32_MAX ? UINT32_MAX : nodes[at].next, order;

    if (next == UINT32_MAX || merge_of(v, nodes[at].id, nodes[next].id, &order) == KVR_NO_TOKEN)
        return;
    kvr_heap_push(heap, count, (struct kvr_candidate){order, at, nodes[at].id, nodes[next].id});
}

uint32_t kvr_symbol_at(
    const struct kvr_vocabulary *v, const uint8_t *text, const uint8_t *end, unsigned *length)
{
    *length = 1;
    if (v->header->model == KVR_MODEL_BYTE_BPE)
        return v->byte_ids[*text];
    kvr_utf8_decode(text, end, length);
    return kvr_word_find(v, kvr_piece_hash_of(text, *length), text, *length);
}

void kvr_bpe_merge(const struct kvr_vocabulary *v, struct kvr_bpe_scratch *scratch,
    const uint8_t *piece, size_t length, struct kvr_ids *ids)
{
    if (length > UINT32_MAX / 4) {
        ids->failed = true;
        return;
    }
    /* a merge removes one candidate and adds two at most */
    if (!kvr_scratch_reserve(&scratch->nodes, &scratch->node_bytes, length * sizeof(struct node)) ||
        !kvr_scratch_reserve(
            &scratch->heap, &scratch->heap_bytes, length * 2 * sizeof(struct kvr_candidate))) {
        ids->failed = true;
        return;
    }
    struct node *nodes = scratch->nodes;
    struct kvr_candidate *heap = scratch->heap;
    size_t candidates = 0;
    uint32_t count = 0;
    unsigned size;

    for (size_t at = 0; at < length; at += size, count++)
        nodes[count] = (struct node){
            kvr_symbol_at(v, piece + at, piece + length, &size), count - 1, count + 1};
    nodes[count - 1].next = UINT32_MAX;
    for (uint32_t at = 0; at < count; at++)
        consider(v, nodes, at, heap, &candidates);
    while (candidates) {
        struct kvr_candidate best = kvr_heap_pop(heap, &candidates);
        uint32_t left = best.at, right = nodes[left].next, order;
        if (nodes[left].id != best.left || right == UINT32_MAX || nodes[right].id != best.right)
            continue;
        nodes[left].id = merge_of(v, best.left, best.right, &order);
        nodes[left].next = nodes[right].next;
        nodes[right].id = KVR_NO_TOKEN;
        if (nodes[left].next != UINT32_MAX)
            nodes[nodes[left].next].previous = left;
        consider(v, nodes, nodes[left].previous, heap, &candidates);
        consider(v, nodes, left, heap, &candidates);
    }
    for (uint32_t at = 0; at != UINT32_MAX; at = nodes[at].next)
        kvr_ids_push(ids, nodes[at].id);
}
