/* The stack of tiers as an engine; see tiers.h. The tiers below the first have no tree: a block is
 * an object, found by its chained id, used deepest first like everywhere else. */
#include "cache/tiers.h"

#include "base/grow.h"
#include "cache/block_cache_internal.h"

#include <string.h>

enum { TIERS_MOST = KVR_MEDIUM_COUNT };

/* A tier below the first. */
struct lower {
    struct kvr_tier tier;
    struct kvr_store store;
    struct kvr_ranking *ranking;
    struct kvr_gate *gate;
    double block_bytes; /* as stored here; 0: unknown */
    uint64_t hits, hit_tokens, inserted, evicted, cleared;
};

struct tiers {
    struct kvr_cache base;
    struct kvr_tiers_options options;
    struct kvr_cache *first;
    struct lower lowers[TIERS_MOST - 1];
    size_t lower_count;
    struct kvr_cache_sink sink;
    enum kvr_medium first_medium;
    double first_block_bytes;
    uint8_t *where; /* by block of the request: 0 not found below, else the tier's number */
    size_t where_size;
    uint64_t request_tokens; /* of the request being served, for length rules */
    uint64_t sequence;
    struct kvr_tier_times last, times;
    enum kvr_status failed; /* inside a callback */
};

static const struct kvr_engine tiers_engine;

/* ── one lower tier ── */

static void tell(struct tiers *tiers, const struct lower *lower, bool stored, uint64_t id)
{
    if (stored && tiers->sink.stored)
        tiers->sink.stored(tiers->sink.context, lower->tier.medium, NULL, &id, 1);
    if (!stored && tiers->sink.removed)
        tiers->sink.removed(tiers->sink.context, lower->tier.medium, &id, 1);
}

static void drop(struct tiers *tiers, struct lower *lower, uint32_t slot)
{
    uint64_t id = lower->store.blocks[slot].id;

    if (lower->ranking->policy->evicted)
        lower->ranking->policy->evicted(lower->ranking, slot);
    lower->ranking->resident--;
    kvr_store_remove(&lower->store, slot);
    tell(tiers, lower, false, id);
}

static bool let_in(const struct tiers *tiers, struct lower *lower, uint64_t id)
{
    const struct kvr_admission_rule *rule = lower->gate->rule;
    struct kvr_admission_path path = {
        &id, 1, 0, tiers->request_tokens, tiers->options.block_tokens, 0};

    if (rule->knows)
        return rule->knows(lower->gate, id);
    return !rule->admits || rule->admits(lower->gate, &path, 0);
}

static enum kvr_status reserve_one(struct lower *lower, struct kvr_error *error)
{
    uint32_t slots = lower->store.slots;
    enum kvr_status status = kvr_store_reserve(&lower->store, 1, error);

    if (status == KVR_OK && slots != lower->store.slots)
        status = kvr_ranking_reserve(lower->ranking, error);
    return status;
}

static void come_down(struct tiers *tiers, size_t number, uint64_t id);

/* A block leaves tier `number` (0: the first) by eviction. */
static void went(struct tiers *tiers, size_t number, uint64_t id)
{
    if (number < tiers->lower_count && tiers->lowers[number].tier.write == KVR_WRITE_BACK)
        come_down(tiers, number, id);
}

static void come_down(struct tiers *tiers, size_t number, uint64_t id)
{
    struct lower *lower = &tiers->lowers[number];
    struct kvr_ranking *ranking = lower->ranking;
    struct kvr_store *store = &lower->store;
    uint32_t hash = kvr_block_hash(id);

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
        drop(tiers, lower, victim);
        lower->evicted++;
        went(tiers, number + 1, gone);
    }
    uint32_t slot = kvr_store_add(store, id, hash);
    ranking->resident++;
    ranking->policy->insert(ranking, slot);
    kvr_ranking_enqueue(ranking, slot, KVR_FRESH);
    lower->inserted++;
    tell(tiers, lower, true, id);
    if (number + 1 < tiers->lower_count &&
        tiers->lowers[number + 1].tier.write == KVR_WRITE_THROUGH)
        come_down(tiers, number + 1, id);
}

