/* The workers of a cluster: their names, their engines, what their caches tell. */
#include "base/grow.h"
#include "sim/cluster_private.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void kvr_sim_keep_failure(
    struct kvr_sim *sim, enum kvr_status status, const struct kvr_error *error)
{
    if (sim->status == KVR_OK && status != KVR_OK) {
        sim->status = status;
        sim->error = *error;
    }
}

static void watch(void *context, uint64_t id)
{
    struct kvr_sim_member *member = context;
    uint64_t *copies = kvr_u64_map_insert(&member->resident, id, NULL);
    struct kvr_error error;

    if (copies)
        ++*copies;
    else
        kvr_sim_keep_failure(member->sim, kvr_error_memory(&error), &error);
}

static void on_stored(void *context, enum kvr_medium medium, const uint64_t *parent,
    const uint64_t *ids, size_t count)
{
    struct kvr_sim_member *member = context;
    struct kvr_sim *sim = member->sim;

    for (size_t i = 0; member->watches && medium == KVR_MEDIUM_GPU && i < count; i++)
        watch(member, ids[i]);
    if (sim->calls.stored)
        sim->calls.stored(
            sim->calls.context, member->number, medium, sim->now_ms, parent, ids, count);
}

static void on_removed(void *context, enum kvr_medium medium, const uint64_t *ids, size_t count)
{
    struct kvr_sim_member *member = context;
    struct kvr_sim *sim = member->sim;

    for (size_t i = 0; member->watches && medium == KVR_MEDIUM_GPU && i < count; i++) {
        uint64_t *copies = kvr_u64_map_find(&member->resident, ids[i]);
        if (copies && --*copies == 0)
            kvr_u64_map_remove(&member->resident, ids[i], NULL);
    }
    if (sim->calls.removed)
        sim->calls.removed(sim->calls.context, member->number, medium, sim->now_ms, ids, count);
}

static void on_cleared(void *context, enum kvr_medium medium)
{
    struct kvr_sim_member *member = context;
    struct kvr_sim *sim = member->sim;

    if (medium == KVR_MEDIUM_GPU)
        kvr_u64_map_clear(&member->resident);
    if (sim->calls.cleared)
        sim->calls.cleared(sim->calls.context, member->number, medium, sim->now_ms);
}

/* The prefix of the prompt that the other worker still holds, at most as much as was promised. */
static uint64_t on_pullable(void *context, const struct kvr_sim_request *request)
{
    struct kvr_sim *sim = ((struct kvr_sim_member *)context)->sim;
    struct kvr_sim_member *source = sim->members[request->pull_from];
    uint64_t block = request->block_tokens, blocks = 0;
    uint64_t most = (request->pull_tokens + block - 1) / block;

    if (source->state == KVR_WORKER_DOWN || !source->engine)
        return 0;
    if (!source->watches) {
        source->watches = true;
        kvr_cache_resident(kvr_sim_worker_cache(source->engine), KVR_MEDIUM_GPU, watch, source);
    }
    while (blocks < most && blocks < request->id_count &&
           kvr_u64_map_find(&source->resident, request->ids[blocks]))
        blocks++;
    return blocks * block < request->pull_tokens ? blocks * block : request->pull_tokens;
}

static uint32_t *name_slot(
    const struct kvr_sim *sim, const char *name, size_t length, uint64_t *key)
{
    uint64_t *found;

    for (*key = XXH3_64bits(name, length); (found = kvr_u64_map_find(&sim->by_name, *key));
         ++*key) {
        const char *other = sim->members[*found]->name;
        if (strncmp(other, name, length) == 0 && other[length] == '\0')
            return &sim->members[*found]->number;
    }
    return NULL;
}

uint32_t kvr_sim_find_worker(const struct kvr_sim *sim, const char *name, size_t length)
{
    uint64_t key;
    const uint32_t *number = name_slot(sim, name, length, &key);

    return number ? *number : KVR_SIM_NOBODY;
}

enum kvr_status kvr_sim_join(struct kvr_sim *sim, const struct kvr_text *name,
    struct kvr_sim_member **out, struct kvr_error *error)
{
    uint64_t key;
    const uint32_t *number = name_slot(sim, name->text, name->length, &key);

