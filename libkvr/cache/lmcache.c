/*
 * LMCache's CPU store (0.5.6): chunks of 256 tokens beside the serving engine.
 *
 * Two ways to make room, as its two deployments have.
 *   evict=demand     (in the engine's process) A full store evicts one chunk for each that it must
 *                    allocate. All chunks of a store operation are allocated before any is entered,
 *                    also those that turn out to be there already; the evictions that they cost
 *                    stand. Where nothing can be evicted, the rest of the prompt is not stored.
 *   evict=watermark  (server of its own) A loop looks each second; at or above the watermark it
 *                    evicts a share of all chunks. Between the looks nothing is evicted: an
 *                    operation whose new chunks do not all fit stores none of them.
 *
 * Order. A hit touches the found chunks from the last to the first, so that of one prompt the tail
 * goes before the head. New chunks enter first to last on demand (so that, until they are hit once,
 * heads go first: this is what the system does) and last to first in the server. Policies: lru;
 * mru, the most recently touched first; fifo, by entry; lfu, by count of uses and then by the time
 * of the last.
 *
 * A pinned chunk is passed over. A pin that is not given back ends by itself after a timeout, which
 * each further pin of the chunk starts anew.
 *
 * Requests without times (all at 0) get one look of the loop each.
 */
#include "cache/chunk_store.h"
#include "cache/order.h"

#include <math.h>
#include <string.h>

enum policy { LRU, LFU, FIFO, MRU };

struct chunk {
    uint64_t touched, entered; /* ticks */
    uint32_t uses, pins;
};

struct lmcache {
    struct chunk_store store;
    enum policy policy;
    bool watermark_loop;
    double watermark, ratio, look_ms, pin_ms, looked_ms;
    uint64_t clock;
    struct chunk *chunks;
    size_t chunk_capacity;
    struct kvr_order order;     /* those that may be evicted */
    struct kvr_order deadlines; /* the pinned, by when it ends */
};

enum { POLICY, EVICT, WATERMARK, RATIO, LOOK, PIN, OUTPUTS, PARAMETERS };

static const struct kvr_parameter parameters[PARAMETERS] = {
    [POLICY] = {"policy", KVR_PARAMETER_CHOICE, "lru", "lru lfu fifo mru", 0, 0,
        "which chunk is evicted first"},
    [EVICT] = {"evict", KVR_PARAMETER_CHOICE, "demand", "demand watermark", 0, 0,
        "when room is needed, or by a loop above the watermark"},
    [WATERMARK] = {"watermark", KVR_PARAMETER_NUMBER, "0.8", NULL, 0, 1,
        "use from which the loop evicts"},
    [RATIO] = {"ratio", KVR_PARAMETER_NUMBER, "0.2", NULL, 0, 1,
        "share of the chunks that the loop evicts at once"},
    [LOOK] = {"look", KVR_PARAMETER_DURATION, "1s", NULL, 1, 864e5, "how often the loop looks"},
    [PIN] = {"pin-timeout", KVR_PARAMETER_DURATION, "300s", NULL, 0, 1e12,
        "when a pin ends by itself"},
    [OUTPUTS] = {"outputs", KVR_PARAMETER_FLAG, "off", NULL, 0, 0,
        "store chunks that the output fills"},
};

static void rank(struct lmcache *cache, uint32_t slot)
{
    const struct chunk *chunk = &cache->chunks[slot];
    if (chunk->pins)
        kvr_order_remove(&cache->order, slot);
    else if (cache->policy == FIFO)
        kvr_order_put(&cache->order, slot, 0, chunk->entered);
    else if (cache->policy == MRU)
        kvr_order_put(&cache->order, slot, 0, UINT64_MAX - chunk->touched);
    else
        kvr_order_put(&cache->order, slot, cache->policy == LFU ? chunk->uses : 0, chunk->touched);
}

