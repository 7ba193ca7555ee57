/*
 * vLLM's prefix cache: KVCacheManager and BlockPool of vLLM 0.33, rule for rule.
 *
 * The problem. vLLM keeps no tree. Its pool is an array of physical blocks; a block that was filled
 * gets the chained hash of all tokens up to its end, and a map finds it by that. Who looks up a
 * prompt walks its hashes until one is missing. Which block goes next is decided by one queue of
 * free blocks, so that the order of every push and pop is the eviction policy:
 *
 *     pop ◄── head [ no hash │ … oldest freed … │ … last freed ] tail ◄── push
 *                    ▲ blocks without a hash come back here
 *
 * A block in the queue keeps its hash and can be hit, which takes it out from wherever it stands. A
 * request that ends gives its blocks back last to first, so the tail of a prompt is evicted before
 * its head. Nothing is merged: the same block computed twice at once is two physical blocks with
 * one hash, the map keeps both, and the earliest cached answers.
 *
 * Layout. One struct of 40 bytes a block. The queue is a ring through them; its end stands at 0, in
 * the place of vLLM's null block, which is never given out. The blocks that were never used lie
 * behind one another in the queue until they are, so one entry, FRESH, stands for all of them, and
 * a pool that is larger than its trace costs what the trace needs. The map is an array of bucket
 * heads; a bucket chains blocks of different ids (bucket_next), and behind the one in the chain
 * hang its duplicates in the order in which they were cached, a ring (twin_next, twin_previous).
 *
 * Cost: O(1) a block for lookup, pop, push and caching; 40 bytes a block and 4 to 8 a bucket.
 */
#include "cache/engine.h"
#include "cache/handles.h"

#include <stdlib.h>
#include <string.h>

enum { END = 0, FRESH = 1, FIRST = 2 };

struct block {
    uint64_t id;
    uint32_t holders;                  /* live requests and pins */
    uint32_t pins;                     /* of these */
    uint32_t next, previous;           /* in the free queue */
    uint32_t bucket_next;              /* 0: end of the chain */
    uint32_t twin_next, twin_previous; /* ring of blocks with the same id */
    uint32_t hashed;
};

struct live {
    uint32_t *blocks;
    size_t count, capacity;
    uint64_t *chain; /* ids of the blocks that the output will fill */
    size_t chain_count, chain_capacity;
    uint64_t first_in_chain; /* the position of chain[0] among the request's blocks */
    uint64_t parent;         /* the id before chain[0], where has_parent */
    bool has_parent;
    uint64_t tokens;
    bool used;
};

struct vllm {
    struct kvr_cache base;
    struct kvr_cache_sink sink;
    uint32_t block_tokens;
    uint32_t usable; /* blocks of the pool */
    uint32_t used;   /* ever given out: FIRST … FIRST + used - 1 */
    uint32_t free;
    struct block *blocks;
    size_t block_capacity;
    uint64_t live_bytes; /* of the live requests' lists */
    uint32_t *buckets;
    uint32_t bucket_mask;
    struct live *live;
    struct kvr_handles handles;
    struct kvr_cache_stats stats;
};

/* ── the queue ── */

static void queue_link(struct vllm *cache, uint32_t before, uint32_t index)
{
    struct block *blocks = cache->blocks;
    uint32_t previous = blocks[before].previous;
    blocks[index].next = before;
    blocks[index].previous = previous;
    blocks[previous].next = index;
    blocks[before].previous = index;
}

static void queue_unlink(struct vllm *cache, uint32_t index)
{
    struct block *blocks = cache->blocks;
    blocks[blocks[index].previous].next = blocks[index].next;
    blocks[blocks[index].next].previous = blocks[index].previous;
}

/* ── the map ── */

static uint32_t *bucket_of(const struct vllm *cache, uint64_t id)
{
    uint64_t mixed = id * 0x9e3779b97f4a7c15u;
    return &cache->buckets[(mixed ^ mixed >> 32) & cache->bucket_mask];
}

/* The earliest cached block with the id, 0 where there is none. */
static uint32_t map_find(const struct vllm *cache, uint64_t id)
{
    uint32_t index = *bucket_of(cache, id);
    while (index && cache->blocks[index].id != id)
        index = cache->blocks[index].bucket_next;
    return index;
}

