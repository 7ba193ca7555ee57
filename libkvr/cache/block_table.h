/*
 * The one hash table of a block store: 64-bit ids to u32 slots.
 *
 * Problem: a cache looks up, inserts and removes some thirty million ids a second. A general map
 * would store the id a second time, and linear probing pays for every look-up, insertion and
 * removal with a loop that ends after one to five steps, which no branch predictor can guess.
 *
 * Idea: groups of one cache line. A group holds seven pairs of a 32-bit hash and a slot; all seven
 * hashes are compared at once, and the id itself is compared in the block, only where 32 bits
 * agree. An id that finds its group full goes to the next one and is counted in the overflow of
 * every group that it passed, so a look-up stops at the first group that nobody passed (as F14
 * does) and removal needs no tombstones: it moves the group's last pair into the gap and takes the
 * counts back. With groups half full a look-up touches a second line once in forty times, and all
 * its branches are as good as constant.
 *
 *     group   [ hash x 7 | overflow | slot x 7 | count ]          64 bytes, aligned
 *
 * Cost: one cache line a look-up, 18.3 bytes an id at half load. The home of a hash is
 * hash * groups / 2^32, so the size need not be a power of two and memory follows the capacity. Ids
 * are mixed by a multiplication of 64 x 64 to 128 bits, both halves of which are used.
 */
#ifndef KVR_CACHE_BLOCK_TABLE_H
#define KVR_CACHE_BLOCK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { KVR_BLOCK_GROUP = 7 };

struct kvr_block_group {
    uint32_t hashes[KVR_BLOCK_GROUP];
    uint32_t overflow; /* ids that passed this group because it was full */
    uint32_t slots[KVR_BLOCK_GROUP];
    uint32_t count; /* pairs, the first ones */
};

struct kvr_block_table {
    struct kvr_block_group *groups;
    uint32_t group_count;
    uint32_t count; /* ids */
};

static inline uint32_t kvr_block_table_hash(uint64_t id)
{
    unsigned __int128 wide = (unsigned __int128)(id ^ 0x2d358dccaa6c78a5u) * 0x8bb84b93962eacc9u;
    return (uint32_t)((uint64_t)wide >> 32) ^ (uint32_t)(uint64_t)(wide >> 64);
}

static inline uint32_t kvr_block_table_home(const struct kvr_block_table *table, uint32_t hash)
{
    return (uint32_t)(((uint64_t)hash * table->group_count) >> 32);
}

static inline void kvr_block_table_prefetch(const struct kvr_block_table *table, uint32_t hash)
{
    __builtin_prefetch(&table->groups[kvr_block_table_home(table, hash)]);
}

/* Bit i: pair i has the hash. Compilers make two vector compares of it. */
static inline uint32_t kvr_block_group_match(const struct kvr_block_group *group, uint32_t hash)
{
    uint32_t equal = 0;

#ifdef __SSE2__
    typedef int kvr_v4 __attribute__((vector_size(16), aligned(4)));
    typedef float kvr_v4f __attribute__((vector_size(16)));
    kvr_v4 wanted = {(int)hash, (int)hash, (int)hash, (int)hash};
    kvr_v4 low, high;
    memcpy(&low, group->hashes, sizeof low);
    memcpy(&high, group->hashes + 4, sizeof high);
    low = low == wanted;
    high = high == wanted;
    equal = (uint32_t)__builtin_ia32_movmskps((kvr_v4f)low) |
            (uint32_t)__builtin_ia32_movmskps((kvr_v4f)high) << 4;
#else
    for (uint32_t i = 0; i < KVR_BLOCK_GROUP; i++)
        equal |= (uint32_t)(group->hashes[i] == hash) << i;
#endif
    return equal & ((1u << group->count) - 1);
}

/* The slot of id, or 0. first is the address of the id of slot 0, stride the bytes between ids. */
static inline uint32_t kvr_block_table_find(const struct kvr_block_table *table, uint64_t id,
    uint32_t hash, const void *first, size_t stride)
{
    for (uint32_t at = kvr_block_table_home(table, hash);;) {
        const struct kvr_block_group *group = &table->groups[at];
        uint32_t equal = kvr_block_group_match(group, hash);

        for (; __builtin_expect(equal != 0, 0); equal &= equal - 1) {
            uint32_t slot = group->slots[__builtin_ctz(equal)];
            if (__builtin_expect(*(const uint64_t *)((const char *)first + slot * stride) == id, 1))
                return slot;
        }
        if (__builtin_expect(!group->overflow, 1))
            return 0;
        if (++at == table->group_count)
            at = 0;
    }
}

/* Adds an id that is not there. The table has room (see reserve). */
static inline void kvr_block_table_insert(
    struct kvr_block_table *table, uint32_t hash, uint32_t slot)
{
    uint32_t at = kvr_block_table_home(table, hash);
    struct kvr_block_group *group = &table->groups[at];

    while (__builtin_expect(group->count == KVR_BLOCK_GROUP, 0)) {
        group->overflow++;
        if (++at == table->group_count)
            at = 0;
        group = &table->groups[at];
    }
    group->hashes[group->count] = hash;
    group->slots[group->count] = slot;
    group->count++;
    table->count++;
}

/* Removes the pair of a slot that is there. */
static inline void kvr_block_table_remove(
    struct kvr_block_table *table, uint32_t hash, uint32_t slot)
{
    for (uint32_t at = kvr_block_table_home(table, hash);;) {
        struct kvr_block_group *group = &table->groups[at];
        uint32_t equal = kvr_block_group_match(group, hash);

        for (; equal; equal &= equal - 1) {
            uint32_t place = (uint32_t)__builtin_ctz(equal);
            if (group->slots[place] != slot)
                continue;
            group->count--;
            group->hashes[place] = group->hashes[group->count];
            group->slots[place] = group->slots[group->count];
            table->count--;
            return;
        }
        group->overflow--;
        if (++at == table->group_count)
            at = 0;
    }
}

static inline void kvr_block_table_release(struct kvr_block_table *table)
{
    free(table->groups);
    memset(table, 0, sizeof *table);
}

static inline uint64_t kvr_block_table_memory_bytes(const struct kvr_block_table *table)
{
    return (uint64_t)table->group_count * sizeof *table->groups;
}

/* Makes room for `count` ids in all. False when memory is short; the table is then as before. */
static inline bool kvr_block_table_reserve(struct kvr_block_table *table, uint32_t count)
{
    uint64_t wanted = (uint64_t)count * 2 / KVR_BLOCK_GROUP + 2;

    if (wanted <= table->group_count)
        return true;
    struct kvr_block_table bigger = {
        aligned_alloc(sizeof *bigger.groups, wanted * sizeof *bigger.groups), (uint32_t)wanted, 0};
    if (!bigger.groups)
        return false;
    memset(bigger.groups, 0, wanted * sizeof *bigger.groups);
    for (uint32_t at = 0; at < table->group_count; at++)
        for (uint32_t i = 0; i < table->groups[at].count; i++)
            kvr_block_table_insert(
                &bigger, table->groups[at].hashes[i], table->groups[at].slots[i]);
    free(table->groups);
    *table = bigger;
    return true;
}

#endif
