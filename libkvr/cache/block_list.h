/*
 * A circular list of blocks by index, with a sentinel slot, so that unlinking takes no branch.
 *
 *     sentinel.newer ──► oldest ──► … ──► newest ──► sentinel        (newer; older goes back)
 */
#ifndef KVR_CACHE_BLOCK_LIST_H
#define KVR_CACHE_BLOCK_LIST_H

#include "cache/block_store.h"

static inline uint32_t kvr_list_oldest(const struct kvr_block *blocks, uint32_t list)
{
    uint32_t slot = blocks[list].newer;
    return slot == list ? 0 : slot;
}

static inline bool kvr_list_empty(const struct kvr_block *blocks, uint32_t list)
{
    return blocks[list].newer == list;
}

/* Puts slot on the newer side of `older`, which may be the sentinel: then slot is the oldest. */
static inline void kvr_list_insert_after(struct kvr_block *blocks, uint32_t older, uint32_t slot)
{
    uint32_t newer = blocks[older].newer;

    blocks[slot].older = older;
    blocks[slot].newer = newer;
    blocks[older].newer = slot;
    blocks[newer].older = slot;
}

static inline void kvr_list_push_newest(struct kvr_block *blocks, uint32_t list, uint32_t slot)
{
    kvr_list_insert_after(blocks, blocks[list].older, slot);
}

static inline void kvr_list_push_oldest(struct kvr_block *blocks, uint32_t list, uint32_t slot)
{
    kvr_list_insert_after(blocks, list, slot);
}

static inline void kvr_list_remove(struct kvr_block *blocks, uint32_t slot)
{
    uint32_t older = blocks[slot].older, newer = blocks[slot].newer;

    blocks[older].newer = newer;
    blocks[newer].older = older;
}

#endif
