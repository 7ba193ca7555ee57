/*
 * ttl: a block that was not used for `ttl` goes even where there is room, as providers promise a
 * prompt cache for five minutes; under pressure the one nearest its end goes first.
 *
 * Candidates stand in a heap by the time of their last use (renew=off: of insertion, as a lease),
 * so an heir comes in with its own time and expiry looks at the root only. In a tree a parent was
 * used no earlier than its child; with renew=off it came no later, and waits for its children.
 */
#include "cache/block_heap.h"
#include "cache/policy.h"

struct ttl {
    struct kvr_ranking ranking;
    struct kvr_heap heap;
    double ttl_ms;
    bool renew;
    uint32_t ticks; /* breaks ties of equal times by order of use */
};

static const struct kvr_parameter ttl_parameters[] = {
    {"ttl", KVR_PARAMETER_DURATION, "5m", NULL, 1, 1e15, "life of an unused block"},
    {"renew", KVR_PARAMETER_FLAG, "on", NULL, 0, 1, "a use starts the life again"},
};

static enum kvr_status ttl_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct ttl *ttl = (struct ttl *)ranking;

    (void)seed, (void)error;
    ttl->ttl_ms = values[0].number;
    ttl->renew = values[1].integer;
    return KVR_OK;
}

static void ttl_release(struct kvr_ranking *ranking)
{
    free(((struct ttl *)ranking)->heap.slots);
}

static enum kvr_status ttl_reserve(
    struct kvr_ranking *ranking, uint32_t slots, struct kvr_error *error)
{
    return kvr_heap_reserve(&((struct ttl *)ranking)->heap, slots) ? KVR_OK
                                                                   : kvr_error_memory(error);
}

static void ttl_insert(struct kvr_ranking *ranking, uint32_t block)
{
    struct ttl *ttl = (struct ttl *)ranking;
    struct kvr_block *used = &ranking->store->blocks[block];

    used->key = ranking->store->now_ms;
    used->stamp = ttl->ticks++;
}

static void ttl_hit(struct kvr_ranking *ranking, uint32_t block)
{
    struct ttl *ttl = (struct ttl *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;

    if (!ttl->renew)
        return;
    ttl_insert(ranking, block);
    if (kvr_block_is_queued(&blocks[block]))
        kvr_heap_down(&ttl->heap, blocks, blocks[block].place);
}

static void ttl_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    (void)place;
    kvr_heap_push(&((struct ttl *)ranking)->heap, ranking->store->blocks, block);
}

static void ttl_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    kvr_heap_remove(&((struct ttl *)ranking)->heap, ranking->store->blocks, block);
}

static uint32_t ttl_victim(struct kvr_ranking *ranking)
{
    struct ttl *ttl = (struct ttl *)ranking;
    uint32_t block = ttl->heap.count ? ttl->heap.slots[0] : 0;

    if (block)
        kvr_heap_remove(&ttl->heap, ranking->store->blocks, block);
    return block;
}

static uint32_t ttl_expired(struct kvr_ranking *ranking)
{
    struct ttl *ttl = (struct ttl *)ranking;

    if (!ttl->heap.count)
        return 0;
    if (ranking->store->now_ms - ranking->store->blocks[ttl->heap.slots[0]].key < ttl->ttl_ms)
        return 0;
    return ttl_victim(ranking);
}

static uint64_t ttl_memory_bytes(const struct kvr_ranking *ranking)
{
    return ((const struct ttl *)ranking)->heap.size * (uint64_t)sizeof(uint32_t);
}

const struct kvr_policy kvr_policy_ttl = {
    .name = "ttl",
    .summary = "LRU, and a block unused for a time goes even where there is room",
    .source = "prompt caches of API providers; Basu et al., TTL caches, SIGMETRICS 2018",
    .parameters = ttl_parameters,
    .parameter_count = 2,
    .size = sizeof(struct ttl),
    .in_time = true,
    .init = ttl_init,
    .release = ttl_release,
    .reserve = ttl_reserve,
    .hit = ttl_hit,
    .insert = ttl_insert,
    .enqueue = ttl_enqueue,
    .dequeue = ttl_dequeue,
    .victim = ttl_victim,
    .expired = ttl_expired,
    .memory_bytes = ttl_memory_bytes,
};
