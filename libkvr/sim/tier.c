#include "sim/tier.h"

#include <string.h>

enum kvr_status kvr_sim_tiers_init(struct kvr_sim_tiers *tiers,
    const struct kvr_sim_tier_options *options, size_t count, const struct kvr_sim_tiers *shared,
    const struct kvr_engine *engine, uint32_t block_tokens, struct kvr_error *error)
{
    memset(tiers, 0, sizeof *tiers);
    /* Engines with tiers of their own (sglang's host pool, lmcache) copy over these. */
    tiers->links[KVR_MEDIUM_CPU] = *kvr_link_find("pcie5");
    tiers->links[KVR_MEDIUM_DISK] = *kvr_link_find("nvme4");
    tiers->links[KVR_MEDIUM_REMOTE] = *kvr_link_find("rdma-200");
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
        tiers->compression[medium] = 1;
    for (size_t i = 0; i < count; i++) {
        enum kvr_medium medium = options[i].medium;
        struct kvr_engine_options cache = {
            .capacity_blocks = options[i].capacity_tokens / block_tokens,
            .block_tokens = block_tokens,
        };
        tiers->links[medium] = options[i].link;
        tiers->compression[medium] = options[i].compression;
        if (shared && shared->caches[medium]) {
            tiers->caches[medium] = shared->caches[medium];
            tiers->borrowed[medium] = true;
            continue;
        }
        enum kvr_status status = kvr_cache_create(engine, &cache, &tiers->caches[medium], error);
        if (status != KVR_OK) {
            kvr_error_prefix(error, "tier %s", kvr_medium_name(medium));
            kvr_sim_tiers_release(tiers);
            return status;
        }
    }
    return KVR_OK;
}

void kvr_sim_tiers_release(struct kvr_sim_tiers *tiers)
{
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
        if (!tiers->borrowed[medium])
            kvr_cache_destroy(tiers->caches[medium]);
    memset(tiers, 0, sizeof *tiers);
}

enum kvr_status kvr_sim_tiers_serve(struct kvr_sim_tiers *tiers,
    const struct kvr_cache_request *request, const struct kvr_cost *cost, double weight,
    uint64_t found, uint64_t tokens[KVR_MEDIUM_COUNT], double *load_ms, struct kvr_error *error)
{
    bool behind = false; /* a copy was not worth it: what follows hangs in the air */

    *load_ms = 0;
    for (int medium = KVR_MEDIUM_CPU; medium < KVR_MEDIUM_COUNT; medium++) {
        struct kvr_admission admission;
        uint64_t held = 0;

        if (!tiers->caches[medium])
            continue;
        enum kvr_status status = kvr_cache_admit(tiers->caches[medium], request, &admission, error);
        if (status == KVR_OK && admission.admitted)
            status = kvr_cache_finish(tiers->caches[medium], admission.live, error);
        if (status != KVR_OK)
            return status;
        for (int i = 0; i < KVR_MEDIUM_COUNT; i++)
            held += admission.hit_tokens[i];
        if (held <= found || behind)
            continue;
        double more = (double)(held - found);
        double copy_ms =
            kvr_cost_transfer_ms(cost, &tiers->links[medium], tiers->compression[medium], more);
        if (copy_ms >= kvr_cost_prefill_compute_ms(cost, more, (double)found) / weight) {
            behind = true;
            continue;
        }
        tokens[medium] += held - found;
        found = held;
        *load_ms += copy_ms;
    }
    return KVR_OK;
}