static void map_add(struct vllm *cache, uint32_t index, uint64_t id)
{
    struct block *blocks = cache->blocks, *block = &blocks[index];
    uint32_t first = map_find(cache, id);
    block->id = id;
    block->hashed = 1;
    if (first) {
        uint32_t last = blocks[first].twin_previous;
        block->twin_next = first;
        block->twin_previous = last;
        blocks[last].twin_next = index;
        blocks[first].twin_previous = index;
    } else {
        uint32_t *bucket = bucket_of(cache, id);
        block->twin_next = block->twin_previous = index;
        block->bucket_next = *bucket;
        *bucket = index;
    }
    cache->stats.inserted_blocks[0]++;
    cache->stats.resident_blocks[0]++;
}

static void map_remove(struct vllm *cache, uint32_t index)
{
    struct block *blocks = cache->blocks, *block = &blocks[index];
    uint32_t *link = bucket_of(cache, block->id);
    while (*link && blocks[*link].id != block->id)
        link = &blocks[*link].bucket_next;
    if (*link == index) {
        if (block->twin_next != index) {
            *link = block->twin_next;
            blocks[*link].bucket_next = block->bucket_next;
        } else {
            *link = block->bucket_next;
        }
    }
    blocks[block->twin_previous].twin_next = block->twin_next;
    blocks[block->twin_next].twin_previous = block->twin_previous;
    block->hashed = 0;
    cache->stats.resident_blocks[0]--;
}

static bool grow_map(struct vllm *cache)
{
    size_t old = cache->buckets ? (size_t)cache->bucket_mask + 1 : 0, count = old ? old : 16;
    while (count < cache->block_capacity && count < (size_t)1 << 31)
        count *= 2;
    if (count == old)
        return true;
    uint32_t *from = cache->buckets, *to = calloc(count, sizeof *to);
    if (!to)
        return false;
    cache->buckets = to;
    cache->bucket_mask = (uint32_t)(count - 1);
    for (size_t i = 0; i < old; i++) {
        for (uint32_t index = from[i], next; index; index = next) {
            uint32_t *bucket = bucket_of(cache, cache->blocks[index].id);
            next = cache->blocks[index].bucket_next;
            cache->blocks[index].bucket_next = *bucket;
            *bucket = index;
        }
    }
    free(from);
    return true;
}

/* ── taking and giving back ── */

/* Makes room for `more` blocks to be given out the first time. */
static enum kvr_status reserve(struct vllm *cache, uint64_t more, struct kvr_error *error)
{
    uint64_t wanted = cache->used + more < cache->usable ? cache->used + more : cache->usable;
    struct block *blocks = kvr_grow_within(cache->blocks, &cache->block_capacity,
        (size_t)wanted + FIRST, (size_t)cache->usable + FIRST, sizeof *blocks);
    if (!blocks)
        return kvr_error_memory(error);
    cache->blocks = blocks;
    return grow_map(cache) ? KVR_OK : kvr_error_memory(error);
}

/* Takes the block at the head; the queue is not empty. Its id, if any, is evicted. */
static uint32_t pop(struct vllm *cache)
{
    uint32_t index = cache->blocks[END].next;
    cache->free--;
    if (index == FRESH) {
        index = FIRST + cache->used++;
        if (cache->used == cache->usable)
            queue_unlink(cache, FRESH);
        cache->blocks[index] = (struct block){.holders = 1};
        return index;
    }
    struct block *block = &cache->blocks[index];
    queue_unlink(cache, index);
    block->holders = 1;
    if (block->hashed) {
        map_remove(cache, index);
        cache->stats.evicted_blocks[0]++;
        if (cache->sink.removed)
            cache->sink.removed(cache->sink.context, KVR_MEDIUM_GPU, &block->id, 1);
    }
    return index;
}

static void hold(struct vllm *cache, uint32_t index)
{
    if (cache->blocks[index].holders++)
        return;
    queue_unlink(cache, index);
    cache->free--;
}

