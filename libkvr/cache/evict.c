/* Lanes: one cache a worker, made when the worker is first named. */
#include "cache/evict.h"

#include "base/grow.h"
#include "cache/evict_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum kvr_status kvr_evict_create(struct kvr_evict **out, const struct kvr_evict_setup *setup,
    struct kvr_request_reader *reader, struct kvr_error *error)
{
    struct kvr_lane *lane;

    *out = NULL;
    if (setup->quota_count && setup->engine != &kvr_engine_block)
        return kvr_error_set(error, KVR_BAD_USAGE, "quotas are the block engine's");
    if (setup->tier_count && setup->engine != &kvr_engine_block)
        return kvr_error_set(error, KVR_BAD_USAGE, "tiers are the block engine's");
    struct kvr_evict *evict = calloc(1, sizeof *evict);
    if (!evict)
        return kvr_error_memory(error);
    evict->setup = *setup;
    evict->reader = reader;
    /* the options are tried before the first line, on a cache that is thrown away */
    enum kvr_status status = kvr_lane_add(evict, "", 0, &(struct kvr_capacity){0}, &lane, error);
    if (status == KVR_OK)
        status = kvr_lane_prepare(evict, lane, reader->block_tokens, error);
    while (evict->lane_count)
        kvr_lane_release(&evict->lanes[--evict->lane_count]);
    kvr_u64_map_clear(&evict->lane_numbers);
    if (status != KVR_OK) {
        kvr_evict_destroy(evict);
        return status;
    }
    *out = evict;
    return KVR_OK;
}

void kvr_evict_destroy(struct kvr_evict *evict)
{
    if (!evict)
        return;
    for (size_t i = 0; i < evict->lane_count; i++)
        kvr_lane_release(&evict->lanes[i]);
    free(evict->lanes);
    kvr_u64_map_release(&evict->lane_numbers);
    kvr_buffer_release(&evict->events);
    kvr_buffer_release(&evict->scratch);
    free(evict);
}

void kvr_lane_release(struct kvr_lane *lane)
{
    kvr_replay_release(&lane->replay);
    kvr_cache_destroy(lane->cache);
    free(lane->context);
    free(lane->name);
    kvr_u64_map_release(&lane->tenants);
    memset(lane, 0, sizeof *lane);
}

enum kvr_status kvr_lane_add(struct kvr_evict *evict, const char *name, size_t length,
    const struct kvr_capacity *capacity, struct kvr_lane **out, struct kvr_error *error)
{
    if (evict->lane_count == KVR_WORKERS_MOST)
        return kvr_error_set(error, KVR_BAD_INPUT, "more than %d workers", KVR_WORKERS_MOST);
    struct kvr_lane *lanes =
        kvr_grow(evict->lanes, &evict->lane_size, evict->lane_count + 1, sizeof *lanes);
    if (!lanes)
        return kvr_error_memory(error);
    evict->lanes = lanes;
    struct kvr_lane *lane = &lanes[evict->lane_count];
    memset(lane, 0, sizeof *lane);
    lane->name = malloc(length + 1);
    if (!lane->name)
        return kvr_error_memory(error);
    memcpy(lane->name, name, length);
    lane->name[length] = '\0';
    lane->capacity = capacity->amount ? *capacity : evict->setup.capacity;
    evict->lane_count++;
    *out = lane;
    return KVR_OK;
}

/* The lane of the worker that a line's member names; where there is none, of setup.worker. */
static enum kvr_status find_lane(struct kvr_evict *evict, struct kvr_value worker,
    const char *member, const struct kvr_capacity *capacity, struct kvr_lane **lane,
    struct kvr_error *error)
{
    struct kvr_text name = {evict->setup.worker, strlen(evict->setup.worker)};
    enum kvr_status status = KVR_OK;
    bool is_new;

