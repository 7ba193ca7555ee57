#include "cache/chunk_store.h"

#include <string.h>

void chunk_store_init(struct chunk_store *store, const struct chunk_rules *rules,
    const struct kvr_engine_options *options, bool save_outputs)
{
    store->rules = rules;
    if (options->sink)
        store->sink = *options->sink;
    store->chunk_tokens = options->block_tokens;
    store->capacity = (uint32_t)options->capacity_blocks;
    store->save_outputs = save_outputs;
}

void chunk_store_release(struct chunk_store *store)
{
    for (size_t i = 0; i < store->handles.size; i++)
        free(store->live[i].chain);
    free(store->live);
    free(store->handles.unused);
    free(store->ids);
    free(store->held);
    free(store->unused);
    free(store->scratch);
    kvr_u64_map_release(&store->slots);
}

uint32_t chunk_store_find(const struct chunk_store *store, uint64_t id)
{
    const uint64_t *slot = kvr_u64_map_find(&store->slots, id);
    return slot ? (uint32_t)*slot : UINT32_MAX;
}

void chunk_store_drop(struct chunk_store *store, uint32_t slot, bool clearing)
{
    kvr_u64_map_remove(&store->slots, store->ids[slot], NULL);
    store->held[slot] = 0;
    store->unused[store->unused_count++] = slot;
    store->used--;
    store->stats.resident_blocks[KVR_MEDIUM_CPU]--;
    if (clearing)
        return;
    store->stats.evicted_blocks[KVR_MEDIUM_CPU]++;
    if (store->sink.removed)
        store->sink.removed(store->sink.context, KVR_MEDIUM_CPU, &store->ids[slot], 1);
}

void chunk_store_cleared(struct chunk_store *store, uint64_t before, bool all)
{
    store->stats.cleared_blocks[KVR_MEDIUM_CPU] += before - store->used;
    if (all && store->sink.cleared)
        store->sink.cleared(store->sink.context, KVR_MEDIUM_CPU);
}

size_t chunk_store_bytes(const struct chunk_store *store)
{
    size_t bytes =
        store->ids_capacity * sizeof *store->ids + store->held_capacity +
        store->unused_capacity * sizeof *store->unused +
        store->scratch_capacity * sizeof *store->scratch +
        (store->slots.mask ? store->slots.mask + 1 : 0) * (sizeof *store->slots.slots + 1) +
        kvr_handles_bytes(&store->handles, sizeof *store->live) + store->live_bytes;
    return bytes;
}

/* Room for `count` more slots and for as many in the scratch list. */
static bool reserve(struct chunk_store *store, size_t count)
{
    size_t wanted = (size_t)store->slot_count + count;
    if (wanted > store->capacity)
        wanted = store->capacity;
    size_t most = store->capacity;
    uint64_t *ids = kvr_grow_within(store->ids, &store->ids_capacity, wanted, most, sizeof *ids);
    if (!ids)
        return false;
    store->ids = ids;
    uint8_t *held = kvr_grow_within(store->held, &store->held_capacity, wanted, most, sizeof *held);
    if (!held)
        return false;
    store->held = held;
    uint32_t *unused =
        kvr_grow_within(store->unused, &store->unused_capacity, wanted, most, sizeof *unused);
    if (!unused)
        return false;
    store->unused = unused;
    uint32_t *scratch = kvr_grow(store->scratch, &store->scratch_capacity, count, sizeof *scratch);
    if (!scratch)
        return false;
    store->scratch = scratch;
    return store->rules->reserve(store, wanted);
}

/* Puts chunks in, in order, as far as there is room. */
static enum kvr_status put(struct chunk_store *store, const uint64_t *parent, const uint64_t *ids,
    size_t count, struct kvr_error *error)
{
    if (!reserve(store, count))
        return kvr_error_memory(error);
    size_t most = store->rules->claim(store, ids, count), added = 0;
    size_t run = 0; /* where the run of new chunks that is not told yet starts */
    enum kvr_status status = KVR_OK;
    size_t i = 0;
    for (; i <= most; i++) {
        bool inserted = false;
        uint64_t *slot = i < most ? kvr_u64_map_insert(&store->slots, ids[i], &inserted) : NULL;
        if (i < most && !slot) {
            status = kvr_error_memory(error);
            most = i;
        }
        if (inserted) {
            uint32_t taken =
                store->unused_count ? store->unused[--store->unused_count] : store->slot_count++;
            *slot = taken;
            store->ids[taken] = ids[i];
            store->held[taken] = 1;
            store->scratch[added++] = taken;
            store->used++;
            continue;
        }
        if (run < i && store->sink.stored)
            store->sink.stored(store->sink.context, KVR_MEDIUM_CPU, run ? &ids[run - 1] : parent,
                ids + run, i - run);
        run = i + 1;
    }
    store->stats.inserted_blocks[KVR_MEDIUM_CPU] += added;
    store->stats.resident_blocks[KVR_MEDIUM_CPU] += added;
    store->rules->added(store, store->scratch, added, store->now_ms);
    return status;
}

