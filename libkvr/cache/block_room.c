/*
 * Who may go, and who must: holds, victims, pools and quotas of the block cache.
 *
 * Without whole_path only leaves are queued. The last block of a live path is held: it keeps its
 * place in the queue, and a victim search that meets it puts it aside and back at the end. New
 * blocks enter no queue before the request ends, so a request never evicts its own. With
 * whole_path (lru as the only ranking) the path leaves the list while the request lives.
 *
 * Who must give. With one ranking, it. With a pool or quotas: a tenant at its quota gives itself;
 * else the ranking that is farthest over its share, so that shared blocks within the pool and
 * tenants within their quota are left alone as long as anyone else is over.
 */
#include "cache/block_cache_internal.h"

static const uint32_t REMOVED_PARENT = UINT32_MAX; /* of a free slot: matches no parent */

/* ── news ── */

static void flush_removed(struct kvr_block_cache *cache)
{
    struct kvr_block_news *news = &cache->news;

    if (news->removed_count && cache->sink.removed)
        cache->sink.removed(
            cache->sink.context, KVR_MEDIUM_GPU, news->removed, news->removed_count);
    news->removed_count = 0;
}

void kvr_block_news_flush(struct kvr_block_cache *cache)
{
    struct kvr_block_news *news = &cache->news;

    flush_removed(cache);
    if (news->stored_count && cache->sink.stored)
        cache->sink.stored(cache->sink.context, KVR_MEDIUM_GPU,
            news->stored_has_parent ? &news->stored_parent : NULL, news->stored,
            news->stored_count);
    news->stored_count = 0;
}

/* In a tree all room for a prompt is told before its blocks: none of them can go meanwhile. */
static void tell_removed(struct kvr_block_cache *cache, uint64_t id)
{
    struct kvr_block_news *news = &cache->news;

    if (cache->options.plain && news->stored_count)
        kvr_block_news_flush(cache);
    if (news->removed_count == KVR_BLOCK_NEWS_MOST)
        flush_removed(cache);
    news->removed[news->removed_count++] = id;
}

void kvr_block_tell_stored(struct kvr_block_cache *cache, uint64_t id, const uint64_t *parent)
{
    struct kvr_block_news *news = &cache->news;
    bool follows = news->stored_count && parent && news->stored[news->stored_count - 1] == *parent;

    if (news->stored_count == KVR_BLOCK_NEWS_MOST || (news->stored_count && !follows) ||
        (cache->options.plain && news->removed_count))
        kvr_block_news_flush(cache);
    if (!news->stored_count) {
        news->stored_has_parent = parent != NULL;
        news->stored_parent = parent ? *parent : 0;
    }
    news->stored[news->stored_count++] = id;
}

/* ── who may go ── */

struct kvr_ranking *kvr_block_ranking_of(struct kvr_block_cache *cache, uint32_t slot)
{
    return cache->rankings[cache->store.blocks[slot].owner];
}

enum kvr_status kvr_block_hold_tip(
    struct kvr_block_cache *cache, uint32_t slot, struct kvr_error *error)
{
    struct kvr_block *block = &cache->store.blocks[slot];

    if (block->flags & KVR_BLOCK_HELD) {
        uint64_t *more = kvr_u64_map_insert(&cache->holds, slot, NULL);
        if (!more)
            return kvr_error_memory(error);
        ++*more;
    }
    block->flags |= KVR_BLOCK_HELD;
    return KVR_OK;
}

void kvr_block_release_tip(struct kvr_block_cache *cache, uint32_t slot)
{
    uint64_t *more = cache->holds.length ? kvr_u64_map_find(&cache->holds, slot) : NULL;

    if (more) {
        if (!--*more)
            kvr_u64_map_remove(&cache->holds, slot, NULL);
        return;
    }
    cache->store.blocks[slot].flags &= (uint8_t)~KVR_BLOCK_HELD;
}

/* Queues a leaf that is in no queue. */
void kvr_block_expose(struct kvr_block_cache *cache, uint32_t slot, enum kvr_place place)
{
    struct kvr_block *block = &cache->store.blocks[slot];

    if (!block->busy && !kvr_block_is_queued(block))
        kvr_ranking_enqueue(kvr_block_ranking_of(cache, slot), slot, place);
}

