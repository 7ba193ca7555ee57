/* What block_cache.c (the tree and its turnover) and block_engine.c (lives, outputs, pins, the
 * engine interface) share. */
#ifndef KVR_CACHE_BLOCK_CACHE_INTERNAL_H
#define KVR_CACHE_BLOCK_CACHE_INTERNAL_H

#include "base/u64_map.h"
#include "cache/block_cache.h"

enum { KVR_BLOCK_NEWS_MOST = 4096 }; /* ids told in one call */

/* A live request: its resident path, root first. */
struct kvr_block_live {
    uint32_t *path;
    size_t length, size;
    size_t partial; /* 1: the last block of path is the prompt's partial block */
    bool whole;     /* every block of the prompt is resident: output can go on behind it */
    bool used;
    uint64_t tokens;      /* so far */
    uint64_t full_blocks; /* of the prompt; output block j is block full_blocks + j */
    uint64_t *output_ids;
    size_t output_count, output_size, output_done;
    struct kvr_block_tags tags; /* of the request, its identity filled in */
};

/* Ids leaving and coming, gathered into as few calls of the sink as order allows. */
struct kvr_block_news {
    uint64_t *removed, *stored;
    size_t removed_count, stored_count, removed_size, stored_size;
    uint64_t stored_parent;
    bool stored_has_parent;
};

struct kvr_block_pin {
    uint64_t id;
    double until_ms;
};

struct kvr_block_cache {
    struct kvr_cache base;
    struct kvr_block_options options;
    struct kvr_parameter_value policy_values[KVR_POLICY_PARAMETERS_MOST]; /* for later rankings */
    struct kvr_cache_sink sink;
    bool told; /* the sink wants something */
    struct kvr_store store;
    struct kvr_ranking
        *rankings[KVR_BLOCK_RANKINGS_MOST]; /* 0 private, 1 shared if pool, then tenants */
    uint32_t ranking_count;
    bool whole_path; /* every block of the tree is queued (lru alone): `place` counts holds */
    struct kvr_gate *gate;
    struct kvr_block_tags tags;
    uint32_t *sessions; /* by slot, with a pool: who used the block first; 0: unknown */
    uint32_t sessions_size;
    struct kvr_u64_map holds; /* slot to holds beyond the first, where several requests end alike */
    struct kvr_u64_map pins;  /* id to pins */
    struct kvr_block_pin *timed_pins;
    size_t timed_pin_count, timed_pin_size;
    double next_pin_end_ms;
    struct kvr_block_live *lives;
    size_t live_count, live_size, live_used;
    uint32_t *free_lives;
    size_t free_live_count, free_live_size;
    struct kvr_block_live scratch; /* the life of a request served at once */
    uint32_t *aside;               /* held candidates passed over while room is made */
    size_t aside_count, aside_size;
    uint32_t *hashes;
    size_t hashes_size;
    struct kvr_block_news news;
    struct kvr_block_counts counts;
    uint64_t cleared;
    uint64_t prompt_blocks; /* full ones */
    uint64_t sequence;
};

/* Looks the prompt up, makes room and inserts; live gets the path. */
enum kvr_status kvr_block_enter(struct kvr_block_cache *cache, const uint64_t *ids, size_t count,
    uint64_t input_tokens, struct kvr_block_live *live, uint64_t *hit_blocks, uint64_t *hit_tokens,
    struct kvr_error *error);

/* The leading run of ids that is resident below parent (0: from the root); path gets its slots. */
size_t kvr_block_find_run(const struct kvr_store *store, const uint64_t *ids, size_t count,
    uint32_t parent, uint32_t *path);

/* Goes on behind the live path with blocks that the output filled. */
enum kvr_status kvr_block_extend(struct kvr_block_cache *cache, struct kvr_block_live *live,
    const uint64_t *ids, size_t count, struct kvr_error *error);

/* The request ends: its path may go again. */
void kvr_block_leave(struct kvr_block_cache *cache, struct kvr_block_live *live);

/* Everything that may go goes; the number of blocks. */
uint64_t kvr_block_clear(struct kvr_block_cache *cache);

/* Takes the last block off a live path that has one. */
enum kvr_status kvr_block_drop_tip(
    struct kvr_block_cache *cache, struct kvr_block_live *live, struct kvr_error *error);

/* A pin on a resident block comes or goes. */
void kvr_block_pin_slot(struct kvr_block_cache *cache, uint32_t slot);
void kvr_block_unpin_slot(struct kvr_block_cache *cache, uint32_t slot);

/* Pins whose time is over fall off. */
void kvr_block_expire_pins(struct kvr_block_cache *cache, double now_ms);

/* Evicts one block that is out of every queue. */
void kvr_block_evict(struct kvr_block_cache *cache, uint32_t slot);

void kvr_block_news_flush(struct kvr_block_cache *cache);

/* block_room.c */

/* A new block, told at the next flush; parent is NULL for a root. */
void kvr_block_tell_stored(struct kvr_block_cache *cache, uint64_t id, const uint64_t *parent);
struct kvr_ranking *kvr_block_ranking_of(struct kvr_block_cache *cache, uint32_t slot);

/* With whole_path: a hold takes the block out of the list, the last release puts it back. */
static inline void kvr_block_hold_in_list(struct kvr_block_cache *cache, uint32_t slot)
{
    struct kvr_block *block = &cache->store.blocks[slot];

    if (!block->place++ && kvr_block_is_queued(block))
        kvr_ranking_dequeue(cache->rankings[0], slot);
}

static inline void kvr_block_release_in_list(struct kvr_block_cache *cache, uint32_t slot)
{
    if (!--cache->store.blocks[slot].place)
        kvr_ranking_enqueue(cache->rankings[0], slot, KVR_FRESH);
}

/* Without: the last block of a live path keeps its place and does not go. */
enum kvr_status kvr_block_hold_tip(
    struct kvr_block_cache *cache, uint32_t slot, struct kvr_error *error);
void kvr_block_release_tip(struct kvr_block_cache *cache, uint32_t slot);

/* Queues a leaf that is in no queue; takes a block that gets a child out of its queue. */
void kvr_block_expose(struct kvr_block_cache *cache, uint32_t slot, enum kvr_place place);
void kvr_block_cover(struct kvr_block_cache *cache, uint32_t slot);

/* Held candidates that victim searches met go back to where they were. */
void kvr_block_put_aside_back(struct kvr_block_cache *cache);

/* Makes room for the access at store.clock; false: there is none, or the block is not worth it. */
bool kvr_block_make_room(struct kvr_block_cache *cache, uint32_t owner, uint64_t id);

/* Evicts what is too old at store.now_ms. */
void kvr_block_evict_expired(struct kvr_block_cache *cache);

/* Sessions tell what is shared: slot is used at store.clock by the session of the tags. */
void kvr_block_note_session(struct kvr_block_cache *cache, uint32_t slot);

/* Without sessions a branch tells: path is continued differently than before. */
void kvr_block_note_branch(
    struct kvr_block_cache *cache, const uint32_t *path, size_t length, uint64_t clock);

#endif
