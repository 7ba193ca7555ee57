/*
 * Building a double array: the trie of all reachable tokens, one 8-byte unit a node, one load a
 * byte when walking. A node with children labelled c stands them at base ^ c; the base must leave
 * all these units free. Bases are never shared, so the label alone proves that a unit is a child.
 *
 * base ^ c stays in the block of 256 units that base lies in, so the search goes block by block
 * over the few newest blocks that still have room, testing all bases of a block at once. Older
 * blocks are given up: that bounds the time and costs a few per cent of the space.
 *
 * Where a node lies decides how often walking it misses the processor's caches. Low token numbers
 * are the frequent ones (they were merged first), so nodes are placed in bands: first those on the
 * way to a token below 2048, breadth first, then those on the way to one below 8192, and so on. The
 * usual walk then stays within a few hundred KiB.
 */
#include "base/grow.h"
#include "token/vocabulary_source.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 256
#define OPEN_BLOCKS 24
#define FREE_UNIT (UINT64_C(256) << 28)

struct node {
    uint32_t unit, first, last, depth; /* keys[first, last) share `depth` bytes */
};

static const uint32_t bands[] = {2048, 8192, 32768, UINT32_MAX};
#define BANDS (sizeof bands / sizeof *bands)

struct queue {
    struct node *nodes;
    size_t first, count, capacity;
};

struct builder {
    uint64_t *units;
    uint32_t count, capacity;
    uint32_t first_open; /* lowest block still searched */
    struct block {
        uint64_t free[BLOCK / 64]; /* a bit a unit */
        uint64_t used[BLOCK / 64]; /* a bit a base */
        uint32_t free_count;
    } * blocks;
};

/* The first eight bytes of a key decide nearly all comparisons and hold nearly all labels: read
 * once, they spare a visit to the key's bytes each time. */
static uint64_t start_of(const struct kvr_trie_key *key)
{
    uint64_t start = 0;

    for (uint32_t i = 0; i < 8; i++)
        start = start << 8 | (i < key->length ? key->bytes[i] : 0);
    return start;
}

static inline uint8_t label_at(const struct kvr_trie_key *key, uint32_t depth)
{
    return depth < 8 ? (uint8_t)(key->start >> (56 - 8 * depth)) : key->bytes[depth];
}

static int compare_keys(const void *a, const void *b)
{
    const struct kvr_trie_key *x = a, *y = b;
    uint32_t shared = x->length < y->length ? x->length : y->length;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    int order = shared > 8 ? memcmp(x->bytes + 8, y->bytes + 8, shared - 8) : 0;
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

static bool starts_with(const struct kvr_trie_key *key, const struct kvr_trie_key *start)
{
    uint32_t length = start->length;

    if (length > key->length)
        return false;
    if (length <= 8)
        return length == 8 ? key->start == start->start
                           : (key->start ^ start->start) >> (64 - 8 * length) == 0;
    return key->start == start->start && memcmp(key->bytes + 8, start->bytes + 8, length - 8) == 0;
}

/* Sorts keys, first by their first byte alone: sorting many small parts is less work. */
static bool sort_keys(struct kvr_trie_key *keys, uint32_t count)
{
    uint32_t firsts[257] = {0}, at[256];
    struct kvr_trie_key *copy = malloc(((size_t)count + 1) * sizeof *copy);

    if (!copy)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        keys[i].start = start_of(&keys[i]);
        firsts[(keys[i].start >> 56) + 1]++;
    }
    memcpy(copy, keys, count * sizeof *keys);
    for (int byte = 0; byte < 256; byte++) {
        firsts[byte + 1] += firsts[byte];
        at[byte] = firsts[byte];
    }
    for (uint32_t i = 0; i < count; i++)
        keys[at[copy[i].start >> 56]++] = copy[i];
    free(copy);
    for (int byte = 0; byte < 256; byte++)
        qsort(keys + firsts[byte], firsts[byte + 1] - firsts[byte], sizeof *keys, compare_keys);
    return true;
}

