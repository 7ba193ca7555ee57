/* The block cache behind the engine interface: making it, the lives of requests, outputs, pins. */
#include "base/grow.h"
#include "cache/block_cache_internal.h"

#include <math.h>
#include <string.h>

enum { POLICY, ADMISSION, OUTPUTS, PIN_PATH, POOL };

static const struct kvr_parameter block_parameters[] = {
    [POLICY] = {"policy", KVR_PARAMETER_CHOICE, "lru",
        "lru fifo lfu clock sieve s3fifo s3fifo-cold slru arc gdsf value ttl random", 0, 0,
        "which block goes first"},
    [ADMISSION] = {"admission", KVR_PARAMETER_CHOICE, "always",
        "always min-length max-length second tinylfu prefix-aware", 0, 0, "which blocks come in"},
    [OUTPUTS] = {"outputs", KVR_PARAMETER_FLAG, "on", NULL, 0, 1,
        "blocks that outputs fill are cached"},
    [PIN_PATH] = {"pin-path", KVR_PARAMETER_FLAG, "on", NULL, 0, 1,
        "a prefix tree; off: every block an object of its own"},
    [POOL] = {"pool", KVR_PARAMETER_NUMBER, "0", NULL, 0, 0.99,
        "share of the capacity that shared blocks keep"},
};

/* ── making ── */

static void block_destroy(struct kvr_cache *base)
{
    struct kvr_block_cache *cache = (struct kvr_block_cache *)base;

    for (uint32_t i = 0; i < cache->ranking_count; i++)
        kvr_ranking_destroy(cache->rankings[i]);
    kvr_gate_destroy(cache->gate);
    kvr_store_release(&cache->store);
    kvr_u64_map_release(&cache->holds);
    kvr_u64_map_release(&cache->pins);
    for (size_t i = 0; i < cache->live_count; i++) {
        free(cache->lives[i].path);
        free(cache->lives[i].output_ids);
    }
    free(cache->scratch.path);
    free(cache->lives);
    free(cache->free_lives);
    free(cache->timed_pins);
    free(cache->sessions);
    free(cache->aside);
    free(cache->hashes);
    free(cache->news.removed);
    free(cache->news.stored);
    free(cache);
}

static enum kvr_status add_ranking(
    struct kvr_block_cache *cache, double share, struct kvr_error *error)
{
    double capacity = floor(share * cache->store.capacity);
    uint32_t blocks = capacity < 1 ? 1 : (uint32_t)capacity;
    enum kvr_status status = kvr_ranking_create(cache->options.policy, &cache->store, blocks,
        cache->options.policy_values, cache->options.seed + cache->ranking_count,
        &cache->rankings[cache->ranking_count], error);

    if (status == KVR_OK)
        cache->ranking_count++;
    return status;
}

static enum kvr_status fill(
    struct kvr_block_cache *cache, const struct kvr_block_options *options, struct kvr_error *error)
{
    struct kvr_store *store = &cache->store;
    uint32_t capacity = (uint32_t)options->capacity_blocks;
    enum kvr_status status = kvr_store_init(store, capacity, error);

    if (status != KVR_OK)
        return status;
    store->future = options->future;
    store->future_length = options->future_length;
    status = add_ranking(cache, 1 - options->pool_shared, error);
    if (status == KVR_OK && options->pool_shared > 0) {
        cache->sessions = calloc(store->slots, sizeof *cache->sessions);
        cache->sessions_size = store->slots;
        if (!cache->sessions)
            return kvr_error_memory(error);
        status = add_ranking(cache, options->pool_shared, error);
    }
    if (status == KVR_OK)
        status = kvr_gate_create(cache->options.admission, capacity, options->admission_values,
            options->seed, &cache->gate, error);
    if (status != KVR_OK)
        return status;
    cache->whole_path = options->policy->whole_path && cache->ranking_count == 1 && !options->plain;
    if (cache->told) {
        cache->news.removed = malloc(KVR_BLOCK_NEWS_MOST * sizeof *cache->news.removed);
        cache->news.stored = malloc(KVR_BLOCK_NEWS_MOST * sizeof *cache->news.stored);
        if (!cache->news.removed || !cache->news.stored)
            return kvr_error_memory(error);
    }
    return KVR_OK;
}