    if (worker.type != KVR_ABSENT)
        status = kvr_worker_name(worker, member, &evict->scratch, &name, error);
    if (status != KVR_OK)
        return status;
    uint64_t hash = XXH3_64bits(name.text, name.length);
    uint64_t *number = kvr_u64_map_insert(&evict->lane_numbers, hash, &is_new);
    if (!number)
        return kvr_error_memory(error);
    if (is_new) {
        *number = evict->lane_count;
        status = kvr_lane_add(evict, name.text, name.length, capacity, lane, error);
        if (status != KVR_OK)
            kvr_u64_map_remove(&evict->lane_numbers, hash, NULL);
        return status;
    }
    *lane = &evict->lanes[*number];
    return KVR_OK;
}

static struct kvr_cache *block_cache_of(const struct kvr_lane *lane)
{
    if (kvr_cache_is_tiers(lane->cache))
        return kvr_tiers_first(lane->cache);
    return lane->cache->engine == &kvr_engine_block ? lane->cache : NULL;
}

static enum kvr_status make_cache(struct kvr_evict *evict, struct kvr_lane *lane,
    uint32_t block_tokens, const struct kvr_cache_sink *sink, struct kvr_error *error)
{
    const struct kvr_evict_setup *setup = &evict->setup;
    uint64_t blocks = 0;

    if (setup->tier_count) {
        struct kvr_tiers_options options = {
            .tiers = setup->tiers,
            .tier_count = setup->tier_count,
            .block_tokens = block_tokens,
            .kv_bytes_per_token = setup->kv_bytes_per_token,
            .prefill = setup->prefill,
            .outputs = setup->outputs,
            .pool_shared = setup->pool_shared,
            .seed = setup->seed,
            .sink = sink,
        };
        return kvr_tiers_create(&options, &lane->cache, error);
    }
    enum kvr_status status = kvr_capacity_blocks(
        &lane->capacity, block_tokens, setup->kv_bytes_per_token, &blocks, error);
    if (status != KVR_OK)
        return status;
    if (setup->engine == &kvr_engine_block) {
        struct kvr_block_options options = {
            .capacity_blocks = blocks,
            .block_tokens = block_tokens,
            .seed = setup->seed,
            .policy = setup->policy,
            .policy_values = setup->policy_values,
            .admission = setup->admission,
            .admission_values = setup->admission_values,
            .plain = setup->plain,
            .outputs = setup->outputs,
            .pool_shared = setup->pool_shared,
            .sink = sink,
        };
        return kvr_block_cache_create(&options, &lane->cache, error);
    }
    struct kvr_engine_options options = {
        .capacity_blocks = blocks,
        .block_tokens = block_tokens,
        .seed = setup->seed,
        .values = setup->engine_values,
        .sink = sink,
    };
    return kvr_cache_create(setup->engine, &options, &lane->cache, error);
}

static enum kvr_status add_quotas(
    struct kvr_evict *evict, struct kvr_lane *lane, struct kvr_error *error)
{
    for (size_t i = 0; i < evict->setup.quota_count; i++) {
        const struct kvr_quota *quota = &evict->setup.quotas[i];
        uint16_t tenant;
        if (quota->tenant.length == 1 && *quota->tenant.text == '*') {
            lane->other_share = quota->share;
            continue;
        }
        uint64_t *number = kvr_u64_map_insert(
            &lane->tenants, XXH3_64bits(quota->tenant.text, quota->tenant.length), NULL);
        if (!number)
            return kvr_error_memory(error);
        enum kvr_status status =
            kvr_block_cache_add_tenant(block_cache_of(lane), quota->share, &tenant, error);
        if (status != KVR_OK)
            return status;
        *number = tenant;
    }
    return KVR_OK;
}

enum kvr_status kvr_lane_prepare(
    struct kvr_evict *evict, struct kvr_lane *lane, uint32_t block_tokens, struct kvr_error *error)
{
    struct kvr_cache_sink sink = kvr_lane_sink(NULL);

