/*
 * The tree itself: lookup, split, insert, locks, and which leaf goes next.
 *
 * Order of eviction. SGLang collects all leaves into a heap each time it must evict. Here they are
 * kept in order from call to call (order.h): a leaf whose key changes moves, a node that gets a
 * child or a lock goes out, a parent that lost its last child comes in. Keys are unique (the clock
 * never gives one tick twice), so the smallest is the same as in a heap built afresh.
 *
 * Cost: a lookup reads a child-table bucket and a node for each node on the path and a cell for
 * each page; a touched leaf costs O(log leaves). Memory: 16 bytes a page and about 120 a node with
 * its bucket and heap entry; a node is a branch of the tree, commonly some ten pages.
 */
#include "cache/sglang_tree.h"
#include "base/grow.h"

#include <string.h>

/* ── leaves in order ── */

void sglang_refresh(struct sglang_tree *tree, uint32_t index)
{
    const struct sglang_node *node = &tree->nodes[index];
    bool unlocked = index && !node->locks;
    bool leaf[2] = {unlocked && node->device && !node->device_children,
        unlocked && node->host && !node->device && !node->children};
    int64_t major = 0;
    uint64_t minor = node->access;
    switch (tree->strategy) {
    case LRU:
        break;
    case LFU:
        major = node->hits;
        break;
    case SLRU:
        major = node->hits >= tree->protected_hits;
        break;
    case PRIORITY:
        major = node->priority;
        break;
    case FIFO:
        minor = node->creation;
        break;
    case MRU:
        minor = UINT64_MAX - node->access;
        break;
    case FILO:
        minor = UINT64_MAX - node->creation;
        break;
    case TLRU: {
        /* what its conversation must keep so that its next prefill stays within the budget */
        int64_t page = tree->page_tokens;
        int64_t keep = node->reach * page + tree->next_prompt_tokens - tree->tail_budget_tokens;
        int64_t left = ((int64_t)node->depth - node->length) * page;
        major = left >= (keep > 0 ? keep : 0) ? -1 : 0;
        break;
    }
    }
    for (int which = 0; which <= tree->has_host; which++) {
        if (leaf[which])
            kvr_order_put(&tree->leaves[which], index, major, minor);
        else
            kvr_order_remove(&tree->leaves[which], index);
    }
}

/* ── the child table ── */

static uint32_t *bucket_of(const struct sglang_tree *tree, uint32_t parent, uint64_t id)
{
    uint64_t mixed = (id ^ (uint64_t)parent << 40 ^ parent) * 0x9e3779b97f4a7c15u;
    return &tree->buckets[(mixed ^ mixed >> 32) & (tree->bucket_count - 1)];
}

static uint32_t child_find(const struct sglang_tree *tree, uint32_t parent, uint64_t id)
{
    uint32_t index = *bucket_of(tree, parent, id);
    while (index) {
        const struct sglang_node *node = &tree->nodes[index];
        if (node->parent == parent && tree->cells[node->first].id == id)
            break;
        index = node->bucket_next;
    }
    return index;
}

static void sibling_link(struct sglang_tree *tree, uint32_t index)
{
    struct sglang_node *node = &tree->nodes[index], *parent = &tree->nodes[node->parent];
    node->previous_sibling = 0;
    node->next_sibling = parent->first_child;
    if (node->next_sibling)
        tree->nodes[node->next_sibling].previous_sibling = index;
    parent->first_child = index;
}

static void sibling_unlink(struct sglang_tree *tree, uint32_t index)
{
    struct sglang_node *node = &tree->nodes[index];
    *(node->previous_sibling ? &tree->nodes[node->previous_sibling].next_sibling
                             : &tree->nodes[node->parent].first_child) = node->next_sibling;
    if (node->next_sibling)
        tree->nodes[node->next_sibling].previous_sibling = node->previous_sibling;
}

static void bucket_link(struct sglang_tree *tree, uint32_t index)
{
    struct sglang_node *node = &tree->nodes[index];
    uint32_t *bucket = bucket_of(tree, node->parent, tree->cells[node->first].id);
    node->bucket_next = *bucket;
    *bucket = index;
}

static void child_link(struct sglang_tree *tree, uint32_t index)
{
    bucket_link(tree, index);
    if (tree->has_host)
        sibling_link(tree, index);
}

static void child_unlink(struct sglang_tree *tree, uint32_t index)
{
    struct sglang_node *node = &tree->nodes[index];
    if (tree->has_host)
        sibling_unlink(tree, index);
    uint32_t *link = bucket_of(tree, node->parent, tree->cells[node->first].id);
    while (*link != index)
        link = &tree->nodes[*link].bucket_next;
    *link = node->bucket_next;
}