static void let_go(struct vllm *cache, uint32_t index)
{
    struct block *block = &cache->blocks[index];
    if (--block->holders)
        return;
    queue_link(cache, block->hashed ? END : cache->blocks[END].next, index);
    cache->free++;
}

static void tell_stored(
    struct vllm *cache, const uint64_t *parent, const uint64_t *ids, size_t count)
{
    if (count && cache->sink.stored)
        cache->sink.stored(cache->sink.context, KVR_MEDIUM_GPU, parent, ids, count);
}

/* ── a request's life ── */

static uint64_t live_bytes(const struct live *live)
{
    return live->capacity * sizeof *live->blocks + live->chain_capacity * sizeof *live->chain;
}

/* Remembers the ids of the blocks from the prompt's partial one on, and makes room for `need`
 * blocks in all. */
static enum kvr_status prepare(struct vllm *cache, struct live *live,
    const struct kvr_cache_request *request, size_t full, uint64_t need, struct kvr_error *error)
{
    uint64_t before = live_bytes(live);
    uint32_t *blocks = kvr_grow(live->blocks, &live->capacity, (size_t)need, sizeof *blocks);
    if (!blocks)
        return kvr_error_memory(error);
    live->blocks = blocks;
    /* the ids that output can reach */
    uint64_t total = (request->input_tokens + request->output_tokens) / request->block_tokens;
    size_t reach = total > full ? (size_t)(total - full) : 0;
    live->chain_count = reach < request->output_id_count ? reach : request->output_id_count;
    uint64_t *chain =
        kvr_grow(live->chain, &live->chain_capacity, live->chain_count, sizeof *chain);
    if (!chain)
        return kvr_error_memory(error);
    live->chain = chain;
    cache->live_bytes += live_bytes(live) - before;
    if (live->chain_count)
        memcpy(chain, request->output_ids, live->chain_count * sizeof *chain);
    live->first_in_chain = full;
    live->has_parent = full > 0;
    if (full)
        live->parent = request->ids[full - 1];
    return KVR_OK;
}

/* Caches the request's block at `position` as the chain says; nothing where the chain has ended. */
static void cache_output_block(struct vllm *cache, struct live *live, uint64_t position)
{
    if (position < live->first_in_chain || position - live->first_in_chain >= live->chain_count)
        return;
    size_t index = (size_t)(position - live->first_in_chain);
    const uint64_t *parent = index              ? &live->chain[index - 1]
                             : live->has_parent ? &live->parent
                                                : NULL;
    map_add(cache, live->blocks[position], live->chain[index]);
    tell_stored(cache, parent, &live->chain[index], 1);
}

static enum kvr_status vllm_admit(struct kvr_cache *base, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error)
{
    struct vllm *cache = (struct vllm *)base;
    uint32_t size = cache->block_tokens;
    size_t full = kvr_cache_full_ids(request);
    uint64_t wanted = request->input_tokens / size + (request->input_tokens % size != 0);
    uint64_t limit = request->input_tokens ? (request->input_tokens - 1) / size : 0;
    if (limit > full)
        limit = full;
    if (wanted > cache->usable)
        return KVR_OK; /* never fits, whatever is found */

    uint32_t handle;
    struct live *slots = kvr_handles_take(&cache->handles, cache->live, sizeof *slots, &handle);
    if (!slots)
        return kvr_error_memory(error);
    cache->live = slots;
    struct live *live = &slots[handle];
    enum kvr_status status = prepare(cache, live, request, full, wanted, error);
    size_t hit = 0, idle = 0;
    if (status == KVR_OK)
        status = reserve(cache, wanted, error);
    if (status == KVR_OK) {
        for (; hit < limit; hit++) {
            uint32_t index = map_find(cache, request->ids[hit]);
            if (!index)
                break;
            live->blocks[hit] = index;
            idle += !cache->blocks[index].holders;
        }
    }
    if (status != KVR_OK || wanted - hit + idle > cache->free) {
        kvr_handles_give(&cache->handles, handle);
        return status;
    }

