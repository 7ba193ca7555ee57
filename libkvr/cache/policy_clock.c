/*
 * clock: FIFO with a second chance (FIFO reinsertion). A use raises a small counter; a block at the
 * oldest end with a counter above 0 pays one and goes round again.
 *
 * The counter has `bits` bits (1: the classical reference bit). A victim is found after at most
 * 2^bits - 1 turns of the queue; over a run each use pays for one step, so the cost is O(1) an
 * access. The list is moved instead of a hand: the same order, and new blocks go behind the hand.
 */
#include "cache/policy.h"

struct clock {
    struct kvr_ranking ranking;
    uint32_t list;
    uint32_t most; /* largest counter */
};

static const struct kvr_parameter clock_parameters[] = {
    {"bits", KVR_PARAMETER_INTEGER, "1", NULL, 1, 8, "width of the counter of uses"},
};

static enum kvr_status clock_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct clock *clock = (struct clock *)ranking;

    (void)seed;
    clock->most = (1u << values[0].integer) - 1;
    clock->list = kvr_store_sentinel(ranking->store);
    return clock->list ? KVR_OK : kvr_error_memory(error);
}

static void clock_hit(struct kvr_ranking *ranking, uint32_t block)
{
    struct kvr_block *used = &ranking->store->blocks[block];

    used->count += used->count < ((struct clock *)ranking)->most;
}

static void clock_insert(struct kvr_ranking *ranking, uint32_t block)
{
    ranking->store->blocks[block].count = 0;
}

static void clock_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t list = ((struct clock *)ranking)->list;

    kvr_list_insert_after(blocks, place == KVR_FRESH ? blocks[list].older : list, block);
}

static void clock_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    kvr_list_remove(ranking->store->blocks, block);
}

static uint32_t clock_victim(struct kvr_ranking *ranking)
{
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t list = ((struct clock *)ranking)->list;
    uint32_t block;

    while ((block = kvr_list_oldest(blocks, list))) {
        kvr_list_remove(blocks, block);
        if (!blocks[block].count)
            break;
        blocks[block].count--;
        kvr_list_push_newest(blocks, list, block);
    }
    return block;
}

const struct kvr_policy kvr_policy_clock = {
    .name = "clock",
    .summary = "FIFO with a second chance for blocks used since the hand passed",
    .source = "Corbato, MIT Project MAC, 1968",
    .parameters = clock_parameters,
    .parameter_count = 1,
    .size = sizeof(struct clock),
    .init = clock_init,
    .hit = clock_hit,
    .insert = clock_insert,
    .enqueue = clock_enqueue,
    .dequeue = clock_dequeue,
    .victim = clock_victim,
};
