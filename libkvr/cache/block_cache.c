/*
 * The tree: look-up and insertion.
 *
 * The tree is parents only: a block knows the slot of its parent and how many children it has
 * (busy), never which. A path is found from the root by ids, each checked against its parent, so an
 * id that stands under another parent is a miss and never a wrong hit. Chains are inserted into
 * slots that mostly follow one another (freed slots come back leaf first), so the next block is
 * looked for in the next slot before the table is asked: one compare in a cache line that is there.
 */
#include "base/grow.h"
#include "cache/block_cache_internal.h"

enum { PREFETCH_AHEAD = 8 };

/* ── entering ── */

static enum kvr_status reserve(struct kvr_block_cache *cache, size_t count,
    struct kvr_block_live *live, struct kvr_error *error)
{
    struct kvr_store *store = &cache->store;
    uint32_t slots = store->slots;
    enum kvr_status status =
        kvr_store_reserve(store, count < UINT32_MAX ? (uint32_t)count : UINT32_MAX, error);

    if (status != KVR_OK)
        return status;
    for (uint32_t i = 0; store->slots != slots && i < cache->ranking_count; i++) {
        status = kvr_ranking_reserve(cache->rankings[i], error);
        if (status != KVR_OK)
            return status;
    }
    if (cache->sessions && cache->sessions_size < store->slots) {
        uint32_t *sessions = realloc(cache->sessions, (size_t)store->slots * sizeof *sessions);
        if (!sessions)
            return kvr_error_memory(error);
        cache->sessions = sessions;
        cache->sessions_size = store->slots;
    }
    uint32_t *path = kvr_grow(live->path, &live->size, live->length + count + 1, sizeof *path);
    if (!path)
        return kvr_error_memory(error);
    live->path = path;
    uint32_t *aside =
        kvr_grow(cache->aside, &cache->aside_size, cache->live_used + 2, sizeof *aside);
    if (!aside)
        return kvr_error_memory(error);
    cache->aside = aside;
    return KVR_OK;
}

size_t kvr_block_find_run(const struct kvr_store *store, const uint64_t *ids, size_t count,
    uint32_t parent, uint32_t *path)
{
    const struct kvr_block *blocks = store->blocks;
    size_t run = 0;

    for (; run < count; run++) {
        uint32_t slot = parent + 1;
        if (!parent || slot >= store->used || blocks[slot].parent != parent ||
            blocks[slot].id != ids[run]) {
            slot = kvr_store_find(store, ids[run]);
            if (!slot || blocks[slot].parent != parent)
                break;
        }
        path[run] = parent = slot;
    }
    return run;
}

/* What policies may know of the access to block `at` of what was asked. */
static inline void set_access(struct kvr_store *store, uint64_t clock,
    const struct kvr_admission_path *asked, size_t at, size_t position)
{
    store->clock = clock;
    store->depth = (uint32_t)position;
    store->fill = 1;
    if (at + 1 == asked->count) {
        uint64_t start = (uint64_t)position * asked->block_tokens;
        uint64_t tokens = asked->tokens > start ? asked->tokens - start : 0;
        if (tokens < asked->block_tokens)
            store->fill = (double)tokens / asked->block_tokens;
    }
}

/* Adds one block that is not there; it is in no queue yet. */
static uint32_t add(struct kvr_block_cache *cache, uint64_t id, uint32_t hash, uint32_t owner)
{
    struct kvr_ranking *ranking = cache->rankings[owner];
    uint32_t slot = kvr_store_add(&cache->store, id, hash);

    cache->store.blocks[slot].owner = (uint16_t)owner;
    if (cache->sessions)
        cache->sessions[slot] = (uint32_t)(cache->tags.session ^ cache->tags.session >> 32);
    ranking->resident++;
    ranking->policy->insert(ranking, slot);
    cache->counts.inserted++;
    return slot;
}

/* Inserts ids[from …] behind the live path as far as they are let in and find room; position is
 * the first one's place in its request. Returns how many. */