    for (size_t i = 0; i < hit; i++)
        hold(cache, live->blocks[i]);
    for (size_t i = hit; i < wanted; i++)
        live->blocks[i] = pop(cache);
    live->count = (size_t)wanted;
    for (size_t i = hit; i < full; i++)
        map_add(cache, live->blocks[i], request->ids[i]);
    tell_stored(cache, hit ? &request->ids[hit - 1] : NULL, request->ids + hit, full - hit);
    live->tokens = request->input_tokens;
    live->used = true;
    /* prompt blocks past the last prompt id go by the output's ids, see engine.h */
    for (uint64_t i = full; i < request->input_tokens / size; i++)
        cache_output_block(cache, live, i);

    admission->admitted = true;
    admission->live = handle;
    admission->hit_blocks[0] = hit;
    admission->hit_tokens[0] = (uint64_t)hit * size;
    cache->stats.admitted++;
    cache->stats.live++;
    cache->stats.prompt_blocks += full;
    cache->stats.prompt_tokens += request->input_tokens;
    cache->stats.hit_blocks[0] += hit;
    cache->stats.hit_tokens[0] += (uint64_t)hit * size;
    return KVR_OK;
}

static struct live *find_live(struct vllm *cache, uint32_t handle, struct kvr_error *error)
{
    if (handle < cache->handles.size && cache->live[handle].used)
        return &cache->live[handle];
    kvr_error_set(error, KVR_BAD_INPUT, "no live request has the handle %u", handle);
    return NULL;
}

static enum kvr_status vllm_output(struct kvr_cache *base, uint32_t handle, uint64_t tokens,
    uint64_t *made, struct kvr_error *error)
{
    struct vllm *cache = (struct vllm *)base;
    struct live *live = find_live(cache, handle, error);
    *made = 0;
    if (!live)
        return KVR_BAD_INPUT;
    uint32_t size = cache->block_tokens;
    while (*made < tokens) {
        uint32_t inside = (uint32_t)(live->tokens % size);
        if (!inside) {
            if (!cache->free)
                break;
            enum kvr_status status = reserve(cache, 1, error);
            if (status != KVR_OK)
                return status;
            uint64_t before = live_bytes(live);
            uint32_t *blocks =
                kvr_grow(live->blocks, &live->capacity, live->count + 1, sizeof *blocks);
            if (!blocks)
                return kvr_error_memory(error);
            live->blocks = blocks;
            cache->live_bytes += live_bytes(live) - before;
            blocks[live->count++] = pop(cache);
        }
        uint64_t step = size - inside;
        if (step > tokens - *made)
            step = tokens - *made;
        live->tokens += step;
        *made += step;
        if (live->tokens % size == 0)
            cache_output_block(cache, live, live->tokens / size - 1);
    }
    return KVR_OK;
}

static enum kvr_status vllm_finish(struct kvr_cache *base, uint32_t handle, struct kvr_error *error)
{
    struct vllm *cache = (struct vllm *)base;
    struct live *live = find_live(cache, handle, error);
    if (!live)
        return KVR_BAD_INPUT;
    while (live->count)
        let_go(cache, live->blocks[--live->count]);
    live->used = false;
    kvr_handles_give(&cache->handles, handle);
    cache->stats.live--;
    return KVR_OK;
}

/* ── beside requests ── */

/* A pin holds a block as a live request would. vLLM itself has none; they end by unpin only. */
static enum kvr_status vllm_pin(struct kvr_cache *base, const uint64_t *ids, size_t count,
    const struct kvr_pin *pin, size_t *pinned, struct kvr_error *error)
{
    (void)pin, (void)error;
    struct vllm *cache = (struct vllm *)base;
    for (*pinned = 0; *pinned < count; ++*pinned) {
        uint32_t index = map_find(cache, ids[*pinned]);
        if (!index)
            break;
        hold(cache, index);
        cache->blocks[index].pins++;
    }
    return KVR_OK;
}

static enum kvr_status vllm_unpin(
    struct kvr_cache *base, const uint64_t *ids, size_t count, struct kvr_error *error)
{
    (void)error;
    struct vllm *cache = (struct vllm *)base;
    while (count) {
        /* a pinned block was the earliest of its id, is not evicted, and so still is */
        uint32_t index = map_find(cache, ids[--count]);
        if (!index || !cache->blocks[index].pins)
            continue;
        cache->blocks[index].pins--;
        let_go(cache, index);
    }
    return KVR_OK;
}

