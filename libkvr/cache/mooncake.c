/*
 * Mooncake store: a pool of objects, one a chunk, that its master evicts by lease.
 *
 * The problem of a store shared by many: an object must not go while somebody reads it, and the
 * master does not see reads, which are RDMA. So a look-up grants a lease, and until it has run out
 * the object stays. The oldest lease stands for the longest unread, so one clock serves both.
 *
 * When. A thread looks every 10 ms; it evicts when use is above the watermark, or when a put found
 * no room since (that put fails; nothing waits for it). How many, of all objects but the hard
 * pinned: the share
 *     target = max(ratio, use - watermark + ratio),   at least max(target / 2, use - watermark).
 * Which. First those with a lapsed lease and no soft pin, the oldest lease first, up to the target.
 * Where they do not reach the lower bound, soft-pinned ones with a lapsed lease go too, oldest
 * first, up to the bound. Hard-pinned objects stay. A put gives a lease that has lapsed already, so
 * what was never read goes in the order of its coming.
 *
 * Groups (group=request: the chunks that one request put in together). A read renews the leases of
 * the whole group once half of its time is gone; a group with one valid lease stays whole; else its
 * members go together.
 *
 * A look-up leases the found run from first to last, so that of one prompt the head has the oldest
 * lease. That is the store's weakness for prefixes, and why groups exist.
 *
 * Orders. Plain objects and active soft pins are each in order of (lease, sequence): a sequence
 * number stands for the microseconds between two leases that virtual time gives one stamp. A third
 * order holds the soft pins by when they end. Requests without times (all at 0) get one look each.
 */
#include "cache/chunk_store.h"
#include "cache/order.h"

#include <math.h>
#include <string.h>

#define NEVER INT64_MAX

struct object {
    int64_t lease_us;
    uint64_t sequence;
    int64_t soft_until_us; /* 0: no soft pin */
    uint32_t hard_pins;
    uint32_t group_next, group_previous; /* a ring; alone: itself */
};

struct mooncake {
    struct chunk_store store;
    double watermark, ratio;
    int64_t lease_us, soft_pin_us, look_us;
    bool grouped, evict_soft_pinned;
    bool put_failed;
    int64_t looked_us;
    uint64_t sequence;
    uint32_t hard_pinned;
    struct object *objects;
    size_t object_capacity;
    struct kvr_order plain, soft, soft_ends;
    uint32_t *blocked; /* a pass's list of members of groups that must stay */
    size_t blocked_capacity;
};

enum { LEASE, SOFT_PIN, EVICT_SOFT, WATERMARK, RATIO, LOOK, GROUP, OUTPUTS, PARAMETERS };

static const struct kvr_parameter parameters[PARAMETERS] = {
    [LEASE] = {"lease", KVR_PARAMETER_DURATION, "10s", NULL, 0, 1e12,
        "how long a look-up keeps an object"},
    [SOFT_PIN] = {"soft-pin", KVR_PARAMETER_DURATION, "30m", NULL, 0, 1e12,
        "how long a soft pin lasts"},
    [EVICT_SOFT] = {"evict-soft-pinned", KVR_PARAMETER_FLAG, "on", NULL, 0, 0,
        "soft-pinned objects go where the others do not suffice"},
    [WATERMARK] = {"watermark", KVR_PARAMETER_NUMBER, "0.9", NULL, 0, 1,
        "use above which the master evicts"},
    [RATIO] = {"ratio", KVR_PARAMETER_NUMBER, "0.05", NULL, 0, 1,
        "share of the objects that it evicts at once"},
    [LOOK] = {"look", KVR_PARAMETER_DURATION, "10ms", NULL, 0.001, 864e5, "how often it looks"},
    [GROUP] = {"group", KVR_PARAMETER_CHOICE, "off", "off request", 0, 0,
        "the chunks that a request puts in are evicted together"},
    [OUTPUTS] = {"outputs", KVR_PARAMETER_FLAG, "off", NULL, 0, 0,
        "store chunks that the output fills"},
};

static int64_t microseconds(double ms)
{
    return ms > 0 ? llrint(fmin(ms * 1000, 4e18)) : 0;
}

