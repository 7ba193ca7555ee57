/*
 * Workers: their names, their lists, and the two clocks that take blocks from them.
 *
 * Expiry. A list is in order of last touch, so only its oldest end can have expired; but thousands
 * of workers have thousands of ends. A heap orders them by a lower bound of the time of their
 * oldest block. Touching a worker leaves its bound alone (it only gets too low); a bound is looked
 * at when it comes due, and then either blocks expire or the bound is raised. So time costs nothing
 * until something may expire, and O(log workers) then, and a search never meets an expired block.
 *
 * The memory bound. When there is no room for a record, the worker with more than an even share of
 * all records gives up its oldest block: heavy workers are cut to the same size, light ones keep
 * what they have. Finding one is a walk from the last giver on, so its cost is spread over the
 * blocks that giver still has above its share.
 */
#include "cache/index_private.h"

#include <stdlib.h>
#include <xxhash.h>

#define FIRST_WORKERS 16u
#define GROUP 16u /* victims whose cache misses overlap */

enum kvr_status kvr_index_create(
    struct kvr_index **index, const struct kvr_index_options *options, struct kvr_error *error)
{
    *index = NULL;
    if (options->ttl_ms < 0 || options->ttl_ms > KVR_INDEX_MAX_TTL_MS)
        return kvr_error_set(error, KVR_BAD_USAGE, "a time to live must be 0 to %lld ms",
            (long long)KVR_INDEX_MAX_TTL_MS);
    *index = calloc(1, sizeof **index);
    if (!*index)
        return kvr_error_memory(error);
    (*index)->options = *options;
    return KVR_OK;
}

static void release_workers(struct kvr_index *index)
{
    for (uint32_t i = 0; i < index->worker_top; i++)
        free(index->workers[i].name);
    free(index->workers);
    free(index->matches);
    free(index->seen);
    free(index->heap);
    free(index->names);
}

void kvr_index_destroy(struct kvr_index *index)
{
    if (!index)
        return;
    kvr_index_table_reset(index);
    release_workers(index);
    free(index->keys);
    free(index->records);
    free(index);
}

void kvr_index_reset(struct kvr_index *index)
{
    struct kvr_index kept = *index;

    kvr_index_table_reset(index);
    release_workers(index);
    memset(index, 0, sizeof *index);
    index->options = kept.options;
    index->evicted = kept.evicted;
    index->evicted_context = kept.evicted_context;
    index->keys = kept.keys;
    index->records = kept.records;
    index->scratch_room = kept.scratch_room;
}

void kvr_index_on_evicted(struct kvr_index *index, kvr_index_evicted *evicted, void *context)
{
    index->evicted = evicted;
    index->evicted_context = context;
}

uint64_t kvr_index_space(const struct kvr_index *index, const char *model, size_t model_length,
    const char *lora, size_t lora_length, const char *salt, size_t salt_length, uint32_t block_size)
{
    /* Each part is hashed with the hash before it as seed, so that no shift of bytes between the
     * parts can make two namespaces equal. */
    uint64_t hash = XXH3_64bits_withSeed(&block_size, sizeof block_size, index->options.seed);

    hash = XXH3_64bits_withSeed(model_length ? model : "", model_length, hash);
    hash = XXH3_64bits_withSeed(lora_length ? lora : "", lora_length, hash);
    return XXH3_64bits_withSeed(salt_length ? salt : "", salt_length, hash);
}

uint64_t kvr_index_key(uint64_t space, uint64_t id)
{
    return kvr_index_mix(space, id);
}

/* ---- names ---- */

static uint32_t *name_slot(const struct kvr_index *index, const char *name, size_t length)
{
    uint32_t at = (uint32_t)XXH3_64bits(name, length) & index->name_mask;

    for (;; at = (at + 1) & index->name_mask) {
        uint32_t *slot = &index->names[at];
        const struct kvr_index_worker *worker;
        if (!*slot)
            return slot;
        worker = &index->workers[*slot - 1];
        if (worker->name_length == length && memcmp(worker->name, name, length) == 0)
            return slot;
    }
}

/* Writes the names of all workers into a table of `size` (a power of two) slots. */
static bool rebuild_names(struct kvr_index *index, uint32_t size)
{
    uint32_t *names = calloc(size, sizeof *names);

    if (!names)
        return false;
    free(index->names);
    index->names = names;
    index->name_mask = size - 1;
    for (uint32_t i = 0; i < index->worker_top; i++)
        if (index->workers[i].name)
            *name_slot(index, index->workers[i].name, index->workers[i].name_length) = i + 1;
    return true;
}

