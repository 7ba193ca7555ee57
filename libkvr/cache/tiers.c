/* The stack of tiers as an engine; see tiers.h. The tiers below the first have no tree: a block is
 * an object, found by its chained id, used deepest first like everywhere else. */
#include "base/grow.h"
#include "cache/tiers_internal.h"

#include <string.h>

static const struct kvr_engine tiers_engine;

/* ── the first tier's callbacks ── */

static void first_removed(void *context, enum kvr_medium medium, const uint64_t *ids, size_t count)
{
    struct kvr_tiers *tiers = context;

    (void)medium;
    if (tiers->sink.removed)
        tiers->sink.removed(tiers->sink.context, tiers->first_medium, ids, count);
    for (size_t i = 0; i < count; i++)
        kvr_tier_went(tiers, 0, ids[i]);
}

static void first_stored(void *context, enum kvr_medium medium, const uint64_t *parent,
    const uint64_t *ids, size_t count)
{
    struct kvr_tiers *tiers = context;

    (void)medium;
    if (tiers->sink.stored)
        tiers->sink.stored(tiers->sink.context, tiers->first_medium, parent, ids, count);
    if (tiers->lower_count && tiers->lowers[0].tier.write == KVR_WRITE_THROUGH)
        for (size_t i = 0; i < count; i++)
            kvr_tier_come_down(tiers, 0, ids[i]);
}

static void first_cleared(void *context, enum kvr_medium medium)
{
    struct kvr_tiers *tiers = context;

    (void)medium;
    if (tiers->sink.cleared)
        tiers->sink.cleared(tiers->sink.context, tiers->first_medium);
}

/* ── a request ── */

static uint64_t tokens_of(
    const struct kvr_tiers *tiers, uint64_t input_tokens, size_t from, size_t to)
{
    uint64_t start = from * (uint64_t)tiers->options.block_tokens;
    uint64_t end = to * (uint64_t)tiers->options.block_tokens;

    if (end > input_tokens)
        end = input_tokens;
    return end > start ? end - start : 0;
}

/* Which tier has which block behind the first tier's run; returns the end of the whole run. */
static size_t find_below(
    struct kvr_tiers *tiers, const struct kvr_cache_request *request, size_t from)
{
    size_t at = from;

    for (; at < request->id_count; at++) {
        uint32_t hash = kvr_block_table_hash(request->ids[at]);
        size_t tier = 0;
        while (tier < tiers->lower_count &&
               !kvr_store_find_hashed(&tiers->lowers[tier].store, request->ids[at], hash))
            tier++;
        if (tier == tiers->lower_count)
            break;
        tiers->where[at] = (uint8_t)(tier + 1);
    }
    return at;
}

/* Loads each stretch of blocks in one tier, or gives it up (where = 0) when computing is faster. */
static void load_or_compute(struct kvr_tiers *tiers, const struct kvr_cache_request *request,
    size_t from, size_t to, struct kvr_admission *admission)
{
    const struct kvr_prefill_cost *prefill = &tiers->options.prefill;

    for (size_t start = from, end; start < to; start = end) {
        uint8_t tier = tiers->where[start];
        for (end = start; end < to && tiers->where[end] == tier;)
            end++;
        struct kvr_lower_tier *lower = &tiers->lowers[tier - 1];
        uint64_t tokens = tokens_of(tiers, request->input_tokens, start, end);
        double cached = (double)start * tiers->options.block_tokens;
        double compute_ms = kvr_prefill_cost_ms(prefill, (double)tokens, cached);
        double load_ms = 0;
        if (lower->tier.bytes_per_s > 0)
            load_ms =
                lower->tier.latency_ms + (double)tokens * tiers->options.kv_bytes_per_token * 1e3 /
                                             (lower->tier.compression * lower->tier.bytes_per_s);
        if (compute_ms > 0 && load_ms > compute_ms) {
            tiers->last.recomputed_tokens += tokens;
            memset(tiers->where + start, 0, end - start);
            continue;
        }
        tiers->last.load_ms += load_ms;
        tiers->last.loaded_prefill_ms += compute_ms;
        lower->hits += end - start;
        lower->hit_tokens += tokens;
        admission->hit_blocks[lower->tier.medium] += end - start;
        admission->hit_tokens[lower->tier.medium] += tokens;
    }
}

/* Uses what was loaded, deepest first; returns how many leading blocks may enter the first tier. */
static size_t use_below(
    struct kvr_tiers *tiers, const struct kvr_cache_request *request, size_t from, size_t to)
{
    size_t enter = request->id_count;

