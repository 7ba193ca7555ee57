/*
 * Byte-pair encoding as it is defined: a linked list of parts and a queue of mergeable pairs,
 * lowest order first, leftmost among equals. O(n log n). An entry is stale when either of its parts
 * has changed since: then the pair at its place has another order. In short pieces the queue is a
 * heap, in long ones lists (merge_queue.h).
 */
#include "base/grow.h"
#include "token/merge_heap.h"
#include "token/merge_queue.h"
#include "token/unicode.h"

#include <stdlib.h>

#define LONG_PIECE 4096 /* bytes */

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

struct merging {
    const struct kvr_vocabulary *v;
    struct node *nodes;
    struct kvr_candidate *heap;
    size_t candidates;
    struct kvr_merge_queue *queue; /* instead of the heap */
};

static void consider(struct merging *m, uint32_t at)
{
    const struct node *nodes = m->nodes;
    uint32_t next = at == UINT32_MAX ? UINT32_MAX : nodes[at].next, order;

    if (next == UINT32_MAX || merge_of(m->v, nodes[at].id, nodes[next].id, &order) == KVR_NO_TOKEN)
        return;
    if (m->queue)
        kvr_merge_queue_push(m->queue, order, at);
    else
        kvr_candidate_push(m->heap, &m->candidates,
            (struct kvr_candidate){order, at, nodes[at].id, nodes[next].id});
}

/* The node whose merge with the next comes now, and what they merge to; false: there is none. */
static bool next_merge(struct merging *m, uint32_t *at, uint32_t *merged)
{
    const struct node *nodes = m->nodes;
    uint32_t order, now;

    for (;;) {
        if (m->queue) {
            if (!kvr_merge_queue_pop(m->queue, &order, at))
                return false;
        } else if (m->candidates) {
            struct kvr_candidate best = kvr_candidate_pop(m->heap, &m->candidates);
            *at = best.at;
            order = best.order;
        } else {
            return false;
        }
        if (nodes[*at].id == KVR_NO_TOKEN || nodes[*at].next == UINT32_MAX)
            continue;
        *merged = merge_of(m->v, nodes[*at].id, nodes[nodes[*at].next].id, &now);
        if (*merged != KVR_NO_TOKEN && now == order)
            return true;
    }
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
    struct kvr_merge_queue queue = {0};
    struct merging m = {.v = v, .queue = length > LONG_PIECE ? &queue : NULL};
    /* a merge removes one candidate and adds two at most */
    void *room = kvr_grow(scratch->nodes, &scratch->node_bytes, length * sizeof(struct node), 1);
    scratch->nodes = room ? room : scratch->nodes;
    if (room && !m.queue) {
        room = kvr_grow(
            scratch->heap, &scratch->heap_bytes, length * 2 * sizeof(struct kvr_candidate), 1);
        scratch->heap = room ? room : scratch->heap;
    }
    if (!room) {
        ids->failed = true;
        return;
    }
    struct node *nodes = m.nodes = scratch->nodes;
    uint32_t count = 0, left, merged;
    unsigned size;

    m.heap = scratch->heap;
    for (size_t at = 0; at < length; at += size, count++)
        nodes[count] = (struct node){
            kvr_symbol_at(v, piece + at, piece + length, &size), count - 1, count + 1};
    nodes[count - 1].next = UINT32_MAX;
    for (uint32_t at = 0; at < count; at++)
        consider(&m, at);
    while (next_merge(&m, &left, &merged)) {
        uint32_t right = nodes[left].next;
        nodes[left].id = merged;
        nodes[left].next = nodes[right].next;
        nodes[right].id = KVR_NO_TOKEN;
        if (nodes[left].next != UINT32_MAX)
            nodes[nodes[left].next].previous = left;
        consider(&m, nodes[left].previous);
        consider(&m, left);
    }
    ids->failed |= queue.failed;
    kvr_merge_queue_release(&queue);
    for (uint32_t at = 0; at != UINT32_MAX; at = nodes[at].next)
        kvr_ids_push(ids, nodes[at].id);
}