/* Of sorted keys, those that a key starts with are the ones that those before it start with, as
 * far as they are starts of it: a chain of `shorter`, from the key before. */
static bool link_shorter(struct kvr_trie_key *keys, uint32_t count)
{
    uint32_t *chain = malloc(((size_t)count + 1) * sizeof *chain), depth = 0;

    if (!chain)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        while (depth && !starts_with(&keys[i], &keys[chain[depth - 1]]))
            depth--;
        keys[i].shorter = depth ? keys[chain[depth - 1]].token : KVR_NO_TOKEN;
        chain[depth++] = i;
    }
    free(chain);
    return true;
}

static bool add_block(struct builder *builder)
{
    if (builder->count == builder->capacity) {
        uint32_t capacity = builder->capacity ? builder->capacity * 2 : 64 * BLOCK;
        if (capacity > UINT32_C(1) << 27)
            return false;
        uint64_t *units = realloc(builder->units, capacity * sizeof *units);
        if (units)
            builder->units = units;
        struct block *blocks = realloc(builder->blocks, capacity / BLOCK * sizeof *blocks);
        if (blocks)
            builder->blocks = blocks;
        if (!units || !blocks)
            return false;
        builder->capacity = capacity;
    }
    for (uint32_t i = 0; i < BLOCK; i++)
        builder->units[builder->count + i] = FREE_UNIT;
    struct block *block = &builder->blocks[builder->count / BLOCK];
    memset(block->free, 0xff, sizeof block->free);
    memset(block->used, 0, sizeof block->used);
    block->free_count = BLOCK;
    builder->count += BLOCK;
    if (builder->count / BLOCK > builder->first_open + OPEN_BLOCKS)
        builder->first_open = builder->count / BLOCK - OPEN_BLOCKS;
    return true;
}

/* The word whose bit i is bit i ^ by of `word`. */
static inline uint64_t exchange(uint64_t word, unsigned by)
{
    static const uint64_t low[] = {UINT64_C(0x5555555555555555), UINT64_C(0x3333333333333333),
        UINT64_C(0x0f0f0f0f0f0f0f0f), UINT64_C(0x00ff00ff00ff00ff), UINT64_C(0x0000ffff0000ffff),
        UINT64_C(0x00000000ffffffff)};

    for (unsigned step = 0; step < 6; step++) {
        unsigned shift = 1u << step;
        if (by & shift)
            word = (word >> shift & low[step]) | (word & low[step]) << shift;
    }
    return word;
}

/* A base in this block for these labels, or 0: all bases of the block are tried at once, as bits.
 * A base is one that leaves the unit of each label free. */
static uint32_t base_in_block(
    const struct builder *builder, uint32_t number, const uint8_t *labels, uint32_t label_count)
{
    const struct block *block = &builder->blocks[number];
    uint64_t fits[BLOCK / 64];

    if (block->free_count < label_count)
        return 0;
    for (int i = 0; i < BLOCK / 64; i++)
        fits[i] = ~block->used[i];
    if (!number) /* base 0: the root's block keeps one never given out */
        fits[0] &= ~UINT64_C(1);
    for (uint32_t c = 0; c < label_count; c++) {
        uint64_t any = 0;
        for (int i = 0; i < BLOCK / 64; i++) {
            fits[i] &= exchange(block->free[i ^ labels[c] >> 6], labels[c] & 63);
            any |= fits[i];
        }
        if (!any)
            return 0;
    }
    for (uint32_t i = 0;; i++)
        if (fits[i])
            return number * BLOCK + i * 64 + (uint32_t)__builtin_ctzll(fits[i]);
}

/* A base for these labels, or 0 when memory is short. */
static uint32_t find_base(struct builder *builder, const uint8_t *labels, uint32_t label_count)
{
    for (;;) {
        for (uint32_t block = builder->first_open; block < builder->count / BLOCK; block++) {
            uint32_t base = base_in_block(builder, block, labels, label_count);
            if (base)
                return base;
            if (block == builder->first_open && builder->blocks[block].free_count < 8)
                builder->first_open++;
        }
        if (!add_block(builder))
            return 0;
    }
}