    for (size_t at = to; at-- > from;) {
        if (!tiers->where[at])
            continue;
        size_t number = tiers->where[at] - 1u;
        struct kvr_lower_tier *lower = &tiers->lowers[number];
        uint32_t slot = kvr_store_find(&lower->store, request->ids[at]);
        if (!slot)
            continue;
        struct kvr_block *block = &lower->store.blocks[slot];
        bool again = block->flags & KVR_BLOCK_SHARED;
        block->flags |= KVR_BLOCK_SHARED; /* here: hit before in this tier */
        lower->store.clock++;
        lower->store.depth = (uint32_t)at;
        lower->ranking->policy->hit(lower->ranking, slot);
        if (number + 1 < tiers->lower_count &&
            tiers->lowers[number + 1].tier.write == KVR_WRITE_SECOND)
            kvr_tier_come_down(tiers, number + 1, request->ids[at]);
        if (lower->tier.promote == KVR_PROMOTE_NEVER ||
            (lower->tier.promote == KVR_PROMOTE_SECOND && !again))
            enter = at;
    }
    return enter;
}

static void leave_promoted(
    struct kvr_tiers *tiers, const struct kvr_cache_request *request, size_t from, size_t to)
{
    const struct kvr_store *first = &((struct kvr_block_cache *)tiers->first)->store;

    for (size_t at = from; at < to; at++) {
        struct kvr_lower_tier *lower =
            tiers->where[at] ? &tiers->lowers[tiers->where[at] - 1] : NULL;
        if (!lower || !lower->tier.exclusive || !kvr_store_find(first, request->ids[at]))
            continue;
        uint32_t slot = kvr_store_find(&lower->store, request->ids[at]);
        if (!slot)
            continue;
        kvr_ranking_dequeue(lower->ranking, slot);
        kvr_tier_drop(tiers, lower, slot);
        lower->evicted++;
    }
}

static enum kvr_status begin(
    struct kvr_tiers *tiers, const struct kvr_cache_request *request, struct kvr_error *error)
{
    uint8_t *where =
        kvr_grow(tiers->where, &tiers->where_size, request->id_count + 1, sizeof *where);

    if (!where)
        return kvr_error_memory(error);
    tiers->where = where;
    memset(where, 0, request->id_count);
    tiers->last = (struct kvr_tier_times){0};
    tiers->request_tokens = request->input_tokens;
    tiers->failed = KVR_OK;
    for (size_t i = 0; i < tiers->lower_count; i++) {
        struct kvr_store *store = &tiers->lowers[i].store;
        if (request->time_ms > store->now_ms)
            store->now_ms = request->time_ms;
        kvr_tier_expire(tiers, i);
    }
    return KVR_OK;
}

static enum kvr_status tiers_admit(struct kvr_cache *base, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error)
{
    struct kvr_tiers *tiers = (struct kvr_tiers *)base;
    struct kvr_block_cache *first = (struct kvr_block_cache *)tiers->first;
    struct kvr_admission below = {0};
    enum kvr_status status = begin(tiers, request, error);

    if (status != KVR_OK)
        return status;
    uint32_t *path =
        kvr_grow(first->scratch.path, &first->scratch.size, request->id_count + 1, sizeof *path);
    if (!path)
        return kvr_error_memory(error);
    first->scratch.path = path;
    size_t run = kvr_block_find_run(&first->store, request->ids, request->id_count, 0, path);
    size_t end = find_below(tiers, request, run);
    struct kvr_admission_path asked = {request->ids, request->id_count, end, request->input_tokens,
        request->block_tokens, first->tags.identity ? first->tags.identity : ++tiers->sequence};
    for (size_t i = 0; i < tiers->lower_count && status == KVR_OK; i++)
        if (tiers->lowers[i].gate->rule->look)
            status = tiers->lowers[i].gate->rule->look(tiers->lowers[i].gate, &asked, error);
    if (status != KVR_OK)
        return status;
    load_or_compute(tiers, request, run, end, &below);
    size_t enter = use_below(tiers, request, run, end);
    struct kvr_cache_request entering = *request;
    if (enter < request->id_count) {
        entering.id_count = enter;
        entering.output_id_count = 0;
    }
    status = tiers->first->engine->admit(tiers->first, &entering, admission, error);
    if (status != KVR_OK)
        return status;
    if (tiers->lower_count && tiers->lowers[0].tier.write == KVR_WRITE_SECOND)
        for (size_t at = run; at-- > 0;)
            kvr_tier_come_down(tiers, 0, request->ids[at]);
    leave_promoted(tiers, request, run, end);
    if (tiers->first_medium != KVR_MEDIUM_GPU) {
        admission->hit_blocks[tiers->first_medium] = admission->hit_blocks[0];
        admission->hit_tokens[tiers->first_medium] = admission->hit_tokens[0];
        admission->hit_blocks[0] = admission->hit_tokens[0] = 0;
    }
    for (size_t i = 0; i < tiers->lower_count; i++) {
        enum kvr_medium medium = tiers->lowers[i].tier.medium;
        admission->hit_blocks[medium] = below.hit_blocks[medium];
        admission->hit_tokens[medium] = below.hit_tokens[medium];
    }
    tiers->times.load_ms += tiers->last.load_ms;
    tiers->times.loaded_prefill_ms += tiers->last.loaded_prefill_ms;
    tiers->times.recomputed_tokens += tiers->last.recomputed_tokens;
    return tiers->failed == KVR_OK ? KVR_OK : kvr_error_memory(error);
}