enum kvr_status kvr_block_cache_create(
    const struct kvr_block_options *given, struct kvr_cache **out, struct kvr_error *error)
{
    struct kvr_block_options options = *given;

    *out = NULL;
    if (!options.policy)
        options.policy = kvr_policy_find("lru", 3);
    if (!options.admission)
        options.admission = kvr_admission_find("always", 6);
    if (options.capacity_blocks < 1 || options.capacity_blocks > KVR_STORE_CAPACITY_MOST)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "a capacity of %llu blocks is not between 1 and %u",
            (unsigned long long)options.capacity_blocks, KVR_STORE_CAPACITY_MOST);
    if (options.block_tokens < 1)
        return kvr_error_set(error, KVR_BAD_USAGE, "a block has at least 1 token");
    if (!(options.pool_shared >= 0 && options.pool_shared < 1))
        return kvr_error_set(error, KVR_BAD_USAGE, "the pool's share is not below the whole cache");
    if (options.policy->needs_future && options.outputs)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "policy '%s' knows the future of prompts only: leave out outputs",
            options.policy->name);
    struct kvr_block_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return kvr_error_memory(error);
    cache->base.engine = &kvr_engine_block;
    cache->base.block_tokens = options.block_tokens;
    cache->options = options;
    cache->next_pin_end_ms = INFINITY;
    if (options.sink)
        cache->sink = *options.sink;
    cache->options.sink = NULL;
    if (options.policy_values && options.policy->parameter_count) {
        memcpy(cache->policy_values, options.policy_values,
            options.policy->parameter_count * sizeof *cache->policy_values);
        cache->options.policy_values = cache->policy_values;
    }
    cache->told = cache->sink.removed || cache->sink.stored;
    enum kvr_status status = fill(cache, &options, error);
    cache->options.admission_values = NULL;
    if (status != KVR_OK) {
        block_destroy(&cache->base);
        return status;
    }
    *out = &cache->base;
    return KVR_OK;
}

static enum kvr_status block_create(const struct kvr_engine_options *given,
    const struct kvr_parameter_value *values, struct kvr_cache **out, struct kvr_error *error)
{
    struct kvr_block_options options = {
        .capacity_blocks = given->capacity_blocks,
        .block_tokens = given->block_tokens,
        .seed = given->seed,
        .policy = kvr_policies[values[POLICY].integer],
        .admission = kvr_admission_rules[values[ADMISSION].integer],
        .outputs = values[OUTPUTS].integer,
        .plain = !values[PIN_PATH].integer,
        .pool_shared = values[POOL].number,
        .sink = given->sink,
    };

    return kvr_block_cache_create(&options, out, error);
}

enum kvr_status kvr_block_cache_add_tenant(
    struct kvr_cache *base, double share, uint16_t *tenant, struct kvr_error *error)
{
    struct kvr_block_cache *cache = (struct kvr_block_cache *)base;

    if (!(share > 0 && share <= 1))
        return kvr_error_set(
            error, KVR_BAD_USAGE, "a quota is above 0 and at most the whole cache");
    if (cache->ranking_count == KVR_BLOCK_RANKINGS_MOST)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "more than %d tenants with a quota", KVR_BLOCK_RANKINGS_MOST - 2);
    if (cache->store.resident && cache->whole_path)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "the first quota comes before the first request");
    if (cache->options.policy->needs_future)
        return kvr_error_set(error, KVR_BAD_USAGE, "policy '%s' does not work with quotas",
            cache->options.policy->name);
    enum kvr_status status = add_ranking(cache, share, error);
    if (status != KVR_OK)
        return status;
    cache->whole_path = false;
    *tenant = (uint16_t)(cache->ranking_count - 1);
    return KVR_OK;
}

void kvr_block_cache_tag(struct kvr_cache *base, const struct kvr_block_tags *tags)
{
    ((struct kvr_block_cache *)base)->tags = *tags;
}

/* ── the life of a request ── */

