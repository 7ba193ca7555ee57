/*
 * value: keep what saves most prefill for each byte it takes, judged by recent reuse: the rule of
 * KV store tiers.
 *
 * A block's value is frequency * reusable length / bytes. The reusable length is the prefix that a
 * hit on the block hands over, (depth + 1) blocks; all blocks take the same bytes, so they drop
 * out. Frequency counts proven reuse: a hit counts 1, the first sighting only `first` (0.02), so
 * that a long prompt nobody asked for again does not outweigh a short one in daily use. It ages by
 * exponential decay with a half-life H of `halflife` capacities of accesses.
 *
 * All values decay at one rate, so their order does not change with time, and the key need be
 * computed at a use only: key = log2(value) + now / H. A use takes the old value back out of the
 * key, decayed to now, and adds its own:
 *
 *     key = now / H + log2(length * gain + 2^(key - now / H))
 *
 * One heap, O(log n) an access, no sweep.
 */
#include "cache/block_heap.h"
#include "cache/policy.h"

#include <math.h>

struct value {
    struct kvr_ranking ranking;
    struct kvr_heap heap;
    double per_access; /* 1 / H */
    double first;
    uint32_t ticks;
};

static const struct kvr_parameter value_parameters[] = {
    {"halflife", KVR_PARAMETER_NUMBER, "0.125", NULL, 1e-3, 1e6,
        "accesses until a use counts half, in capacities"},
    {"first", KVR_PARAMETER_NUMBER, "0.02", NULL, 1e-6, 1, "what the first sighting counts"},
};

static enum kvr_status value_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct value *value = (struct value *)ranking;

    (void)seed, (void)error;
    value->per_access = 1 / (values[0].number * ranking->capacity);
    value->first = values[1].number;
    return KVR_OK;
}

static void value_release(struct kvr_ranking *ranking)
{
    free(((struct value *)ranking)->heap.slots);
}

static enum kvr_status value_reserve(
    struct kvr_ranking *ranking, uint32_t slots, struct kvr_error *error)
{
    return kvr_heap_reserve(&((struct value *)ranking)->heap, slots) ? KVR_OK
                                                                     : kvr_error_memory(error);
}

static void value_hit(struct kvr_ranking *ranking, uint32_t block)
{
    struct value *value = (struct value *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;
    double now = (double)ranking->store->clock * value->per_access;
    double old = exp2(blocks[block].key - now);

    blocks[block].key = now + log2(blocks[block].count + old);
    blocks[block].stamp = value->ticks++;
    if (kvr_block_is_queued(&blocks[block]))
        kvr_heap_update(&value->heap, blocks, block);
}

static void value_insert(struct kvr_ranking *ranking, uint32_t block)
{
    struct value *value = (struct value *)ranking;
    struct kvr_block *added = &ranking->store->blocks[block];

    added->count = ranking->store->depth + 1;
    added->key =
        (double)ranking->store->clock * value->per_access + log2(added->count * value->first);
    added->stamp = value->ticks++;
}

static void value_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    (void)place;
    kvr_heap_push(&((struct value *)ranking)->heap, ranking->store->blocks, block);
}

static void value_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    kvr_heap_remove(&((struct value *)ranking)->heap, ranking->store->blocks, block);
}

static uint32_t value_victim(struct kvr_ranking *ranking)
{
    struct value *value = (struct value *)ranking;
    uint32_t block = value->heap.count ? value->heap.slots[0] : 0;

    if (block)
        kvr_heap_remove(&value->heap, ranking->store->blocks, block);
    return block;
}

static uint64_t value_memory_bytes(const struct kvr_ranking *ranking)
{
    return ((const struct value *)ranking)->heap.size * (uint64_t)sizeof(uint32_t);
}

const struct kvr_policy kvr_policy_value = {
    .name = "value",
    .summary = "least frequency x reusable length per byte, with ageing; the rule of store tiers",
    .source = "after Lee et al., LRFU, IEEE TC 50(12), 2001, weighted by prefix length",
    .parameters = value_parameters,
    .parameter_count = 2,
    .size = sizeof(struct value),
    .init = value_init,
    .release = value_release,
    .reserve = value_reserve,
    .hit = value_hit,
    .insert = value_insert,
    .enqueue = value_enqueue,
    .dequeue = value_dequeue,
    .victim = value_victim,
    .memory_bytes = value_memory_bytes,
};