static void expire(struct tiers *tiers, size_t number)
{
    struct lower *lower = &tiers->lowers[number];
    uint32_t slot;

    if (!lower->ranking->policy->expired)
        return;
    while ((slot = lower->ranking->policy->expired(lower->ranking))) {
        lower->store.blocks[slot].flags &= (uint8_t)~KVR_BLOCK_QUEUED;
        drop(tiers, lower, slot);
        lower->evicted++;
    }
}

/* ── the first tier's callbacks ── */

static void first_removed(void *context, enum kvr_medium medium, const uint64_t *ids, size_t count)
{
    struct tiers *tiers = context;

    (void)medium;
    if (tiers->sink.removed)
        tiers->sink.removed(tiers->sink.context, tiers->first_medium, ids, count);
    for (size_t i = 0; i < count; i++)
        went(tiers, 0, ids[i]);
}

static void first_stored(void *context, enum kvr_medium medium, const uint64_t *parent,
    const uint64_t *ids, size_t count)
{
    struct tiers *tiers = context;

    (void)medium;
    if (tiers->sink.stored)
        tiers->sink.stored(tiers->sink.context, tiers->first_medium, parent, ids, count);
    if (tiers->lower_count && tiers->lowers[0].tier.write == KVR_WRITE_THROUGH)
        for (size_t i = 0; i < count; i++)
            come_down(tiers, 0, ids[i]);
}

static void first_cleared(void *context, enum kvr_medium medium)
{
    struct tiers *tiers = context;

    (void)medium;
    if (tiers->sink.cleared)
        tiers->sink.cleared(tiers->sink.context, tiers->first_medium);
}

/* ── a request ── */

static uint64_t tokens_of(const struct tiers *tiers, uint64_t input_tokens, size_t from, size_t to)
{
    uint64_t start = from * (uint64_t)tiers->options.block_tokens;
    uint64_t end = to * (uint64_t)tiers->options.block_tokens;

    if (end > input_tokens)
        end = input_tokens;
    return end > start ? end - start : 0;
}

