#include "route/policy.h"

#include <string.h>

extern const struct kvr_route_policy kvr_route_round_robin;
extern const struct kvr_route_policy kvr_route_random;
extern const struct kvr_route_policy kvr_route_least_loaded_policy;
extern const struct kvr_route_policy kvr_route_power_of_two;
extern const struct kvr_route_policy kvr_route_session;
extern const struct kvr_route_policy kvr_route_prefix_hash;
extern const struct kvr_route_policy kvr_route_cache_aware;
extern const struct kvr_route_policy kvr_route_cost;
extern const struct kvr_route_policy kvr_route_dynamo;
extern const struct kvr_route_policy kvr_route_preble;
extern const struct kvr_route_policy kvr_route_aibrix;
extern const struct kvr_route_policy kvr_route_llm_d;
extern const struct kvr_route_policy kvr_route_lhg;
extern const struct kvr_route_policy kvr_route_mooncake;

const struct kvr_route_policy *const kvr_route_policies[] = {
    &kvr_route_round_robin,
    &kvr_route_random,
    &kvr_route_least_loaded_policy,
    &kvr_route_power_of_two,
    &kvr_route_session,
    &kvr_route_prefix_hash,
    &kvr_route_cache_aware,
    &kvr_route_cost,
    &kvr_route_dynamo,
    &kvr_route_preble,
    &kvr_route_aibrix,
    &kvr_route_llm_d,
    &kvr_route_lhg,
    &kvr_route_mooncake,
};
const size_t kvr_route_policy_count = sizeof kvr_route_policies / sizeof *kvr_route_policies;

const struct kvr_route_policy *kvr_route_policy_find(const char *name, size_t length)
{
    for (size_t i = 0; i < kvr_route_policy_count; i++) {
        const char *known = kvr_route_policies[i]->name;
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return kvr_route_policies[i];
    }
    return NULL;
}

const char *kvr_route_reason_name(enum kvr_route_reason reason)
{
    static const char *const names[] = {
        [KVR_ROUTE_NO_WORKER] = "no-worker",
        [KVR_ROUTE_ROTATION] = "rotation",
        [KVR_ROUTE_CHANCE] = "chance",
        [KVR_ROUTE_LEAST_LOADED] = "least-loaded",
        [KVR_ROUTE_LOAD_FALLBACK] = "load-fallback",
        [KVR_ROUTE_CACHE_MATCH] = "cache-match",
        [KVR_ROUTE_SESSION] = "session",
        [KVR_ROUTE_PREFIX_HASH] = "prefix-hash",
        [KVR_ROUTE_EXPLORE] = "explore",
        [KVR_ROUTE_REBALANCE] = "rebalance",
        [KVR_ROUTE_REPLICATE] = "replicate",
        [KVR_ROUTE_DRAINED] = "drained",
        [KVR_ROUTE_ESCAPE] = "escape",
        [KVR_ROUTE_PULL] = "pull",
        [KVR_ROUTE_REJECTED] = "rejected",
    };
    return names[reason];
}