static size_t insert_run(struct kvr_block_cache *cache, const struct kvr_admission_path *asked,
    size_t from, uint64_t clock, size_t position, struct kvr_block_live *live)
{
    struct kvr_store *store = &cache->store;
    struct kvr_gate *gate = cache->gate;
    uint32_t tip = live->length ? live->path[live->length - 1] : 0;
    size_t at = from;

    for (; at < asked->count; at++, position++) {
        uint64_t id = asked->ids[at];
        uint32_t hash = kvr_block_table_hash(id), owner = cache->tags.tenant;
        struct kvr_ranking *ranking = cache->rankings[owner];
        if (gate->rule->admits && !gate->rule->admits(gate, asked, at))
            break;
        if (kvr_store_find_hashed(store, id, hash))
            break; /* elsewhere in the tree: such ids are no chain */
        set_access(store, clock, asked, at, position);
        if (ranking->policy->miss)
            ranking->policy->miss(ranking, id);
        if (!kvr_block_make_room(cache, owner, id))
            break;
        uint32_t slot = add(cache, id, hash, owner);
        store->blocks[slot].parent = tip;
        if (tip && cache->whole_path)
            store->blocks[tip].busy++;
        else if (tip)
            kvr_block_cover(cache, tip);
        if (cache->whole_path)
            store->blocks[slot].place = 1;
        if (cache->told)
            kvr_block_tell_stored(cache, id, tip ? &store->blocks[tip].id : NULL);
        if (cache->pins.length && kvr_u64_map_find(&cache->pins, id))
            kvr_block_pin_slot(cache, slot);
        live->path[live->length++] = tip = slot;
        clock++;
    }
    cache->counts.refused += asked->count - at;
    return at - from;
}

static enum kvr_status enter_tree(struct kvr_block_cache *cache,
    const struct kvr_admission_path *given, struct kvr_block_live *live, uint64_t *hits,
    struct kvr_error *error)
{
    struct kvr_store *store = &cache->store;
    struct kvr_admission_path asked = *given;
    uint64_t clock = cache->counts.accesses;
    enum kvr_status status = KVR_OK;

    size_t run = kvr_block_find_run(store, asked.ids, asked.count, 0, live->path);
    live->length = asked.hit = run;
    if (cache->gate->rule->look)
        status = cache->gate->rule->look(cache->gate, &asked, error);
    uint32_t tip = run ? live->path[run - 1] : 0;
    if (status == KVR_OK && tip && !cache->whole_path)
        status = kvr_block_hold_tip(cache, tip, error);
    if (status != KVR_OK) {
        live->length = 0;
        return status;
    }
    for (size_t i = run; i-- > 0;) {
        uint32_t slot = live->path[i];
        if (cache->whole_path) {
            kvr_block_hold_in_list(cache, slot);
            continue;
        }
        set_access(store, clock + i, &asked, i, i);
        if (cache->sessions)
            kvr_block_note_session(cache, slot);
        struct kvr_ranking *ranking = kvr_block_ranking_of(cache, slot);
        ranking->policy->hit(ranking, slot);
    }
    if (cache->sessions && !cache->tags.session && run < asked.count && tip &&
        store->blocks[tip].busy)
        kvr_block_note_branch(cache, live->path, run, clock);
    size_t added = insert_run(cache, &asked, run, clock + run, run, live);
    kvr_block_put_aside_back(cache);
    if (added && !cache->whole_path) {
        if (tip)
            kvr_block_release_tip(cache, tip);
        status = kvr_block_hold_tip(cache, live->path[live->length - 1], error);
    }
    *hits = run;
    return status;
}

/* Plain semantics: block by block, each an object of its own. */
static enum kvr_status enter_plain(struct kvr_block_cache *cache,
    const struct kvr_admission_path *asked, uint64_t *hits, uint64_t *hit_tokens,
    struct kvr_error *error)
{
    struct kvr_store *store = &cache->store;
    struct kvr_gate *gate = cache->gate;
    uint32_t owner = cache->tags.tenant;
    struct kvr_ranking *ranking = cache->rankings[owner];
    uint64_t clock = cache->counts.accesses, found = 0, tokens = 0;

