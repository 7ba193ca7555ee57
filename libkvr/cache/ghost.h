/*
 * Ghosts: the ids of blocks evicted lately, oldest first, each found by id. ARC and S3-FIFO learn
 * from a miss that would have been a hit. Exact; 16 bytes an id and 18 of table.
 */
#ifndef KVR_CACHE_GHOST_H
#define KVR_CACHE_GHOST_H

#include "cache/block_table.h"

struct kvr_ghost {
    struct kvr_ghost_node {
        uint64_t id;
        uint32_t older, newer; /* node 0 is the sentinel */
    } * nodes;
    struct kvr_block_table table;
    uint32_t size, used, free, count;
    uint32_t most; /* ids kept */
};

void kvr_ghost_release(struct kvr_ghost *ghost);

/* Makes room for ids, up to `most`, in step with a growing cache. */
bool kvr_ghost_reserve(struct kvr_ghost *ghost, uint32_t ids);

/* Adds an id as the newest, or makes it so; the oldest leaves where `most` are kept. */
void kvr_ghost_push(struct kvr_ghost *ghost, uint64_t id);

/* Takes an id out; false when it was not there. */
bool kvr_ghost_take(struct kvr_ghost *ghost, uint64_t id);

/* Drops the oldest, if any. */
void kvr_ghost_drop_oldest(struct kvr_ghost *ghost);

uint64_t kvr_ghost_memory_bytes(const struct kvr_ghost *ghost);

#endif