/* ── nodes and cells ── */

enum kvr_status sglang_tree_init(struct sglang_tree *tree, struct kvr_error *error)
{
    tree->free = tree->pages;
    tree->host_free = tree->host_pages;
    tree->cell_count = tree->node_count = 1; /* no cell; the root */
    enum kvr_status status = sglang_tree_reserve(tree, 8, error);
    if (status != KVR_OK)
        return status;
    memset(&tree->nodes[0], 0, sizeof tree->nodes[0]);
    tree->nodes[0].device = true;
    return KVR_OK;
}

void sglang_tree_release(struct sglang_tree *tree)
{
    free(tree->nodes);
    free(tree->cells);
    free(tree->buckets);
    kvr_order_release(&tree->leaves[0]);
    kvr_order_release(&tree->leaves[1]);
    free(tree->path);
    free(tree->told);
}

static enum kvr_status grow_buckets(struct sglang_tree *tree, struct kvr_error *error)
{
    size_t count = tree->bucket_count ? tree->bucket_count : 16;
    while (count < tree->node_capacity)
        count *= 2;
    if (count == tree->bucket_count)
        return KVR_OK;
    uint32_t *buckets = calloc(count, sizeof *buckets);
    if (!buckets)
        return kvr_error_memory(error);
    uint32_t *old = tree->buckets;
    size_t old_count = tree->bucket_count;
    tree->buckets = buckets;
    tree->bucket_count = count;
    for (size_t i = 0; i < old_count; i++) {
        for (uint32_t index = old[i]; index;) {
            uint32_t next = tree->nodes[index].bucket_next;
            bucket_link(tree, index);
            index = next;
        }
    }
    free(old);
    return KVR_OK;
}

enum kvr_status sglang_tree_reserve(struct sglang_tree *tree, size_t count, struct kvr_error *error)
{
    /* splits and leaves of one match and two inserts, each at most two nodes */
    size_t nodes_needed = (size_t)tree->node_count + 6;
    uint64_t most = tree->pages + tree->host_pages;
    size_t cells_needed = (size_t)tree->cell_count + (count < most ? count : (size_t)most);
    if (cells_needed > most + 1)
        cells_needed = (size_t)most + 1;
    struct sglang_node *nodes =
        kvr_grow(tree->nodes, &tree->node_capacity, nodes_needed, sizeof *nodes);
    if (!nodes)
        return kvr_error_memory(error);
    tree->nodes = nodes;
    struct sglang_page *cells =
        kvr_grow(tree->cells, &tree->cell_capacity, cells_needed, sizeof *cells);
    if (!cells)
        return kvr_error_memory(error);
    tree->cells = cells;
    for (int which = 0; which <= tree->has_host; which++)
        if (!kvr_order_reserve(&tree->leaves[which], tree->node_capacity))
            return kvr_error_memory(error);
    if (tree->has_host) {
        uint32_t *path =
            kvr_grow(tree->path, &tree->path_capacity, tree->node_capacity, sizeof *path);
        if (!path)
            return kvr_error_memory(error);
        tree->path = path;
    }
    if (tree->sink.removed || tree->sink.stored) {
        uint64_t *told = kvr_grow(tree->told, &tree->told_capacity, count, sizeof *told);
        if (!told)
            return kvr_error_memory(error);
        tree->told = told;
    }
    return grow_buckets(tree, error);
}

static uint32_t new_node(struct sglang_tree *tree)
{
    uint32_t index = tree->free_node;
    if (index)
        tree->free_node = tree->nodes[index].bucket_next;
    else
        index = tree->node_count++;
    memset(&tree->nodes[index], 0, sizeof tree->nodes[index]);
    tree->nodes[index].access = tree->nodes[index].creation = ++tree->clock;
    return index;
}

void sglang_delete(struct sglang_tree *tree, uint32_t index)
{
    struct sglang_node *node = &tree->nodes[index], *parent = &tree->nodes[node->parent];
    sglang_forget_twin(tree, index);
    for (int which = 0; which <= tree->has_host; which++)
        kvr_order_remove(&tree->leaves[which], index);
    child_unlink(tree, index);
    parent->children--;
    parent->device_children -= node->device;
    uint32_t parent_index = node->parent;
    tree->cells[node->last].next = tree->free_cell;
    tree->free_cell = node->first;
    node->bucket_next = tree->free_node;
    node->length = 0;
    tree->free_node = index;
    sglang_refresh(tree, parent_index);
}