/* Which tier has which block behind the first tier's run; returns the end of the whole run. */
static size_t find_below(struct tiers *tiers, const struct kvr_cache_request *request, size_t from)
{
    size_t at = from;

    for (; at < request->id_count; at++) {
        uint32_t hash = kvr_block_hash(request->ids[at]);
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
static void load_or_compute(struct tiers *tiers, const struct kvr_cache_request *request,
    size_t from, size_t to, struct kvr_admission *admission)
{
    const struct kvr_prefill_cost *prefill = &tiers->options.prefill;

    for (size_t start = from, end; start < to; start = end) {
        uint8_t tier = tiers->where[start];
        for (end = start; end < to && tiers->where[end] == tier;)
            end++;
        struct lower *lower = &tiers->lowers[tier - 1];
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
    struct tiers *tiers, const struct kvr_cache_request *request, size_t from, size_t to)
{
    size_t enter = request->id_count;

    for (size_t at = to; at-- > from;) {
        if (!tiers->where[at])
            continue;
        size_t number = tiers->where[at] - 1u;
        struct lower *lower = &tiers->lowers[number];
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
            come_down(tiers, number + 1, request->ids[at]);
        if (lower->tier.promote == KVR_PROMOTE_NEVER ||
            (lower->tier.promote == KVR_PROMOTE_SECOND && !again))
            enter = at;
    }
    return enter;
}

static void leave_promoted(
    struct tiers *tiers, const struct kvr_cache_request *request, size_t from, size_t to)
{
    const struct kvr_store *first = &((struct kvr_block_cache *)tiers->first)->store;

    for (size_t at = from; at < to; at++) {
        struct lower *lower = tiers->where[at] ? &tiers->lowers[tiers->where[at] - 1] : NULL;
        if (!lower || !lower->tier.exclusive || !kvr_store_find(first, request->ids[at]))
            continue;
        uint32_t slot = kvr_store_find(&lower->store, request->ids[at]);
        if (!slot)
            continue;
        kvr_ranking_dequeue(lower->ranking, slot);
        drop(tiers, lower, slot);
        lower->evicted++;
    }
}

static enum kvr_status begin(
    struct tiers *tiers, const struct kvr_cache_request *request, struct kvr_error *error)
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
        expire(tiers, i);
    }
    return KVR_OK;
}

static enum kvr_status tiers_admit(struct kvr_cache *base, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error)
{
    struct tiers *tiers = (struct tiers *)base;
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
            come_down(tiers, 0, request->ids[at]);
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
    return kvr_cache_output(((struct tiers *)base)->first, live, tokens, made, error);
}

static enum kvr_status tiers_finish(struct kvr_cache *base, uint32_t live, struct kvr_error *error)
{
    return kvr_cache_finish(((struct tiers *)base)->first, live, error);
}

static enum kvr_status tiers_pin(struct kvr_cache *base, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    return kvr_cache_pin(((struct tiers *)base)->first, ids, count, pin, pinned, error);
}

static enum kvr_status tiers_unpin(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    return kvr_cache_unpin(((struct tiers *)base)->first, ids, count, error);
}

static void tiers_clear(struct kvr_cache *base)
{
    struct tiers *tiers = (struct tiers *)base;
    uint32_t slot;

    kvr_cache_clear(tiers->first);
    for (size_t i = 0; i < tiers->lower_count; i++) {
        struct lower *lower = &tiers->lowers[i];
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
    const struct tiers *tiers = (const struct tiers *)base;

    kvr_cache_stats(tiers->first, stats);
    move_first(stats->hit_blocks, tiers->first_medium);
    move_first(stats->hit_tokens, tiers->first_medium);
    move_first(stats->inserted_blocks, tiers->first_medium);
    move_first(stats->evicted_blocks, tiers->first_medium);
    move_first(stats->cleared_blocks, tiers->first_medium);
    move_first(stats->resident_blocks, tiers->first_medium);
    move_first(stats->capacity_blocks, tiers->first_medium);
    for (size_t i = 0; i < tiers->lower_count; i++) {
        const struct lower *lower = &tiers->lowers[i];
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
    const struct tiers *tiers = (const struct tiers *)base;

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
    struct tiers *tiers = (struct tiers *)base;

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

static enum kvr_status tier_blocks(const struct kvr_tiers_options *options,
    const struct kvr_tier *tier, uint64_t *blocks, struct kvr_error *error)
{
    enum kvr_status status = kvr_capacity_blocks(&tier->capacity, options->block_tokens,
        options->kv_bytes_per_token / tier->compression, blocks, error);

    if (status == KVR_OK && (*blocks < 1 || *blocks > KVR_STORE_CAPACITY_MOST))
        return kvr_error_set(error, KVR_BAD_USAGE, "the capacity of tier '%s' is out of range",
            kvr_medium_name(tier->medium));
    return status;
}

static enum kvr_status add_lower(
    struct tiers *tiers, const struct kvr_tier *tier, struct kvr_error *error)
{
    struct lower *lower = &tiers->lowers[tiers->lower_count];
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
    enum kvr_status status = tier_blocks(&tiers->options, tier, &blocks, error);
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

static enum kvr_status add_first(
    struct tiers *tiers, const struct kvr_tier *tier, struct kvr_error *error)
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
    enum kvr_status status = tier_blocks(&tiers->options, tier, &options.capacity_blocks, error);

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
    if (options->tier_count < 1 || options->tier_count > TIERS_MOST)
        return kvr_error_set(error, KVR_BAD_USAGE, "a stack has one to %d tiers", TIERS_MOST);
    struct tiers *tiers = calloc(1, sizeof *tiers);
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
            status = add_lower(tiers, tier, error);
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
    return ((struct tiers *)cache)->first;
}

const struct kvr_tier_times *kvr_tiers_last(const struct kvr_cache *cache)
{
    return &((const struct tiers *)cache)->last;
}

const struct kvr_tier_times *kvr_tiers_times(const struct kvr_cache *cache)
{
    return &((const struct tiers *)cache)->times;
}

double kvr_tiers_written_bytes(const struct kvr_cache *cache, enum kvr_medium medium)
{
    const struct tiers *tiers = (const struct tiers *)cache;

    if (medium == tiers->first_medium)
        return (double)kvr_block_cache_counts(tiers->first)->inserted * tiers->first_block_bytes;
    for (size_t i = 0; i < tiers->lower_count; i++)
        if (tiers->lowers[i].tier.medium == medium)
            return (double)tiers->lowers[i].inserted * tiers->lowers[i].block_bytes;
    return 0;
}
