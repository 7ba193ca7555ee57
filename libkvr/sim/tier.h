/*
 * Tiers below the device's memory: caches of one worker (host, disk), or one for all (remote).
 *
 * Inclusive and written through, as HiCache's write_through and Mooncake's store: a prompt admitted
 * on the device enters every tier below it, each of which evicts by leaf LRU for itself. A tier
 * thus holds a longer prefix than the one above, and what it has more is copied up, unless
 * computing it is faster.
 *
 * Cost: one look-up and insertion in each tier a request.
 */
#ifndef KVR_SIM_TIER_H
#define KVR_SIM_TIER_H

#include "cost/cost.h"
#include "sim/request.h"

/* KVR_MEDIUM_CPU … KVR_MEDIUM_REMOTE */
struct kvr_sim_tier_options {
    enum kvr_medium medium;
    uint64_t capacity_tokens;
    struct kvr_link link;
    double compression;
};

struct kvr_sim_tiers {
    struct kvr_cache *caches[KVR_MEDIUM_COUNT]; /* [GPU] stays NULL; NULL: no such tier */
    bool borrowed[KVR_MEDIUM_COUNT];            /* somebody else's: shared by the workers */
    struct kvr_link links[KVR_MEDIUM_COUNT];
    double compression[KVR_MEDIUM_COUNT];
};

/* Makes the caches of the tiers listed; those of shared (may be NULL) are used as they are. The
 * engine is that of the tiers. */
enum kvr_status kvr_sim_tiers_init(struct kvr_sim_tiers *tiers,
    const struct kvr_sim_tier_options *options, size_t count, const struct kvr_sim_tiers *shared,
    const struct kvr_engine *engine, uint32_t block_tokens, struct kvr_error *error);
void kvr_sim_tiers_release(struct kvr_sim_tiers *tiers);

/*
 * Looks the prompt up in every tier and enters it there. In: `found` tokens of it are on the
 * device. Adds to tokens[medium] what each tier gives beyond that and returns in *load_ms how long
 * the copies take one after the other. A copy that computing the same tokens would beat is not
 * made, nor one of what lies behind it.
 */
enum kvr_status kvr_sim_tiers_serve(struct kvr_sim_tiers *tiers,
    const struct kvr_cache_request *request, const struct kvr_cost *cost, double weight,
    uint64_t found, uint64_t tokens[KVR_MEDIUM_COUNT], double *load_ms, struct kvr_error *error);

#endif
