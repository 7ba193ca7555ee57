/*
 * sieve: a FIFO queue and a hand. A use only marks the block. The hand walks from the oldest to the
 * newest, clears marks and takes the first block without one; it stays where it stopped, so that
 * new blocks (always inserted at the newest end) are sifted before old ones that proved useful.
 *
 *     oldest … kept kept [hand] ? ? ? … newest          after the newest the hand starts over
 *
 * In a tree an heir is put exactly where its child was, under the hand: it is looked at next, and
 * survives if it was used since the hand last passed it. O(1) an access, amortised.
 */
#include "cache/policy.h"

struct sieve {
    struct kvr_ranking ranking;
    uint32_t list;
    uint32_t hand; /* the block to be looked at next; the sentinel: start at the oldest */
};

static enum kvr_status sieve_init(struct kvr_ranking *ranking,
    const struct kvr_parameter_value *values, uint64_t seed, struct kvr_error *error)
{
    struct sieve *sieve = (struct sieve *)ranking;

    (void)values, (void)seed;
    sieve->list = sieve->hand = kvr_store_sentinel(ranking->store);
    return sieve->list ? KVR_OK : kvr_error_memory(error);
}

static void sieve_hit(struct kvr_ranking *ranking, uint32_t block)
{
    ranking->store->blocks[block].flags |= KVR_BLOCK_VISITED;
}

static void sieve_insert(struct kvr_ranking *ranking, uint32_t block)
{
    ranking->store->blocks[block].flags &= (uint8_t)~KVR_BLOCK_VISITED;
}

static void sieve_enqueue(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    struct kvr_block *blocks = ranking->store->blocks;
    struct sieve *sieve = (struct sieve *)ranking;

    if (place == KVR_FRESH) {
        kvr_list_push_newest(blocks, sieve->list, block);
        return;
    }
    if (sieve->hand == sieve->list)
        kvr_list_push_oldest(blocks, sieve->list, block);
    else
        kvr_list_insert_after(blocks, blocks[sieve->hand].older, block);
    sieve->hand = block;
}

static void sieve_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    struct kvr_block *blocks = ranking->store->blocks;
    struct sieve *sieve = (struct sieve *)ranking;

    if (sieve->hand == block)
        sieve->hand = blocks[block].newer;
    kvr_list_remove(blocks, block);
}

static uint32_t sieve_victim(struct kvr_ranking *ranking)
{
    struct kvr_block *blocks = ranking->store->blocks;
    struct sieve *sieve = (struct sieve *)ranking;
    uint32_t hand = sieve->hand;

    if (hand == sieve->list)
        hand = blocks[hand].newer;
    if (hand == sieve->list)
        return 0;
    while (blocks[hand].flags & KVR_BLOCK_VISITED) {
        blocks[hand].flags &= (uint8_t)~KVR_BLOCK_VISITED;
        hand = blocks[hand].newer;
        if (hand == sieve->list)
            hand = blocks[hand].newer;
    }
    sieve->hand = blocks[hand].newer;
    kvr_list_remove(blocks, hand);
    return hand;
}

const struct kvr_policy kvr_policy_sieve = {
    .name = "sieve",
    .summary = "FIFO with a moving hand that sifts out what was not used since it came",
    .source = "Zhang et al., SIEVE, NSDI 2024",
    .size = sizeof(struct sieve),
    .init = sieve_init,
    .hit = sieve_hit,
    .insert = sieve_insert,
    .enqueue = sieve_enqueue,
    .dequeue = sieve_dequeue,
    .victim = sieve_victim,
};
