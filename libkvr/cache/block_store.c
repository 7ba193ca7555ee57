#include "cache/block_store.h"

#include <string.h>

enum kvr_status kvr_store_init(struct kvr_store *store, uint32_t capacity, struct kvr_error *error)
{
    memset(store, 0, sizeof *store);
    if (capacity < 1 || capacity > KVR_STORE_CAPACITY_MOST)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "a capacity of %u blocks is out of range", (unsigned)capacity);
    store->capacity = capacity;
    store->used = 1;
    store->fill = 1;
    return kvr_store_reserve(store, 1, error);
}

void kvr_store_release(struct kvr_store *store)
{
    free(store->blocks);
    kvr_block_table_release(&store->table);
    memset(store, 0, sizeof *store);
}

static bool grow_slots(struct kvr_store *store, uint64_t wanted)
{
    uint64_t most = (uint64_t)store->capacity + store->sentinels + 1;
    uint64_t slots = store->slots + (uint64_t)store->slots / 2;

    if (slots > most)
        slots = most;
    if (slots < wanted)
        slots = wanted;
    struct kvr_block *blocks = realloc(store->blocks, slots * sizeof *blocks);
    if (!blocks)
        return false;
    if (!store->blocks)
        memset(blocks, 0, sizeof *blocks);
    store->blocks = blocks;
    store->slots = (uint32_t)slots;
    return true;
}

enum kvr_status kvr_store_reserve(struct kvr_store *store, uint32_t more, struct kvr_error *error)
{
    uint32_t room = store->capacity > store->resident ? store->capacity - store->resident : 0;
    uint64_t wanted =
        1 + (uint64_t)store->sentinels + store->resident + (more < room ? more : room);

    if (wanted > store->slots && !grow_slots(store, wanted))
        return kvr_error_memory(error);
    if (!kvr_block_table_reserve(&store->table, store->slots - store->sentinels))
        return kvr_error_memory(error);
    return KVR_OK;
}

uint32_t kvr_store_sentinel(struct kvr_store *store)
{
    if (store->used == store->slots && !grow_slots(store, (uint64_t)store->slots + 16))
        return 0;
    uint32_t slot = store->used++;
    store->sentinels++;
    store->blocks[slot] = (struct kvr_block){.older = slot, .newer = slot};
    return slot;
}

uint64_t kvr_store_memory_bytes(const struct kvr_store *store)
{
    return sizeof *store->blocks * (uint64_t)store->slots +
           kvr_block_table_memory_bytes(&store->table);
}
