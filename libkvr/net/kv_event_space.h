/*
 * The namespaces of a worker's blocks, by number from 1 on: found or made by their content, freed
 * with their last holder. Their texts count towards the memory's limit.
 */
#ifndef KVR_NET_KV_EVENT_SPACE_H
#define KVR_NET_KV_EVENT_SPACE_H

#include "base/u64_map.h"
#include "net/kv_event_translate.h"

struct kvr_kv_spaces {
    struct kvr_kv_space **items; /* by number - 1; NULL: free */
    size_t count, room;
    uint32_t *free_numbers;
    size_t free_count, free_room;
    struct kvr_u64_map by_key;
    struct kvr_kv_memory *memory;
};

void kvr_kv_spaces_init(struct kvr_kv_spaces *spaces, struct kvr_kv_memory *memory);
void kvr_kv_spaces_release(struct kvr_kv_spaces *spaces);

/* The number of the space like `wanted` (its texts and block size); 0 when memory or its limit is
 * reached. A new one has no holder: the caller adds some or calls kvr_kv_spaces_drop(). */
uint32_t kvr_kv_spaces_find(struct kvr_kv_spaces *spaces, const struct kvr_kv_space *wanted);

static inline struct kvr_kv_space *kvr_kv_spaces_get(
    const struct kvr_kv_spaces *spaces, uint32_t number)
{
    return spaces->items[number - 1];
}

/* Frees the space unless it has holders. */
void kvr_kv_spaces_drop(struct kvr_kv_spaces *spaces, uint32_t number);

#endif