static void vllm_clear(struct kvr_cache *base)
{
    struct vllm *cache = (struct vllm *)base;
    uint64_t before = cache->stats.resident_blocks[0];
    bool all = cache->free == cache->usable;
    for (uint32_t index = FIRST; index < FIRST + cache->used; index++) {
        struct block *block = &cache->blocks[index];
        if (!block->hashed || block->holders)
            continue;
        map_remove(cache, index);
        if (!all && cache->sink.removed)
            cache->sink.removed(cache->sink.context, KVR_MEDIUM_GPU, &block->id, 1);
    }
    cache->stats.cleared_blocks[0] += before - cache->stats.resident_blocks[0];
    if (all && cache->sink.cleared)
        cache->sink.cleared(cache->sink.context, KVR_MEDIUM_GPU);
}

static void vllm_stats(const struct kvr_cache *base, struct kvr_cache_stats *stats)
{
    const struct vllm *cache = (const struct vllm *)base;
    *stats = cache->stats;
    stats->free_blocks = cache->free;
    stats->capacity_blocks[0] = cache->usable;
    stats->memory_bytes = sizeof *cache + cache->block_capacity * sizeof *cache->blocks +
                          ((uint64_t)cache->bucket_mask + 1) * sizeof *cache->buckets +
                          kvr_handles_bytes(&cache->handles, sizeof *cache->live) +
                          cache->live_bytes;
}

static void vllm_resident(
    const struct kvr_cache *base, enum kvr_medium medium, kvr_cache_visit *visit, void *context)
{
    const struct vllm *cache = (const struct vllm *)base;
    if (medium != KVR_MEDIUM_GPU)
        return;
    for (uint32_t index = FIRST; index < FIRST + cache->used; index++)
        if (cache->blocks[index].hashed)
            visit(context, cache->blocks[index].id);
}

static void vllm_walk_free(const struct kvr_cache *base, kvr_cache_visit_free *visit, void *context)
{
    const struct vllm *cache = (const struct vllm *)base;
    for (uint32_t index = cache->blocks[END].next; index != END;
         index = cache->blocks[index].next) {
        if (index != FRESH)
            visit(context, cache->blocks[index].hashed, cache->blocks[index].id);
        for (uint32_t i = cache->used; index == FRESH && i < cache->usable; i++)
            visit(context, false, 0);
    }
}

static void vllm_destroy(struct kvr_cache *base)
{
    struct vllm *cache = (struct vllm *)base;
    for (size_t i = 0; i < cache->handles.size; i++) {
        free(cache->live[i].blocks);
        free(cache->live[i].chain);
    }
    free(cache->live);
    free(cache->handles.unused);
    free(cache->blocks);
    free(cache->buckets);
    free(cache);
}

static enum kvr_status vllm_create(const struct kvr_engine_options *options,
    const struct kvr_parameter_value *values, struct kvr_cache **out, struct kvr_error *error)
{
    (void)values;
    struct vllm *cache = calloc(1, sizeof *cache);
    if (!cache)
        return kvr_error_memory(error);
    if (options->sink)
        cache->sink = *options->sink;
    cache->block_tokens = options->block_tokens;
    cache->usable = cache->free = (uint32_t)options->capacity_blocks;
    enum kvr_status status = reserve(cache, 0, error);
    if (status != KVR_OK) {
        vllm_destroy(&cache->base);
        return status;
    }
    cache->blocks[END] = (struct block){.next = END, .previous = END};
    queue_link(cache, END, FRESH);
    *out = &cache->base;
    return KVR_OK;
}

const struct kvr_engine kvr_engine_vllm = {
    .name = "vllm",
    .summary = "vLLM's block pool: hashed blocks, one free queue, nothing merged",
    .usual_block_tokens = 16,
    .create = vllm_create,
    .admit = vllm_admit,
    .output = vllm_output,
    .finish = vllm_finish,
    .pin = vllm_pin,
    .unpin = vllm_unpin,
    .clear = vllm_clear,
    .stats = vllm_stats,
    .resident = vllm_resident,
    .walk_free = vllm_walk_free,
    .destroy = vllm_destroy,
};
