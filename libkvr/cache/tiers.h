/*
 * A stack of cache tiers: GPU memory over host memory over disk over a remote store.
 *
 * The first tier is the prefix tree that requests run from (block_cache.h). The tiers below are
 * stores of blocks: a block is found in the first tier that has it, and the hit is the leading run
 * of blocks that any tier has. What is found below is loaded, or computed again where loading it
 * would take longer.
 *
 *     request ──► [ gpu   prefix tree, policy, admission ]
 *                     │ write through (when stored)   ▲ promotion (when hit)
 *                     ▼ or back (when evicted)        │
 *                 [ cpu   blocks, policy, admission ]─┘
 *                     ▼
 *                 [ disk  … ]      bytes written are counted: wear
 *
 * Between a tier and the one above it: `write` says when blocks come down (through: with their
 * insertion above; second: with their first reuse above; back: when they are evicted above),
 * `keep` whether a block may be in both (inclusive) or leaves when promoted (exclusive), `promote`
 * whether a hit brings it up (always, second: at its second hit here, never). The result is an
 * engine like any other: hits and events carry the medium.
 */
#ifndef KVR_CACHE_TIERS_H
#define KVR_CACHE_TIERS_H

#include "base/quantity.h"
#include "cache/block_cache.h"
#include "cache/choice.h"

enum kvr_tier_write { KVR_WRITE_THROUGH, KVR_WRITE_SECOND, KVR_WRITE_BACK };
enum kvr_tier_promote { KVR_PROMOTE_ALWAYS, KVR_PROMOTE_SECOND, KVR_PROMOTE_NEVER };

/* Milliseconds of prefill: n new tokens behind c cached ones take n * (token + pair * (c + n / 2)).
 */
struct kvr_prefill_cost {
    double token_ms, pair_ms;
};

static inline double kvr_prefill_cost_ms(
    const struct kvr_prefill_cost *cost, double new_tokens, double cached_tokens)
{
    return new_tokens * (cost->token_ms + cost->pair_ms * (cached_tokens + 0.5 * new_tokens));
}

struct kvr_tier {
    enum kvr_medium medium;
    struct kvr_capacity capacity;
    const struct kvr_policy *policy;
    struct kvr_parameter_value policy_values[KVR_POLICY_PARAMETERS_MOST];
    const struct kvr_admission_rule *admission;
    struct kvr_parameter_value admission_values[KVR_ADMISSION_PARAMETERS_MOST];
    enum kvr_tier_write write;
    enum kvr_tier_promote promote;
    bool exclusive;
    double bytes_per_s; /* of loading; 0: loading takes no time */
    double latency_ms;  /* of a load */
    double compression; /* how many times smaller its blocks are; 1: as they are */
};

/* What loading took and saved. */
struct kvr_tier_times {
    double load_ms;             /* of what was loaded */
    double loaded_prefill_ms;   /* what computing it would have taken */
    uint64_t recomputed_tokens; /* found, but loading would have taken longer */
};

/*
 * Reads "cpu=200GiB(policy=lru,admission=second,write=back,promote=always,exclusive,
 * bandwidth=50GB/s,latency=50us,compression=2)"; everything in parentheses may be left out. The
 * text must outlive the tier. KVR_BAD_USAGE.
 */
enum kvr_status kvr_tier_read(const char *text, struct kvr_tier *tier, struct kvr_error *error);

/* One line a parameter, for --help. */
void kvr_tier_describe(struct kvr_buffer *out);

struct kvr_tiers_options {
    const struct kvr_tier *tiers; /* the fastest first; each medium once */
    size_t tier_count;
    uint32_t block_tokens;
    double kv_bytes_per_token; /* 0: unknown, then no capacity in bytes and no times */
    struct kvr_prefill_cost prefill;
    bool outputs;
    double pool_shared; /* of the first tier */
    uint64_t seed;
    const struct kvr_cache_sink *sink;
};

enum kvr_status kvr_tiers_create(
    const struct kvr_tiers_options *options, struct kvr_cache **out, struct kvr_error *error);

/* Whether a cache is a stack; then the next four may be asked. */
bool kvr_cache_is_tiers(const struct kvr_cache *cache);

/* The first tier, for tags, pins ahead and quotas. */
struct kvr_cache *kvr_tiers_first(struct kvr_cache *cache);

/* Of the request admitted last, and of all. */
const struct kvr_tier_times *kvr_tiers_last(const struct kvr_cache *cache);
const struct kvr_tier_times *kvr_tiers_times(const struct kvr_cache *cache);

/* Bytes written to a medium so far: the wear of a disk. */
double kvr_tiers_written_bytes(const struct kvr_cache *cache, enum kvr_medium medium);

#endif
