/*
 * The radix tree of the sglang engine: what sglang.c (requests), sglang_tree.c (the tree and its
 * eviction order) and sglang_host.c (the host tier) share. Internal to the engine.
 *
 * A node holds a run of pages; its children are found by their first id. With a host tier a node is
 * on the device, on the host, or on both, and all above a device node is on the device:
 *
 *     root ─ A(device, host) ┬ B(device)                B: device leaf, may be evicted
 *                            └ C(device, host) ─ D(host)    C: device leaf; D: host leaf
 *
 * Pages are 16-byte cells linked into their node, so that a split moves no id. Nodes and cells are
 * named by index; index 0 is the root, and no cell.
 */
#ifndef KVR_CACHE_SGLANG_TREE_H
#define KVR_CACHE_SGLANG_TREE_H

#include "cache/engine.h"
#include "cache/order.h"

enum sglang_strategy { LRU, LFU, SLRU, PRIORITY, FIFO, MRU, FILO, TLRU };
enum sglang_write { WRITE_THROUGH, WRITE_THROUGH_SELECTIVE, WRITE_BACK };

struct sglang_page {
    uint64_t id;
    uint32_t next;
};

struct sglang_node {
    uint64_t access, creation; /* ticks of the tree's clock */
    uint32_t first, last;      /* its pages */
    uint32_t length;
    uint32_t parent;
    uint32_t children, device_children;
    uint32_t first_child, next_sibling, previous_sibling; /* kept with a host tier only */
    uint32_t locks;                                       /* live requests and pins at or below */
    uint32_t pins;                                        /* that end here */
    uint32_t hits;
    int32_t priority;
    uint32_t bucket_next;  /* of the child table; in a free node, the next free one */
    uint32_t depth, reach; /* pages from the root to its end; the deepest its branch ever was */
    uint32_t twin_next, twin_previous; /* write-back: the list of those on both tiers */
    bool device, host, twin;
};

struct sglang_tree {
    enum sglang_strategy strategy;
    uint32_t protected_hits;                        /* slru */
    int64_t tail_budget_tokens, next_prompt_tokens; /* tlru */
    uint32_t page_tokens;

    bool has_host;
    enum sglang_write write;
    uint64_t pages, host_pages; /* the pools */
    uint64_t free, host_free;   /* what neither the tree nor a request has */
    uint64_t clock;

    struct sglang_node *nodes;
    size_t node_capacity;
    uint32_t node_count, free_node;
    struct sglang_page *cells;
    size_t cell_capacity;
    uint32_t cell_count, free_cell;
    uint32_t *buckets;
    size_t bucket_count;        /* a power of two */
    struct kvr_order leaves[2]; /* that may be evicted: device leaves, host leaves */
    uint32_t twin_first, twin_last;

    uint32_t *path; /* room for a run of nodes, with a host tier */
    size_t path_capacity;
    uint64_t *told; /* room to line up a node's ids for the sink */
    size_t told_capacity;
    bool quiet; /* no events: clear() tells by itself */
    struct kvr_cache_sink sink;
    struct kvr_cache_stats stats;
};

/* ── sglang_tree.c ── */

enum kvr_status sglang_tree_init(struct sglang_tree *tree, struct kvr_error *error);
void sglang_tree_release(struct sglang_tree *tree);

/* Room for one match and two inserts of a chain of `count` ids: none of them then fails. */
enum kvr_status sglang_tree_reserve(
    struct sglang_tree *tree, size_t count, struct kvr_error *error);

/* The longest prefix of the ids in the tree, on whichever tier; returns its last node, the root if
 * none, and its length. Touches what it visits and splits the last node where it ends inside. */
uint32_t sglang_match(struct sglang_tree *tree, const uint64_t *ids, size_t count, size_t *matched);

/* Puts ids into the tree out of the pages of a request. *adopted: how many of these the tree took;
 * the rest were there on the device already. Nodes that end within the first inserted_before ids
 * were counted as hit by this request before. Returns the last node. */
uint32_t sglang_insert(struct sglang_tree *tree, const uint64_t *ids, size_t count,
    int32_t priority, size_t inserted_before, size_t *adopted);

void sglang_lock(struct sglang_tree *tree, uint32_t node);
void sglang_unlock(struct sglang_tree *tree, uint32_t node);

/* Evicts whole device leaves until at least `count` pages are gone or none is left to evict. */
void sglang_evict(struct sglang_tree *tree, uint64_t count);

/* The node that ends exactly at the end of ids, split if `split`, untouched; 0 where there is none.
 * *matched: how far the ids are there. */
uint32_t sglang_find(struct sglang_tree *tree, const uint64_t *ids, size_t count, size_t *matched);

/* Puts the node among the leaves that may be evicted, at its current key, or takes it from there.
 * Called after anything that a key or leafness depends on has changed. */
void sglang_refresh(struct sglang_tree *tree, uint32_t node);

/* Takes a childless node out of the tree. */
void sglang_delete(struct sglang_tree *tree, uint32_t node);

void sglang_tell_removed(struct sglang_tree *tree, enum kvr_medium medium, uint32_t node);
void sglang_tell_stored(struct sglang_tree *tree, enum kvr_medium medium, uint32_t node);

/* ── sglang_host.c ── */

/* Backs the node up on the host, and first its ancestors that are not; stops at the first that
 * finds no room. */
void sglang_backup(struct sglang_tree *tree, uint32_t node);

/* A device leaf leaves the device: it stays on the host where it has, or in write-back gets, a copy
 * there, and is deleted where not. */
void sglang_demote(struct sglang_tree *tree, uint32_t node);

/* Brings the host-only nodes from `node` up to the device. False where there is no room. */
bool sglang_load_back(struct sglang_tree *tree, uint32_t node, uint64_t least_pages);

/* Takes everything that is not locked off both tiers. */
void sglang_drop_all(struct sglang_tree *tree);

/* Keeps account of the nodes on both tiers, which write-back gives up first. */
void sglang_note_twin(struct sglang_tree *tree, uint32_t node);
void sglang_forget_twin(struct sglang_tree *tree, uint32_t node);

#endif
