/*
 * value: keep what saves most prefill for each byte it takes, judged by proven reuse: the rule of
 * KV store tiers, frequency * reusable length / bytes with ageing.
 *
 * What is a block's reusable length? Whoever loses a leaf still finds its prefix, so a hit on the
 * block hands over its own tokens and no more: all of a full block, the real ones of a partial one,
 * over the same bytes. They are worth the more the deeper they stand, because attention makes a
 * token dearer for each one before it: `depth` is that share for each block before. Frequency
 * counts reuse: a hit counts 1, the first sighting `first` (the less, the harder unique prompts are
 * kept from pushing out reused ones, and the longer what went cold stays). Age comes as in greedy
 * dual: a use sets
 *
 *     key = L + (hits + first) * tokens / room * (1 + depth * blocks before)
 *
 * with L the key of the last victim, so what was not used while L rose sinks below newcomers. A
 * burst of unique prompts raises L by `first` a turnover of the cache, a hot prefix stands above it
 * by its hits. A heap by key, O(log n) an access.
 */
#include "cache/block_heap.h"
#include "cache/policy.h"

struct value {
    struct kvr_ranking ranking;
    struct kvr_heap heap;
    double first, depth;
    double inflation; /* L */
    uint32_t ticks;
};

static const struct kvr_parameter value_parameters[] = {
    {"first", KVR_PARAMETER_NUMBER, "1", NULL, 1e-6, 1000,
        "what the first sighting counts, in hits"},
    {"depth", KVR_PARAMETER_NUMBER, "0.01", NULL, 0, 1000,
        "how much dearer a block's tokens are for each block before it"},
};

static enum kvr_status value_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct value *value = (struct value *)ranking;

    (void)seed, (void)error;
    value->first = values[0].number;
    value->depth = values[1].number;
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

static void set_key(struct value *value, struct kvr_block *block)
{
    const struct kvr_store *store = value->ranking.store;

    block->key = value->inflation +
                 (block->count + value->first) * store->fill * (1 + value->depth * store->depth);
    block->stamp = value->ticks++;
}

static void value_hit(struct kvr_ranking *ranking, uint32_t block)
{
    struct value *value = (struct value *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;

    blocks[block].count += blocks[block].count < UINT32_MAX;
    set_key(value, &blocks[block]);
    if (kvr_block_is_queued(&blocks[block]))
        kvr_heap_update(&value->heap, blocks, block);
}

static void value_insert(struct kvr_ranking *ranking, uint32_t block)
{
    ranking->store->blocks[block].count = 0;
    set_key((struct value *)ranking, &ranking->store->blocks[block]);
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

static void value_evicted(struct kvr_ranking *ranking, uint32_t block)
{
    struct value *value = (struct value *)ranking;

    if (ranking->store->blocks[block].key > value->inflation)
        value->inflation = ranking->store->blocks[block].key;
}

static uint64_t value_memory_bytes(const struct kvr_ranking *ranking)
{
    return ((const struct value *)ranking)->heap.size * (uint64_t)sizeof(uint32_t);
}

const struct kvr_policy kvr_policy_value = {
    .name = "value",
    .summary = "least frequency x reusable length per byte, with ageing; the rule of store tiers",
    .source = "after greedy dual size frequency (Cherkasova, 1998), with prefill as the cost",
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
    .evicted = value_evicted,
    .memory_bytes = value_memory_bytes,
};