    if (gate->rule->look) {
        enum kvr_status status = gate->rule->look(gate, asked, error);
        if (status != KVR_OK)
            return status;
    }
    uint32_t *hashes =
        kvr_grow(cache->hashes, &cache->hashes_size, asked->count + 1, sizeof *hashes);
    if (!hashes)
        return kvr_error_memory(error);
    cache->hashes = hashes;
    for (size_t i = 0; i < asked->count; i++)
        hashes[i] = kvr_block_table_hash(asked->ids[i]);
    for (size_t i = 0; i < asked->count; i++) {
        uint64_t id = asked->ids[i];
        if (i + PREFETCH_AHEAD < asked->count)
            kvr_block_table_prefetch(&store->table, hashes[i + PREFETCH_AHEAD]);
        uint32_t slot = kvr_store_find_hashed(store, id, hashes[i]);
        set_access(store, clock + i, asked, i, i);
        if (slot) {
            struct kvr_ranking *its = cache->rankings[store->blocks[slot].owner];
            uint64_t start = i * (uint64_t)asked->block_tokens;
            found++;
            if (start < asked->tokens)
                tokens += asked->tokens - start < asked->block_tokens ? asked->tokens - start
                                                                      : asked->block_tokens;
            its->policy->hit(its, slot);
            continue;
        }
        if (gate->rule->admits && !gate->rule->admits(gate, asked, i)) {
            cache->counts.refused++;
            continue;
        }
        if (ranking->policy->miss)
            ranking->policy->miss(ranking, id);
        if (!kvr_block_make_room(cache, owner, id)) {
            cache->counts.refused++;
            continue;
        }
        slot = add(cache, id, hashes[i], owner);
        if (cache->told)
            kvr_block_tell_stored(cache, id, i ? &asked->ids[i - 1] : NULL);
        kvr_ranking_enqueue(ranking, slot, KVR_FRESH);
        if (cache->pins.length && kvr_u64_map_find(&cache->pins, id))
            kvr_block_pin_slot(cache, slot);
    }
    *hits = found;
    *hit_tokens = tokens;
    return KVR_OK;
}

enum kvr_status kvr_block_enter(struct kvr_block_cache *cache, const uint64_t *ids, size_t count,
    uint64_t input_tokens, struct kvr_block_live *live, uint64_t *hit_blocks, uint64_t *hit_tokens,
    struct kvr_error *error)
{
    uint32_t block_tokens = cache->options.block_tokens;
    uint64_t identity = cache->tags.identity ? cache->tags.identity : ++cache->sequence;
    struct kvr_admission_path asked = {ids, count, 0, input_tokens, block_tokens, identity};
    uint64_t hits = 0, tokens = 0;

    if (cache->options.future && count > cache->options.future_length - cache->counts.accesses)
        return kvr_error_set(error, KVR_BAD_USAGE, "more accesses than the future told of");
    live->length = 0;
    live->tags = cache->tags;
    live->tags.identity = identity;
    enum kvr_status status = reserve(cache, count, live, error);
    if (status != KVR_OK)
        return status;
    kvr_block_evict_expired(cache);
    if (cache->options.plain) {
        status = enter_plain(cache, &asked, &hits, &tokens, error);
    } else {
        status = enter_tree(cache, &asked, live, &hits, error);
        tokens = hits * block_tokens < input_tokens ? hits * block_tokens : input_tokens;
    }
    if (cache->told)
        kvr_block_news_flush(cache);
    cache->counts.accesses += count;
    cache->counts.hits += hits;
    cache->counts.hit_tokens += tokens;
    cache->counts.prompt_tokens += input_tokens;
    cache->counts.requests++;
    *hit_blocks = hits;
    *hit_tokens = tokens;
    return status;
}

