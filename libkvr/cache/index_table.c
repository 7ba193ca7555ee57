#include "cache/index_private.h"

#include <stdlib.h>

#define FILL_PERCENT 76u /* of the slots, before the table grows by 7/16 */
#define FIRST_BUCKETS 16u
#define MAX_BUCKETS 357913941u /* 12 slots each: one for every record number */
#define FIRST_RECORDS 1024u
#define REBUILD_AHEAD 24u
#define GROUP 32u /* look-ups in flight */

/* ---- slots ---- */

static void slot_add(struct kvr_index *index, uint64_t hash, uint32_t record)
{
    uint32_t at = kvr_index_home(index, hash);

    for (;;) {
        struct kvr_index_bucket *bucket = &index->buckets[at];
        uint32_t empty = kvr_index_slots(bucket, 0);
        if (empty) {
            uint32_t slot = (uint32_t)__builtin_ctz(empty);
            bucket->tags[slot] = kvr_index_tag(hash);
            bucket->records[slot] = record;
            return;
        }
        if (bucket->passed < KVR_INDEX_PASSED_MAX)
            bucket->passed++;
        at = at + 1 == index->bucket_count ? 0 : at + 1;
    }
}

/* The record's slot, which exists, is emptied (with == 0) or given to another record. */
static void slot_change(struct kvr_index *index, uint64_t hash, uint32_t record, uint32_t with)
{
    uint32_t at = kvr_index_home(index, hash);
    uint8_t tag = kvr_index_tag(hash);

    for (;;) {
        struct kvr_index_bucket *bucket = &index->buckets[at];
        for (uint32_t slots = kvr_index_slots(bucket, tag); slots; slots &= slots - 1) {
            uint32_t slot = (uint32_t)__builtin_ctz(slots);
            if (bucket->records[slot] == record) {
                bucket->records[slot] = with;
                if (!with)
                    bucket->tags[slot] = 0;
                return;
            }
        }
        if (!with && bucket->passed < KVR_INDEX_PASSED_MAX)
            bucket->passed--;
        at = at + 1 == index->bucket_count ? 0 : at + 1;
    }
}

/* ---- growth ---- */

static bool may_map(const struct kvr_index *index, const struct kvr_pages *pages, size_t bytes)
{
    return kvr_index_memory_bytes(index) - pages->size_bytes + kvr_pages_round(bytes) <=
           index->options.max_memory_bytes;
}

static bool grow_buckets(struct kvr_index *index)
{
    uint64_t count = index->bucket_count + (uint64_t)index->bucket_count * 7 / 16;

    if (count < FIRST_BUCKETS)
        count = FIRST_BUCKETS;
    if (count > MAX_BUCKETS)
        count = MAX_BUCKETS;
    if (count == index->bucket_count ||
        !may_map(index, &index->bucket_pages, count * sizeof *index->buckets) ||
        !kvr_pages_grow(&index->bucket_pages, count * sizeof *index->buckets))
        return false;
    index->buckets = index->bucket_pages.data;
    memset(index->buckets, 0, index->bucket_count * sizeof *index->buckets);
    index->bucket_count = (uint32_t)count;
    index->slots_before_growth = (uint32_t)(count * KVR_INDEX_BUCKET_SLOTS * FILL_PERCENT / 100);
    for (uint32_t record = 1; record < index->record_top; record++) {
        uint32_t ahead = record + REBUILD_AHEAD;
        if (ahead < index->record_top)
            __builtin_prefetch(
                &index->buckets[kvr_index_home(index, kvr_index_hash_of(index, ahead))], 1);
        if (index->block[record].worker != KVR_INDEX_NOBODY)
            slot_add(index, kvr_index_hash_of(index, record), record);
    }
    return true;
}

static bool grow_records(struct kvr_index *index)
{
    uint64_t count = index->record_limit + index->record_limit / 32, fit;

    /* Small arrays double: a little more of little would be many system calls. */
    if (count < 16 * FIRST_RECORDS)
        count = index->record_limit ? 2 * (uint64_t)index->record_limit : FIRST_RECORDS;
    if (count > UINT32_MAX)
        count = UINT32_MAX;
    if (count == index->record_limit)
        return false;
    if (!may_map(index, &index->block_pages, count * sizeof *index->block) ||
        !kvr_pages_grow(&index->block_pages, count * sizeof *index->block))
        return false;
    index->block = index->block_pages.data;
    if (!may_map(index, &index->use_pages, count * sizeof *index->use) ||
        !kvr_pages_grow(&index->use_pages, count * sizeof *index->use))
        return false;
    index->use = index->use_pages.data;
    /* Pages were rounded up: use what they hold. */
    count = index->block_pages.size_bytes / sizeof *index->block;
    fit = index->use_pages.size_bytes / sizeof *index->use;
    count = count < fit ? count : fit;
    index->record_limit = count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;
    if (!index->record_top)
        index->record_top = 1;
    return true;
}

