/*
 * Inside the prefix index.
 *
 * The problem: find the longest run of every worker in a fraction of a microsecond, insert a block
 * in some tens of nanoseconds, with a true LRU per worker, thousands of workers, and at most 48
 * bytes a (block, worker). All of that is cache misses, so the layout is the algorithm.
 *
 * The idea: one record a (block, worker), in two parallel arrays, so that a search touches only the
 * 16 bytes that it compares, and a touch of the LRU only the 20 that it links:
 *
 *   buckets[]  64 bytes: 12 tags | passed | 12 record numbers         hash -> record
 *   block[r]   16 bytes: key | next_holder | worker | holders         what a search reads
 *   use[r]     20 bytes: older | newer | prev_holder | stamp, parent  what an eviction follows
 *
 * The workers holding a block form a doubly linked list of records; its head has holders > 0 (their
 * number) and stands in the buckets under hash(key). Every other holder stands there under
 * hash(key, worker). So each record has exactly one slot, the question "does anyone hold it" and
 * the question "does this worker hold it" are one probe each however many workers share the block,
 * and a holder leaves in constant time.
 *
 * Buckets are one cache line, open addressed over whole buckets, with a count of the records that
 * had to pass over a full bucket (as in Facebook's F14), so that a miss ends at the first bucket
 * that none passed and a removal leaves no tombstone. A miss costs one line, a hit two. Records are
 * never moved: growing the table re-reads the keys in record order and never the old table.
 *
 * Records come from a stack of free ones. A request's blocks lie side by side when they are new,
 * and blocks evicted deepest first come back in ascending order, so the record after that of block
 * i is a good guess for block i + 1: walking a run is then a linear scan of 16-byte cells.
 */
#ifndef KVR_CACHE_INDEX_PRIVATE_H
#define KVR_CACHE_INDEX_PRIVATE_H

#include "base/pages.h"
#include "base/random.h"
#include "cache/index.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define KVR_INDEX_BUCKET_SLOTS 12u
#define KVR_INDEX_PASSED_MAX UINT16_MAX
#define KVR_INDEX_NOBODY UINT16_MAX /* worker of a record that is free */

struct kvr_index_bucket {
    uint8_t tags[KVR_INDEX_BUCKET_SLOTS]; /* 0 where the slot is empty */
    uint16_t passed; /* records of this or an earlier home that lie further on; at max it stays */
    uint16_t unused;
    uint32_t records[KVR_INDEX_BUCKET_SLOTS];
};

struct kvr_index_block {
    uint64_t key;
    uint32_t next_holder; /* of a free record: the next free one */
    uint16_t worker;
    uint16_t holders; /* of the head: how many hold the block; of others 0 */
};

struct kvr_index_use {
    uint32_t older,
        newer; /* neighbours in the worker's list; older is the record itself off list */
    uint32_t prev_holder;
    union {
        struct {
            uint32_t stamp;  /* approximate: time of the last touch, ms modulo 2^32 */
            uint32_t parent; /* approximate: low half of the key of the block before */
        };
        uint16_t copies[KVR_MEDIUM_COUNT]; /* exact: references by medium */
    };
};

struct kvr_index_worker {
    char *name; /* NULL while the id is free */
    uint64_t capacity_tokens, capacity_blocks;
    uint32_t oldest, newest; /* ends of the list, 0 when it is empty */
    uint32_t count;          /* records of this worker, on the list or not */
    uint32_t limit;          /* blocks it may hold */
    uint32_t block_size;     /* 0 until its first block */
    uint32_t heap_stamp;     /* time of its oldest block, or earlier, while it is in the heap */
    uint32_t name_length;
    bool exact, in_heap;
};

struct kvr_index {
    /* Record 0 is never used: 0 means none everywhere. */
    struct kvr_index_block *block;
    struct kvr_index_use *use;
    struct kvr_index_bucket *buckets;
    uint32_t bucket_count;
    uint32_t slots_taken, slots_before_growth;
    uint32_t record_limit; /* records that there is memory for */
    uint32_t record_top;   /* first record never used */
    uint32_t free_record;  /* top of the stack of free records */
    uint32_t distinct;     /* heads */
    bool walk; /* a worker may hold a block without those before it: search by walking */