static enum kvr_status take_live(
    struct kvr_block_cache *cache, uint32_t *handle, struct kvr_error *error)
{
    if (cache->free_live_count) {
        *handle = cache->free_lives[--cache->free_live_count];
        return KVR_OK;
    }
    uint32_t *handles =
        kvr_grow(cache->free_lives, &cache->free_live_size, cache->live_count + 1, sizeof *handles);
    if (!handles)
        return kvr_error_memory(error);
    cache->free_lives = handles;
    struct kvr_block_live *lives =
        kvr_grow(cache->lives, &cache->live_size, cache->live_count + 1, sizeof *lives);
    if (!lives)
        return kvr_error_memory(error);
    cache->lives = lives;
    memset(&lives[cache->live_count], 0, sizeof *lives);
    *handle = (uint32_t)cache->live_count++;
    return KVR_OK;
}

static struct kvr_block_live *live_of(
    struct kvr_block_cache *cache, uint32_t handle, struct kvr_error *error)
{
    if (handle < cache->live_count && cache->lives[handle].used)
        return &cache->lives[handle];
    kvr_error_set(error, KVR_BAD_INPUT, "no live request %u", handle);
    return NULL;
}

static enum kvr_status keep_output_ids(
    struct kvr_block_live *live, const struct kvr_cache_request *request, struct kvr_error *error)
{
    live->output_count = live->output_done = 0;
    if (!request->output_id_count)
        return KVR_OK;
    uint64_t *ids =
        kvr_grow(live->output_ids, &live->output_size, request->output_id_count, sizeof *ids);
    if (!ids)
        return kvr_error_memory(error);
    live->output_ids = ids;
    memcpy(ids, request->output_ids, request->output_id_count * sizeof *ids);
    live->output_count = request->output_id_count;
    return KVR_OK;
}

static enum kvr_status block_admit(struct kvr_cache *base, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error)
{
    struct kvr_block_cache *cache = (struct kvr_block_cache *)base;
    uint32_t handle = 0;
    enum kvr_status status = take_live(cache, &handle, error);

    if (status != KVR_OK)
        return status;
    struct kvr_block_live *live = &cache->lives[handle];
    bool outputs = cache->options.outputs && !cache->options.plain;
    if (request->time_ms > cache->store.now_ms)
        cache->store.now_ms = request->time_ms;
    if (cache->timed_pin_count && cache->store.now_ms >= cache->next_pin_end_ms)
        kvr_block_expire_pins(cache, cache->store.now_ms);
    if (outputs)
        status = keep_output_ids(live, request, error);
    if (status == KVR_OK)
        status = kvr_block_enter(cache, request->ids, request->id_count, request->input_tokens,
            live, &admission->hit_blocks[0], &admission->hit_tokens[0], error);
    if (status != KVR_OK) {
        cache->free_lives[cache->free_live_count++] = handle;
        return status;
    }
    uint64_t full = kvr_cache_full_ids(request);
    cache->prompt_blocks += full;
    live->tokens = request->input_tokens;
    live->full_blocks = full;
    live->partial = live->length > full;
    live->whole = live->length >= full && full == request->input_tokens / request->block_tokens;
    live->used = true;
    cache->live_used++;
    admission->admitted = true;
    admission->live = handle;
    return KVR_OK;
}

static enum kvr_status block_output(struct kvr_cache *base, uint32_t handle, uint64_t tokens,
    uint64_t *made, struct kvr_error *error)
{
    struct kvr_block_cache *cache = (struct kvr_block_cache *)base;
    struct kvr_block_live *live = live_of(cache, handle, error);

    *made = 0;
    if (!live)
        return KVR_BAD_INPUT;
    live->tokens += tokens;
    *made = tokens;
    if (!live->whole || live->output_done == live->output_count)
        return KVR_OK;
    uint64_t filled = live->tokens / cache->options.block_tokens - live->full_blocks;
    if (filled > live->output_count)
        filled = live->output_count;
    if (filled <= live->output_done)
        return KVR_OK;
    while (live->partial) {
        enum kvr_status status = kvr_block_drop_tip(cache, live, error);
        if (status != KVR_OK)
            return status;
        live->partial = live->length > live->full_blocks;
    }
    size_t length = live->length, count = (size_t)filled - live->output_done;
    enum kvr_status status =
        kvr_block_extend(cache, live, live->output_ids + live->output_done, count, error);
    live->output_done += count;
    if (live->length < length + count)
        live->whole = false; /* what did not come in leaves nothing to go on behind */
    return status;
}

