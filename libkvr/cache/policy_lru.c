/*
 * lru: the block used longest ago goes first; in a prefix tree, leaf LRU.
 *
 * In a tree every block is in the list, not the leaves only. A request takes its path out of the
 * list, room is made from the oldest end, and the path goes back deepest block first. A parent is
 * therefore always newer than its children, so the oldest block of the list is a leaf by itself and
 * the running request's own path, which is not in the list, cannot be taken. This is the order of
 * vLLM's tail-first free and of SGLang's leaf heap, at the cost of two list moves an access.
 */
#include "cache/policy.h"

struct lru {
    struct kvr_ranking ranking;
    uint32_t list;
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

    if (!kvr_block_is_queued(&blocks[block]))
        return;
    kvr_list_remove(blocks, block);
    kvr_list_push_newest(blocks, ((struct lru *)ranking)->list, block);
}

static void lru_insert(struct kvr_ranking *ranking, uint32_t block)
{
    (void)ranking, (void)block;
}

static void lru_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t list = ((struct lru *)ranking)->list;

    kvr_list_insert_after(blocks, place == KVR_FRESH ? blocks[list].older : list, block);
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
