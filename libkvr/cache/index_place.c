/*
 * Learning a placement by the leaf-LRU rule (index.h).
 *
 * The rule evicts one block for each that it inserts. The same state comes out of four passes, each
 * of them a straight line over the request:
 *   1  look every block up, many at a time, so that their cache misses overlap;
 *   2  take the run off the list: what is left there is what may be evicted;
 *   3  insert missing ones in order while the request's own blocks fit the capacity, then evict
 *      from the old end until the worker is within it (the freed records form an ascending run for
 *      the next request);
 *   4  link the request's blocks as the newest, deepest first.
 * A child is then always older than its parent: the oldest block is a leaf, and what a worker holds
 * is closed under prefixes as long as ids are chained. A block found under another parent, or
 * beyond a missing one, proves that they are not, and turns searching to walking (index_find.c).
 */
#include "cache/index_private.h"

static const char no_room[] = "the prefix index cannot hold a block within its memory bound";

/* A placement on its way. */
struct placing {
    const struct kvr_blocks *blocks;
    uint32_t worker;
    uint32_t own; /* distinct blocks of the run and inserted ones: off the list */
    bool beyond;  /* some block is held behind a missing one: ids are not chained */
    struct kvr_index_placed did;
};

/* Pass 2. */
static void take_run_off(struct kvr_index *index, struct placing *placing)
{
    const struct kvr_blocks *blocks = placing->blocks;
    uint32_t parent = (uint32_t)blocks->space;
    size_t hit = blocks->count;

    for (size_t i = 0; i < blocks->count; i++) {
        uint32_t record = index->records[i];
        if (!record) {
            hit = hit < i ? hit : i;
        } else if (hit < i) {
            placing->beyond = index->walk = true;
        } else {
            if (index->use[record].parent != parent)
                index->walk = true;
            if (kvr_index_is_linked(index, record)) {
                kvr_index_unlink(index, record);
                placing->own++;
            }
        }
        parent = (uint32_t)index->keys[i];
    }
    placing->did.hit = hit;
}

static bool is_of_request(const struct kvr_index *index, uint32_t record, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (index->keys[i] == index->block[record].key)
            return true;
    return false;
}

/* Whether one more block may come. Ids that are chained need only the count; with others the next
 * victim may be a block of the request that is still on the list, so it is evicted at once. */
static bool has_capacity(struct kvr_index *index, struct placing *placing)
{
    struct kvr_index_worker *to = &index->workers[placing->worker];

    if (!placing->beyond)
        return placing->own < to->limit;
    if (to->count < to->limit)
        return true;
    if (!to->oldest || is_of_request(index, to->oldest, placing->blocks->count))
        return false;
    kvr_index_evict_oldest(index, placing->worker, 1);
    placing->did.evicted++;
    return true;
}

/* Pass 3, first half. False when memory ended it. */
static bool insert_missing(struct kvr_index *index, struct placing *placing)
{
    const struct kvr_blocks *blocks = placing->blocks;

    for (size_t i = placing->did.hit; i < blocks->count; i++) {
        uint64_t key = index->keys[i];
        bool fresh;
        if (index->records[i])
            continue;
        if (placing->beyond &&
            kvr_index_holder(index, kvr_index_head(index, key), key, placing->worker))
            continue; /* stands twice in the request: inserted at its first place */
        if (!has_capacity(index, placing))
            return true;
        while (!kvr_index_room(index))
            if (!kvr_index_give_up_one(index))
                return false;
        index->records[i] = kvr_index_insert(index, key, placing->worker, &fresh);
        if (!fresh) {
            index->walk = true; /* again twice */
            continue;
        }
        index->use[index->records[i]].parent =
            i ? (uint32_t)index->keys[i - 1] : (uint32_t)blocks->space;
        placing->own++;
        placing->did.inserted++;
    }
    return true;
}

/* Blocks behind a missing one stayed on the list, where the memory bound may have found them. */
static void forget_lost(struct kvr_index *index, const struct placing *placing)
{
    for (size_t i = 0; i < placing->blocks->count; i++)
        if (!kvr_index_is_record(index, index->records[i], placing->worker, index->keys[i]))
            index->records[i] = 0;
}

/* Pass 4. A block that stands twice in the request ends where its first place says. */
static void link_request(struct kvr_index *index, uint32_t worker, size_t count)
{
    struct kvr_index_worker *to = &index->workers[worker];
    uint32_t stamp = (uint32_t)(uint64_t)index->now_ms;

    for (size_t i = count; i--;) {
        uint32_t record = index->records[i];
        if (!record)
            continue;
        if (kvr_index_is_linked(index, record))
            kvr_index_unlink(index, record);
        index->use[record].stamp = stamp;
        kvr_index_link_newest(index, to, record);
    }
}

enum kvr_status kvr_index_place(struct kvr_index *index, uint32_t worker, int64_t now_ms,
    const struct kvr_blocks *blocks, struct kvr_index_placed *placed, struct kvr_error *error)
{
    struct placing placing = {.blocks = blocks, .worker = worker};
    struct kvr_index_worker *to = &index->workers[worker];
    enum kvr_status status = KVR_OK;

    if (placed)
        *placed = placing.did;
    kvr_index_advance(index, now_ms);
    if (to->exact || !blocks->count)
        return KVR_OK;
    status = kvr_index_bind_block_size(index, worker, blocks, error);
    if (status != KVR_OK)
        return status;
    if (!kvr_index_look_up(index, worker, blocks, true))
        return kvr_error_set(error, KVR_NO_MEMORY, no_room);
    take_run_off(index, &placing);
    if (!insert_missing(index, &placing))
        status = kvr_error_set(error, KVR_NO_MEMORY, no_room);
    if (placing.beyond)
        forget_lost(index, &placing);
    if (to->count > to->limit) {
        placing.did.evicted += to->count - to->limit;
        kvr_index_evict_oldest(index, worker, to->count - to->limit);
    }
    link_request(index, worker, blocks->count);
    kvr_index_watch_expiry(index, worker);
    if (placed)
        *placed = placing.did;
    return status;
}