/* Empties the slot of a name and moves back those behind that would not be found any more. */
static void forget_name(struct kvr_index *index, const struct kvr_index_worker *worker)
{
    uint32_t *slot = name_slot(index, worker->name, worker->name_length);
    uint32_t mask = index->name_mask, hole = (uint32_t)(slot - index->names);

    for (uint32_t at = (hole + 1) & mask; index->names[at]; at = (at + 1) & mask) {
        const struct kvr_index_worker *other = &index->workers[index->names[at] - 1];
        uint32_t home = (uint32_t)XXH3_64bits(other->name, other->name_length) & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            index->names[hole] = index->names[at];
            hole = at;
        }
    }
    index->names[hole] = 0;
}

uint32_t kvr_index_worker_lookup(const struct kvr_index *index, const char *name, size_t length)
{
    uint32_t found = index->names ? *name_slot(index, name, length) : 0;

    return found ? found - 1 : UINT32_MAX;
}

static bool more_workers(struct kvr_index *index)
{
    uint32_t room = index->worker_room ? 2 * index->worker_room : FIRST_WORKERS;
    void *grown;

    if (!(grown = realloc(index->workers, room * sizeof *index->workers)))
        return false;
    index->workers = grown;
    if (!(grown = realloc(index->matches, 2 * room * sizeof *index->matches)))
        return false;
    index->matches = grown;
    if (!(grown = realloc(index->heap, room * sizeof *index->heap)))
        return false;
    index->heap = grown;
    if (!(grown = realloc(index->seen, room * sizeof *index->seen)))
        return false;
    index->seen = grown;
    memset(index->seen + index->worker_room, 0, (room - index->worker_room) * sizeof *index->seen);
    index->worker_room = room;
    return true;
}

enum kvr_status kvr_index_worker(struct kvr_index *index, const char *name, size_t length,
    uint32_t *worker, struct kvr_error *error)
{
    uint32_t id = kvr_index_worker_lookup(index, name, length);
    struct kvr_index_worker *made;
    char *copy;

    if (id != UINT32_MAX) {
        *worker = id;
        return KVR_OK;
    }
    if (length == 0 || length > KVR_INDEX_MAX_NAME_BYTES)
        return kvr_error_set(error, KVR_BAD_INPUT, "a worker's name must have 1 to %u bytes",
            KVR_INDEX_MAX_NAME_BYTES);
    if (memchr(name, 0, length))
        return kvr_error_set(error, KVR_BAD_INPUT, "a worker's name has a NUL byte");
    if (index->names_used >= KVR_INDEX_MAX_WORKERS)
        return kvr_error_set(error, KVR_BAD_INPUT, "more than %u workers", KVR_INDEX_MAX_WORKERS);
    for (id = index->free_worker_hint; id < index->worker_top && index->workers[id].name;)
        id++;
    if (id == index->worker_room && !more_workers(index))
        return kvr_error_memory(error);
    if ((!index->names || 2 * (index->names_used + 1) > index->name_mask) &&
        !rebuild_names(index, index->names ? 2 * (index->name_mask + 1) : 2 * FIRST_WORKERS))
        return kvr_error_memory(error);
    copy = malloc(length + 1);
    if (!copy)
        return kvr_error_memory(error);
    memcpy(copy, name, length);
    copy[length] = 0;
    made = &index->workers[id];
    memset(made, 0, sizeof *made);
    made->name = copy;
    made->name_length = (uint32_t)length;
    made->capacity_tokens = index->options.capacity_tokens;
    made->capacity_blocks = index->options.capacity_blocks;
    *name_slot(index, name, length) = id + 1;
    index->name_bytes += length + 1;
    index->names_used++;
    index->free_worker_hint = id + 1;
    if (id == index->worker_top)
        index->worker_top++;
    *worker = id;
    return KVR_OK;
}

const char *kvr_index_worker_name(const struct kvr_index *index, uint32_t worker)
{
    return worker < index->worker_top ? index->workers[worker].name : NULL;
}

uint32_t kvr_index_worker_limit(const struct kvr_index *index)
{
    return index->worker_top;
}