static enum kvr_status block_finish(
    struct kvr_cache *base, uint32_t handle, struct kvr_error *error)
{
    struct kvr_block_cache *cache = (struct kvr_block_cache *)base;
    struct kvr_block_live *live = live_of(cache, handle, error);

    if (!live)
        return KVR_BAD_INPUT;
    kvr_block_leave(cache, live);
    live->used = false;
    cache->live_used--;
    cache->free_lives[cache->free_live_count++] = handle;
    return KVR_OK;
}

/* ── pins ── */

static enum kvr_status pin_id(struct kvr_block_cache *cache, uint64_t id, struct kvr_error *error)
{
    bool first = false;
    uint64_t *pins = kvr_u64_map_insert(&cache->pins, id, &first);

    if (!pins)
        return kvr_error_memory(error);
    ++*pins;
    uint32_t slot = kvr_store_find(&cache->store, id);
    if (slot && !(cache->store.blocks[slot].flags & KVR_BLOCK_PINNED))
        kvr_block_pin_slot(cache, slot);
    return KVR_OK;
}

static void unpin_id(struct kvr_block_cache *cache, uint64_t id)
{
    uint64_t *pins = kvr_u64_map_find(&cache->pins, id);

    if (!pins || --*pins)
        return;
    kvr_u64_map_remove(&cache->pins, id, NULL);
    uint32_t slot = kvr_store_find(&cache->store, id);
    if (slot && cache->store.blocks[slot].flags & KVR_BLOCK_PINNED)
        kvr_block_unpin_slot(cache, slot);
}

