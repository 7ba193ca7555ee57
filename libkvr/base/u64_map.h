/*
 * A map from 64-bit keys to 64-bit values: open addressing, linear probing, at most three quarters
 * full, power-of-two size. Removal shifts the cluster back instead of leaving tombstones, so a map
 * under constant insertion and removal never degrades and never needs rebuilding. Keys are mixed
 * before use; any key is allowed, 0 too.
 *
 * Cost: 16 bytes a slot and one bit-like byte; about one cache line a look-up.
 * Ownership: kvr_u64_map_release() frees the table. Pointers to values are valid until the next
 * insertion or removal.
 */
#ifndef KVR_BASE_U64_MAP_H
#define KVR_BASE_U64_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_u64_map_slot {
    uint64_t key, value;
};

struct kvr_u64_map {
    struct kvr_u64_map_slot *slots;
    uint8_t *used; /* one byte a slot: 0 or 1 */
    size_t mask;   /* slots - 1, or 0 before the first insertion */
    size_t length; /* keys stored */
};

/* A map of all zero bytes is an empty map. */
void kvr_u64_map_release(struct kvr_u64_map *map);

/* Empties without freeing. */
void kvr_u64_map_clear(struct kvr_u64_map *map);

/* The value of key, or NULL. */
uint64_t *kvr_u64_map_find(const struct kvr_u64_map *map, uint64_t key);

/* The value of key, made with value 0 where the key is new (*inserted, which may be NULL, says so).
 * NULL when memory is short; then *inserted is false. */
uint64_t *kvr_u64_map_insert(struct kvr_u64_map *map, uint64_t key, bool *inserted);

/* Removes key and, when value is not NULL, stores what it had there. False when it was not there.
 */
bool kvr_u64_map_remove(struct kvr_u64_map *map, uint64_t key, uint64_t *value);

#endif
