#include "kernels/prefix_store.h"
#include "base/u64_map.h"

#include <stdbool.h>
#include <stdlib.h>

struct slot {
    uint32_t newer, older; /* neighbours in the order of use */
    uint64_t id, request;  /* the last request that took it */
    bool named;            /* id says what it holds */
};

struct kvr_prefix_store {
    struct kvr_u64_map places; /* id -> slot */
    struct slot *slots;        /* slots[count] is the ring's head: newer = oldest of all */
    uint32_t *page_table, *taken;
    uint32_t count, page_tokens, block_tokens;
    uint64_t request;
};

static void unlink_slot(struct kvr_prefix_store *store, uint32_t at)
{
    struct slot *slot = &store->slots[at];

    store->slots[slot->newer].older = slot->older;
    store->slots[slot->older].newer = slot->newer;
}

/* Makes a slot the newest. */
static void link_slot(struct kvr_prefix_store *store, uint32_t at)
{
    struct slot *head = &store->slots[store->count];

    store->slots[at].newer = store->count;
    store->slots[at].older = head->older;
    store->slots[head->older].newer = at;
    head->older = at;
}

enum kvr_status kvr_prefix_store_create(uint32_t pages, uint32_t page_tokens, uint32_t block_tokens,
    struct kvr_prefix_store **out, struct kvr_error *error)
{
    if (block_tokens == 0 || block_tokens % page_tokens)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "a block of %u tokens is no multiple of a page of %u", block_tokens, page_tokens);
    uint32_t per_block = block_tokens / page_tokens, count = pages / per_block;
    if (count == 0)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "the capacity is less than a block of %u tokens", block_tokens);
    struct kvr_prefix_store *store = calloc(1, sizeof *store);
    if (!store)
        return kvr_error_memory(error);
    store->slots = calloc((size_t)count + 1, sizeof *store->slots);
    store->page_table = calloc(pages, sizeof *store->page_table);
    store->taken = calloc(count, sizeof *store->taken);
    if (!store->slots || !store->page_table || !store->taken) {
        kvr_prefix_store_destroy(store);
        return kvr_error_memory(error);
    }
    store->count = count;
    store->page_tokens = page_tokens;
    store->block_tokens = block_tokens;
    store->slots[count] = (struct slot){.newer = count, .older = count};
    for (uint32_t i = 0; i < count; i++)
        link_slot(store, i);
    *out = store;
    return KVR_OK;
}

void kvr_prefix_store_destroy(struct kvr_prefix_store *store)
{
    if (!store)
        return;
    kvr_u64_map_release(&store->places);
    free(store->slots);
    free(store->page_table);
    free(store->taken);
    free(store);
}

/* Where an id is, unless this request has that slot already: an id that comes twice in one prompt
 * names its first block only. NULL: nowhere. */
static uint64_t *find(const struct kvr_prefix_store *store, uint64_t id)
{
    uint64_t *place = kvr_u64_map_find(&store->places, id);

    return place && store->slots[*place].request != store->request ? place : NULL;
}

/* The slot for block `number`: the one that has the id already, else the oldest. */
static bool place(struct kvr_prefix_store *store, const uint64_t *id, uint32_t number)
{
    uint64_t *known = id ? find(store, *id) : NULL;
    uint32_t at = known ? (uint32_t)*known : store->slots[store->count].newer;
    struct slot *slot = &store->slots[at];
    bool is_new = true;

    unlink_slot(store, at);
    link_slot(store, at);
    store->taken[number] = at;
    slot->request = store->request;
    if (known)
        return true;
    if (slot->named)
        kvr_u64_map_remove(&store->places, slot->id, NULL);
    slot->named = false;
    uint64_t *value = id ? kvr_u64_map_insert(&store->places, *id, &is_new) : NULL;
    if (!value || !is_new)
        return value || !id;
    *value = at;
    slot->id = *id;
    slot->named = true;
    return true;
}

enum kvr_status kvr_prefix_store_take(struct kvr_prefix_store *store, const uint64_t *ids,
    size_t count, uint64_t tokens, const uint32_t **page_table, uint32_t *cached_tokens,
    struct kvr_error *error)
{
    uint64_t blocks = tokens / store->block_tokens + (tokens % store->block_tokens != 0);
    uint32_t per_block = store->block_tokens / store->page_tokens;
    uint64_t full = tokens / store->block_tokens, cached = 0;

    if (tokens == 0 || blocks > store->count)
        return kvr_error_set(error, KVR_BAD_INPUT,
            "a prompt of %llu tokens does not fit into a KV cache of %u blocks of %u",
            (unsigned long long)tokens, store->count, store->block_tokens);
    if (count > full)
        count = (size_t)full;
    /* Known blocks first, so that no victim is one of them; then the new ones. */
    store->request++;
    while (cached < count && find(store, ids[cached])) {
        place(store, &ids[cached], (uint32_t)cached);
        cached++;
    }
    for (uint32_t i = (uint32_t)cached; i < blocks; i++)
        if (!place(store, i < count ? &ids[i] : NULL, i))
            return kvr_error_memory(error);
    for (uint32_t i = (uint32_t)blocks; i-- > 0;) {
        unlink_slot(store, store->taken[i]);
        link_slot(store, store->taken[i]);
        for (uint32_t page = 0; page < per_block; page++)
            store->page_table[i * per_block + page] = store->taken[i] * per_block + page;
    }
    cached *= store->block_tokens;
    *cached_tokens = (uint32_t)(cached < tokens ? cached : tokens - 1);
    *page_table = store->page_table;
    return KVR_OK;
}
