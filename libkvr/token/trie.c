/*
 * Building a double array: the trie of all reachable tokens, one 8-byte unit a node, one load a
 * byte when walking. A node with children labelled c stands them at base ^ c; the base must leave
 * all these units free. Bases are never shared, so the label alone proves that a unit is a child.
 *
 * base ^ c stays in the block of 256 units that base lies in, so the search goes block by block
 * over the few newest blocks that still have room, testing all bases of a block at once. Older
 * blocks are given up: that bounds the time and costs a few per cent of the space. What a block has
 * once refused it refuses for good, as units and bases are only ever taken: it is noted up to where
 * a label alone finds no base.
 *
 * Where a node lies decides how often walking it misses the processor's caches. Low token numbers
 * are the frequent ones (they were merged first), so nodes are placed in bands: first those on the
 * way to a token below 2048, breadth first, then those on the way to one below 8192, and so on. The
 * usual walk then stays within a few hundred KiB.
 *
 * The tree is made first, from the texts in order: a text leaves the path to the one before it
 * where the two part, and all that it leaves is complete.
 */
#include "token/vocabulary_source.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 256
#define AHEAD 8                        /* nodes between asking for memory and reading it */
#define UNITS_MOST (UINT32_C(1) << 27) /* a unit has so many bits for a base */
#define WORDS (BLOCK / 64)
#define VARIANTS 8
#define OPEN_BLOCKS 24
#define OPEN_SLOTS 32 /* a power of two above OPEN_BLOCKS */
#define FREE_UNIT (UINT64_C(256) << 28)

static const uint32_t bands[] = {2048, 8192, 32768, UINT32_MAX};
#define BANDS (sizeof bands / sizeof *bands)

typedef uint64_t words __attribute__((vector_size(16))); /* two of them */

/* A node of the tree. Nodes lie by depth, those of a depth in order of their texts, so that the
 * children of one stand side by side. */
struct node {
    uint32_t first; /* its first child */
    uint32_t token; /* 1 + the token that ends here, or 0 */
    uint16_t children;
    uint8_t label;
    uint8_t band; /* of the lowest token below it */
};

struct tree {
    struct node *nodes;
    uint32_t parents[BANDS]; /* how many nodes of each band have children */
    uint32_t count;
};

/* A node whose children are still to be placed, and its unit. */
struct waiting {
    uint32_t node, unit;
};

struct queue {
    struct waiting *items;
    uint32_t first, count;
};

/* A block that is still searched. Bit i ^ v of the words variants[...][v] says that unit i is free.
 */
struct block {
    union {
        uint64_t variants[WORDS][VARIANTS];
        words pairs[WORDS][VARIANTS / 2];
    };
    uint64_t used[WORDS];    /* a bit a base */
    uint64_t refused[WORDS]; /* a bit a label: alone it finds no base here */
    uint32_t free_count;
};

struct builder {
    uint64_t *units;
    uint32_t count, capacity;
    uint32_t first_open;           /* lowest block still searched */
    uint32_t first_for[BLOCK];     /* by label: the blocks before this one all refuse it */
    words swaps[8][3];             /* by the middle bits of a label: masks for swap() */
    words masks[64][VARIANTS / 2]; /* of variants: all bits but i ^ v */
    struct block open[OPEN_SLOTS]; /* block i at i % OPEN_SLOTS */
};

/* A step of the way from the root to the end of the text before. */
struct step {
    uint32_t node;
    uint32_t lowest; /* token below the node */
    uint32_t next;   /* node of this depth */
};

/* Leaves the path below `depth`. */
static void close_nodes(struct tree *tree, struct step *path, uint32_t from, uint32_t depth)
{
    for (; from > depth; from--) {
        struct node *node = &tree->nodes[path[from].node];
        uint32_t lowest = path[from].lowest;
        uint8_t band = 0;
        while (lowest >= bands[band] && band + 1u < BANDS)
            band++;
        node->band = band;
        tree->parents[band] += node->children > 0;
        if (lowest < path[from - 1].lowest)
            path[from - 1].lowest = lowest;
    }
}