void kvr_block_cover(struct kvr_block_cache *cache, uint32_t slot)
{
    struct kvr_block *block = &cache->store.blocks[slot];

    if (!block->busy++ && kvr_block_is_queued(block))
        kvr_ranking_dequeue(kvr_block_ranking_of(cache, slot), slot);
}

void kvr_block_pin_slot(struct kvr_block_cache *cache, uint32_t slot)
{
    if (cache->whole_path)
        kvr_block_hold_in_list(cache, slot);
    else
        kvr_block_cover(cache, slot);
    cache->store.blocks[slot].flags |= KVR_BLOCK_PINNED;
}

void kvr_block_unpin_slot(struct kvr_block_cache *cache, uint32_t slot)
{
    cache->store.blocks[slot].flags &= (uint8_t)~KVR_BLOCK_PINNED;
    if (cache->whole_path) {
        kvr_block_release_in_list(cache, slot);
    } else {
        cache->store.blocks[slot].busy--;
        kvr_block_expose(cache, slot, KVR_FRESH);
    }
}

/* ── room ── */

void kvr_block_evict(struct kvr_block_cache *cache, uint32_t slot)
{
    struct kvr_store *store = &cache->store;
    struct kvr_ranking *ranking = kvr_block_ranking_of(cache, slot);
    uint32_t parent = store->blocks[slot].parent;

    if (ranking->policy->evicted)
        ranking->policy->evicted(ranking, slot);
    ranking->resident--;
    cache->counts.evicted++;
    if (cache->told)
        tell_removed(cache, store->blocks[slot].id);
    kvr_store_remove(store, slot);
    store->blocks[slot].parent = REMOVED_PARENT;
    if (!parent)
        return;
    store->blocks[parent].busy--;
    if (!cache->whole_path)
        kvr_block_expose(cache, parent, KVR_HEIR);
}

static uint32_t take_from(struct kvr_block_cache *cache, struct kvr_ranking *ranking)
{
    uint32_t slot, passed = 0;

    while ((slot = kvr_ranking_victim(ranking))) {
        const struct kvr_block *block = &cache->store.blocks[slot];
        if (cache->whole_path && block->busy) {
            /* a parent older than its child: unpinned while the child stays pinned */
            kvr_ranking_enqueue(ranking, slot, KVR_FRESH);
            if (++passed > ranking->resident)
                return 0;
            continue;
        }
        if (!(block->flags & KVR_BLOCK_HELD))
            break;
        cache->aside[cache->aside_count++] = slot;
    }
    return slot;
}

void kvr_block_put_aside_back(struct kvr_block_cache *cache)
{
    while (cache->aside_count)
        kvr_block_expose(cache, cache->aside[--cache->aside_count], KVR_HEIR);
}

/* Tenants and the pool: gives the ranking to evict from, farthest over its share first. */
static uint32_t take_from_several(struct kvr_block_cache *cache, uint32_t owner)
{
    bool tried[KVR_BLOCK_RANKINGS_MOST] = {false};
    struct kvr_ranking *own = cache->rankings[owner];

    if (own->resident >= own->capacity && cache->store.resident < cache->store.capacity)
        return take_from(cache, own);
    for (uint32_t round = 0; round < cache->ranking_count; round++) {
        uint32_t most = cache->ranking_count;
        double most_over = -1;
        for (uint32_t i = 0; i < cache->ranking_count; i++) {
            double over = (double)cache->rankings[i]->resident / cache->rankings[i]->capacity;
            if (!tried[i] && over > most_over) {
                most_over = over;
                most = i;
            }
        }
        tried[most] = true;
        uint32_t slot = take_from(cache, cache->rankings[most]);
        if (slot)
            return slot;
    }
    return 0;
}

static bool has_quota(const struct kvr_block_cache *cache, uint32_t owner)
{
    return owner >= (cache->options.pool_shared > 0 ? 2u : 1u);
}

static bool needs_room(const struct kvr_block_cache *cache, uint32_t owner)
{
    return cache->store.resident >= cache->store.capacity ||
           (has_quota(cache, owner) &&
               cache->rankings[owner]->resident >= cache->rankings[owner]->capacity);
}