/* Puts the object into the order it belongs to now. */
static void rank(struct mooncake *cache, uint32_t slot)
{
    const struct object *object = &cache->objects[slot];
    bool soft = object->soft_until_us && !object->hard_pins;
    kvr_order_remove(&cache->plain, slot);
    kvr_order_remove(&cache->soft, slot);
    kvr_order_remove(&cache->soft_ends, slot);
    if (!object->hard_pins)
        kvr_order_put(
            soft ? &cache->soft : &cache->plain, slot, object->lease_us, object->sequence);
    if (object->soft_until_us)
        kvr_order_put(&cache->soft_ends, slot, object->soft_until_us, slot);
}

static void end_soft_pins(struct mooncake *cache, int64_t now_us)
{
    while (cache->soft_ends.count && cache->soft_ends.entries[0].major <= now_us) {
        uint32_t slot = kvr_order_first(&cache->soft_ends);
        cache->objects[slot].soft_until_us = 0;
        rank(cache, slot);
    }
}

static void drop(struct mooncake *cache, uint32_t slot, bool clearing)
{
    struct object *object = &cache->objects[slot];
    cache->objects[object->group_next].group_previous = object->group_previous;
    cache->objects[object->group_previous].group_next = object->group_next;
    kvr_order_remove(&cache->plain, slot);
    kvr_order_remove(&cache->soft, slot);
    kvr_order_remove(&cache->soft_ends, slot);
    chunk_store_drop(&cache->store, slot, clearing);
}

/* The latest lease of the object's group. */
static int64_t group_lease(const struct mooncake *cache, uint32_t slot)
{
    int64_t latest = cache->objects[slot].lease_us;
    for (uint32_t at = cache->objects[slot].group_next; at != slot;
         at = cache->objects[at].group_next)
        if (cache->objects[at].lease_us > latest)
            latest = cache->objects[at].lease_us;
    return latest;
}

/* The object, then what else of its group may go; how many. No lease in the group is valid. */
static uint64_t drop_group(struct mooncake *cache, uint32_t slot, bool soft_too)
{
    size_t others = 0;
    for (uint32_t at = cache->objects[slot].group_next; at != slot;
         at = cache->objects[at].group_next)
        others++;
    uint64_t gone = 1;
    uint32_t at = cache->objects[slot].group_next;
    drop(cache, slot, false);
    for (uint32_t next; others--; at = next) {
        const struct object *member = &cache->objects[at];
        next = member->group_next;
        if (member->hard_pins || (member->soft_until_us && !soft_too))
            continue;
        drop(cache, at, false);
        gone++;
    }
    return gone;
}

/* Evicts up to `count` from the front of an order while leases there have lapsed. Members of groups
 * that must stay are passed over. *wake: the earliest time, if sooner, at which more could go. */
static uint64_t evict_from(struct mooncake *cache, struct kvr_order *order, bool soft_too,
    uint64_t count, int64_t now_us, int64_t *wake)
{
    uint64_t gone = 0;
    size_t blocked = 0;
    while (gone < count && order->count && order->entries[0].major <= now_us) {
        uint32_t slot = kvr_order_first(order);
        int64_t lease = group_lease(cache, slot);
        if (lease > now_us) {
            kvr_order_remove(order, slot);
            cache->blocked[blocked++] = slot;
            *wake = lease < *wake ? lease : *wake;
        } else {
            gone += drop_group(cache, slot, soft_too);
        }
    }
    if (order->count && order->entries[0].major > now_us && order->entries[0].major < *wake)
        *wake = order->entries[0].major;
    while (blocked) {
        uint32_t slot = cache->blocked[--blocked];
        kvr_order_put(order, slot, cache->objects[slot].lease_us, cache->objects[slot].sequence);
    }
    return gone;
}

static double use(const struct mooncake *cache)
{
    return (double)cache->store.used / cache->store.capacity;
}

static bool pressed(const struct mooncake *cache)
{
    return use(cache) > cache->watermark || (cache->put_failed && cache->ratio > 0);
}

/* One look of the master's thread; how many objects it evicted. */
static uint64_t look(struct mooncake *cache, int64_t now_us, int64_t *wake)
{
    *wake = NEVER;
    end_soft_pins(cache, now_us);
    uint32_t base = cache->store.used - cache->hard_pinned;
    if (!base) {
        cache->put_failed = false;
        return 0;
    }
    double over = use(cache) - cache->watermark;
    double target = fmax(cache->ratio, over + cache->ratio);
    double least = fmax(target * 0.5, over);
    double ideal = ceil(base * target), bound = ceil(base * least);
    uint64_t gone = evict_from(cache, &cache->plain, false, (uint64_t)fmax(ideal, 0), now_us, wake);
    if (bound > (double)gone && cache->evict_soft_pinned)
        gone +=
            evict_from(cache, &cache->soft, true, (uint64_t)(bound - (double)gone), now_us, wake);
    if (cache->soft_ends.count && cache->soft_ends.entries[0].major < *wake)
        *wake = cache->soft_ends.entries[0].major;
    if (gone)
        cache->put_failed = false;
    return gone;
}