uint64_t kvr_index_worker_blocks(const struct kvr_index *index, uint32_t worker)
{
    return index->workers[worker].count;
}

uint32_t kvr_index_worker_block_size(const struct kvr_index *index, uint32_t worker)
{
    return index->workers[worker].block_size;
}

bool kvr_index_worker_is_exact(const struct kvr_index *index, uint32_t worker)
{
    return index->workers[worker].exact;
}

/* ---- losing blocks ---- */

/* The worker loses `count` of its oldest blocks on the list, or all that are there. A group of
 * victims is found first and its lines asked for, so that their cache misses overlap. */
static void lose_oldest(struct kvr_index *index, uint32_t worker, size_t count, bool tell)
{
    uint32_t victims[GROUP], length;

    for (; count; count -= length) {
        uint32_t next = index->workers[worker].oldest;
        for (length = 0; length < GROUP && length < count && next; length++) {
            victims[length] = next;
            __builtin_prefetch(&index->block[next]);
            next = index->use[next].newer;
        }
        for (uint32_t i = 0; i < length; i++) {
            kvr_index_prefetch(index, kvr_index_hash_of(index, victims[i]));
            if (!index->block[victims[i]].holders)
                kvr_index_prefetch(index, index->block[victims[i]].key);
        }
        for (uint32_t i = 0; i < length; i++) {
            if (tell && index->evicted)
                index->evicted(index->evicted_context, worker, index->block[victims[i]].key);
            kvr_index_unlink(index, victims[i]);
            kvr_index_erase(index, victims[i]);
        }
        if (!next)
            return;
    }
}

void kvr_index_evict_oldest(struct kvr_index *index, uint32_t worker, size_t count)
{
    lose_oldest(index, worker, count, !index->workers[worker].exact);
}

static void set_limit(struct kvr_index_worker *worker)
{
    uint64_t limit = worker->capacity_blocks;

    if (worker->capacity_tokens != KVR_INDEX_UNBOUNDED &&
        worker->capacity_tokens / worker->block_size < limit)
        limit = worker->capacity_tokens / worker->block_size;
    worker->limit = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit;
}

enum kvr_status kvr_index_bind_block_size(struct kvr_index *index, uint32_t worker,
    const struct kvr_blocks *blocks, struct kvr_error *error)
{
    struct kvr_index_worker *to = &index->workers[worker];

    if (to->block_size == blocks->block_size && blocks->block_size)
        return KVR_OK;
    if (!blocks->block_size)
        return kvr_error_set(error, KVR_BAD_INPUT, "a block of 0 tokens");
    if (to->block_size) {
        char name[KVR_INDEX_MAX_NAME_BYTES + 1];
        return kvr_error_set(error, KVR_BAD_INPUT,
            "worker '%s' holds blocks of %u tokens, these have %u",
            kvr_printable(name, sizeof name, to->name, to->name_length), to->block_size,
            blocks->block_size);
    }
    to->block_size = blocks->block_size;
    set_limit(to);
    return KVR_OK;
}

void kvr_index_worker_capacity(
    struct kvr_index *index, uint32_t worker, uint64_t capacity_tokens, uint64_t capacity_blocks)
{
    struct kvr_index_worker *to = &index->workers[worker];

    to->capacity_tokens = capacity_tokens;
    to->capacity_blocks = capacity_blocks;
    if (!to->block_size)
        return;
    set_limit(to);
    if (!to->exact && to->count > to->limit)
        kvr_index_evict_oldest(index, worker, to->count - to->limit);
}

void kvr_index_worker_clear(struct kvr_index *index, uint32_t worker)
{
    struct kvr_index_worker *from = &index->workers[worker];

    lose_oldest(index, worker, from->count, false);
    /* What comes next may have blocks of another size. An exact worker goes on telling, though. */
    from->block_size = 0;
}

void kvr_index_worker_remove(struct kvr_index *index, uint32_t worker)
{
    struct kvr_index_worker *from = &index->workers[worker];

    kvr_index_worker_clear(index, worker);
    if (from->in_heap) {
        uint32_t at = 0;
        while (index->heap[at] != worker)
            at++;
        index->heap[at] = index->heap[--index->heap_length];
        /* Its place may be wrong for the one moved there; sorting anew is rare and simple. */
        for (uint32_t left = index->heap_length, *heap = index->heap; left--;)
            index->workers[heap[left]].in_heap = false;
        uint32_t members = index->heap_length;
        index->heap_length = 0;
        for (uint32_t i = 0; i < members; i++)
            kvr_index_watch_expiry(index, index->heap[i]);
    }
    forget_name(index, from);
    index->name_bytes -= from->name_length + 1u;
    free(from->name);
    memset(from, 0, sizeof *from);
    index->names_used--;
    if (worker < index->free_worker_hint)
        index->free_worker_hint = worker;
}