static bool evict_one(struct lmcache *cache)
{
    uint32_t slot = kvr_order_first(&cache->order);
    if (slot == KVR_ORDER_NONE)
        return false;
    kvr_order_remove(&cache->order, slot);
    chunk_store_drop(&cache->store, slot, false);
    return true;
}

static void look(struct lmcache *cache)
{
    uint32_t used = cache->store.used;
    uint32_t count = (uint32_t)((double)used * cache->ratio);
    if (!count && cache->ratio > 0)
        count = 1;
    while (count-- && evict_one(cache))
        ;
}

static bool above(const struct lmcache *cache)
{
    return cache->store.used &&
           (double)cache->store.used / cache->store.capacity >= cache->watermark;
}

static void lmcache_advance(struct chunk_store *store, double now_ms)
{
    struct lmcache *cache = (struct lmcache *)store;
    for (uint32_t slot; (slot = kvr_order_first(&cache->deadlines)) != KVR_ORDER_NONE;) {
        if ((double)cache->deadlines.entries[0].major >= now_ms * 1000)
            break;
        kvr_order_remove(&cache->deadlines, slot);
        cache->chunks[slot].pins = 0;
        rank(cache, slot);
    }
    if (!cache->watermark_loop)
        return;
    if (now_ms <= 0 && above(cache))
        look(cache);
    double next = floor(cache->looked_ms / cache->look_ms + 1) * cache->look_ms;
    while (next <= now_ms && above(cache)) {
        uint32_t before = cache->store.used;
        look(cache);
        if (before == cache->store.used)
            break; /* all are pinned; nothing ends before now that has not ended already */
        next += cache->look_ms;
    }
    if (now_ms > cache->looked_ms)
        cache->looked_ms = now_ms;
}

static void lmcache_hit(
    struct chunk_store *store, const uint32_t *slots, size_t count, double now_ms)
{
    (void)now_ms;
    struct lmcache *cache = (struct lmcache *)store;
    while (count--) {
        struct chunk *chunk = &cache->chunks[slots[count]];
        chunk->touched = ++cache->clock;
        chunk->uses++;
        rank(cache, slots[count]);
    }
}

static size_t lmcache_claim(struct chunk_store *store, const uint64_t *ids, size_t count)
{
    struct lmcache *cache = (struct lmcache *)store;
    if (cache->watermark_loop) {
        size_t fresh = 0;
        for (size_t i = 0; i < count; i++)
            fresh += chunk_store_find(store, ids[i]) == UINT32_MAX;
        return fresh <= store->capacity - store->used ? count : 0;
    }
    size_t claimed = 0;
    while (claimed < count) {
        if (store->used + claimed >= store->capacity && !evict_one(cache))
            break;
        claimed++;
    }
    return claimed;
}

static void lmcache_added(
    struct chunk_store *store, const uint32_t *slots, size_t count, double now_ms)
{
    (void)now_ms;
    struct lmcache *cache = (struct lmcache *)store;
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = slots[cache->watermark_loop ? count - 1 - i : i];
        uint64_t tick = ++cache->clock;
        cache->chunks[slot] = (struct chunk){.touched = tick, .entered = tick, .uses = 1};
        rank(cache, slot);
    }
}

static bool lmcache_reserve(struct chunk_store *store, size_t count)
{
    struct lmcache *cache = (struct lmcache *)store;
    struct chunk *chunks = kvr_grow_within(
        cache->chunks, &cache->chunk_capacity, count, store->capacity, sizeof *chunks);
    if (!chunks)
        return false;
    cache->chunks = chunks;
    return kvr_order_reserve(&cache->order, count) &&
           kvr_order_reserve_items(&cache->deadlines, count);
}

static const struct chunk_rules rules = {
    .advance = lmcache_advance,
    .hit = lmcache_hit,
    .claim = lmcache_claim,
    .added = lmcache_added,
    .reserve = lmcache_reserve,
};