    if (lane->cache)
        return KVR_OK;
    lane->context = calloc(1, sizeof *lane->context);
    if (!lane->context)
        return kvr_error_memory(error);
    *lane->context = (struct kvr_lane_context){evict, lane->name, block_tokens};
    sink.context = lane->context;
    enum kvr_status status =
        make_cache(evict, lane, block_tokens, evict->setup.events ? &sink : NULL, error);
    if (status == KVR_OK)
        status = add_quotas(evict, lane, error);
    if (status == KVR_OK)
        status = kvr_replay_init(
            &lane->replay, lane->cache, evict->setup.live, evict->setup.skip_last_token, error);
    lane->block_tokens = block_tokens;
    return status;
}

static enum kvr_status find_tenant(
    struct kvr_lane *lane, struct kvr_value name, uint16_t *tenant, struct kvr_error *error)
{
    bool is_new;

    *tenant = 0;
    if (name.type == KVR_ABSENT || name.type == KVR_NULL)
        return KVR_OK;
    const uint64_t *known = kvr_u64_map_find(&lane->tenants, kvr_value_identity(name));
    if (known) {
        *tenant = (uint16_t)*known;
        return KVR_OK;
    }
    if (!(lane->other_share > 0))
        return KVR_OK;
    enum kvr_status status =
        kvr_block_cache_add_tenant(block_cache_of(lane), lane->other_share, tenant, error);
    if (status != KVR_OK)
        return status;
    uint64_t *number = kvr_u64_map_insert(&lane->tenants, kvr_value_identity(name), &is_new);
    if (!number)
        return kvr_error_memory(error);
    *number = *tenant;
    return KVR_OK;
}

/* Request lines tell the block size where -b does not. */
static uint32_t block_tokens_of(const struct kvr_evict *evict, uint32_t request)
{
    return evict->setup.block_tokens ? evict->setup.block_tokens : request;
}

static enum kvr_status lane_of_request(struct kvr_evict *evict, struct kvr_request_view *view,
    struct kvr_lane **lane, struct kvr_error *error)
{
    const struct kvr_capacity none = {0};
    enum kvr_status status = find_lane(evict, view->worker, "route.worker", &none, lane, error);

    if (status == KVR_OK)
        status = kvr_lane_prepare(
            evict, *lane, block_tokens_of(evict, view->request.block_tokens), error);
    return status;
}

enum kvr_status kvr_evict_request(struct kvr_evict *evict, struct kvr_request_view *view,
    struct kvr_evict_result *result, struct kvr_error *error)
{
    struct kvr_lane *lane;
    struct kvr_block_tags tags = view->tags;
    const struct kvr_prefill_cost *prefill = &evict->setup.prefill;

    memset(result, 0, sizeof *result);
    enum kvr_status status = lane_of_request(evict, view, &lane, error);
    if (status != KVR_OK)
        return status;
    struct kvr_cache *blocks = block_cache_of(lane);
    if (blocks) {
        if (evict->setup.quota_count)
            status = find_tenant(lane, view->tenant, &tags.tenant, error);
        if (status != KVR_OK)
            return status;
        kvr_block_cache_tag(blocks, &tags);
    }
    status = kvr_replay_request(&lane->replay, &view->request, &result->replay, error);
    if (status != KVR_OK)
        return status;
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
        result->hit_tokens += result->replay.hit_tokens[medium];
    result->evicted_tokens = result->replay.evicted_blocks * lane->block_tokens;
    result->several_tiers = kvr_cache_is_tiers(lane->cache);
    if (result->several_tiers)
        result->times = *kvr_tiers_last(lane->cache);
    lane->requests++;
    lane->without_blocks += !view->has_blocks;
    lane->rejected += result->replay.rejected;
    lane->truncated += result->replay.truncated;
    if (!result->replay.rejected) {
        uint64_t scale = view->request.block_tokens;
        lane->accesses += scale == lane->block_tokens && blocks
                              ? view->request.id_count
                              : kvr_cache_full_ids(&view->request) * scale / lane->block_tokens;
        double tokens = (double)view->request.input_tokens, hits = (double)result->hit_tokens;
        lane->saved_ms += kvr_prefill_cost_ms(prefill, hits, 0);
        lane->prefill_ms += kvr_prefill_cost_ms(prefill, tokens - hits, hits);
    }
    return KVR_OK;
}

