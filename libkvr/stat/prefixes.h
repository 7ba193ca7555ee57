/*
 * Prefix popularity and reuse distance, exact, for those who ask (--prefixes): they cost a tree of
 * all blocks (48 bytes a block) and a logarithm a block access.
 *
 * A block id is chained, so each id is a node of the tree of all prompts: its parent is the id
 * before it. A node's requests are those whose prompt starts with the whole path to it. A shared
 * prefix worth showing is a node where the path stops being common: no child has as many requests.
 * They are ranked by what sharing them saves: tokens times requests but one.
 *
 * Reuse distance is Mattson's: how many different blocks were touched between two uses of the same
 * one (Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 1970;
 * counted with a Fenwick tree over access times as in Bennett and Kruskal, 1975). An LRU cache of d
 * blocks hits exactly the accesses whose distance is below d. When the times run out they are
 * renumbered in order, so that memory depends on the blocks and not on the accesses.
 */
#ifndef KVR_STAT_PREFIXES_H
#define KVR_STAT_PREFIXES_H

#include "base/buffer.h"
#include "base/u64_map.h"
#include "stat/sketch.h"

enum { KVR_PREFIX_WORKERS = 64 }; /* of more workers the last bit stands for all further ones */

struct kvr_prefix_node {
    uint64_t key;
    uint64_t workers; /* bit w: a request with it went to worker w */
    uint32_t parent;  /* index + 1; 0: none */
    uint32_t tokens;  /* of the whole prefix */
    uint32_t requests;
    uint32_t time;   /* of the last access, from 1 */
    uint64_t sample; /* where the id of the first request begins in samples */
};

struct kvr_prefixes {
    struct kvr_u64_map index; /* key -> node */
    struct kvr_prefix_node *nodes;
    size_t count, capacity, limit;
    struct kvr_buffer samples; /* ids as JSON, each ended by a NUL */
    uint32_t *sums;            /* the Fenwick tree over times */
    uint32_t times, now;
    struct kvr_sketch distances; /* blocks; first uses are not in it */
    uint64_t accesses, first_uses;
    bool full; /* more than limit blocks: given up */
};

/* All zero bytes and a limit is an empty tree. */
void kvr_prefixes_release(struct kvr_prefixes *prefixes);

/* id is the request's id as JSON (may be empty); worker is below 0 where it went to none. */
enum kvr_status kvr_prefixes_request(struct kvr_prefixes *prefixes,
    const struct kvr_sketch_scale *scale, const uint64_t *ids, size_t count, uint64_t name_space,
    uint64_t block_tokens, uint64_t prompt_tokens, const char *id, size_t id_length, int worker,
    struct kvr_error *error);

/* The nodes of the `most` best shared prefixes, best first, into top. Returns how many; 0 also when
 * memory is short. */
size_t kvr_prefixes_top(const struct kvr_prefixes *prefixes, size_t most, uint32_t *top);

#endif
