/*
 * lru: the block used longest ago goes first; in a prefix tree, leaf LRU.
 *
 * In a tree every block is in the list, not the leaves only. A request takes its path out of the
 * list, room is made from the oldest end, and the path goes back deepest block first. A parent is
 * therefore always newer than its children, so the oldest block of the list is a leaf by itself and
 * the running request's own path, which is not in the list, cannot be taken. This is the order of
 * vLLM's tail-first free and of SGLang's leaf heap, at the cost of two list moves an access.
 *
 * With pools or quotas there are several lists and a parent may be in another one than its child,
 * so only leaves are listed. Every use leaves a stamp, and an heir is put where its stamp belongs,
 * looked for from both ends at once: most are near one of them.
 */
#include "cache/policy.h"

struct lru {
    struct kvr_ranking ranking;
    uint32_t list;
    uint32_t ticks; /* compared by distance, so they may wrap around */
};

static enum kvr_status lru_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct lru *lru = (struct lru *)ranking;

    (void)values, (void)seed;
    lru->list = kvr_store_sentinel(ranking->store);
    return lru->list ? KVR_OK : kvr_error_memory(error);
}

static void lru_hit(struct kvr_ranking *ranking, uint32_t block)
{
    struct kvr_block *blocks = ranking->store->blocks;

    blocks[block].stamp = ((struct lru *)ranking)->ticks++;
    if (!kvr_block_is_queued(&blocks[block]))
        return;
    kvr_list_remove(blocks, block);
    kvr_list_push_newest(blocks, ((struct lru *)ranking)->list, block);
}

static void lru_insert(struct kvr_ranking *ranking, uint32_t block)
{
    ranking->store->blocks[block].stamp = ((struct lru *)ranking)->ticks++;
}

static void lru_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    struct kvr_block *blocks = ranking->store->blocks;
    struct lru *lru = (struct lru *)ranking;
    uint32_t list = lru->list, old = blocks[list].newer, young = blocks[list].older;

    if (place == KVR_FRESH) {
        blocks[block].stamp = lru->ticks++;
        kvr_list_push_newest(blocks, list, block);
        return;
    }
    uint32_t stamp = blocks[block].stamp;
    while (old != list && (int32_t)(stamp - blocks[old].stamp) > 0 &&
           (int32_t)(stamp - blocks[young].stamp) < 0) {
        old = blocks[old].newer;
        young = blocks[young].older;
    }
    bool before_old = old == list || (int32_t)(stamp - blocks[old].stamp) <= 0;
    kvr_list_insert_after(blocks, before_old ? blocks[old].older : young, block);
}

static void lru_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    kvr_list_remove(ranking->store->blocks, block);
}

static uint32_t lru_victim(struct kvr_ranking *ranking)
{
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t block = kvr_list_oldest(blocks, ((struct lru *)ranking)->list);

    if (block)
        kvr_list_remove(blocks, block);
    return block;
}

const struct kvr_policy kvr_policy_lru = {
    .name = "lru",
    .summary = "least recently used; in a prefix tree leaf LRU, as vLLM and SGLang keep it",
    .source = "Mattson et al., IBM Systems Journal 9(2), 1970",
    .size = sizeof(struct lru),
    .whole_path = true,
    .init = lru_init,
    .hit = lru_hit,
    .insert = lru_insert,
    .enqueue = lru_enqueue,
    .dequeue = lru_dequeue,
    .victim = lru_victim,
};