static void fill_tree(struct tree *tree, struct step *path, const struct kvr_ordered_text *order,
    uint32_t count, const uint8_t *bytes, const struct kvr_source_token *tokens)
{
    uint32_t before = 0; /* length of the text before */

    tree->nodes[0] = (struct node){0};
    path[0] = (struct step){.lowest = UINT32_MAX};
    for (uint32_t i = 0; i < count; i++) {
        if (i + 2 * AHEAD < count) {
            __builtin_prefetch(&tokens[order[i + 2 * AHEAD].id]);
            __builtin_prefetch(
                bytes + tokens[order[i + AHEAD].id].offset + order[i + AHEAD].shared);
        }
        const uint8_t *text = bytes + tokens[order[i].id].offset;
        uint32_t shared = order[i].shared, length = order[i].length;
        close_nodes(tree, path, before, shared);
        for (uint32_t depth = shared + 1; depth <= length; depth++) {
            struct node *parent = &tree->nodes[path[depth - 1].node];
            uint32_t number = path[depth].next++;
            if (!parent->children++)
                parent->first = number;
            tree->nodes[number] = (struct node){.label = text[depth - 1]};
            path[depth].node = number;
            path[depth].lowest = UINT32_MAX;
        }
        tree->nodes[path[length].node].token = order[i].id + 1;
        path[length].lowest = order[i].id;
        before = length;
    }
    close_nodes(tree, path, before, 0);
    tree->parents[0] += tree->nodes[0].children > 0; /* the root is in the first band */
}

/* How many nodes there are of each depth: a text adds one of each from what it shares to its
 * length. Stores at path[depth].next where those of a depth start. Returns how many there are of
 * all. */
static size_t count_nodes(
    struct step *path, uint32_t longest, const struct kvr_ordered_text *order, uint32_t count)
{
    size_t nodes = 1;
    uint32_t of_depth = 0;

    for (uint32_t i = 0; i < count; i++) {
        path[order[i].shared + 1].next++;
        path[order[i].length + 1].next--; /* may pass through zero: it is a difference */
    }
    for (uint32_t depth = 1; depth <= longest; depth++) {
        of_depth += path[depth].next;
        path[depth].next = (uint32_t)nodes;
        nodes += of_depth;
    }
    return nodes;
}

/* False when memory is short. */
static bool make_tree(struct tree *tree, const struct kvr_ordered_text *order, uint32_t count,
    const uint8_t *bytes, const struct kvr_source_token *tokens)
{
    uint32_t longest = 0;

    for (uint32_t i = 0; i < count; i++)
        longest = order[i].length > longest ? order[i].length : longest;
    struct step *path = calloc((size_t)longest + 2, sizeof *path);
    size_t nodes = path ? count_nodes(path, longest, order, count) : 0;
    if (nodes && nodes <= UNITS_MOST)
        tree->nodes = kvr_pages_malloc(nodes * sizeof *tree->nodes);
    if (tree->nodes)
        fill_tree(tree, path, order, count, bytes, tokens);
    tree->count = (uint32_t)nodes;
    free(path);
    return tree->nodes != NULL;
}

static inline struct block *block_at(struct builder *builder, uint32_t number)
{
    return &builder->open[number % OPEN_SLOTS];
}

static bool add_block(struct builder *builder)
{
    if (builder->count == builder->capacity) {
        uint32_t capacity = builder->capacity * 2;
        if (capacity > UNITS_MOST)
            return false;
        uint64_t *units = realloc(builder->units, capacity * sizeof *units);
        if (!units)
            return false;
        builder->units = units;
        builder->capacity = capacity;
    }
    for (uint32_t i = 0; i < BLOCK; i++)
        builder->units[builder->count + i] = FREE_UNIT;
    struct block *block = block_at(builder, builder->count / BLOCK);
    memset(block->used, 0, sizeof block->used);
    memset(block->refused, 0, sizeof block->refused);
    memset(block->variants, 0xff, sizeof block->variants);
    block->free_count = BLOCK;
    builder->count += BLOCK;
    if (builder->count / BLOCK > builder->first_open + OPEN_BLOCKS)
        builder->first_open = builder->count / BLOCK - OPEN_BLOCKS;
    return true;
}

/* Swaps neighbouring groups of `size` bits where the mask is not zero. */
static inline words swap(words bits, int size, words mask)
{
    words differ = (bits ^ bits >> size) & mask;

    return bits ^ (differ | differ << size);
}

