/*
 * Handles of live requests: an array of slots that grows, and the numbers that are free again.
 * Inside the engines only.
 *
 *     struct live *slots = kvr_handles_take(&cache->handles, cache->live, sizeof *slots, &handle);
 *     if (!slots)
 *         return kvr_error_memory(error);
 *     cache->live = slots;
 *
 * New slots are all zero bytes; a slot taken again is as it was left, with the room it has grown.
 */
#ifndef KVR_CACHE_HANDLES_H
#define KVR_CACHE_HANDLES_H

#include "base/grow.h"

#include <string.h>

struct kvr_handles {
    size_t size, capacity; /* slots ever taken; allocated */
    uint32_t *unused;
    size_t unused_count, unused_capacity;
};

static inline void *kvr_handles_take(
    struct kvr_handles *handles, void *slots, size_t slot_bytes, uint32_t *handle)
{
    if (handles->unused_count) {
        *handle = handles->unused[--handles->unused_count];
        return slots;
    }
    size_t capacity = handles->capacity;
    uint32_t *unused =
        kvr_grow(handles->unused, &handles->unused_capacity, handles->size + 1, sizeof *unused);
    if (!unused)
        return NULL;
    handles->unused = unused;
    char *grown = kvr_grow(slots, &capacity, handles->size + 1, slot_bytes);
    if (!grown)
        return NULL;
    memset(grown + handles->capacity * slot_bytes, 0, (capacity - handles->capacity) * slot_bytes);
    handles->capacity = capacity;
    *handle = (uint32_t)handles->size++;
    return grown;
}

static inline void kvr_handles_give(struct kvr_handles *handles, uint32_t handle)
{
    handles->unused[handles->unused_count++] = handle;
}

static inline size_t kvr_handles_bytes(const struct kvr_handles *handles, size_t slot_bytes)
{
    return handles->capacity * slot_bytes + handles->unused_capacity * sizeof *handles->unused;
}

#endif
