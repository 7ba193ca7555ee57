/*
 * fifo: the block that came first goes first; a use changes nothing.
 *
 * In a tree a parent came before its child. When the oldest leaf goes, its parent is therefore
 * older than every other leaf, and taking the child's place at the oldest end is its exact place.
 */
#include "cache/policy.h"

struct fifo {
    struct kvr_ranking ranking;
    uint32_t list;
};

static enum kvr_status fifo_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct fifo *fifo = (struct fifo *)ranking;

    (void)values, (void)seed;
    fifo->list = kvr_store_sentinel(ranking->store);
    return fifo->list ? KVR_OK : kvr_error_memory(error);
}

static void fifo_ignore(struct kvr_ranking *ranking, uint32_t block)
{
    (void)ranking, (void)block;
}

static void fifo_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t list = ((struct fifo *)ranking)->list;

    kvr_list_insert_after(blocks, place == KVR_FRESH ? blocks[list].older : list, block);
}

static void fifo_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    kvr_list_remove(ranking->store->blocks, block);
}

static uint32_t fifo_victim(struct kvr_ranking *ranking)
{
    struct kvr_block *blocks = ranking->store->blocks;
    uint32_t block = kvr_list_oldest(blocks, ((struct fifo *)ranking)->list);

    if (block)
        kvr_list_remove(blocks, block);
    return block;
}

const struct kvr_policy kvr_policy_fifo = {
    .name = "fifo",
    .summary = "first in, first out; a use changes nothing",
    .source = "Belady, IBM Systems Journal 5(2), 1966",
    .size = sizeof(struct fifo),
    .init = fifo_init,
    .hit = fifo_ignore,
    .insert = fifo_ignore,
    .enqueue = fifo_enqueue,
    .dequeue = fifo_dequeue,
    .victim = fifo_victim,
};
