/*
 * Eviction policies: one small file a policy, one interface, one table (policy_table.c).
 *
 * A ranking is one instance of a policy over some of a store's blocks (all of them, or one pool or
 * tenant). The engine decides who may go; the policy decides who goes first.
 *
 * Two ways of use:
 * - plain semantics, as in other cache simulators: every block is an object of its own and is a
 *   candidate for as long as it is resident;
 * - a prefix tree: a block with resident children or a pin is no candidate, for evicting it would
 *   strand its children. Only leaves are queued. When a block's last child is evicted the block
 *   comes in as an heir: it takes the place its child had, next to be looked at, and keeps what
 *   the policy knows about it (frequency, visited, queue). Nothing ever scans over blocks that
 *   cannot go, and for fifo, lru and the policies with a key (gdsf, value, ttl, belady) the victim
 *   is the one that a search among all leaves would find.
 *
 * The life of a block under a policy:
 *     miss(id), [victim() evicted() …], insert(b), enqueue(b, FRESH), hit(b) …, dequeue(b) when it
 *     gets a child, hit(b) …, enqueue(b, HEIR), victim() returns it, evicted(b)
 *
 * Adding a policy: its file, its line in the table. Help, manual and completions follow the table.
 */
#ifndef KVR_CACHE_POLICY_H
#define KVR_CACHE_POLICY_H

#include "base/parameter.h"
#include "cache/block_list.h"
#include "cache/block_store.h"

enum kvr_place {
    KVR_FRESH, /* just used or inserted: where the policy puts new candidates */
    KVR_HEIR,  /* at the end where victims are taken */
};

enum { KVR_POLICY_PARAMETERS_MOST = 4 };

struct kvr_policy;

/* The first member of every policy's own struct. */
struct kvr_ranking {
    const struct kvr_policy *policy;
    struct kvr_store *store;
    uint32_t capacity; /* the share of the store that it may fill, blocks */
    uint32_t resident; /* blocks that are its own, kept by the engine */
};

struct kvr_policy {
    const char *name;
    const char *summary; /* one line for --help, no full stop */
    const char *source;  /* the paper or system */
    const struct kvr_parameter *parameters;
    size_t parameter_count;
    size_t size;       /* of the policy's struct */
    bool whole_path;   /* lru: in a tree every block may be queued, not the leaves only */
    bool needs_future; /* offline: store->future must be set */
    bool in_time;      /* must be told the time of requests */

    /* All members but hit, insert, enqueue, dequeue and victim may be NULL. */
    enum kvr_status (*init)(struct kvr_ranking *ranking, const struct kvr_parameter_value *values,
        uint64_t seed, struct kvr_error *error);
    void (*release)(struct kvr_ranking *ranking);
    /* The store has grown to `slots`: arrays that go with it. */
    enum kvr_status (*reserve)(
        struct kvr_ranking *ranking, uint32_t slots, struct kvr_error *error);
    /* A resident block is used, queued or not. */
    void (*hit)(struct kvr_ranking *ranking, uint32_t block);
    /* id is about to be inserted (before room is made). */
    void (*miss)(struct kvr_ranking *ranking, uint64_t id);
    /* A new block: what the policy knows of it; it is queued later by enqueue. */
    void (*insert)(struct kvr_ranking *ranking, uint32_t block);
    void (*enqueue)(struct kvr_ranking *ranking, uint32_t block, enum kvr_place place);
    void (*dequeue)(struct kvr_ranking *ranking, uint32_t block);
    /* Chooses a candidate and takes it out of the queue; 0 when there is none. */
    uint32_t (*victim)(struct kvr_ranking *ranking);
    /* The victim really goes; not called where it is put back (enqueue as heir). */
    void (*evicted)(struct kvr_ranking *ranking, uint32_t block);
    /* Would the block of this access be the first to go? Then it is not let in. */
    bool (*refuses)(struct kvr_ranking *ranking, uint32_t victim);
    /* A candidate that is too old at store->now_ms, out of the queue, or 0. */
    uint32_t (*expired)(struct kvr_ranking *ranking);
    uint64_t (*memory_bytes)(const struct kvr_ranking *ranking);
};

extern const struct kvr_policy *const kvr_policies[];
extern const size_t kvr_policy_count;

/* NULL where no policy has the name (length bytes). */
const struct kvr_policy *kvr_policy_find(const char *name, size_t length);

/* Makes a ranking over store; capacity is its share. *out is freed by kvr_ranking_destroy(). */
enum kvr_status kvr_ranking_create(const struct kvr_policy *policy, struct kvr_store *store,
    uint32_t capacity, const struct kvr_parameter_value *values, uint64_t seed,
    struct kvr_ranking **out, struct kvr_error *error);
void kvr_ranking_destroy(struct kvr_ranking *ranking);

/* Call after kvr_store_reserve() may have grown the store. */
static inline enum kvr_status kvr_ranking_reserve(
    struct kvr_ranking *ranking, struct kvr_error *error)
{
    return ranking->policy->reserve
               ? ranking->policy->reserve(ranking, ranking->store->slots, error)
               : KVR_OK;
}

static inline void kvr_ranking_enqueue(
    struct kvr_ranking *ranking, uint32_t block, enum kvr_place place)
{
    ranking->store->blocks[block].flags |= KVR_BLOCK_QUEUED;
    ranking->policy->enqueue(ranking, block, place);
}

static inline void kvr_ranking_dequeue(struct kvr_ranking *ranking, uint32_t block)
{
    ranking->store->blocks[block].flags &= (uint8_t)~KVR_BLOCK_QUEUED;
    ranking->policy->dequeue(ranking, block);
}

static inline uint32_t kvr_ranking_victim(struct kvr_ranking *ranking)
{
    uint32_t block = ranking->policy->victim(ranking);

    ranking->store->blocks[block].flags &= (uint8_t)~KVR_BLOCK_QUEUED;
    return block;
}

static inline bool kvr_block_is_queued(const struct kvr_block *block)
{
    return block->flags & KVR_BLOCK_QUEUED;
}

#endif