/* The words `first` and its neighbour of the bits of all bases of a block that leave the unit of a
 * label free: bit i if unit i ^ label is. The lowest bits of the label chose a variant, the highest
 * the words, and those between swap bytes: masks say which. */
static inline words bases_for(
    const struct block *block, unsigned first, unsigned variant, const words masks[3])
{
    words bits = {block->variants[first][variant], block->variants[first ^ 1][variant]};

    return swap(swap(swap(bits, 8, masks[0]), 16, masks[1]), 32, masks[2]);
}

static bool is_refused(const struct block *block, const uint8_t *labels, uint32_t label_count)
{
    for (uint32_t c = 0; c < label_count; c++)
        if (block->refused[labels[c] >> 6] >> (labels[c] & 63) & 1)
            return true;
    return false;
}

/* So many units have to be free for it to be worth a try: few are hardly ever just where many
 * labels want them. */
static inline uint32_t least_free(uint32_t label_count)
{
    if (label_count < 4 || label_count > 96)
        return label_count;
    return label_count < 12 ? label_count * 8 : 96;
}

/* The lowest base in this block for these labels, or 0. */
static uint32_t base_in_block(
    const struct builder *builder, uint32_t number, const uint8_t *labels, uint32_t label_count)
{
    const struct block *block = &builder->open[number % OPEN_SLOTS];

    if (block->free_count < least_free(label_count) || is_refused(block, labels, label_count))
        return 0;
    for (unsigned half = 0; half < WORDS; half += 2) {
        words fits = {~block->used[half], ~block->used[half + 1]};
        if (!number && !half) /* base 0: the root's block keeps one never given out */
            fits[0] &= ~UINT64_C(1);
        uint32_t c = 0;
        do
            fits &= bases_for(block, labels[c] >> 6 ^ half, labels[c] % VARIANTS,
                builder->swaps[labels[c] >> 3 & 7]);
        while ((fits[0] | fits[1]) && ++c < label_count);
        for (uint32_t i = 0; i < 2; i++)
            if (fits[i])
                return number * BLOCK + (half + i) * 64 + (uint32_t)__builtin_ctzll(fits[i]);
    }
    return 0;
}

/* Notes that a block has no base for a label alone. */
static inline void refuse(struct builder *builder, uint32_t number, uint8_t label)
{
    block_at(builder, number)->refused[label >> 6] |= UINT64_C(1) << (label & 63);
    if (builder->first_for[label] >= number || number == builder->first_open)
        builder->first_for[label] = number + 1;
}

/* A block that was searched in vain is given up once it is nearly full. */
static inline void give_up(struct builder *builder, uint32_t block)
{
    if (block == builder->first_open && block_at(builder, block)->free_count < 8)
        builder->first_open++;
}

/* A base for these labels, or 0 when memory is short. */
static uint32_t find_base(struct builder *builder, const uint8_t *labels, uint32_t label_count)
{
    uint32_t first = 0;

    for (uint32_t c = 0; c < label_count; c++)
        first = builder->first_for[labels[c]] > first ? builder->first_for[labels[c]] : first;
    for (;;) {
        uint32_t block = builder->first_open;
        for (; block < first; block++)
            give_up(builder, block);
        for (; block < builder->count / BLOCK; block++) {
            uint32_t base = base_in_block(builder, block, labels, label_count);
            if (base)
                return base;
            if (label_count == 1)
                refuse(builder, block, labels[0]);
            give_up(builder, block);
        }
        if (!add_block(builder))
            return 0;
    }
}

static void take_unit(struct builder *builder, uint32_t unit, uint64_t value)
{
    struct block *block = block_at(builder, unit / BLOCK);
    words *pairs = block->pairs[unit % BLOCK / 64];
    const words *masks = builder->masks[unit % 64];

    builder->units[unit] = value;
    pairs[0] &= masks[0];
    pairs[1] &= masks[1];
    pairs[2] &= masks[2];
    pairs[3] &= masks[3];
    block->free_count--;
}

static bool place_children(
    struct builder *builder, const struct tree *tree, struct waiting parent, struct queue queues[])
{
    uint32_t first = tree->nodes[parent.node].first, count = tree->nodes[parent.node].children;
    const struct node *children = &tree->nodes[first];
    uint8_t labels[BLOCK];

