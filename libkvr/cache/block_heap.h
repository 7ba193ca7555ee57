/*
 * A heap of blocks by (key, stamp): the smallest key first, among equals the oldest stamp. Four
 * children a node: half the levels of a binary heap, and the four lie in one cache line of the
 * array. A block knows its place, so a key may change or a block leave from anywhere.
 *
 * Stamps are compared by their distance, so they may wrap around as long as no two blocks in the
 * heap are 2^31 stamps apart.
 */
#ifndef KVR_CACHE_BLOCK_HEAP_H
#define KVR_CACHE_BLOCK_HEAP_H

#include "cache/block_store.h"

struct kvr_heap {
    uint32_t *slots; /* the root at 0 */
    uint32_t count, size;
};

static inline bool kvr_heap_before(const struct kvr_block *a, const struct kvr_block *b)
{
    return a->key < b->key || (a->key == b->key && (int32_t)(a->stamp - b->stamp) < 0);
}

static inline void kvr_heap_up(struct kvr_heap *heap, struct kvr_block *blocks, uint32_t at)
{
    uint32_t slot = heap->slots[at];

    while (at) {
        uint32_t above = (at - 1) / 4;
        if (!kvr_heap_before(&blocks[slot], &blocks[heap->slots[above]]))
            break;
        heap->slots[at] = heap->slots[above];
        blocks[heap->slots[at]].place = at;
        at = above;
    }
    heap->slots[at] = slot;
    blocks[slot].place = at;
}

static inline void kvr_heap_down(struct kvr_heap *heap, struct kvr_block *blocks, uint32_t at)
{
    uint32_t slot = heap->slots[at];

    for (;;) {
        uint64_t child = 4 * (uint64_t)at + 1;
        if (child >= heap->count)
            break;
        uint64_t end = child + 4 < heap->count ? child + 4 : heap->count;
        uint64_t best = child;
        for (uint64_t i = child + 1; i < end; i++)
            if (kvr_heap_before(&blocks[heap->slots[i]], &blocks[heap->slots[best]]))
                best = i;
        if (!kvr_heap_before(&blocks[heap->slots[best]], &blocks[slot]))
            break;
        heap->slots[at] = heap->slots[best];
        blocks[heap->slots[at]].place = at;
        at = (uint32_t)best;
    }
    heap->slots[at] = slot;
    blocks[slot].place = at;
}

/* The block has its key and stamp; there is room (see reserve). */
static inline void kvr_heap_push(struct kvr_heap *heap, struct kvr_block *blocks, uint32_t slot)
{
    heap->slots[heap->count] = slot;
    kvr_heap_up(heap, blocks, heap->count++);
}

static inline void kvr_heap_remove(struct kvr_heap *heap, struct kvr_block *blocks, uint32_t slot)
{
    uint32_t at = blocks[slot].place;
    uint32_t last = heap->slots[--heap->count];

    if (last == slot)
        return;
    heap->slots[at] = last;
    blocks[last].place = at;
    kvr_heap_up(heap, blocks, at);
    kvr_heap_down(heap, blocks, blocks[last].place);
}

/* After the block's key or stamp changed. */
static inline void kvr_heap_update(struct kvr_heap *heap, struct kvr_block *blocks, uint32_t slot)
{
    kvr_heap_up(heap, blocks, blocks[slot].place);
    kvr_heap_down(heap, blocks, blocks[slot].place);
}

static inline bool kvr_heap_reserve(struct kvr_heap *heap, uint32_t size)
{
    if (size <= heap->size)
        return true;
    uint32_t *slots = realloc(heap->slots, (size_t)size * sizeof *slots);
    if (!slots)
        return false;
    heap->slots = slots;
    heap->size = size;
    return true;
}

#endif
