/*
 * gdsf: greedy dual size frequency. A block's key is L + uses * cost / size, where L is the key of
 * the last victim: what was not used since many evictions sinks below newcomers, so frequency ages
 * without any sweep. Blocks are of one size and gdsf counts one unit of cost for each, so the key
 * is L + uses (then the rule is also known as LFU with dynamic ageing); `value` weighs by length.
 *
 * A heap by key, among equals the one whose key was set longest ago. O(log n) an access.
 */
#include "cache/block_heap.h"
#include "cache/policy.h"

struct gdsf {
    struct kvr_ranking ranking;
    struct kvr_heap heap;
    double inflation; /* L */
    uint32_t ticks;
};

static void gdsf_release(struct kvr_ranking *ranking)
{
    free(((struct gdsf *)ranking)->heap.slots);
}

static enum kvr_status gdsf_reserve(
    struct kvr_ranking *ranking, uint32_t slots, struct kvr_error *error)
{
    return kvr_heap_reserve(&((struct gdsf *)ranking)->heap, slots) ? KVR_OK
                                                                    : kvr_error_memory(error);
}

static void gdsf_hit(struct kvr_ranking *ranking, uint32_t block)
{
    struct gdsf *gdsf = (struct gdsf *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;

    blocks[block].key = gdsf->inflation + ++blocks[block].count;
    blocks[block].stamp = gdsf->ticks++;
    if (kvr_block_is_queued(&blocks[block]))
        kvr_heap_update(&gdsf->heap, blocks, block);
}

static void gdsf_insert(struct kvr_ranking *ranking, uint32_t block)
{
    struct gdsf *gdsf = (struct gdsf *)ranking;
    struct kvr_block *added = &ranking->store->blocks[block];

    added->count = 1;
    added->key = gdsf->inflation + 1;
    added->stamp = gdsf->ticks++;
}

static void gdsf_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    (void)place;
    kvr_heap_push(&((struct gdsf *)ranking)->heap, ranking->store->blocks, block);
}

static void gdsf_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    kvr_heap_remove(&((struct gdsf *)ranking)->heap, ranking->store->blocks, block);
}

static uint32_t gdsf_victim(struct kvr_ranking *ranking)
{
    struct gdsf *gdsf = (struct gdsf *)ranking;
    uint32_t block = gdsf->heap.count ? gdsf->heap.slots[0] : 0;

    if (block)
        kvr_heap_remove(&gdsf->heap, ranking->store->blocks, block);
    return block;
}

static void gdsf_evicted(struct kvr_ranking *ranking, uint32_t block)
{
    struct gdsf *gdsf = (struct gdsf *)ranking;

    if (ranking->store->blocks[block].key > gdsf->inflation)
        gdsf->inflation = ranking->store->blocks[block].key;
}

static uint64_t gdsf_memory_bytes(const struct kvr_ranking *ranking)
{
    return ((const struct gdsf *)ranking)->heap.size * (uint64_t)sizeof(uint32_t);
}

const struct kvr_policy kvr_policy_gdsf = {
    .name = "gdsf",
    .summary = "fewest uses first, with ageing by the key of the last victim",
    .source = "Cherkasova, HP Labs HPL-98-69R1, 1998",
    .size = sizeof(struct gdsf),
    .release = gdsf_release,
    .reserve = gdsf_reserve,
    .hit = gdsf_hit,
    .insert = gdsf_insert,
    .enqueue = gdsf_enqueue,
    .dequeue = gdsf_dequeue,
    .victim = gdsf_victim,
    .evicted = gdsf_evicted,
    .memory_bytes = gdsf_memory_bytes,
};
