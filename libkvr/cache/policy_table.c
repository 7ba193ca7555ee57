#include "cache/policy.h"

#include <string.h>

extern const struct kvr_policy kvr_policy_lru, kvr_policy_fifo, kvr_policy_lfu, kvr_policy_clock,
    kvr_policy_sieve, kvr_policy_s3fifo, kvr_policy_s3fifo_cold, kvr_policy_slru, kvr_policy_arc,
    kvr_policy_gdsf, kvr_policy_value, kvr_policy_ttl, kvr_policy_random, kvr_policy_belady,
    kvr_policy_belady_bypass;

const struct kvr_policy *const kvr_policies[] = {
    &kvr_policy_lru,
    &kvr_policy_fifo,
    &kvr_policy_lfu,
    &kvr_policy_clock,
    &kvr_policy_sieve,
    &kvr_policy_s3fifo,
    &kvr_policy_s3fifo_cold,
    &kvr_policy_slru,
    &kvr_policy_arc,
    &kvr_policy_gdsf,
    &kvr_policy_value,
    &kvr_policy_ttl,
    &kvr_policy_random,
    &kvr_policy_belady,
    &kvr_policy_belady_bypass,
};

const size_t kvr_policy_count = sizeof kvr_policies / sizeof *kvr_policies;

const struct kvr_policy *kvr_policy_find(const char *name, size_t length)
{
    for (size_t i = 0; i < kvr_policy_count; i++)
        if (strlen(kvr_policies[i]->name) == length &&
            memcmp(kvr_policies[i]->name, name, length) == 0)
            return kvr_policies[i];
    return NULL;
}

enum kvr_status kvr_ranking_create(const struct kvr_policy *policy, struct kvr_store *store,
    uint32_t capacity, const struct kvr_parameter_value *values, uint64_t seed,
    struct kvr_ranking **out, struct kvr_error *error)
{
    struct kvr_parameter_value defaults[KVR_POLICY_PARAMETERS_MOST];
    struct kvr_ranking *ranking = calloc(1, policy->size);
    enum kvr_status status = KVR_OK;

    if (!ranking)
        return kvr_error_memory(error);
    *ranking = (struct kvr_ranking){policy, store, capacity, 0};
    if (!values) {
        status =
            kvr_parameter_defaults(policy->parameters, policy->parameter_count, defaults, error);
        values = defaults;
    }
    if (status == KVR_OK && policy->init)
        status = policy->init(ranking, values, seed, error);
    if (status == KVR_OK)
        status = kvr_ranking_reserve(ranking, error);
    if (status != KVR_OK) {
        kvr_ranking_destroy(ranking);
        return status;
    }
    *out = ranking;
    return KVR_OK;
}

void kvr_ranking_destroy(struct kvr_ranking *ranking)
{
    if (!ranking)
        return;
    if (ranking->policy->release)
        ranking->policy->release(ranking);
    free(ranking);
}
