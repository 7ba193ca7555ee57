/* One tier below the first: a store of blocks with a policy and an admission rule. It has no tree:
 * a block is an object, found by its chained id. */
#include "cache/tiers_internal.h"

#include <string.h>

static void tell(
    struct kvr_tiers *tiers, const struct kvr_lower_tier *lower, bool stored, uint64_t id)
{
    if (stored && tiers->sink.stored)
        tiers->sink.stored(tiers->sink.context, lower->tier.medium, NULL, &id, 1);
    if (!stored && tiers->sink.removed)
        tiers->sink.removed(tiers->sink.context, lower->tier.medium, &id, 1);
}

void kvr_tier_drop(struct kvr_tiers *tiers, struct kvr_lower_tier *lower, uint32_t slot)
{
    uint64_t id = lower->store.blocks[slot].id;

    if (lower->ranking->policy->evicted)
        lower->ranking->policy->evicted(lower->ranking, slot);
    lower->ranking->resident--;
    kvr_store_remove(&lower->store, slot);
    tell(tiers, lower, false, id);
}

static bool let_in(const struct kvr_tiers *tiers, struct kvr_lower_tier *lower, uint64_t id)
{
    const struct kvr_admission_rule *rule = lower->gate->rule;
    struct kvr_admission_path path = {
        &id, 1, 0, tiers->request_tokens, tiers->options.block_tokens, 0};

    if (rule->knows)
        return rule->knows(lower->gate, id);
    return !rule->admits || rule->admits(lower->gate, &path, 0);
}

static enum kvr_status reserve_one(struct kvr_lower_tier *lower, struct kvr_error *error)
{
    uint32_t slots = lower->store.slots;
    enum kvr_status status = kvr_store_reserve(&lower->store, 1, error);

    if (status == KVR_OK && slots != lower->store.slots)
        status = kvr_ranking_reserve(lower->ranking, error);
    return status;
}

/* A block leaves tier `number` (0: the first) by eviction. */
void kvr_tier_went(struct kvr_tiers *tiers, size_t number, uint64_t id)
{
    if (number < tiers->lower_count && tiers->lowers[number].tier.write == KVR_WRITE_BACK)
        kvr_tier_come_down(tiers, number, id);
}

void kvr_tier_come_down(struct kvr_tiers *tiers, size_t number, uint64_t id)
{
    struct kvr_lower_tier *lower = &tiers->lowers[number];
    struct kvr_ranking *ranking = lower->ranking;
    struct kvr_store *store = &lower->store;
    uint32_t hash = kvr_block_table_hash(id);

    if (kvr_store_find_hashed(store, id, hash) || !let_in(tiers, lower, id))
        return;
    if (reserve_one(lower, NULL) != KVR_OK) {
        tiers->failed = KVR_NO_MEMORY;
        return;
    }
    store->clock++;
    if (ranking->policy->miss)
        ranking->policy->miss(ranking, id);
    if (store->resident >= store->capacity) {
        uint32_t victim = kvr_ranking_victim(ranking);
        if (!victim)
            return;
        uint64_t gone = store->blocks[victim].id;
        if (lower->gate->rule->prefers && !lower->gate->rule->prefers(lower->gate, id, gone)) {
            kvr_ranking_enqueue(ranking, victim, KVR_HEIR);
            return;
        }
        kvr_tier_drop(tiers, lower, victim);
        lower->evicted++;
        kvr_tier_went(tiers, number + 1, gone);
    }
    uint32_t slot = kvr_store_add(store, id, hash);
    ranking->resident++;
    ranking->policy->insert(ranking, slot);
    kvr_ranking_enqueue(ranking, slot, KVR_FRESH);
    lower->inserted++;
    tell(tiers, lower, true, id);
    if (number + 1 < tiers->lower_count &&
        tiers->lowers[number + 1].tier.write == KVR_WRITE_THROUGH)
        kvr_tier_come_down(tiers, number + 1, id);
}

void kvr_tier_expire(struct kvr_tiers *tiers, size_t number)
{
    struct kvr_lower_tier *lower = &tiers->lowers[number];
    uint32_t slot;

    if (!lower->ranking->policy->expired)
        return;
    while ((slot = lower->ranking->policy->expired(lower->ranking))) {
        lower->store.blocks[slot].flags &= (uint8_t)~KVR_BLOCK_QUEUED;
        kvr_tier_drop(tiers, lower, slot);
        lower->evicted++;
    }
}

enum kvr_status kvr_tier_blocks(const struct kvr_tiers_options *options,
    const struct kvr_tier *tier, uint64_t *blocks, struct kvr_error *error)
{
    enum kvr_status status = kvr_capacity_blocks(&tier->capacity, options->block_tokens,
        options->kv_bytes_per_token / tier->compression, blocks, error);

    if (status == KVR_OK && (*blocks < 1 || *blocks > KVR_STORE_CAPACITY_MOST))
        return kvr_error_set(error, KVR_BAD_USAGE, "the capacity of tier '%s' is out of range",
            kvr_medium_name(tier->medium));
    return status;
}

enum kvr_status kvr_tier_add(
    struct kvr_tiers *tiers, const struct kvr_tier *tier, struct kvr_error *error)
{
    struct kvr_lower_tier *lower = &tiers->lowers[tiers->lower_count];
    uint64_t blocks = 0;

    if (tier->policy->needs_future)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "policy '%s' does not work in a tier", tier->policy->name);
    if (tier->exclusive && tier->write != KVR_WRITE_BACK)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "an exclusive tier has write=back: else what is promoted is copied down at once");
    if (tier->admission->admits && !tier->admission->knows &&
        (tier->write != KVR_WRITE_THROUGH || !strcmp(tier->admission->name, "prefix-aware")))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "admission '%s' cannot judge a block that comes down by itself: use it with "
            "write=through, or always, second, tinylfu",
            tier->admission->name);
    enum kvr_status status = kvr_tier_blocks(&tiers->options, tier, &blocks, error);
    if (status != KVR_OK)
        return status;
    lower->tier = *tier;
    lower->block_bytes =
        tiers->options.kv_bytes_per_token * tiers->options.block_tokens / tier->compression;
    status = kvr_store_init(&lower->store, (uint32_t)blocks, error);
    tiers->lower_count++;
    if (status == KVR_OK)
        status = kvr_ranking_create(tier->policy, &lower->store, (uint32_t)blocks,
            tier->policy_values, tiers->options.seed + tiers->lower_count, &lower->ranking, error);
    if (status == KVR_OK)
        status = kvr_gate_create(tier->admission, (uint32_t)blocks, tier->admission_values,
            tiers->options.seed, &lower->gate, error);
    return status;
}