static void mooncake_advance(struct chunk_store *store, double now_ms)
{
    struct mooncake *cache = (struct mooncake *)store;
    int64_t now = microseconds(now_ms), wake;
    if (!now && pressed(cache))
        look(cache, now, &wake);
    int64_t at = (cache->looked_us / cache->look_us + 1) * cache->look_us;
    while (at <= now && pressed(cache)) {
        if (look(cache, at, &wake))
            at += cache->look_us;
        else if (wake > now)
            break;
        else
            at = (wake + cache->look_us - 1) / cache->look_us * cache->look_us;
    }
    end_soft_pins(cache, now);
    if (now > cache->looked_us)
        cache->looked_us = now;
}

static void grant(struct mooncake *cache, uint32_t slot, int64_t until_us)
{
    struct object *object = &cache->objects[slot];
    if (object->lease_us < until_us)
        object->lease_us = until_us;
    object->sequence = ++cache->sequence;
    if (kvr_order_has(&cache->plain, slot))
        kvr_order_put(&cache->plain, slot, object->lease_us, object->sequence);
    else
        rank(cache, slot);
}

static void mooncake_hit(
    struct chunk_store *store, const uint32_t *slots, size_t count, double now_ms)
{
    struct mooncake *cache = (struct mooncake *)store;
    int64_t now = microseconds(now_ms), until = now + cache->lease_us;
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = slots[i];
        if (cache->objects[slot].group_next == slot) {
            grant(cache, slot, until);
        } else if (cache->objects[slot].lease_us <= now + cache->lease_us / 2) {
            for (uint32_t at = cache->objects[slot].group_next; at != slot;
                 at = cache->objects[at].group_next)
                grant(cache, at, until);
            grant(cache, slot, until);
        }
    }
}

static size_t mooncake_claim(struct chunk_store *store, const uint64_t *ids, size_t count)
{
    struct mooncake *cache = (struct mooncake *)store;
    uint32_t room = store->capacity - store->used;
    for (size_t i = 0; i < count; i++) {
        if (chunk_store_find(store, ids[i]) != UINT32_MAX)
            continue;
        if (!room) {
            cache->put_failed = true;
            return i;
        }
        room--;
    }
    return count;
}

static void mooncake_added(
    struct chunk_store *store, const uint32_t *slots, size_t count, double now_ms)
{
    struct mooncake *cache = (struct mooncake *)store;
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = slots[i];
        cache->objects[slot] = (struct object){.lease_us = microseconds(now_ms),
            .sequence = ++cache->sequence,
            .group_next = cache->grouped ? slots[(i + 1) % count] : slot,
            .group_previous = cache->grouped ? slots[(i + count - 1) % count] : slot};
        rank(cache, slot);
    }
}

static bool mooncake_reserve(struct chunk_store *store, size_t count)
{
    struct mooncake *cache = (struct mooncake *)store;
    struct object *objects = kvr_grow_within(
        cache->objects, &cache->object_capacity, count, store->capacity, sizeof *objects);
    if (!objects)
        return false;
    cache->objects = objects;
    uint32_t *blocked = kvr_grow_within(
        cache->blocked, &cache->blocked_capacity, count, store->capacity, sizeof *blocked);
    if (!blocked)
        return false;
    cache->blocked = blocked;
    return kvr_order_reserve(&cache->plain, count) && kvr_order_reserve(&cache->soft, count) &&
           kvr_order_reserve(&cache->soft_ends, count);
}

static const struct chunk_rules rules = {
    .advance = mooncake_advance,
    .hit = mooncake_hit,
    .claim = mooncake_claim,
    .added = mooncake_added,
    .reserve = mooncake_reserve,
};

