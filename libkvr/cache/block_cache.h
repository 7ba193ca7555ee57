/*
 * The `block` engine: a prefix tree of blocks with any eviction policy and admission rule, pins, a
 * protected pool for shared prompts and quotas for tenants.
 *
 * Default semantics. Every id of a prompt is a block, a trailing partial one too; its real tokens
 * count. A hit is the longest leading run of resident blocks. Missing blocks are inserted first to
 * last, each into free room or in place of a victim; insertion ends at the first block that finds
 * no room or is refused. The path of a live request cannot be evicted; nothing is ever rejected or
 * truncated, what does not fit is simply not cached. With lru this is the leaf LRU of other
 * prefix-cache simulators.
 *
 * Plain semantics (plain = true). Every id is an object of its own, looked up, inserted and evicted
 * in request order with no tree and nothing pinned, as web-cache simulators do; hits are counted
 * wherever they are. For comparison with published figures.
 *
 * The engine's own table entry makes one with defaults; programs that want everything call
 * kvr_block_cache_create() and then use it through engine.h like any other.
 */
#ifndef KVR_CACHE_BLOCK_CACHE_H
#define KVR_CACHE_BLOCK_CACHE_H

#include "cache/admission.h"
#include "cache/engine.h"
#include "cache/policy.h"

enum { KVR_BLOCK_RANKINGS_MOST = 255 };

struct kvr_block_options {
    uint64_t capacity_blocks;
    uint32_t block_tokens;
    uint64_t seed;
    const struct kvr_policy *policy; /* NULL: lru */
    const struct kvr_parameter_value *policy_values;
    const struct kvr_admission_rule *admission; /* NULL: always */
    const struct kvr_parameter_value *admission_values;
    bool plain;
    bool outputs;       /* blocks that the output fills are cached too */
    double pool_shared; /* share of the capacity that shared blocks may keep; 0: no pool */
    /* belady: next uses by access (kvr_future_compute), the caller's, to outlive the cache */
    const uint32_t *future;
    uint64_t future_length;
    const struct kvr_cache_sink *sink;
};

/* What the engine interface does not say about a request; stays set until changed. */
struct kvr_block_tags {
    uint64_t identity; /* the same for a request asked again; 0: every request is its own */
    uint64_t session;  /* 0: unknown */
    uint16_t tenant;   /* as returned by kvr_block_cache_add_tenant(); 0: no quota */
};

struct kvr_block_counts {
    uint64_t accesses;         /* blocks looked for: all ids of all prompts */
    uint64_t hits, hit_tokens; /* of these */
    uint64_t prompt_tokens, requests;
    uint64_t inserted, evicted, refused; /* blocks; refused: by admission or for want of room */
    uint64_t expired;                    /* of the evicted, by age */
};

enum kvr_status kvr_block_cache_create(
    const struct kvr_block_options *options, struct kvr_cache **out, struct kvr_error *error);

/* A tenant that may fill at most `share` of the capacity. KVR_BAD_USAGE beyond
 * KVR_BLOCK_RANKINGS_MOST rankings or for a share outside (0, 1]. Before the first request that has
 * it.
 */
enum kvr_status kvr_block_cache_add_tenant(
    struct kvr_cache *cache, double share, uint16_t *tenant, struct kvr_error *error);

void kvr_block_cache_tag(struct kvr_cache *cache, const struct kvr_block_tags *tags);

/* Pins ids for good, whether they are resident now or come later. */
enum kvr_status kvr_block_cache_pin_ahead(
    struct kvr_cache *cache, const uint64_t *ids, size_t count, struct kvr_error *error);

/* The same for ids that may be pinned already: then nothing is added. */
enum kvr_status kvr_block_cache_pin_once(
    struct kvr_cache *cache, const uint64_t *ids, size_t count, struct kvr_error *error);

const struct kvr_block_counts *kvr_block_cache_counts(const struct kvr_cache *cache);

extern const struct kvr_engine kvr_engine_block;

/*
 * Serves one request from first to last block without output: what admit() and finish() do, for
 * replays that need no handle. *hit_blocks and *hit_tokens may be NULL.
 */
enum kvr_status kvr_block_cache_serve(struct kvr_cache *cache, const uint64_t *ids, size_t count,
    uint64_t input_tokens, uint64_t *hit_blocks, uint64_t *hit_tokens, struct kvr_error *error);

/* future[i] = the number of the next access to ids[i], KVR_NEVER for none; count < KVR_NEVER. */
enum kvr_status kvr_future_compute(
    const uint64_t *ids, size_t count, uint32_t *future, struct kvr_error *error);

#endif
