/*
 * lfu: the block used least often goes first, among equals the one that came to that count first.
 *
 *     buckets   [ uses 1 ] ⇄ [ uses 2 ] ⇄ [ uses 5 ] …      only counts that occur
 *                oldest        oldest        oldest
 *                …             …             …
 *                newest        newest        newest
 *
 * A hit moves a block one bucket up, so everything is O(1) (Shah, Mitra, Matani). An heir finds its
 * bucket by walking up from the lowest: as many steps as there are lower counts among leaves.
 * Buckets come from a fixed pool; k counts at once need k * k / 2 accesses, so 8192 buckets last
 * for 33 million accesses of the worst trace. Beyond, a block that would need one more stays in its
 * bucket, which is then in order of use.
 */
#include "cache/policy.h"

enum { BUCKETS_MOST = 8192, FIRST_BUCKETS = 64 };

struct bucket {
    uint32_t uses;
    uint32_t oldest, newest; /* blocks; 0: none */
    uint32_t lower, higher;  /* buckets; bucket 0 is the sentinel */
};

struct lfu {
    struct kvr_ranking ranking;
    struct bucket *buckets;
    uint32_t size, used, free;
};

static enum kvr_status lfu_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct lfu *lfu = (struct lfu *)ranking;
    uint32_t most = ranking->capacity < BUCKETS_MOST ? ranking->capacity : BUCKETS_MOST;

    (void)values, (void)seed;
    /* two more than blocks: a block moves to a new bucket before its old one is given back */
    lfu->size = most + 2 > FIRST_BUCKETS ? most + 2 : FIRST_BUCKETS;
    lfu->buckets = calloc(lfu->size, sizeof *lfu->buckets);
    lfu->used = 1;
    return lfu->buckets ? KVR_OK : kvr_error_memory(error);
}

static void lfu_release(struct kvr_ranking *ranking)
{
    free(((struct lfu *)ranking)->buckets);
}

/* A bucket for `uses` between lower and what follows it; lower itself when the pool is empty. */
static uint32_t make_bucket(struct lfu *lfu, uint32_t lower, uint32_t uses)
{
    struct bucket *buckets = lfu->buckets;
    uint32_t bucket = lfu->free;

    if (bucket)
        lfu->free = buckets[bucket].higher;
    else if (lfu->used < lfu->size)
        bucket = lfu->used++;
    else
        return lower ? lower : buckets[0].higher;
    buckets[bucket] = (struct bucket){uses, 0, 0, lower, buckets[lower].higher};
    buckets[buckets[bucket].higher].lower = bucket;
    buckets[lower].higher = bucket;
    return bucket;
}

static void add_newest(struct lfu *lfu, uint32_t bucket, uint32_t block)
{
    struct kvr_block *blocks = lfu->ranking.store->blocks;
    struct bucket *in = &lfu->buckets[bucket];

    blocks[block].place = bucket;
    blocks[block].older = in->newest;
    blocks[block].newer = 0;
    if (in->newest)
        blocks[in->newest].newer = block;
    else
        in->oldest = block;
    in->newest = block;
}

static void lfu_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    struct lfu *lfu = (struct lfu *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t older = blocks[block].older, newer = blocks[block].newer;
    uint32_t bucket = blocks[block].place;
    struct bucket *in = &lfu->buckets[bucket];

    if (older)
        blocks[older].newer = newer;
    else
        in->oldest = newer;
    if (newer)
        blocks[newer].older = older;
    else
        in->newest = older;
    if (!in->oldest) {
        lfu->buckets[in->lower].higher = in->higher;
        lfu->buckets[in->higher].lower = in->lower;
        in->higher = lfu->free;
        lfu->free = bucket;
    }
}

static void lfu_hit(struct kvr_ranking *ranking, uint32_t block)
{
    struct lfu *lfu = (struct lfu *)ranking;
    struct kvr_block *used = &ranking->store->blocks[block];

    used->count += used->count < UINT32_MAX;
    if (!kvr_block_is_queued(used))
        return;
    uint32_t bucket = used->place, higher = lfu->buckets[bucket].higher;
    struct bucket *in = &lfu->buckets[bucket];
    bool there = higher && lfu->buckets[higher].uses == used->count;
    if (!there && in->oldest == block && in->newest == block) {
        in->uses = used->count;
        return;
    }
    if (!there)
        higher = make_bucket(lfu, bucket, used->count);
    lfu_dequeue(ranking, block);
    add_newest(lfu, higher, block);
}

static void lfu_insert(struct kvr_ranking *ranking, uint32_t block)
{
    ranking->store->blocks[block].count = 1;
}

static void lfu_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    struct lfu *lfu = (struct lfu *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t uses = blocks[block].count, lower = 0, bucket = lfu->buckets[0].higher;

    while (bucket && lfu->buckets[bucket].uses < uses) {
        lower = bucket;
        bucket = lfu->buckets[bucket].higher;
    }
    if (!bucket || lfu->buckets[bucket].uses != uses)
        bucket = make_bucket(lfu, lower, uses);
    struct bucket *in = &lfu->buckets[bucket];
    if (place == KVR_FRESH || !in->oldest) {
        add_newest(lfu, bucket, block);
        return;
    }
    blocks[block].place = bucket;
    blocks[block].older = 0;
    blocks[block].newer = in->oldest;
    blocks[in->oldest].older = block;
    in->oldest = block;
}

static uint32_t lfu_victim(struct kvr_ranking *ranking)
{
    struct lfu *lfu = (struct lfu *)ranking;
    uint32_t block = lfu->buckets[lfu->buckets[0].higher].oldest;

    if (block)
        lfu_dequeue(ranking, block);
    return block;
}

static uint64_t lfu_memory_bytes(const struct kvr_ranking *ranking)
{
    return ((const struct lfu *)ranking)->size * (uint64_t)sizeof(struct bucket);
}

const struct kvr_policy kvr_policy_lfu = {
    .name = "lfu",
    .summary = "least often used, among equals the first to come to that count",
    .source = "Shah, Mitra and Matani, An O(1) algorithm for LFU, 2010",
    .size = sizeof(struct lfu),
    .init = lfu_init,
    .release = lfu_release,
    .hit = lfu_hit,
    .insert = lfu_insert,
    .enqueue = lfu_enqueue,
    .dequeue = lfu_dequeue,
    .victim = lfu_victim,
    .memory_bytes = lfu_memory_bytes,
};