/* ── events ── */

static const uint64_t *line_up(struct sglang_tree *tree, const struct sglang_node *node)
{
    uint32_t cell = node->first;
    for (uint32_t i = 0; i < node->length; i++, cell = tree->cells[cell].next)
        tree->told[i] = tree->cells[cell].id;
    return tree->told;
}

void sglang_tell_removed(struct sglang_tree *tree, enum kvr_medium medium, uint32_t index)
{
    const struct sglang_node *node = &tree->nodes[index];
    tree->stats.resident_blocks[medium] -= node->length;
    tree->stats.evicted_blocks[medium] += node->length;
    if (tree->sink.removed && !tree->quiet)
        tree->sink.removed(tree->sink.context, medium, line_up(tree, node), node->length);
}

void sglang_tell_stored(struct sglang_tree *tree, enum kvr_medium medium, uint32_t index)
{
    const struct sglang_node *node = &tree->nodes[index];
    tree->stats.resident_blocks[medium] += node->length;
    tree->stats.inserted_blocks[medium] += node->length;
    if (tree->sink.stored)
        tree->sink.stored(tree->sink.context, medium,
            node->parent ? &tree->cells[tree->nodes[node->parent].last].id : NULL,
            line_up(tree, node), node->length);
}

/* ── lookup ── */

/* How many pages of the node the ids follow, at least its first; *cell is the last of these. */
static uint32_t follow(const struct sglang_tree *tree, const struct sglang_node *node,
    const uint64_t *ids, size_t count, uint32_t *cell)
{
    uint32_t length = count < node->length ? (uint32_t)count : node->length;
    *cell = node->first;
    for (uint32_t i = 1; i < length; i++) {
        uint32_t next = tree->cells[*cell].next;
        if (tree->cells[next].id != ids[i])
            return i;
        *cell = next;
    }
    return length;
}

/* Cuts the node after its first `length` pages, the last of which is `cell`. The node stays the
 * lower part and keeps all its own; returns the new upper part. */
static uint32_t split(
    struct sglang_tree *tree, uint32_t lower_index, uint32_t length, uint32_t cell)
{
    uint32_t upper_index = new_node(tree);
    struct sglang_node *lower = &tree->nodes[lower_index], *upper = &tree->nodes[upper_index];
    child_unlink(tree, lower_index);
    upper->first = lower->first;
    upper->last = cell;
    upper->length = length;
    upper->parent = lower->parent;
    upper->children = 1;
    upper->device = lower->device;
    upper->host = lower->host;
    upper->device_children = lower->device;
    upper->locks = lower->locks;
    upper->hits = lower->hits;
    upper->priority = lower->priority;
    upper->depth = lower->depth - (lower->length - length);
    upper->reach = lower->reach;
    if (tree->has_host)
        upper->creation = lower->creation; /* its tree with tiers differs from the plain one here */
    lower->first = tree->cells[cell].next;
    lower->length -= length;
    lower->parent = upper_index;
    child_link(tree, upper_index);
    child_link(tree, lower_index);
    sglang_refresh(tree, upper_index);
    sglang_refresh(tree, lower_index);
    sglang_note_twin(tree, upper_index);
    return upper_index;
}

uint32_t sglang_match(struct sglang_tree *tree, const uint64_t *ids, size_t count, size_t *matched)
{
    uint32_t at = 0;
    *matched = 0;
    if (!count)
        return 0;
    uint64_t now = ++tree->clock;
    while (*matched < count) {
        uint32_t child = child_find(tree, at, ids[*matched]), cell;
        if (!child)
            break;
        struct sglang_node *node = &tree->nodes[child];
        uint32_t length = follow(tree, node, ids + *matched, count - *matched, &cell);
        node->access = now;
        *matched += length;
        at = child;
        if (length < node->length) {
            at = split(tree, child, length, cell);
            break;
        }
        sglang_refresh(tree, child);
    }
    return at;
}

uint32_t sglang_find(struct sglang_tree *tree, const uint64_t *ids, size_t count, size_t *matched)
{
    uint32_t at = 0;
    *matched = 0;
    while (*matched < count) {
        uint32_t child = child_find(tree, at, ids[*matched]), cell;
        if (!child)
            break;
        struct sglang_node *node = &tree->nodes[child];
        uint32_t length = follow(tree, node, ids + *matched, count - *matched, &cell);
        *matched += length;
        if (length < node->length)
            return split(tree, child, length, cell);
        at = child;
    }
    return at;
}

