/*
 * The ceiling: how many prompt tokens of each request an infinite cache, shared by all workers,
 * would have held. No router and no eviction policy can do better.
 *
 * Block ids are chained, so a block that was seen before implies that its whole prefix was: the
 * reusable tokens of a request are those of its blocks that any earlier request had, and these are
 * a prefix, whose end a binary search finds. All that this takes is a set of block ids: 12 bytes a
 * slot, open addressing, linear probing, at most half full; neighbouring ids share a cache line.
 *
 * For the same reason ceilings of parts of a stream add up exactly, in any order: of the blocks
 * that two parts both saw first, all but one were hits in the whole. So a part that carries its
 * set can be merged (kvr_ceiling_merge).
 *
 * Bounded: a set of more than `limit` blocks gives up and says so (full).
 */
#ifndef KVR_STAT_CEILING_H
#define KVR_STAT_CEILING_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_ceiling {
    uint64_t *keys;   /* 0: empty */
    uint32_t *tokens; /* that the block has */
    size_t mask;      /* slots - 1; 0 before the first block */
    size_t count, limit;
    bool full;
};

/* All zero bytes and a limit is an empty set. */
void kvr_ceiling_release(struct kvr_ceiling *ceiling);

/* The key of a block id in a namespace, never 0. */
static inline uint64_t kvr_ceiling_key(uint64_t id, uint64_t name_space)
{
    uint64_t key = id ^ name_space;

    return key ? key : 0x9e3779b97f4a7c15u;
}

/*
 * A request with `count` blocks of block_tokens, the last one perhaps partial, that have at most
 * prompt_tokens in all. *reusable becomes the tokens seen before; its blocks are remembered. When
 * the set becomes too large, `full` is set and *reusable is 0. KVR_NO_MEMORY.
 */
enum kvr_status kvr_ceiling_request(struct kvr_ceiling *ceiling, const uint64_t *ids, size_t count,
    uint64_t name_space, uint64_t block_tokens, uint64_t prompt_tokens, uint64_t *reusable,
    struct kvr_error *error);

/* Fetches what kvr_ceiling_request() will look at first; worth it some 100 ns ahead. */
void kvr_ceiling_prefetch(
    const struct kvr_ceiling *ceiling, const uint64_t *ids, size_t count, uint64_t name_space);

/* Adds one block of a part; *known says whether another part had it: its tokens were a hit. */
enum kvr_status kvr_ceiling_add(struct kvr_ceiling *ceiling, uint64_t key, uint32_t tokens,
    bool *known, struct kvr_error *error);

#endif