enum kvr_status kvr_evict_pin_request(struct kvr_evict *evict, const struct kvr_request_view *view,
    uint64_t tokens, struct kvr_error *error)
{
    struct kvr_request_view copy = *view;
    const struct kvr_cache_request *request = &view->request;
    struct kvr_lane *lane;

    enum kvr_status status = lane_of_request(evict, &copy, &lane, error);
    if (status != KVR_OK)
        return status;
    uint64_t blocks = tokens / request->block_tokens;
    size_t count = blocks < request->id_count ? (size_t)blocks : request->id_count;
    if (!block_cache_of(lane) || request->block_tokens != lane->block_tokens)
        return kvr_error_set(
            error, KVR_UNSUPPORTED, "--pin needs the block engine and requests of its block size");
    return kvr_block_cache_pin_once(block_cache_of(lane), request->ids, count, error);
}

/* ── event lines ── */

static enum kvr_status pin_lane(struct kvr_evict *evict, struct kvr_lane *lane,
    const struct kvr_line *line, bool unpin, struct kvr_error *error)
{
    const uint64_t *ids;
    size_t count, pinned;
    struct kvr_pin pin = {0};

    enum kvr_status status = kvr_request_read_ids(evict->reader, line, &ids, &count, error);
    if (status == KVR_OK)
        status = kvr_lane_prepare(
            evict, lane, block_tokens_of(evict, evict->reader->block_tokens), error);
    if (status != KVR_OK)
        return status;
    if (unpin)
        return kvr_cache_unpin(lane->cache, ids, count, error);
    if (block_cache_of(lane))
        return kvr_block_cache_pin_ahead(block_cache_of(lane), ids, count, error);
    return kvr_cache_pin(lane->cache, ids, count, &pin, &pinned, error);
}

static enum kvr_status act_on_pin(
    struct kvr_evict *evict, const struct kvr_line *line, bool unpin, struct kvr_error *error)
{
    struct kvr_value worker = kvr_line_get(line, KVR_NAME_WORKER);
    const struct kvr_capacity none = {0};
    struct kvr_lane *lane;
    enum kvr_status status;

    if (worker.type == KVR_ABSENT && evict->lane_count) {
        status = KVR_OK;
        for (size_t i = 0; i < evict->lane_count && status == KVR_OK; i++)
            status = pin_lane(evict, &evict->lanes[i], line, unpin, error);
        return status;
    }
    status = find_lane(evict, worker, "worker", &none, &lane, error);
    return status == KVR_OK ? pin_lane(evict, lane, line, unpin, error) : status;
}

static enum kvr_status act_on_worker(
    struct kvr_evict *evict, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_worker_description worker;
    struct kvr_buffer scratch = {0};
    struct kvr_lane *lane = NULL;

    enum kvr_status status = kvr_worker_read(line, &scratch, &worker, error);
    if (status == KVR_OK)
        status = find_lane(
            evict, kvr_line_get(line, KVR_NAME_WORKER), "worker", &worker.capacity, &lane, error);
    if (status == KVR_OK && !lane->cache && worker.capacity.amount)
        lane->capacity = worker.capacity;
    if (status == KVR_OK && lane->cache && worker.state == KVR_WORKER_DOWN) {
        status = kvr_replay_finish_all(&lane->replay, error);
        kvr_cache_clear(lane->cache);
    }
    kvr_buffer_release(&scratch);
    return status;
}

