/*
 * slru: segmented LRU. New blocks come into a probation segment; a hit moves a block to the
 * protected one, which holds at most `protected` of the capacity: its least recently used goes back
 * to the newest end of probation. Victims come from probation, so a scan of blocks used once never
 * displaces blocks used twice.
 *
 * In a tree a block that is no leaf keeps its segment while it is out of the queues; it counts
 * towards the protected share, and only leaves can be sent back.
 */
#include "cache/policy.h"

enum { PROBATION, PROTECTED };

struct slru {
    struct kvr_ranking ranking;
    uint32_t lists[2];
    uint32_t protected_count, protected_most; /* blocks, queued or not */
};

static const struct kvr_parameter slru_parameters[] = {
    {"protected", KVR_PARAMETER_NUMBER, "0.8", NULL, 0, 1, "share of the protected segment"},
};

static enum kvr_status slru_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct slru *slru = (struct slru *)ranking;

    (void)seed;
    slru->protected_most = (uint32_t)(values[0].number * ranking->capacity);
    slru->lists[PROBATION] = kvr_store_sentinel(ranking->store);
    slru->lists[PROTECTED] = kvr_store_sentinel(ranking->store);
    return slru->lists[PROTECTED] ? KVR_OK : kvr_error_memory(error);
}

static void slru_hit(struct kvr_ranking *ranking, uint32_t block)
{
    struct slru *slru = (struct slru *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;

    if (kvr_block_is_queued(&blocks[block])) {
        kvr_list_remove(blocks, block);
        kvr_list_push_newest(blocks, slru->lists[PROTECTED], block);
    }
    slru->protected_count += blocks[block].queue == PROBATION;
    blocks[block].queue = PROTECTED;
    while (slru->protected_count > slru->protected_most) {
        uint32_t oldest = kvr_list_oldest(blocks, slru->lists[PROTECTED]);
        if (!oldest)
            break;
        kvr_list_remove(blocks, oldest);
        kvr_list_push_newest(blocks, slru->lists[PROBATION], oldest);
        blocks[oldest].queue = PROBATION;
        slru->protected_count--;
    }
}

static void slru_insert(struct kvr_ranking *ranking, uint32_t block)
{
    ranking->store->blocks[block].queue = PROBATION;
}

static void slru_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t list = ((struct slru *)ranking)->lists[blocks[block].queue];

    kvr_list_insert_after(blocks, place == KVR_FRESH ? blocks[list].older : list, block);
}

static void slru_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    kvr_list_remove(ranking->store->blocks, block);
}

static uint32_t slru_victim(struct kvr_ranking *ranking)
{
    struct slru *slru = (struct slru *)ranking;
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t block = kvr_list_oldest(blocks, slru->lists[PROBATION]);

    if (!block)
        block = kvr_list_oldest(blocks, slru->lists[PROTECTED]);
    if (block)
        kvr_list_remove(blocks, block);
    return block;
}

static void slru_evicted(struct kvr_ranking *ranking, uint32_t block)
{
    ((struct slru *)ranking)->protected_count -= ranking->store->blocks[block].queue == PROTECTED;
}

const struct kvr_policy kvr_policy_slru = {
    .name = "slru",
    .summary = "segmented LRU: blocks used twice are protected from those used once",
    .source = "Karedla, Love and Wherry, IEEE Computer 27(3), 1994",
    .parameters = slru_parameters,
    .parameter_count = 1,
    .size = sizeof(struct slru),
    .init = slru_init,
    .hit = slru_hit,
    .insert = slru_insert,
    .enqueue = slru_enqueue,
    .dequeue = slru_dequeue,
    .victim = slru_victim,
    .evicted = slru_evicted,
};