    if (number) {
        *out = sim->members[*number];
        return KVR_OK;
    }
    if (memchr(name->text, '\0', name->length))
        return kvr_error_set(error, KVR_BAD_INPUT, "a worker's name has a NUL byte");
    struct kvr_sim_member **grown =
        kvr_grow(sim->members, &sim->size, sim->count + 1, sizeof *grown);
    sim->members = grown ? grown : sim->members;
    uint32_t *heap = kvr_grow(sim->heap, &sim->heap_size, sim->count + 1, sizeof *heap);
    sim->heap = heap ? heap : sim->heap;
    struct kvr_sim_member *member = calloc(1, sizeof *member);
    char *copy = strndup(name->text, name->length);
    uint64_t *slot =
        grown && heap && member && copy ? kvr_u64_map_insert(&sim->by_name, key, NULL) : NULL;
    if (!slot) {
        free(member);
        free(copy);
        return kvr_error_memory(error);
    }
    *member = (struct kvr_sim_member){.sim = sim, .number = sim->count, .name = copy, .weight = 1};
    *slot = sim->count;
    sim->members[sim->count] = member;
    kvr_sim_agenda_add(sim, sim->count++);
    *out = member;
    return KVR_OK;
}

void kvr_sim_member_destroy(struct kvr_sim_member *member)
{
    kvr_sim_worker_destroy(member->engine);
    kvr_sim_tiers_release(&member->tiers);
    kvr_u64_map_release(&member->resident);
    free(member->name);
    free(member);
}

enum kvr_status kvr_sim_make_engine(struct kvr_sim *sim, struct kvr_sim_member *member,
    struct kvr_sim_worker_calls calls, struct kvr_error *error)
{
    uint32_t block =
        member->block_tokens ? (uint32_t)member->block_tokens : sim->options.block_tokens;
    struct kvr_capacity capacity = member->capacity;
    uint64_t blocks;

    if (!capacity.amount)
        capacity = (struct kvr_capacity){sim->options.capacity_tokens, KVR_TOKENS};
    enum kvr_status status =
        kvr_capacity_blocks(&capacity, block, sim->options.cost.kv_bytes_per_token, &blocks, error);
    if (status != KVR_OK)
        return status;
    if (!sim->shared.caches[KVR_MEDIUM_REMOTE]) {
        struct kvr_sim_tier_options remote[KVR_SIM_TIER_LIMIT];
        size_t count = 0;
        for (size_t i = 0; i < sim->options.tier_count; i++)
            if (sim->options.tiers[i].medium == KVR_MEDIUM_REMOTE)
                remote[count++] = sim->options.tiers[i];
        status = kvr_sim_tiers_init(
            &sim->shared, remote, count, NULL, sim->options.tier_engine, block, error);
        if (status != KVR_OK)
            return status;
    }
    status = kvr_sim_tiers_init(&member->tiers, sim->options.tiers, sim->options.tier_count,
        &sim->shared, sim->options.tier_engine, block, error);
    if (status != KVR_OK)
        return status;
    calls.pullable = on_pullable;
    const struct kvr_cache_sink sink = {member, on_removed, on_stored, on_cleared};
    const struct kvr_sim_worker_options options = {
        .cost = &sim->options.cost,
        .engine = sim->options.engine,
        .engine_values = sim->options.engine_values,
        .capacity_blocks = blocks,
        .block_tokens = block,
        .seed = sim->options.seed + member->number,
        .weight = member->weight,
        .batch_tokens = sim->options.batch_tokens,
        .batch_requests = sim->options.batch_requests,
        .sink = &sink,
        .tiers = &member->tiers,
        .link = &sim->options.link,
        .compression = sim->options.compression,
        .calls = calls,
    };
    status = kvr_sim_worker_create(&options, &member->engine, error);
    if (status != KVR_OK) {
        kvr_error_prefix(error, "worker %s", member->name);
        kvr_sim_tiers_release(&member->tiers);
    }
    return status;
}