static uint32_t take_victim(struct kvr_block_cache *cache, uint32_t owner)
{
    if (cache->ranking_count == 1)
        return take_from(cache, cache->rankings[0]);
    if (has_quota(cache, owner) &&
        cache->rankings[owner]->resident >= cache->rankings[owner]->capacity)
        return take_from(cache, cache->rankings[owner]);
    return take_from_several(cache, owner);
}

/* Makes room for the access at store.clock; false: there is none, or the block is not worth it. */
bool kvr_block_make_room(struct kvr_block_cache *cache, uint32_t owner, uint64_t id)
{
    struct kvr_ranking *ranking = cache->rankings[owner];
    struct kvr_gate *gate = cache->gate;

    if (!needs_room(cache, owner))
        return true;
    uint32_t victim = take_victim(cache, owner);
    if (!victim)
        return false;
    if ((ranking->policy->refuses && ranking->policy->refuses(ranking, victim)) ||
        (gate->rule->prefers && !gate->rule->prefers(gate, id, cache->store.blocks[victim].id))) {
        kvr_ranking_enqueue(kvr_block_ranking_of(cache, victim), victim, KVR_HEIR);
        return false;
    }
    kvr_block_evict(cache, victim);
    return true;
}

void kvr_block_evict_expired(struct kvr_block_cache *cache)
{
    for (uint32_t i = 0; i < cache->ranking_count; i++) {
        struct kvr_ranking *ranking = cache->rankings[i];
        uint32_t slot;
        if (!ranking->policy->expired)
            continue;
        while ((slot = ranking->policy->expired(ranking))) {
            cache->store.blocks[slot].flags &= (uint8_t)~KVR_BLOCK_QUEUED;
            if (cache->store.blocks[slot].flags & KVR_BLOCK_HELD) {
                cache->aside[cache->aside_count++] = slot;
            } else {
                kvr_block_evict(cache, slot);
                cache->counts.expired++;
            }
        }
    }
    kvr_block_put_aside_back(cache);
}

/* ── shared blocks ── */

/* A block turns out to be shared: it changes to the pool's ranking. The access is at store.clock.
 */
static void share(struct kvr_block_cache *cache, uint32_t slot)
{
    struct kvr_block *block = &cache->store.blocks[slot];
    struct kvr_ranking *from = kvr_block_ranking_of(cache, slot), *to = cache->rankings[1];
    bool queued = kvr_block_is_queued(block);

    if (block->flags & KVR_BLOCK_SHARED)
        return;
    if (queued)
        kvr_ranking_dequeue(from, slot);
    if (from->policy->evicted)
        from->policy->evicted(from, slot);
    from->resident--;
    block->owner = 1;
    block->flags |= KVR_BLOCK_SHARED;
    to->policy->insert(to, slot);
    to->policy->hit(to, slot);
    to->resident++;
    if (queued)
        kvr_ranking_enqueue(to, slot, KVR_FRESH);
}

/* Sessions say it: used by another one than before. */
void kvr_block_note_session(struct kvr_block_cache *cache, uint32_t slot)
{
    uint32_t session = (uint32_t)(cache->tags.session ^ cache->tags.session >> 32);
    uint32_t *first = &cache->sessions[slot];

    if (session && *first && *first != session)
        share(cache, slot);
    else if (session)
        *first = session;
}

/* Without sessions, a path that a second request continues differently was shared up to there. */
void kvr_block_note_branch(
    struct kvr_block_cache *cache, const uint32_t *path, size_t length, uint64_t clock)
{
    for (size_t i = length; i-- > 0;) {
        if (cache->store.blocks[path[i]].flags & KVR_BLOCK_SHARED)
            break;
        cache->store.clock = clock + i;
        cache->store.depth = (uint32_t)i;
        share(cache, path[i]);
    }
}

uint64_t kvr_block_clear(struct kvr_block_cache *cache)
{
    uint64_t cleared = 0;

    for (uint32_t gone = 1; gone;) {
        gone = 0; /* a parent may be in a ranking that was emptied before */
        for (uint32_t i = 0; i < cache->ranking_count; i++) {
            uint32_t slot;
            while ((slot = take_from(cache, cache->rankings[i]))) {
                kvr_block_evict(cache, slot);
                gone++;
            }
        }
        cleared += gone;
    }
    kvr_block_put_aside_back(cache);
    return cleared;
}