static enum kvr_status mooncake_pin(struct kvr_cache *base, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    struct mooncake *cache = (struct mooncake *)base;
    /* all that end are in the one, and at most these in the other */
    size_t ending = cache->soft_ends.count + count;
    if (!kvr_order_reserve_entries(&cache->soft, ending) ||
        !kvr_order_reserve_entries(&cache->soft_ends, ending))
        return kvr_error_memory(error);
    int64_t until = microseconds(pin->time_ms) +
                    (pin->duration_ms > 0 ? microseconds(pin->duration_ms) : cache->soft_pin_us);
    for (*pinned = 0; *pinned < count; ++*pinned) {
        uint32_t slot = chunk_store_find(&cache->store, ids[*pinned]);
        if (slot == UINT32_MAX)
            break;
        struct object *object = &cache->objects[slot];
        if (!pin->soft)
            cache->hard_pinned += !object->hard_pins++;
        else if (object->soft_until_us < until)
            object->soft_until_us = until;
        rank(cache, slot);
    }
    return KVR_OK;
}

/* Takes back a hard pin, or where there is none the soft one. */
static enum kvr_status mooncake_unpin(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    (void)error;
    struct mooncake *cache = (struct mooncake *)base;
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = chunk_store_find(&cache->store, ids[i]);
        if (slot == UINT32_MAX)
            continue;
        struct object *object = &cache->objects[slot];
        if (!object->hard_pins)
            object->soft_until_us = 0;
        else if (!--object->hard_pins)
            cache->hard_pinned--;
        rank(cache, slot);
    }
    return KVR_OK;
}

static void mooncake_clear(struct kvr_cache *base)
{
    struct mooncake *cache = (struct mooncake *)base;
    struct chunk_store *store = &cache->store;
    bool all = !cache->hard_pinned && !cache->soft.count;
    uint64_t before = store->used, evicted = store->stats.evicted_blocks[KVR_MEDIUM_CPU];
    while (cache->plain.count)
        drop(cache, kvr_order_first(&cache->plain), all);
    store->stats.evicted_blocks[KVR_MEDIUM_CPU] = evicted;
    chunk_store_cleared(store, before, all);
}

static void mooncake_stats(const struct kvr_cache *base, struct kvr_cache_stats *stats)
{
    const struct mooncake *cache = (const struct mooncake *)base;
    *stats = cache->store.stats;
    stats->capacity_blocks[KVR_MEDIUM_CPU] = cache->store.capacity;
    stats->free_blocks = cache->store.capacity - cache->store.used;
    stats->memory_bytes = sizeof *cache + chunk_store_bytes(&cache->store) +
                          cache->object_capacity * sizeof *cache->objects +
                          cache->blocked_capacity * sizeof *cache->blocked +
                          kvr_order_bytes(&cache->plain) + kvr_order_bytes(&cache->soft) +
                          kvr_order_bytes(&cache->soft_ends);
}

static void mooncake_destroy(struct kvr_cache *base)
{
    struct mooncake *cache = (struct mooncake *)base;
    chunk_store_release(&cache->store);
    kvr_order_release(&cache->plain);
    kvr_order_release(&cache->soft);
    kvr_order_release(&cache->soft_ends);
    free(cache->objects);
    free(cache->blocked);
    free(cache);
}

static enum kvr_status mooncake_create(const struct kvr_engine_options *options,
    const struct kvr_parameter_value *values, struct kvr_cache **out, struct kvr_error *error)
{
    struct mooncake *cache = calloc(1, sizeof *cache);
    if (!cache)
        return kvr_error_memory(error);
    chunk_store_init(&cache->store, &rules, options, values[OUTPUTS].integer);
    cache->lease_us = microseconds(values[LEASE].number);
    cache->soft_pin_us = microseconds(values[SOFT_PIN].number);
    cache->evict_soft_pinned = values[EVICT_SOFT].integer;
    cache->watermark = values[WATERMARK].number;
    cache->ratio = values[RATIO].number;
    cache->look_us = microseconds(values[LOOK].number);
    cache->grouped = values[GROUP].integer == 1;
    *out = &cache->store.base;
    return KVR_OK;
}

const struct kvr_engine kvr_engine_mooncake = {
    .name = "mooncake",
    .summary = "Mooncake store: leases, soft and hard pins, a watermark, groups",
    .parameters = parameters,
    .parameter_count = PARAMETERS,
    .create = mooncake_create,
    .admit = chunk_store_admit,
    .output = chunk_store_output,
    .finish = chunk_store_finish,
    .pin = mooncake_pin,
    .unpin = mooncake_unpin,
    .clear = mooncake_clear,
    .stats = mooncake_stats,
    .resident = chunk_store_resident,
    .destroy = mooncake_destroy,
};
