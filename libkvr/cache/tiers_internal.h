/* The stack's own structs, shared by tiers.c (requests) and tier_lower.c (one tier below the
 * first). */
#ifndef KVR_CACHE_TIERS_INTERNAL_H
#define KVR_CACHE_TIERS_INTERNAL_H

#include "cache/block_cache_internal.h"
#include "cache/tiers.h"

enum { KVR_TIERS_MOST = KVR_MEDIUM_COUNT };

/* A tier below the first. */
struct kvr_lower_tier {
    struct kvr_tier tier;
    struct kvr_store store;
    struct kvr_ranking *ranking;
    struct kvr_gate *gate;
    double block_bytes; /* as stored here; 0: unknown */
    uint64_t hits, hit_tokens, inserted, evicted, cleared;
};

struct kvr_tiers {
    struct kvr_cache base;
    struct kvr_tiers_options options;
    struct kvr_cache *first;
    struct kvr_lower_tier lowers[KVR_TIERS_MOST - 1];
    size_t lower_count;
    struct kvr_cache_sink sink;
    enum kvr_medium first_medium;
    double first_block_bytes;
    uint8_t *where; /* by block of the request: 0 not found below, else the tier's number */
    size_t where_size;
    uint64_t request_tokens; /* of the request being served, for length rules */
    uint64_t sequence;
    struct kvr_tier_times last, times;
    enum kvr_status failed; /* inside a callback */
};

/* A block that is out of the queue leaves; the sink is told. */
void kvr_tier_drop(struct kvr_tiers *tiers, struct kvr_lower_tier *lower, uint32_t slot);

/* A block comes to lower tier `number` (0: the one below the first), if it is let in. */
void kvr_tier_come_down(struct kvr_tiers *tiers, size_t number, uint64_t id);

/* A block was evicted above lower tier `number`: it comes down where the tier writes back. */
void kvr_tier_went(struct kvr_tiers *tiers, size_t number, uint64_t id);

/* Evicts what is too old. */
void kvr_tier_expire(struct kvr_tiers *tiers, size_t number);

/* A tier's capacity in blocks of its own size. */
enum kvr_status kvr_tier_blocks(const struct kvr_tiers_options *options,
    const struct kvr_tier *tier, uint64_t *blocks, struct kvr_error *error);

/* Adds a tier below those there are. */
enum kvr_status kvr_tier_add(
    struct kvr_tiers *tiers, const struct kvr_tier *tier, struct kvr_error *error);

#endif