/* ---- time ---- */

static uint32_t age(const struct kvr_index *index, uint32_t stamp)
{
    return (uint32_t)(uint64_t)index->now_ms - stamp;
}

static uint32_t heap_age(const struct kvr_index *index, uint32_t at)
{
    return age(index, index->workers[index->heap[at]].heap_stamp);
}

static void heap_swap(struct kvr_index *index, uint32_t a, uint32_t b)
{
    uint32_t kept = index->heap[a];

    index->heap[a] = index->heap[b];
    index->heap[b] = kept;
}

static void heap_sink(struct kvr_index *index, uint32_t at)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= index->heap_length)
            return;
        if (child + 1 < index->heap_length && heap_age(index, child + 1) > heap_age(index, child))
            child++;
        if (heap_age(index, at) >= heap_age(index, child))
            return;
        heap_swap(index, at, child);
        at = child;
    }
}

void kvr_index_watch_expiry(struct kvr_index *index, uint32_t worker)
{
    struct kvr_index_worker *watched = &index->workers[worker];
    uint32_t at = index->heap_length;

    if (!index->options.ttl_ms || watched->in_heap || watched->exact || !watched->oldest)
        return;
    watched->in_heap = true;
    watched->heap_stamp = index->use[watched->oldest].stamp;
    index->heap[index->heap_length++] = worker;
    for (; at && heap_age(index, at) > heap_age(index, (at - 1) / 2); at = (at - 1) / 2)
        heap_swap(index, at, (at - 1) / 2);
}

static void expire_due(struct kvr_index *index)
{
    uint32_t ttl = (uint32_t)index->options.ttl_ms;

    while (index->heap_length && heap_age(index, 0) >= ttl) {
        uint32_t worker = index->heap[0];
        struct kvr_index_worker *due = &index->workers[worker];
        while (due->oldest && !due->exact && age(index, index->use[due->oldest].stamp) >= ttl)
            kvr_index_evict_oldest(index, worker, 1);
        if (due->oldest && !due->exact) {
            due->heap_stamp = index->use[due->oldest].stamp;
        } else {
            due->in_heap = false;
            index->heap[0] = index->heap[--index->heap_length];
        }
        heap_sink(index, 0);
    }
}

bool kvr_index_now(const struct kvr_index *index, int64_t *now_ms)
{
    *now_ms = index->now_ms;
    return index->time_known;
}

void kvr_index_advance(struct kvr_index *index, int64_t now_ms)
{
    if (index->time_known && now_ms <= index->now_ms)
        return;
    if (index->options.ttl_ms && index->time_known &&
        (uint64_t)now_ms - (uint64_t)index->now_ms >= (uint64_t)index->options.ttl_ms) {
        /* A leap over everything's end. Stamps are modulo 2^32 and could not tell it from a step.
         */
        for (uint32_t i = 0; i < index->worker_top; i++)
            if (!index->workers[i].exact)
                kvr_index_evict_oldest(index, i, index->workers[i].count);
        for (; index->heap_length; index->heap_length--)
            index->workers[index->heap[index->heap_length - 1]].in_heap = false;
    }
    index->now_ms = now_ms;
    index->time_known = true;
    if (index->heap_length)
        expire_due(index);
}

/* ---- memory ---- */

bool kvr_index_give_up_one(struct kvr_index *index)
{
    uint32_t share = index->names_used ? index->slots_taken / index->names_used : 0;

    for (uint32_t left = index->worker_top; left; left--) {
        const struct kvr_index_worker *worker;
        if (index->giver >= index->worker_top)
            index->giver = 0;
        worker = &index->workers[index->giver];
        if (worker->oldest && worker->count > share) {
            kvr_index_evict_oldest(index, index->giver, 1);
            return true;
        }
        index->giver++;
    }
    for (uint32_t i = 0; i < index->worker_top; i++)
        if (index->workers[i].oldest) {
            kvr_index_evict_oldest(index, i, 1);
            return true;
        }
    return false;
}
