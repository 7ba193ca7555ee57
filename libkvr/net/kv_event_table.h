/*
 * What a worker holds, by the engine's own hashes: key -> (kvr's hash of the block, its namespace,
 * references in each medium). Open addressing with linear probing, 32 bytes a slot, at most three
 * quarters full; removal closes the gap, and a table that has become mostly empty shrinks, so that
 * its memory follows what is held and not what was. The keys come from another machine: a secret
 * drawn for each process keeps them from being chosen to collide.
 */
#ifndef KVR_NET_KV_EVENT_TABLE_H
#define KVR_NET_KV_EVENT_TABLE_H

#include "net/kv_event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_kv_entry {
    uint64_t key, hash;
    uint16_t references[KVR_MEDIUM_COUNT]; /* all 0 only between insertion and the caller's count */
    uint32_t space;                        /* 0: the slot is free */
    uint32_t unused;
};

/*
 * Bytes that several tables (and what else their owners count) may take together; and the lists of
 * the one event that is being translated, which are not counted: one message can make them some 20
 * times its size, so there is one set of them, however many streams and ranks there are, and large
 * ones are given back. {0, limit} is a fresh one; release frees the lists.
 */
struct kvr_kv_memory {
    size_t used, limit;
    struct kvr_kv_decoder decoder;
    uint64_t *ids;
    uint32_t *tokens;
    size_t id_room, token_room;
};

void kvr_kv_memory_release(struct kvr_kv_memory *memory);
/* Gives large lists back. */
void kvr_kv_memory_trim(struct kvr_kv_memory *memory);

struct kvr_kv_table {
    struct kvr_kv_entry *slots;
    size_t mask; /* slots - 1; 0 before the first insertion */
    size_t length;
    struct kvr_kv_memory *memory;
};

/* An empty table of a memory; release frees it. */
void kvr_kv_table_init(struct kvr_kv_table *table, struct kvr_kv_memory *memory);
void kvr_kv_table_release(struct kvr_kv_table *table);

/* NULL where it is not. Valid until the next insertion or removal. */
struct kvr_kv_entry *kvr_kv_table_find(const struct kvr_kv_table *table, uint64_t key);

/* The entry of key, made with this space (not 0) where it is new. NULL when memory or its limit is
 * reached. */
struct kvr_kv_entry *kvr_kv_table_insert(
    struct kvr_kv_table *table, uint64_t key, uint32_t space, bool *inserted);

void kvr_kv_table_remove(struct kvr_kv_table *table, struct kvr_kv_entry *entry);

/* Fetches the slot of a key that will be asked for soon. */
void kvr_kv_table_prefetch(const struct kvr_kv_table *table, uint64_t key);

#endif