enum kvr_status kvr_evict_event(
    struct kvr_evict *evict, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_value event = kvr_line_get(line, KVR_NAME_EVENT);

    if (kvr_value_is(event, "pin"))
        return act_on_pin(evict, line, false, error);
    if (kvr_value_is(event, "unpin"))
        return act_on_pin(evict, line, true, error);
    if (kvr_value_is(event, "worker"))
        return act_on_worker(evict, line, error);
    return KVR_OK;
}

enum kvr_status kvr_evict_finish(struct kvr_evict *evict, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    for (size_t i = 0; i < evict->lane_count && status == KVR_OK; i++)
        if (evict->lanes[i].cache)
            status = kvr_replay_finish_all(&evict->lanes[i].replay, error);
    return status;
}

/* ── totals ── */

static void add_stats(struct kvr_cache_stats *sum, const struct kvr_cache_stats *stats)
{
    for (int i = 0; i < KVR_MEDIUM_COUNT; i++) {
        sum->hit_blocks[i] += stats->hit_blocks[i];
        sum->hit_tokens[i] += stats->hit_tokens[i];
        sum->inserted_blocks[i] += stats->inserted_blocks[i];
        sum->evicted_blocks[i] += stats->evicted_blocks[i];
        sum->cleared_blocks[i] += stats->cleared_blocks[i];
        sum->resident_blocks[i] += stats->resident_blocks[i];
        sum->capacity_blocks[i] += stats->capacity_blocks[i];
    }
    sum->admitted += stats->admitted;
    sum->prompt_blocks += stats->prompt_blocks;
    sum->prompt_tokens += stats->prompt_tokens;
    sum->free_blocks += stats->free_blocks;
    sum->live += stats->live;
    sum->memory_bytes += stats->memory_bytes;
}

static void add_lane(
    const struct kvr_lane *lane, double kv_bytes_per_token, struct kvr_evict_totals *totals)
{
    struct kvr_cache_stats stats;

    totals->requests += lane->requests;
    totals->without_blocks += lane->without_blocks;
    totals->rejected += lane->rejected;
    totals->truncated += lane->truncated;
    totals->accesses += lane->accesses;
    totals->saved_ms += lane->saved_ms;
    totals->prefill_ms += lane->prefill_ms;
    if (!lane->cache)
        return;
    kvr_cache_stats(lane->cache, &stats);
    add_stats(&totals->stats, &stats);
    struct kvr_cache *blocks = block_cache_of(lane);
    if (blocks) {
        totals->refused += kvr_block_cache_counts(blocks)->refused;
        totals->expired += kvr_block_cache_counts(blocks)->expired;
    }
    if (!kvr_cache_is_tiers(lane->cache)) {
        for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
            totals->written_bytes[medium] +=
                (double)stats.inserted_blocks[medium] * lane->block_tokens * kv_bytes_per_token;
        return;
    }
    const struct kvr_tier_times *times = kvr_tiers_times(lane->cache);
    totals->has_tiers = true;
    totals->times.load_ms += times->load_ms;
    totals->times.loaded_prefill_ms += times->loaded_prefill_ms;
    totals->times.recomputed_tokens += times->recomputed_tokens;
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
        totals->written_bytes[medium] +=
            kvr_tiers_written_bytes(lane->cache, (enum kvr_medium)medium);
}

void kvr_evict_totals(
    const struct kvr_evict *evict, size_t index, struct kvr_evict_totals *totals, const char **name)
{
    memset(totals, 0, sizeof *totals);
    totals->workers = evict->lane_count;
    if (name)
        *name = index < evict->lane_count ? evict->lanes[index].name : NULL;
    for (size_t i = 0; i < evict->lane_count; i++)
        if (index >= evict->lane_count || i == index)
            add_lane(&evict->lanes[i], evict->setup.kv_bytes_per_token, totals);
}
