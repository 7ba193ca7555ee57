#include "sim/held.h"

#include <string.h>

void kvr_held_release(struct kvr_held *held)
{
    kvr_u64_map_release(&held->holders);
    memset(held, 0, sizeof *held);
}

enum kvr_status kvr_held_add(struct kvr_held *held, const uint64_t *ids, size_t count,
    uint64_t unnamed, struct kvr_error *error)
{
    for (size_t i = 0; i < count; i++) {
        bool inserted;
        uint64_t *holders = kvr_u64_map_insert(&held->holders, ids[i], &inserted);
        if (!holders) {
            kvr_held_drop(held, ids, i, 0);
            return kvr_error_memory(error);
        }
        held->blocks += inserted;
        ++*holders;
    }
    held->blocks += unnamed;
    return KVR_OK;
}

void kvr_held_drop(struct kvr_held *held, const uint64_t *ids, size_t count, uint64_t unnamed)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t *holders = kvr_u64_map_find(&held->holders, ids[i]);
        if (--*holders == 0) {
            kvr_u64_map_remove(&held->holders, ids[i], NULL);
            held->blocks--;
        }
    }
    held->blocks -= unnamed;
}

uint64_t kvr_held_growth(
    const struct kvr_held *held, const uint64_t *ids, size_t count, uint64_t unnamed)
{
    /* Chains: the blocks held by others are a prefix, but for ids that are no chain. */
    for (size_t i = 0; i < count; i++)
        unnamed += kvr_u64_map_find(&held->holders, ids[i]) == NULL;
    return unnamed;
}