enum kvr_status kvr_block_extend(struct kvr_block_cache *cache, struct kvr_block_live *live,
    const uint64_t *ids, size_t count, struct kvr_error *error)
{
    struct kvr_store *store = &cache->store;
    const struct kvr_block_tags tags = cache->tags; /* of whichever request came last */
    struct kvr_admission_path asked = {
        ids, count, 0, live->tokens, cache->options.block_tokens, live->tags.identity};
    enum kvr_status status = reserve(cache, count, live, error);

    if (status == KVR_OK && cache->gate->rule->look)
        status = cache->gate->rule->look(cache->gate, &asked, error);
    if (status != KVR_OK)
        return status;
    uint32_t old_tip = live->length ? live->path[live->length - 1] : 0;
    size_t run = kvr_block_find_run(store, ids, count, old_tip, live->path + live->length);
    store->clock = cache->counts.accesses;
    for (size_t i = run; i-- > 0;) {
        uint32_t slot = live->path[live->length + i];
        struct kvr_ranking *ranking = kvr_block_ranking_of(cache, slot);
        if (cache->whole_path)
            kvr_block_hold_in_list(cache, slot);
        else
            ranking->policy->hit(ranking, slot);
    }
    size_t position = live->length + run;
    live->length += run;
    asked.hit = run;
    cache->tags = live->tags;
    insert_run(cache, &asked, run, cache->counts.accesses, position, live);
    cache->tags = tags;
    kvr_block_put_aside_back(cache);
    uint32_t tip = live->length ? live->path[live->length - 1] : 0;
    if (tip != old_tip && !cache->whole_path) {
        status = kvr_block_hold_tip(cache, tip, error);
        if (old_tip)
            kvr_block_release_tip(cache, old_tip);
    }
    if (cache->told)
        kvr_block_news_flush(cache);
    return status;
}

enum kvr_status kvr_block_drop_tip(
    struct kvr_block_cache *cache, struct kvr_block_live *live, struct kvr_error *error)
{
    uint32_t tip = live->path[live->length - 1];

    if (cache->whole_path) {
        kvr_block_release_in_list(cache, tip);
        live->length--;
        return KVR_OK;
    }
    if (live->length > 1) {
        enum kvr_status status = kvr_block_hold_tip(cache, live->path[live->length - 2], error);
        if (status != KVR_OK)
            return status;
    }
    live->length--;
    kvr_block_release_tip(cache, tip);
    if (!(cache->store.blocks[tip].flags & KVR_BLOCK_HELD))
        kvr_block_expose(cache, tip, KVR_FRESH);
    return KVR_OK;
}

void kvr_block_leave(struct kvr_block_cache *cache, struct kvr_block_live *live)
{
    if (cache->whole_path) {
        for (size_t i = live->length; i-- > 0;)
            kvr_block_release_in_list(cache, live->path[i]);
    } else if (live->length) {
        uint32_t tip = live->path[live->length - 1];
        kvr_block_release_tip(cache, tip);
        if (!(cache->store.blocks[tip].flags & KVR_BLOCK_HELD))
            kvr_block_expose(cache, tip, KVR_FRESH);
    }
    live->length = 0;
}

enum kvr_status kvr_block_cache_serve(struct kvr_cache *base, const uint64_t *ids, size_t count,
    uint64_t input_tokens, uint64_t *hit_blocks, uint64_t *hit_tokens, struct kvr_error *error)
{
    struct kvr_block_cache *cache = (struct kvr_block_cache *)base;
    uint64_t hits = 0, tokens = 0;
    enum kvr_status status =
        kvr_block_enter(cache, ids, count, input_tokens, &cache->scratch, &hits, &tokens, error);

    kvr_block_leave(cache, &cache->scratch);
    if (hit_blocks)
        *hit_blocks = hits;
    if (hit_tokens)
        *hit_tokens = tokens;
    return status;
}