static enum kvr_status lmcache_pin(struct kvr_cache *base, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    struct lmcache *cache = (struct lmcache *)base;
    if (!kvr_order_reserve_entries(&cache->deadlines, cache->deadlines.count + count))
        return kvr_error_memory(error);
    double ends = pin->time_ms + (pin->duration_ms > 0 ? pin->duration_ms : cache->pin_ms);
    for (*pinned = 0; *pinned < count; ++*pinned) {
        uint32_t slot = chunk_store_find(&cache->store, ids[*pinned]);
        if (slot == UINT32_MAX)
            break;
        cache->chunks[slot].pins++;
        rank(cache, slot);
        kvr_order_put(&cache->deadlines, slot, llrint(fmin(ends * 1000, 9e18)), slot);
    }
    return KVR_OK;
}

static enum kvr_status lmcache_unpin(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    (void)error;
    struct lmcache *cache = (struct lmcache *)base;
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = chunk_store_find(&cache->store, ids[i]);
        if (slot == UINT32_MAX || !cache->chunks[slot].pins || --cache->chunks[slot].pins)
            continue;
        kvr_order_remove(&cache->deadlines, slot);
        rank(cache, slot);
    }
    return KVR_OK;
}

static void lmcache_clear(struct kvr_cache *base)
{
    struct lmcache *cache = (struct lmcache *)base;
    struct chunk_store *store = &cache->store;
    bool all = !cache->deadlines.count;
    uint64_t before = store->used, evicted = store->stats.evicted_blocks[KVR_MEDIUM_CPU];
    for (uint32_t slot; (slot = kvr_order_first(&cache->order)) != KVR_ORDER_NONE;) {
        kvr_order_remove(&cache->order, slot);
        chunk_store_drop(store, slot, all);
    }
    store->stats.evicted_blocks[KVR_MEDIUM_CPU] = evicted;
    chunk_store_cleared(store, before, all);
}

static void lmcache_stats(const struct kvr_cache *base, struct kvr_cache_stats *stats)
{
    const struct lmcache *cache = (const struct lmcache *)base;
    *stats = cache->store.stats;
    stats->capacity_blocks[KVR_MEDIUM_CPU] = cache->store.capacity;
    stats->free_blocks = cache->store.capacity - cache->store.used;
    stats->memory_bytes = sizeof *cache + chunk_store_bytes(&cache->store) +
                          cache->chunk_capacity * sizeof *cache->chunks +
                          kvr_order_bytes(&cache->order) + kvr_order_bytes(&cache->deadlines);
}

static void lmcache_destroy(struct kvr_cache *base)
{
    struct lmcache *cache = (struct lmcache *)base;
    chunk_store_release(&cache->store);
    kvr_order_release(&cache->order);
    kvr_order_release(&cache->deadlines);
    free(cache->chunks);
    free(cache);
}

static enum kvr_status lmcache_create(const struct kvr_engine_options *options,
    const struct kvr_parameter_value *values, struct kvr_cache **out, struct kvr_error *error)
{
    struct lmcache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return kvr_error_memory(error);
    chunk_store_init(&cache->store, &rules, options, values[OUTPUTS].integer);
    cache->policy = (enum policy)values[POLICY].integer;
    cache->watermark_loop = values[EVICT].integer == 1;
    cache->watermark = values[WATERMARK].number;
    cache->ratio = values[RATIO].number;
    cache->look_ms = values[LOOK].number;
    cache->pin_ms = values[PIN].number;
    *out = &cache->store.base;
    return KVR_OK;
}

const struct kvr_engine kvr_engine_lmcache = {
    .name = "lmcache",
    .summary = "LMCache's CPU store: chunks of 256 tokens, four policies, pins with a timeout",
    .usual_block_tokens = 256,
    .parameters = parameters,
    .parameter_count = PARAMETERS,
    .create = lmcache_create,
    .admit = chunk_store_admit,
    .output = chunk_store_output,
    .finish = chunk_store_finish,
    .pin = lmcache_pin,
    .unpin = lmcache_unpin,
    .clear = lmcache_clear,
    .stats = lmcache_stats,
    .resident = chunk_store_resident,
    .destroy = lmcache_destroy,
};