enum kvr_status kvr_block_cache_pin_ahead(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    for (size_t i = 0; i < count; i++) {
        enum kvr_status status = pin_id((struct kvr_block_cache *)base, ids[i], error);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

enum kvr_status kvr_block_cache_pin_once(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    struct kvr_block_cache *cache = (struct kvr_block_cache *)base;

    for (size_t i = 0; i < count; i++) {
        if (kvr_u64_map_find(&cache->pins, ids[i]))
            continue;
        enum kvr_status status = pin_id(cache, ids[i], error);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

static enum kvr_status block_pin(struct kvr_cache *base, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    struct kvr_block_cache *cache = (struct kvr_block_cache *)base;
    size_t run = 0;
    uint32_t parent = 0;

    for (; run < count; run++) {
        uint32_t slot = kvr_store_find(&cache->store, ids[run]);
        if (!slot || (!cache->options.plain && cache->store.blocks[slot].parent != parent))
            break;
        parent = slot;
    }
    *pinned = run;
    if (pin->time_ms > cache->store.now_ms)
        cache->store.now_ms = pin->time_ms;
    for (size_t i = 0; i < run; i++) {
        enum kvr_status status = pin_id(cache, ids[i], error);
        if (status != KVR_OK)
            return status;
        if (!(pin->duration_ms > 0))
            continue;
        struct kvr_block_pin *timed = kvr_grow(
            cache->timed_pins, &cache->timed_pin_size, cache->timed_pin_count + 1, sizeof *timed);
        if (!timed)
            return kvr_error_memory(error);
        cache->timed_pins = timed;
        double until_ms = cache->store.now_ms + pin->duration_ms;
        timed[cache->timed_pin_count++] = (struct kvr_block_pin){ids[i], until_ms};
        if (until_ms < cache->next_pin_end_ms)
            cache->next_pin_end_ms = until_ms;
    }
    return KVR_OK;
}

void kvr_block_expire_pins(struct kvr_block_cache *cache, double now_ms)
{
    size_t kept = 0;

    /* a path was added root first: it goes deepest first, as lru's list needs it */
    for (size_t i = cache->timed_pin_count; i-- > 0;)
        if (cache->timed_pins[i].until_ms <= now_ms)
            unpin_id(cache, cache->timed_pins[i].id);
    cache->next_pin_end_ms = INFINITY;
    for (size_t i = 0; i < cache->timed_pin_count; i++) {
        struct kvr_block_pin pin = cache->timed_pins[i];
        if (pin.until_ms <= now_ms)
            continue;
        cache->timed_pins[kept++] = pin;
        if (pin.until_ms < cache->next_pin_end_ms)
            cache->next_pin_end_ms = pin.until_ms;
    }
    cache->timed_pin_count = kept;
}

/* An unpin takes back a pin for ever, where there is one, else the timed one that ends first: so a
 * block always stays pinned as long as those behind it. */
static void forget_timed_pin(struct kvr_block_cache *cache, uint64_t id)
{
    const uint64_t *pins = kvr_u64_map_find(&cache->pins, id);
    size_t timed = 0, first = 0;

    for (size_t i = 0; i < cache->timed_pin_count; i++) {
        if (cache->timed_pins[i].id != id)
            continue;
        if (!timed++ || cache->timed_pins[i].until_ms < cache->timed_pins[first].until_ms)
            first = i;
    }
    if (!timed || !pins || *pins > timed)
        return;
    cache->timed_pin_count--;
    memmove(cache->timed_pins + first, cache->timed_pins + first + 1,
        (cache->timed_pin_count - first) * sizeof *cache->timed_pins);
}

static enum kvr_status block_unpin(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    struct kvr_block_cache *cache = (struct kvr_block_cache *)base;

    (void)error;
    for (size_t i = count; i-- > 0;) {
        forget_timed_pin(cache, ids[i]);
        unpin_id(cache, ids[i]);
    }
    return KVR_OK;
}

/* ── the rest of the interface ── */

static void block_clear(struct kvr_cache *base)
{
    struct kvr_block_cache *cache = (struct kvr_block_cache *)base;
    uint64_t evicted = cache->counts.evicted;

    cache->cleared += kvr_block_clear(cache);
    cache->counts.evicted = evicted;
    if (cache->told)
        kvr_block_news_flush(cache);
    if (!cache->store.resident && cache->sink.cleared)
        cache->sink.cleared(cache->sink.context, KVR_MEDIUM_GPU);
}

static void block_stats(const struct kvr_cache *base, struct kvr_cache_stats *stats)
{
    const struct kvr_block_cache *cache = (const struct kvr_block_cache *)base;
    const struct kvr_block_counts *counts = &cache->counts;

    stats->admitted = counts->requests;
    stats->prompt_blocks = cache->prompt_blocks;
    stats->prompt_tokens = counts->prompt_tokens;
    stats->hit_blocks[0] = counts->hits;
    stats->hit_tokens[0] = counts->hit_tokens;
    stats->inserted_blocks[0] = counts->inserted;
    stats->evicted_blocks[0] = counts->evicted;
    stats->cleared_blocks[0] = cache->cleared;
    stats->resident_blocks[0] = cache->store.resident;
    stats->capacity_blocks[0] = cache->store.capacity;
    stats->free_blocks = cache->store.capacity - cache->store.resident;
    stats->live = cache->live_used;
    stats->memory_bytes = kvr_store_memory_bytes(&cache->store) + sizeof *cache;
    for (uint32_t i = 0; i < cache->ranking_count; i++)
        if (cache->rankings[i]->policy->memory_bytes)
            stats->memory_bytes += cache->rankings[i]->policy->memory_bytes(cache->rankings[i]);
    if (cache->gate->rule->memory_bytes)
        stats->memory_bytes += cache->gate->rule->memory_bytes(cache->gate);
}

static void block_resident(
    const struct kvr_cache *base, enum kvr_medium medium, kvr_cache_visit *visit, void *context)
{
    const struct kvr_store *store = &((const struct kvr_block_cache *)base)->store;

    if (medium != KVR_MEDIUM_GPU)
        return;
    for (uint32_t at = 0; at < store->table.group_count; at++)
        for (uint32_t i = 0; i < store->table.groups[at].count; i++)
            visit(context, store->blocks[store->table.groups[at].slots[i]].id);
}

const struct kvr_block_counts *kvr_block_cache_counts(const struct kvr_cache *cache)
{
    return &((const struct kvr_block_cache *)cache)->counts;
}

const struct kvr_engine kvr_engine_block = {
    .name = "block",
    .summary = "a prefix tree of blocks with any eviction policy and admission rule",
    .parameters = block_parameters,
    .parameter_count = sizeof block_parameters / sizeof *block_parameters,
    .create = block_create,
    .admit = block_admit,
    .output = block_output,
    .finish = block_finish,
    .pin = block_pin,
    .unpin = block_unpin,
    .clear = block_clear,
    .stats = block_stats,
    .resident = block_resident,
    .destroy = block_destroy,
};