bool kvr_index_grow(struct kvr_index *index)
{
    if (!index->free_record && index->record_top >= index->record_limit && !grow_records(index))
        return false;
    return index->slots_taken < index->slots_before_growth || grow_buckets(index);
}

/* ---- looking many up ---- */

static bool grow_scratch(struct kvr_index *index, size_t count)
{
    size_t room = index->scratch_room ? index->scratch_room : 256;
    uint64_t *keys;
    uint32_t *records;

    if (count <= index->scratch_room)
        return true;
    while (room < count)
        room *= 2;
    keys = realloc(index->keys, room * sizeof *keys);
    if (!keys)
        return false;
    index->keys = keys;
    records = realloc(index->records, room * sizeof *records);
    if (!records)
        return false;
    index->records = records;
    index->scratch_room = room;
    return true;
}

/*
 * A look-up is two dependent cache misses, bucket and record, and two more where other workers hold
 * the block too. Those of a group do not depend on each other: all buckets are asked for, then all
 * records that a tag promises, then the slots of holders that are not heads (also where this worker
 * is about to get one), and only then is the last compared. Most blocks that are not held end at
 * their bucket's tags.
 */
static void look_up_group(struct kvr_index *index, uint32_t worker, uint64_t space,
    const uint64_t *ids, size_t count, uint64_t *keys, uint32_t *records)
{
    for (size_t i = 0; i < count; i++) {
        keys[i] = kvr_index_mix(space, ids[i]);
        kvr_index_prefetch(index, keys[i]);
    }
    for (size_t i = 0; i < count; i++) {
        const struct kvr_index_bucket *bucket = &index->buckets[kvr_index_home(index, keys[i])];
        uint32_t slots = kvr_index_slots(bucket, kvr_index_tag(keys[i]));
        records[i] = slots || bucket->passed;
        if (slots) {
            uint32_t record = bucket->records[__builtin_ctz(slots)];
            __builtin_prefetch(&index->block[record]);
            __builtin_prefetch(&index->use[record], 1);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (!records[i])
            continue;
        records[i] = kvr_index_head(index, keys[i]);
        if (records[i] && index->block[records[i]].worker != worker)
            kvr_index_prefetch(index, kvr_index_holder_hash(keys[i], worker));
    }
    for (size_t i = 0; i < count; i++)
        if (records[i])
            records[i] = kvr_index_holder(index, records[i], keys[i], worker);
}

/* The start of a request that the worker holds, record by record: what was stored together lies
 * side by side, and costs a comparison. Returns the first block that it does not hold. */
static size_t follow_run(struct kvr_index *index, uint32_t worker, const struct kvr_blocks *blocks)
{
    uint32_t record = 0;
    size_t i = 0;

    for (; i < blocks->count; i++) {
        uint64_t key = kvr_index_mix(blocks->space, blocks->ids[i]);
        record = kvr_index_follow(index, record, worker, key);
        if (!record)
            break;
        index->keys[i] = key;
        index->records[i] = record;
    }
    return i;
}

bool kvr_index_look_up(
    struct kvr_index *index, uint32_t worker, const struct kvr_blocks *blocks, bool likely_held)
{
    size_t i;

    if (!grow_scratch(index, blocks->count) || (!index->bucket_count && !kvr_index_grow(index)))
        return false;
    for (i = likely_held ? follow_run(index, worker, blocks) : 0; i < blocks->count; i += GROUP) {
        size_t left = blocks->count - i;
        look_up_group(index, worker, blocks->space, blocks->ids + i, left < GROUP ? left : GROUP,
            index->keys + i, index->records + i);
    }
    return true;
}

/* ---- records ---- */

static inline uint32_t new_record(struct kvr_index *index, uint64_t key, uint32_t worker)
{
    uint32_t record = index->free_record;

    if (record)
        index->free_record = index->block[record].next_holder;
    else
        record = index->record_top++;
    index->block[record] = (struct kvr_index_block){key, 0, (uint16_t)worker, 0};
    index->use[record].older = record;
    index->use[record].prev_holder = 0;
    index->slots_taken++;
    index->workers[worker].count++;
    return record;
}

static void join_holders(
    struct kvr_index *index, uint32_t head, uint64_t key, uint32_t worker, uint32_t record)
{
    uint32_t next = index->block[head].next_holder;

    index->block[record].next_holder = next;
    index->use[record].prev_holder = head;
    if (next)
        index->use[next].prev_holder = record;
    index->block[head].next_holder = record;
    index->block[head].holders++;
    slot_add(index, kvr_index_holder_hash(key, worker), record);
}

uint32_t kvr_index_insert(struct kvr_index *index, uint64_t key, uint32_t worker, bool *fresh)
{
    struct kvr_index_bucket *bucket = &index->buckets[kvr_index_home(index, key)];
    uint8_t tag = kvr_index_tag(key);
    uint32_t empty = kvr_index_slots(bucket, 0), head = 0, record;

    if (bucket->passed || kvr_index_slots(bucket, tag)) {
        head = kvr_index_head(index, key);
        record = kvr_index_holder(index, head, key, worker);
        if (record) {
            *fresh = false;
            return record;
        }
    }
    *fresh = true;
    record = new_record(index, key, worker);
    if (head) {
        join_holders(index, head, key, worker, record);
        return record;
    }
    index->block[record].holders = 1;
    index->distinct++;
    if (empty) {
        uint32_t slot = (uint32_t)__builtin_ctz(empty);
        bucket->tags[slot] = tag;
        bucket->records[slot] = record;
    } else {
        slot_add(index, key, record);
    }
    return record;
}

/* The head leaves: the next holder, if any, takes its place in the list and its slot. */
static void erase_head(struct kvr_index *index, uint32_t record)
{
    struct kvr_index_block *block = &index->block[record];
    uint32_t next = block->next_holder;

    if (!next) {
        slot_change(index, block->key, record, 0);
        index->distinct--;
        return;
    }
    slot_change(index, kvr_index_holder_hash(block->key, index->block[next].worker), next, 0);
    slot_change(index, block->key, record, next);
    index->block[next].holders = (uint16_t)(block->holders - 1);
    index->use[next].prev_holder = 0;
}

void kvr_index_erase(struct kvr_index *index, uint32_t record)
{
    struct kvr_index_block *block = &index->block[record];

    if (block->holders) {
        erase_head(index, record);
    } else {
        uint32_t previous = index->use[record].prev_holder, next = block->next_holder;
        index->block[kvr_index_head(index, block->key)].holders--;
        index->block[previous].next_holder = next;
        if (next)
            index->use[next].prev_holder = previous;
        slot_change(index, kvr_index_holder_hash(block->key, block->worker), record, 0);
    }
    index->workers[block->worker].count--;
    index->slots_taken--;
    block->worker = KVR_INDEX_NOBODY;
    block->holders = 0;
    block->next_holder = index->free_record;
    index->free_record = record;
    if (!index->slots_taken) {
        /* Empty: start over with records in order, and with trust in chained ids. */
        index->record_top = 1;
        index->free_record = 0;
        index->walk = false;
    }
}

void kvr_index_table_reset(struct kvr_index *index)
{
    kvr_pages_release(&index->block_pages);
    kvr_pages_release(&index->use_pages);
    kvr_pages_release(&index->bucket_pages);
    index->block = NULL;
    index->use = NULL;
    index->buckets = NULL;
    index->bucket_count = index->slots_taken = index->slots_before_growth = 0;
    index->record_limit = index->record_top = index->free_record = index->distinct = 0;
    index->walk = false;
}

uint64_t kvr_index_pairs(const struct kvr_index *index)
{
    return index->slots_taken;
}

uint64_t kvr_index_distinct_blocks(const struct kvr_index *index)
{
    return index->distinct;
}

uint64_t kvr_index_memory_bytes(const struct kvr_index *index)
{
    return sizeof *index + index->block_pages.size_bytes + index->use_pages.size_bytes +
           index->bucket_pages.size_bytes +
           index->scratch_room * (sizeof *index->keys + sizeof *index->records) +
           index->worker_room * (sizeof *index->workers + 2 * sizeof *index->matches +
                                    sizeof *index->seen + sizeof *index->heap) +
           (index->names ? ((size_t)index->name_mask + 1) * sizeof *index->names : 0) +
           index->name_bytes;
}