    for (uint32_t c = 0; c < count; c++)
        labels[c] = children[c].label;
    uint32_t base = find_base(builder, labels, count);
    if (!base)
        return false;
    block_at(builder, base / BLOCK)->used[base % BLOCK / 64] |= UINT64_C(1) << base % 64;
    builder->units[parent.unit] |= (uint64_t)base << 37;
    for (uint32_t c = 0; c < count; c++) {
        uint32_t unit = base ^ labels[c];
        take_unit(builder, unit, (uint64_t)labels[c] << 28 | children[c].token);
        if (children[c].children) {
            struct queue *queue = &queues[children[c].band];
            queue->items[queue->count++] = (struct waiting){first + c, unit};
        }
    }
    return true;
}

/* Places all nodes, band by band: a node's children are of its band or of later ones. */
static bool place_nodes(struct builder *builder, const struct tree *tree)
{
    struct queue queues[BANDS] = {{0}};
    uint32_t parents = 0;

    for (size_t band = 0; band < BANDS; band++)
        parents += tree->parents[band];
    struct waiting *items = kvr_pages_malloc(((size_t)parents + 1) * sizeof *items);
    /* a twentieth stays free as a rule */
    builder->capacity = (tree->count / 20 * 21 / BLOCK + OPEN_BLOCKS) * BLOCK;
    if (builder->capacity > UNITS_MOST)
        builder->capacity = UNITS_MOST;
    builder->units = kvr_pages_malloc(builder->capacity * sizeof *builder->units);
    bool ok = items && builder->units && add_block(builder);
    if (ok) {
        queues[0].items = items;
        for (size_t band = 1; band < BANDS; band++)
            queues[band].items = queues[band - 1].items + tree->parents[band - 1];
        take_unit(builder, 0, UINT64_C(257) << 28); /* the root: no byte leads to it */
        if (tree->nodes[0].children)
            queues[0].items[queues[0].count++] = (struct waiting){0, 0};
    }
    for (size_t band = 0; band < BANDS; band++) {
        struct queue *queue = &queues[band];
        for (; ok && queue->first < queue->count; queue->first++) {
            if (queue->first + 2 * AHEAD < queue->count) {
                const struct waiting *ahead = &queue->items[queue->first + AHEAD];
                __builtin_prefetch(&tree->nodes[ahead[AHEAD].node]);
                __builtin_prefetch(&tree->nodes[tree->nodes[ahead->node].first]);
                __builtin_prefetch(&builder->units[ahead->unit], 1);
            }
            ok = place_children(builder, tree, queue->items[queue->first], queues);
        }
    }
    free(items);
    return ok;
}

enum kvr_status kvr_trie_build(const struct kvr_ordered_text *order, uint32_t count,
    const uint8_t *bytes, const struct kvr_source_token *tokens, struct kvr_buffer *out,
    struct kvr_error *error)
{
    static const uint64_t lower[] = {
        UINT64_C(0x00ff00ff00ff00ff), UINT64_C(0x0000ffff0000ffff), UINT64_C(0x00000000ffffffff)};
    struct builder builder;
    struct tree tree = {0};

    memset(&builder, 0, offsetof(struct builder, swaps));
    for (uint32_t middle = 0; middle < 8; middle++)
        for (uint32_t step = 0; step < 3; step++)
            builder.swaps[middle][step] =
                ((words){0} + lower[step]) & -(uint64_t)(middle >> step & 1);
    for (uint32_t bit = 0; bit < 64; bit++)
        for (uint32_t v = 0; v < VARIANTS; v++)
            builder.masks[bit][v / 2][v % 2] = ~(UINT64_C(1) << (bit ^ v));
    bool ok = make_tree(&tree, order, count, bytes, tokens) && place_nodes(&builder, &tree);

    free(tree.nodes);
    if (!ok) {
        free(builder.units);
        return kvr_error_memory(error);
    }
    *out = (struct kvr_buffer){
        .data = (char *)builder.units,
        .length = (size_t)builder.count * sizeof *builder.units,
        .capacity = (size_t)builder.capacity * sizeof *builder.units,
    };
    return KVR_OK;
}