/* ── insert ── */

static void raise_reach(struct sglang_tree *tree, uint32_t leaf)
{
    uint32_t depth = tree->nodes[leaf].depth;
    for (uint32_t at = leaf;; at = tree->nodes[at].parent) {
        if (tree->nodes[at].reach >= depth)
            break;
        tree->nodes[at].reach = depth;
        if (!at)
            break;
    }
}

static uint32_t add_leaf(
    struct sglang_tree *tree, uint32_t parent, const uint64_t *ids, size_t count, int32_t priority)
{
    uint32_t index = new_node(tree);
    struct sglang_node *node = &tree->nodes[index];
    node->parent = parent;
    node->length = (uint32_t)count;
    node->priority = priority;
    node->device = true;
    node->depth = tree->nodes[parent].depth + (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        uint32_t cell = tree->free_cell;
        if (cell)
            tree->free_cell = tree->cells[cell].next;
        else
            cell = tree->cell_count++;
        tree->cells[cell].id = ids[i];
        tree->cells[cell].next = 0;
        if (i)
            tree->cells[node->last].next = cell;
        else
            node->first = cell;
        node->last = cell;
    }
    child_link(tree, index);
    tree->nodes[parent].children++;
    tree->nodes[parent].device_children++;
    if (tree->strategy == TLRU)
        raise_reach(tree, index);
    sglang_refresh(tree, parent);
    sglang_refresh(tree, index);
    sglang_tell_stored(tree, KVR_MEDIUM_GPU, index);
    return index;
}

/* Counts a hit; the first (or second) one sends a copy to the host. */
static void count_hit(struct sglang_tree *tree, uint32_t index)
{
    struct sglang_node *node = &tree->nodes[index];
    if (tree->has_host && tree->write == WRITE_BACK)
        return;
    node->hits++;
    sglang_refresh(tree, index);
    if (tree->has_host && !node->host && node->hits >= (tree->write == WRITE_THROUGH ? 1u : 2u))
        sglang_backup(tree, index);
}

/* A node that only the host had gets the request's fresh pages. */
static void restore(struct sglang_tree *tree, uint32_t index)
{
    struct sglang_node *node = &tree->nodes[index];
    node->device = true;
    tree->nodes[node->parent].device_children++;
    sglang_refresh(tree, index);
    sglang_note_twin(tree, index);
    sglang_refresh(tree, node->parent);
    sglang_tell_stored(tree, KVR_MEDIUM_GPU, index);
}

uint32_t sglang_insert(struct sglang_tree *tree, const uint64_t *ids, size_t count,
    int32_t priority, size_t inserted_before, size_t *adopted)
{
    uint32_t at = 0;
    size_t done = 0;
    *adopted = 0;
    if (!count)
        return 0;
    uint64_t now = ++tree->clock;
    while (done < count) {
        uint32_t child = child_find(tree, at, ids[done]), cell;
        if (!child)
            break;
        struct sglang_node *node = &tree->nodes[child];
        uint32_t length = follow(tree, node, ids + done, count - done, &cell);
        node->access = now;
        if (length < node->length) {
            child = split(tree, child, length, cell);
            node = &tree->nodes[child];
        }
        if (node->priority < priority)
            node->priority = priority;
        done += length;
        if (!node->device) {
            restore(tree, child);
            *adopted += length;
        }
        sglang_refresh(tree, child);
        if (done > inserted_before)
            count_hit(tree, child);
        at = child;
    }
    if (done < count) {
        at = add_leaf(tree, at, ids + done, count - done, priority);
        *adopted += count - done;
        if (count > inserted_before)
            count_hit(tree, at);
    }
    return at;
}

/* ── locks and eviction ── */

void sglang_lock(struct sglang_tree *tree, uint32_t node)
{
    for (; node; node = tree->nodes[node].parent)
        if (!tree->nodes[node].locks++)
            sglang_refresh(tree, node);
}

void sglang_unlock(struct sglang_tree *tree, uint32_t node)
{
    for (; node; node = tree->nodes[node].parent)
        if (!--tree->nodes[node].locks)
            sglang_refresh(tree, node);
}

void sglang_evict(struct sglang_tree *tree, uint64_t count)
{
    uint64_t gone = 0;
    while (gone < count) {
        uint32_t node = kvr_order_first(&tree->leaves[0]);
        if (node == KVR_ORDER_NONE)
            break;
        gone += tree->nodes[node].length;
        sglang_demote(tree, node);
    }
}