    struct kvr_index_worker *workers;
    uint32_t worker_top, worker_room;
    uint32_t free_worker_hint; /* no free id below it */
    uint32_t giver;            /* who gives up blocks at the memory bound */
    uint32_t *names;           /* open addressing: worker id + 1, 0 is empty */
    uint32_t name_mask, names_used;
    size_t name_bytes;

    uint32_t *heap; /* worker ids, the one with the oldest heap_stamp first */
    uint32_t heap_length;

    int64_t now_ms;
    bool time_known;

    uint64_t *keys; /* scratch of one call: keys and records of a request */
    uint32_t *records;
    size_t scratch_room;
    struct kvr_index_match *matches; /* twice worker_room: the upper half is for sorting */
    uint32_t *seen, seen_epoch;      /* by worker: the find that has reported it */

    struct kvr_index_options options;
    kvr_index_evicted *evicted;
    void *evicted_context;
    struct kvr_pages block_pages, use_pages, bucket_pages;
};

/* ---- hashing ---- */

static inline uint64_t kvr_index_mix(uint64_t space, uint64_t id)
{
    return kvr_mix64(id ^ space);
}

/* Where a holder that is not the head stands. */
static inline uint64_t kvr_index_holder_hash(uint64_t key, uint32_t worker)
{
    return kvr_mix64(key + (worker + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* Where a record in use stands. */
static inline uint64_t kvr_index_hash_of(const struct kvr_index *index, uint32_t record)
{
    const struct kvr_index_block *block = &index->block[record];
    return block->holders ? block->key : kvr_index_holder_hash(block->key, block->worker);
}

static inline uint32_t kvr_index_home(const struct kvr_index *index, uint64_t hash)
{
    return (uint32_t)(((hash >> 32) * index->bucket_count) >> 32);
}

static inline uint8_t kvr_index_tag(uint64_t hash)
{
    uint8_t tag = (uint8_t)hash;
    return tag ? tag : 1;
}

static inline void kvr_index_prefetch(const struct kvr_index *index, uint64_t hash)
{
    __builtin_prefetch(&index->buckets[kvr_index_home(index, hash)]);
}

/* Slots of a bucket whose tag is `tag`, as a bit mask of 12. */
static inline uint32_t kvr_index_slots(const struct kvr_index_bucket *bucket, uint8_t tag)
{
#ifdef __SSE2__
    __m128i tags = _mm_load_si128((const __m128i *)bucket);
    __m128i same = _mm_cmpeq_epi8(tags, _mm_set1_epi8((char)tag));
    return (uint32_t)_mm_movemask_epi8(same) & ((1u << KVR_INDEX_BUCKET_SLOTS) - 1);
#else
    uint32_t slots = 0;
    for (uint32_t i = 0; i < KVR_INDEX_BUCKET_SLOTS; i++)
        slots |= (uint32_t)(bucket->tags[i] == tag) << i;
    return slots;
#endif
}

/* ---- look-up ---- */

/* The record in the buckets under hash that has this key and, for worker != NOBODY, this worker
 * (not as a head); 0 when there is none. */
static inline uint32_t kvr_index_probe(
    const struct kvr_index *index, uint64_t hash, uint64_t key, uint32_t worker)
{
    uint32_t at = kvr_index_home(index, hash);
    uint8_t tag = kvr_index_tag(hash);

    for (uint32_t left = index->bucket_count; left; left--) {
        const struct kvr_index_bucket *bucket = &index->buckets[at];
        for (uint32_t slots = kvr_index_slots(bucket, tag); slots; slots &= slots - 1) {
            uint32_t record = bucket->records[__builtin_ctz(slots)];
            const struct kvr_index_block *block = &index->block[record];
            if (block->key == key &&
                (worker == KVR_INDEX_NOBODY ? block->holders != 0
                                            : block->holders == 0 && block->worker == worker))
                return record;
        }
        if (!bucket->passed)
            return 0;
        at = at + 1 == index->bucket_count ? 0 : at + 1;
    }
    return 0;
}

/* The head of the list of holders of key, or 0. */
static inline uint32_t kvr_index_head(const struct kvr_index *index, uint64_t key)
{
    return kvr_index_probe(index, key, key, KVR_INDEX_NOBODY);
}

/* The record of (key, worker), given the head of key; 0 when the worker does not hold it. */
static inline uint32_t kvr_index_holder(
    const struct kvr_index *index, uint32_t head, uint64_t key, uint32_t worker)
{
    if (!head || index->block[head].worker == worker)
        return head;
    if (index->block[head].holders == 1)
        return 0;
    return kvr_index_probe(index, kvr_index_holder_hash(key, worker), key, worker);
}

/* The worker's record of the block after that of `record` (0: of any block), or 0. */
static inline uint32_t kvr_index_follow(
    const struct kvr_index *index, uint32_t record, uint32_t worker, uint64_t key)
{
    uint32_t next = record + 1;

    if (next < index->record_top && index->block[next].key == key &&
        index->block[next].worker == worker)
        return next;
    return kvr_index_holder(index, kvr_index_head(index, key), key, worker);
}

/* Whether the record found for a block by kvr_index_look_up() is its record still. */
static inline bool kvr_index_is_record(
    const struct kvr_index *index, uint32_t record, uint32_t worker, uint64_t key)
{
    return record && index->block[record].worker == worker && index->block[record].key == key;
}

/* ---- index_table.c: records and buckets ---- */

/* The record of (key, worker), made (off every list, *fresh) where the worker does not hold the
 * block. kvr_index_room() must have said yes. */
uint32_t kvr_index_insert(struct kvr_index *index, uint64_t key, uint32_t worker, bool *fresh);
/* Takes the record out of the table and frees it. It must be off its worker's list. */
void kvr_index_erase(struct kvr_index *index, uint32_t record);
/* Grows the records or the buckets. False when memory or its bound forbids it. */
bool kvr_index_grow(struct kvr_index *index);
/* Keys of the blocks of a request and the worker's record of each (0 where it holds none), into
 * index->keys and index->records. likely_held: the first blocks are probably there. False when
 * memory is short. */
bool kvr_index_look_up(
    struct kvr_index *index, uint32_t worker, const struct kvr_blocks *blocks, bool likely_held);

/* Room for one more record. False when there is none. */
static inline bool kvr_index_room(struct kvr_index *index)
{
    return ((index->free_record || index->record_top < index->record_limit) &&
               index->slots_taken < index->slots_before_growth) ||
           kvr_index_grow(index);
}
/* Forgets all records without giving memory back. */
void kvr_index_table_reset(struct kvr_index *index);

/* ---- index_workers.c: lists, time, the memory bound ---- */

static inline void kvr_index_unlink(struct kvr_index *index, uint32_t record)
{
    struct kvr_index_use *use = &index->use[record];
    struct kvr_index_worker *worker = &index->workers[index->block[record].worker];

    if (use->older)
        index->use[use->older].newer = use->newer;
    else
        worker->oldest = use->newer;
    if (use->newer)
        index->use[use->newer].older = use->older;
    else
        worker->newest = use->older;
    use->older = record;
}

static inline bool kvr_index_is_linked(const struct kvr_index *index, uint32_t record)
{
    return index->use[record].older != record;
}

/* Makes an unlinked record the newest of its worker. */
static inline void kvr_index_link_newest(
    struct kvr_index *index, struct kvr_index_worker *worker, uint32_t record)
{
    struct kvr_index_use *use = &index->use[record];

    use->older = worker->newest;
    use->newer = 0;
    if (worker->newest)
        index->use[worker->newest].newer = record;
    else
        worker->oldest = record;
    worker->newest = record;
}

/* The worker loses `count` of its oldest blocks on the list, or all; whoever listens is told. */
void kvr_index_evict_oldest(struct kvr_index *index, uint32_t worker, size_t count);
/* At the memory bound: some worker gives up a block, the one who has most first. False when no
 * block is on any list. */
bool kvr_index_give_up_one(struct kvr_index *index);
/* Moves time forward and drops what has expired. */
void kvr_index_advance(struct kvr_index *index, int64_t now_ms);
/* Sees to it that the worker's oldest block will be looked at when it expires. */
void kvr_index_watch_expiry(struct kvr_index *index, uint32_t worker);
/* Fixes the worker's block size with its first block; KVR_BAD_INPUT for another one later. */
enum kvr_status kvr_index_bind_block_size(struct kvr_index *index, uint32_t worker,
    const struct kvr_blocks *blocks, struct kvr_error *error);
/* Back to no workers and no blocks. */
void kvr_index_reset(struct kvr_index *index);

#endif