static void take_unit(struct builder *builder, uint32_t unit, uint64_t value)
{
    struct block *block = &builder->blocks[unit / BLOCK];

    builder->units[unit] = value;
    block->free[unit % BLOCK / 64] &= ~(UINT64_C(1) << unit % 64);
    block->free_count--;
}

static bool enqueue(struct queue *queue, struct node node)
{
    struct node *grown =
        kvr_grow(queue->nodes, &queue->capacity, queue->count + 1, sizeof *queue->nodes);

    if (!grown)
        return false;
    queue->nodes = grown;
    queue->nodes[queue->count++] = node;
    return true;
}

/* The band of the lowest token below a node. */
static size_t band_of(const struct kvr_trie_key *keys, uint32_t first, uint32_t last)
{
    uint32_t lowest = UINT32_MAX;
    size_t band = 0;

    for (uint32_t i = first; i < last && lowest >= bands[0]; i++)
        lowest = keys[i].token < lowest ? keys[i].token : lowest;
    while (lowest >= bands[band] && band + 1 < BANDS)
        band++;
    return band;
}

static bool place_children(struct builder *builder, const struct kvr_trie_key *keys,
    struct node node, struct queue queues[BANDS])
{
    uint8_t labels[BLOCK];
    uint32_t starts[BLOCK + 1], label_count = 0, i = node.first;

    if (i < node.last && keys[i].length == node.depth) {
        builder->units[node.unit] =
            (builder->units[node.unit] & ~UINT64_C(0xfffffff)) | (keys[i].token + 1);
        i++;
    }
    while (i < node.last) {
        uint8_t label = label_at(&keys[i], node.depth);
        starts[label_count] = i;
        labels[label_count++] = label;
        while (i < node.last && label_at(&keys[i], node.depth) == label)
            i++;
    }
    starts[label_count] = node.last;
    if (!label_count)
        return true;
    uint32_t base = find_base(builder, labels, label_count);
    if (!base)
        return false;
    builder->blocks[base / BLOCK].used[base % BLOCK / 64] |= UINT64_C(1) << base % 64;
    builder->units[node.unit] |= (uint64_t)base << 37;
    for (uint32_t c = 0; c < label_count; c++) {
        uint32_t unit = base ^ labels[c];
        struct node child = {unit, starts[c], starts[c + 1], node.depth + 1};
        take_unit(builder, unit, (uint64_t)labels[c] << 28);
        if (!enqueue(&queues[band_of(keys, child.first, child.last)], child))
            return false;
    }
    return true;
}

enum kvr_status kvr_trie_build(
    struct kvr_trie_key *keys, uint32_t count, struct kvr_buffer *out, struct kvr_error *error)
{
    struct builder builder = {0};
    struct queue queues[BANDS] = {{0}};
    bool ok = add_block(&builder) && sort_keys(keys, count) && link_shorter(keys, count);

    if (ok) {
        take_unit(&builder, 0, UINT64_C(257) << 28); /* the root: no byte leads to it */
        ok = enqueue(&queues[0], (struct node){0, 0, count, 0});
    }
    /* a band's nodes can have children of the same band only, or of later ones */
    for (size_t band = 0; band < BANDS; band++) {
        struct queue *queue = &queues[band];
        while (ok && queue->first < queue->count) {
            if (queue->first + 8 < queue->count) { /* its turn comes soon */
                const struct node *ahead = &queue->nodes[queue->first + 8];
                __builtin_prefetch(&keys[ahead->first]);
                __builtin_prefetch(&builder.units[ahead->unit]);
            }
            ok = place_children(&builder, keys, queue->nodes[queue->first++], queues);
        }
    }
    if (ok)
        kvr_buffer_append(out, builder.units, (size_t)builder.count * sizeof *builder.units);
    for (size_t band = 0; band < BANDS; band++)
        free(queues[band].nodes);
    free(builder.units);
    free(builder.blocks);
    return ok && !out->failed ? KVR_OK : kvr_error_memory(error);
}
