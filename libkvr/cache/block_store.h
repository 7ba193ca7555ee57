/*
 * The blocks that are resident in one cache: records in an array, linked by u32 index, found by id.
 *
 * A record carries what every policy needs and is never moved, so lists, heaps and the prefix tree
 * are links inside it (intrusive) and no access allocates. Slot 0 is no block; a few slots serve as
 * sentinels of lists. Removed slots are chained for reuse.
 *
 * Memory: 40 bytes a record and 18.3 of table, so 58.3 bytes a block of capacity; a policy with a
 * heap or an array adds 4. Ghosts (arc, s3fifo) are not resident and are counted apart.
 * The arrays grow with the blocks really there, by a half at a time, up to the capacity.
 */
#ifndef KVR_CACHE_BLOCK_STORE_H
#define KVR_CACHE_BLOCK_STORE_H

#include "base/error.h"
#include "cache/block_table.h"

#include <stdbool.h>
#include <stdint.h>

enum kvr_block_flag {
    KVR_BLOCK_QUEUED = 1,  /* a candidate for eviction: the policy has it in a queue */
    KVR_BLOCK_VISITED = 2, /* clock, sieve: used since the hand passed */
    KVR_BLOCK_SHARED = 4,  /* used by more than one session */
    KVR_BLOCK_HELD = 8,    /* the last block of a live request: stays where it is, does not go */
    KVR_BLOCK_PINNED = 16, /* by a pin; counted in busy */
};

struct kvr_block {
    uint64_t id;
    uint32_t parent; /* slot of the block before it in its chain; 0: none, or plain semantics */
    uint32_t busy;   /* resident children + pins: a candidate only when 0 */
    union {
        struct {
            uint32_t older, newer; /* the policy's list */
        };
        double key; /* the policy's heap: the smallest goes first */
    };
    uint32_t place; /* the policy's: position in a heap or array, bucket of a list */
    union {
        uint32_t count; /* the policy's: how often used */
        float weight;
    };
    uint32_t stamp; /* the policy's: a time */
    uint16_t owner; /* which order (pool, tenant) it belongs to */
    uint8_t queue;  /* the policy's: which of its queues */
    uint8_t flags;
};

struct kvr_store {
    struct kvr_block *blocks;
    struct kvr_block_table table;
    uint32_t slots;    /* allocated */
    uint32_t used;     /* slots ever taken, slot 0 included */
    uint32_t free;     /* chain of removed slots through `newer` */
    uint32_t resident; /* blocks with an id */
    uint32_t sentinels;
    uint32_t capacity; /* resident blocks allowed */
    uint64_t clock;    /* accesses before this one: the time of policies that count accesses */
    uint32_t depth;    /* blocks before this access's in its request */
    double fill;       /* share of the block's room that holds tokens: below 1 for a partial one */
    double now_ms;     /* the time of the request being served */
    /* belady: for each access the number of the next access to the same id, KVR_NEVER for none;
     * NULL for the online policies. Of future_length accesses. */
    const uint32_t *future;
    uint64_t future_length;
};

#define KVR_NEVER UINT32_MAX
#define KVR_STORE_CAPACITY_MOST 0x7fff0000u

/* An empty store; capacity from 1 to KVR_STORE_CAPACITY_MOST. */
enum kvr_status kvr_store_init(struct kvr_store *store, uint32_t capacity, struct kvr_error *error);
void kvr_store_release(struct kvr_store *store);

/* Makes room for `more` blocks beyond those resident, capacity permitting. */
enum kvr_status kvr_store_reserve(struct kvr_store *store, uint32_t more, struct kvr_error *error);

/* A slot that is no block: the head of a circular list. 0 when memory is short. */
uint32_t kvr_store_sentinel(struct kvr_store *store);

static inline uint32_t kvr_store_find(const struct kvr_store *store, uint64_t id)
{
    return kvr_block_table_find(
        &store->table, id, kvr_block_table_hash(id), &store->blocks[0].id, sizeof *store->blocks);
}

static inline uint32_t kvr_store_find_hashed(
    const struct kvr_store *store, uint64_t id, uint32_t hash)
{
    return kvr_block_table_find(
        &store->table, id, hash, &store->blocks[0].id, sizeof *store->blocks);
}

/* Adds an id that is not there; room has been reserved. Every other member is 0. */
static inline uint32_t kvr_store_add(struct kvr_store *store, uint64_t id, uint32_t hash)
{
    uint32_t slot = store->free;

    if (slot)
        store->free = store->blocks[slot].newer;
    else
        slot = store->used++;
    store->blocks[slot] = (struct kvr_block){.id = id};
    kvr_block_table_insert(&store->table, hash, slot);
    store->resident++;
    return slot;
}

static inline void kvr_store_remove(struct kvr_store *store, uint32_t slot)
{
    kvr_block_table_remove(&store->table, kvr_block_table_hash(store->blocks[slot].id), slot);
    store->blocks[slot].newer = store->free;
    store->free = slot;
    store->resident--;
}

/* Bytes allocated. */
uint64_t kvr_store_memory_bytes(const struct kvr_store *store);

#endif