static enum kvr_status tiers_output(
    struct kvr_cache *base, uint32_t live, uint64_t tokens, uint64_t *made, struct kvr_error *error)
{
    return kvr_cache_output(((struct kvr_tiers *)base)->first, live, tokens, made, error);
}

static enum kvr_status tiers_finish(struct kvr_cache *base, uint32_t live, struct kvr_error *error)
{
    return kvr_cache_finish(((struct kvr_tiers *)base)->first, live, error);
}

static enum kvr_status tiers_pin(struct kvr_cache *base, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    return kvr_cache_pin(((struct kvr_tiers *)base)->first, ids, count, pin, pinned, error);
}

static enum kvr_status tiers_unpin(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    return kvr_cache_unpin(((struct kvr_tiers *)base)->first, ids, count, error);
}

static void tiers_clear(struct kvr_cache *base)
{
    struct kvr_tiers *tiers = (struct kvr_tiers *)base;
    uint32_t slot;

    kvr_cache_clear(tiers->first);
    for (size_t i = 0; i < tiers->lower_count; i++) {
        struct kvr_lower_tier *lower = &tiers->lowers[i];
        while ((slot = kvr_ranking_victim(lower->ranking))) {
            if (lower->ranking->policy->evicted)
                lower->ranking->policy->evicted(lower->ranking, slot);
            lower->ranking->resident--;
            kvr_store_remove(&lower->store, slot);
            lower->cleared++;
        }
        if (tiers->sink.cleared)
            tiers->sink.cleared(tiers->sink.context, lower->tier.medium);
    }
}

static void move_first(uint64_t numbers[KVR_MEDIUM_COUNT], enum kvr_medium medium)
{
    uint64_t first = numbers[0];

    numbers[0] = 0;
    numbers[medium] = first;
}

static void tiers_stats(const struct kvr_cache *base, struct kvr_cache_stats *stats)
{
    const struct kvr_tiers *tiers = (const struct kvr_tiers *)base;

    kvr_cache_stats(tiers->first, stats);
    move_first(stats->hit_blocks, tiers->first_medium);
    move_first(stats->hit_tokens, tiers->first_medium);
    move_first(stats->inserted_blocks, tiers->first_medium);
    move_first(stats->evicted_blocks, tiers->first_medium);
    move_first(stats->cleared_blocks, tiers->first_medium);
    move_first(stats->resident_blocks, tiers->first_medium);
    move_first(stats->capacity_blocks, tiers->first_medium);
    for (size_t i = 0; i < tiers->lower_count; i++) {
        const struct kvr_lower_tier *lower = &tiers->lowers[i];
        enum kvr_medium medium = lower->tier.medium;
        stats->hit_blocks[medium] = lower->hits;
        stats->hit_tokens[medium] = lower->hit_tokens;
        stats->inserted_blocks[medium] = lower->inserted;
        stats->evicted_blocks[medium] = lower->evicted;
        stats->cleared_blocks[medium] = lower->cleared;
        stats->resident_blocks[medium] = lower->store.resident;
        stats->capacity_blocks[medium] = lower->store.capacity;
        stats->memory_bytes += kvr_store_memory_bytes(&lower->store);
        if (lower->ranking->policy->memory_bytes)
            stats->memory_bytes += lower->ranking->policy->memory_bytes(lower->ranking);
    }
}

static void tiers_resident(
    const struct kvr_cache *base, enum kvr_medium medium, kvr_cache_visit *visit, void *context)
{
    const struct kvr_tiers *tiers = (const struct kvr_tiers *)base;

    if (medium == tiers->first_medium)
        kvr_cache_resident(tiers->first, KVR_MEDIUM_GPU, visit, context);
    for (size_t i = 0; i < tiers->lower_count; i++) {
        const struct kvr_store *store = &tiers->lowers[i].store;
        if (tiers->lowers[i].tier.medium != medium)
            continue;
        for (uint32_t at = 0; at < store->table.group_count; at++)
            for (uint32_t j = 0; j < store->table.groups[at].count; j++)
                visit(context, store->blocks[store->table.groups[at].slots[j]].id);
    }
}