/* Remembers the ids that the request's output can fill. */
static bool keep_chain(struct chunk_store *store, struct chunk_live *live,
    const struct kvr_cache_request *request, size_t full)
{
    uint64_t reach = (request->input_tokens + request->output_tokens) / request->block_tokens;
    uint64_t more = reach > full ? reach - full : 0;
    live->count = (size_t)(more < request->output_id_count ? more : request->output_id_count);
    size_t before = live->capacity;
    uint64_t *chain = kvr_grow(live->chain, &live->capacity, live->count, sizeof *chain);
    if (!chain)
        return false;
    live->chain = chain;
    store->live_bytes += (live->capacity - before) * sizeof *chain;
    if (live->count)
        memcpy(chain, request->output_ids, live->count * sizeof *chain);
    return true;
}

enum kvr_status chunk_store_admit(struct kvr_cache *base, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error)
{
    struct chunk_store *store = (struct chunk_store *)base;
    size_t full = kvr_cache_full_ids(request), hit = 0;
    uint32_t handle;
    struct chunk_live *slots =
        kvr_handles_take(&store->handles, store->live, sizeof *slots, &handle);
    if (!slots)
        return kvr_error_memory(error);
    store->live = slots;
    struct chunk_live *live = &slots[handle];
    live->count = live->next = 0;
    if ((store->save_outputs && !keep_chain(store, live, request, full)) || !reserve(store, full)) {
        kvr_handles_give(&store->handles, handle);
        return kvr_error_memory(error);
    }
    store->now_ms = request->time_ms;
    store->rules->advance(store, store->now_ms);
    for (; hit < full; hit++) {
        store->scratch[hit] = chunk_store_find(store, request->ids[hit]);
        if (store->scratch[hit] == UINT32_MAX)
            break;
    }
    store->rules->hit(store, store->scratch, hit, store->now_ms);
    enum kvr_status status =
        put(store, hit ? &request->ids[hit - 1] : NULL, request->ids + hit, full - hit, error);
    if (status != KVR_OK) {
        kvr_handles_give(&store->handles, handle);
        return status;
    }
    live->tokens = request->input_tokens;
    live->has_parent = full > 0;
    live->parent = full ? request->ids[full - 1] : 0;
    live->used = true;

    /* the last token is computed again where all were found */
    uint64_t tokens = (uint64_t)hit * store->chunk_tokens;
    tokens -= tokens && tokens == request->input_tokens;
    admission->admitted = true;
    admission->live = handle;
    admission->hit_blocks[KVR_MEDIUM_CPU] = hit;
    admission->hit_tokens[KVR_MEDIUM_CPU] = tokens;
    store->stats.admitted++;
    store->stats.live++;
    store->stats.prompt_blocks += full;
    store->stats.prompt_tokens += request->input_tokens;
    store->stats.hit_blocks[KVR_MEDIUM_CPU] += hit;
    store->stats.hit_tokens[KVR_MEDIUM_CPU] += tokens;
    return KVR_OK;
}

static struct chunk_live *find_live(
    struct chunk_store *store, uint32_t handle, struct kvr_error *error)
{
    if (handle < store->handles.size && store->live[handle].used)
        return &store->live[handle];
    kvr_error_set(error, KVR_BAD_INPUT, "no live request has the handle %u", handle);
    return NULL;
}

enum kvr_status chunk_store_output(struct kvr_cache *base, uint32_t handle, uint64_t tokens,
    uint64_t *made, struct kvr_error *error)
{
    struct chunk_store *store = (struct chunk_store *)base;
    struct chunk_live *live = find_live(store, handle, error);
    *made = 0;
    if (!live)
        return KVR_BAD_INPUT;
    uint64_t full = live->tokens / store->chunk_tokens;
    uint64_t filled = (live->tokens + tokens) / store->chunk_tokens - full;
    /* chunks of the output go in one by one, as they fill */
    for (; filled && live->next < live->count; filled--) {
        uint64_t *id = &live->chain[live->next];
        const uint64_t *parent = live->next ? id - 1 : live->has_parent ? &live->parent : NULL;
        enum kvr_status status = put(store, parent, id, 1, error);
        if (status != KVR_OK)
            return status;
        live->next++;
    }
    live->tokens += tokens;
    *made = tokens;
    return KVR_OK;
}

enum kvr_status chunk_store_finish(struct kvr_cache *base, uint32_t handle, struct kvr_error *error)
{
    struct chunk_store *store = (struct chunk_store *)base;
    struct chunk_live *live = find_live(store, handle, error);
    if (!live)
        return KVR_BAD_INPUT;
    live->used = false;
    kvr_handles_give(&store->handles, handle);
    store->stats.live--;
    return KVR_OK;
}

void chunk_store_resident(
    const struct kvr_cache *base, enum kvr_medium medium, kvr_cache_visit *visit, void *context)
{
    const struct chunk_store *store = (const struct chunk_store *)base;
    for (uint32_t slot = 0; slot < store->slot_count && medium == KVR_MEDIUM_CPU; slot++)
        if (store->held[slot])
            visit(context, store->ids[slot]);
}