static void tiers_destroy(struct kvr_cache *base)
{
    struct kvr_tiers *tiers = (struct kvr_tiers *)base;

    kvr_cache_destroy(tiers->first);
    for (size_t i = 0; i < tiers->lower_count; i++) {
        kvr_ranking_destroy(tiers->lowers[i].ranking);
        kvr_gate_destroy(tiers->lowers[i].gate);
        kvr_store_release(&tiers->lowers[i].store);
    }
    free(tiers->where);
    free(tiers);
}

static const struct kvr_engine tiers_engine = {
    .name = "tiers",
    .summary = "a stack of tiers",
    .admit = tiers_admit,
    .output = tiers_output,
    .finish = tiers_finish,
    .pin = tiers_pin,
    .unpin = tiers_unpin,
    .clear = tiers_clear,
    .stats = tiers_stats,
    .resident = tiers_resident,
    .destroy = tiers_destroy,
};

/* ── making ── */

static enum kvr_status add_first(
    struct kvr_tiers *tiers, const struct kvr_tier *tier, struct kvr_error *error)
{
    const struct kvr_cache_sink sink = {tiers, first_removed, first_stored, first_cleared};
    struct kvr_block_options options = {
        .block_tokens = tiers->options.block_tokens,
        .seed = tiers->options.seed,
        .policy = tier->policy,
        .policy_values = tier->policy_values,
        .admission = tier->admission,
        .admission_values = tier->admission_values,
        .outputs = tiers->options.outputs,
        .pool_shared = tiers->options.pool_shared,
        .sink = &sink,
    };
    enum kvr_status status =
        kvr_tier_blocks(&tiers->options, tier, &options.capacity_blocks, error);

    tiers->first_medium = tier->medium;
    tiers->first_block_bytes =
        tiers->options.kv_bytes_per_token * tiers->options.block_tokens / tier->compression;
    return status == KVR_OK ? kvr_block_cache_create(&options, &tiers->first, error) : status;
}

enum kvr_status kvr_tiers_create(
    const struct kvr_tiers_options *options, struct kvr_cache **out, struct kvr_error *error)
{
    bool taken[KVR_MEDIUM_COUNT] = {false};
    enum kvr_status status = KVR_OK;

    *out = NULL;
    if (options->tier_count < 1 || options->tier_count > KVR_TIERS_MOST)
        return kvr_error_set(error, KVR_BAD_USAGE, "a stack has one to %d tiers", KVR_TIERS_MOST);
    struct kvr_tiers *tiers = calloc(1, sizeof *tiers);
    if (!tiers)
        return kvr_error_memory(error);
    tiers->base.engine = &tiers_engine;
    tiers->base.block_tokens = options->block_tokens;
    tiers->options = *options;
    if (options->sink)
        tiers->sink = *options->sink;
    for (size_t i = 0; i < options->tier_count && status == KVR_OK; i++) {
        const struct kvr_tier *tier = &options->tiers[i];
        if (taken[tier->medium])
            status = kvr_error_set(
                error, KVR_BAD_USAGE, "tier '%s' is given twice", kvr_medium_name(tier->medium));
        else if (i == 0)
            status = add_first(tiers, tier, error);
        else
            status = kvr_tier_add(tiers, tier, error);
        taken[tier->medium] = true;
    }
    tiers->options.tiers = NULL;
    tiers->options.sink = NULL;
    if (status != KVR_OK) {
        tiers_destroy(&tiers->base);
        return status;
    }
    *out = &tiers->base;
    return KVR_OK;
}

/* ── answers ── */

bool kvr_cache_is_tiers(const struct kvr_cache *cache)
{
    return cache->engine == &tiers_engine;
}

struct kvr_cache *kvr_tiers_first(struct kvr_cache *cache)
{
    return ((struct kvr_tiers *)cache)->first;
}

const struct kvr_tier_times *kvr_tiers_last(const struct kvr_cache *cache)
{
    return &((const struct kvr_tiers *)cache)->last;
}

const struct kvr_tier_times *kvr_tiers_times(const struct kvr_cache *cache)
{
    return &((const struct kvr_tiers *)cache)->times;
}

double kvr_tiers_written_bytes(const struct kvr_cache *cache, enum kvr_medium medium)
{
    const struct kvr_tiers *tiers = (const struct kvr_tiers *)cache;

    if (medium == tiers->first_medium)
        return (double)kvr_block_cache_counts(tiers->first)->inserted * tiers->first_block_bytes;
    for (size_t i = 0; i < tiers->lower_count; i++)
        if (tiers->lowers[i].tier.medium == medium)
            return (double)tiers->lowers[i].inserted * tiers->lowers[i].block_bytes;
    return 0;
}
