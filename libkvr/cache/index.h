/*
 * The prefix index: which worker holds which blocks, and how long a prefix of a request each of
 * them could reuse.
 *
 * One table maps (namespace, chained block id) to the workers holding the block. What a worker
 * holds is learned in one of two ways:
 *   approximate   from placements (kvr_index_place): a mirror of bounded capacity that evicts as
 *                 the worker's engine would, leaf LRU;
 *   exact         from the worker's own cache events (kvr_index_stored, _removed): references
 *                 counted per block and medium. A worker turns exact with its first event, loses
 *                 what was guessed before, and its placements are ignored from then on.
 *
 * Ids are chained: equal ids mean an equal block after an equal prefix. Ids that are not chained
 * are noticed when they are placed, and cost speed, not truth. Only a query of unchained ids
 * against a mirror that has seen none, where its blocks times the holders of its first block are
 * more than KVR_INDEX_WALK_STEPS, can be answered with too long a run.
 *
 * Time is passed in (ms, any origin, virtual or real); a step back counts as no step. No call
 * allocates for a request, except to grow with what is held. One index belongs to one thread.
 *
 * Memory: 36 bytes a (block, worker) plus 7 to 10.2 of table, whatever the number of workers.
 */
#ifndef KVR_CACHE_INDEX_H
#define KVR_CACHE_INDEX_H

#include "base/error.h"
#include "cache/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_INDEX_UNBOUNDED UINT64_MAX
#define KVR_INDEX_MAX_WORKERS 65534u
#define KVR_INDEX_MAX_NAME_BYTES 255u
#define KVR_INDEX_MAX_TTL_MS INT64_C(2147483647)
#define KVR_INDEX_WALK_STEPS 128u

struct kvr_index;

struct kvr_index_options {
    uint64_t capacity_tokens;  /* of a worker that is created without saying; the smaller */
    uint64_t capacity_blocks;  /*   of the two counts, KVR_INDEX_UNBOUNDED is none */
    uint64_t max_memory_bytes; /* of the whole index; KVR_INDEX_UNBOUNDED is none */
    int64_t ttl_ms;            /* a block not placed again for so long is forgotten; 0 is never */
    uint64_t seed;             /* secret of the hash: changes no answer, defeats crafted ids */
};

#define KVR_INDEX_DEFAULTS                                                                         \
    {                                                                                              \
        KVR_INDEX_UNBOUNDED, KVR_INDEX_UNBOUNDED, KVR_INDEX_UNBOUNDED, 0, 0                        \
    }

/* The blocks of one request or event. Borrowed for the call. */
struct kvr_blocks {
    uint64_t space;      /* from kvr_index_space() */
    const uint64_t *ids; /* count of them, first block first */
    size_t count;        /* at most UINT32_MAX */
    uint32_t block_size; /* tokens a block, the same that made `space` */
};

struct kvr_index_match {
    uint32_t worker;
    uint32_t blocks; /* length of the run, at least 1 */
};

struct kvr_index_placed {
    size_t hit;      /* blocks of the run that was there */
    size_t inserted; /* blocks that came */
    size_t evicted;  /* blocks that the worker lost for them */
};

/* Told of every block that leaves an approximate worker (eviction, expiry), before it is gone.
 * key is kvr_index_key() of the block. Must not call back into the index. */
typedef void kvr_index_evicted(void *context, uint32_t worker, uint64_t key);

/* The caller destroys. KVR_BAD_USAGE for a ttl out of range, KVR_NO_MEMORY. */
enum kvr_status kvr_index_create(
    struct kvr_index **index, const struct kvr_index_options *options, struct kvr_error *error);
void kvr_index_destroy(struct kvr_index *index);

void kvr_index_on_evicted(struct kvr_index *index, kvr_index_evicted *evicted, void *context);

/*
 * The namespace of blocks: model, LoRA, salt and block size. Blocks of different spaces never
 * match. A text may be NULL with length 0, which differs from no other empty text. Stable for the
 * life of the index, but not across kvr_index_load(), which brings the saved seed.
 */
uint64_t kvr_index_space(const struct kvr_index *index, const char *model, size_t model_length,
    const char *lora, size_t lora_length, const char *salt, size_t salt_length,
    uint32_t block_size);

/* The key under which the index keeps block `id` of a space: one to one within the space. */
uint64_t kvr_index_key(uint64_t space, uint64_t id);

/*
 * Workers. Ids are small integers, given in order of appearance; that of a removed worker is given
 * again. kvr_index_worker() finds or creates (with the default capacity); KVR_BAD_INPUT for a name
 * that is empty, too long or has a NUL, and for one worker too many. _lookup() says UINT32_MAX for
 * a stranger.
 */
enum kvr_status kvr_index_worker(struct kvr_index *index, const char *name, size_t length,
    uint32_t *worker, struct kvr_error *error);
uint32_t kvr_index_worker_lookup(const struct kvr_index *index, const char *name, size_t length);
/* NULL for an id that is not in use. Valid until the worker is removed. */
const char *kvr_index_worker_name(const struct kvr_index *index, uint32_t worker);
/* One more than the largest id ever in use. */
uint32_t kvr_index_worker_limit(const struct kvr_index *index);
uint64_t kvr_index_worker_blocks(const struct kvr_index *index, uint32_t worker);
/* 0 until the worker's first block. */
uint32_t kvr_index_worker_block_size(const struct kvr_index *index, uint32_t worker);
bool kvr_index_worker_is_exact(const struct kvr_index *index, uint32_t worker);
/* A smaller capacity evicts at once. Exact workers have no capacity but their own. */
void kvr_index_worker_capacity(
    struct kvr_index *index, uint32_t worker, uint64_t capacity_tokens, uint64_t capacity_blocks);
/* Its cache is empty now (`cleared`, a restart); the worker stays. */
void kvr_index_worker_clear(struct kvr_index *index, uint32_t worker);
/* It is gone (`down`): its blocks and its id with it. */
void kvr_index_worker_remove(struct kvr_index *index, uint32_t worker);

/*
 * Longest run from the first block that each worker holds, workers without any left out, in order
 * of worker id. Never fails. *matches is the index's own and valid until the next call.
 */
size_t kvr_index_find(struct kvr_index *index, int64_t now_ms, const struct kvr_blocks *blocks,
    const struct kvr_index_match **matches);

/* Where the first `tokens` tokens of a match lie: tokens in each medium, the fastest one counting
 * for a block held in several. An approximate worker has all in gpu. */
void kvr_index_tiers(const struct kvr_index *index, uint32_t worker,
    const struct kvr_blocks *blocks, uint64_t tokens, uint64_t tiers[KVR_MEDIUM_COUNT]);

/*
 * Learns that a worker got this request (approximate workers; for an exact one all counts are 0).
 * The leaf-LRU rule: the run of held blocks is touched deepest first; missing blocks are inserted
 * in order, each evicting the least recently used, until that would be a block of the request
 * itself; then the request's blocks are touched deepest first.
 * KVR_BAD_INPUT when the worker's blocks have another size; KVR_NO_MEMORY leaves the worker with
 * a shorter, still correct, prefix. `placed` may be NULL.
 */
enum kvr_status kvr_index_place(struct kvr_index *index, uint32_t worker, int64_t now_ms,
    const struct kvr_blocks *blocks, struct kvr_index_placed *placed, struct kvr_error *error);

/* The events of a worker's own cache. A block stored several times in a medium is gone from it
 * when removed as often; removing what is not there is no error (the stream began before us).
 * KVR_BAD_INPUT for another block size, or more than 65535 references to one block. */
enum kvr_status kvr_index_stored(struct kvr_index *index, uint32_t worker, enum kvr_medium medium,
    const struct kvr_blocks *blocks, struct kvr_error *error);
enum kvr_status kvr_index_removed(struct kvr_index *index, uint32_t worker, enum kvr_medium medium,
    const struct kvr_blocks *blocks, struct kvr_error *error);

/* A `cleared` event of one medium: its references are gone. */
void kvr_index_cleared(struct kvr_index *index, uint32_t worker, enum kvr_medium medium);

/* The time that the index has come to; false before its first. */
bool kvr_index_now(const struct kvr_index *index, int64_t *now_ms);

/* (block, worker) pairs held, distinct blocks, and bytes mapped for all of it. */
uint64_t kvr_index_pairs(const struct kvr_index *index);
uint64_t kvr_index_distinct_blocks(const struct kvr_index *index);
uint64_t kvr_index_memory_bytes(const struct kvr_index *index);

/*
 * State on disk. A regular file or a link to one, saved whole or not at all (a new file renamed
 * over the old one, whose permissions it keeps; a first one is the owner's alone), with a version
 * and a checksum over every byte. _load() replaces the content of the index, the options stay;
 * a file that is truncated, foreign, of another version or of another ttl mode gives KVR_BAD_INPUT
 * and an empty index (a cold start is the caller's choice); unreadable is KVR_IO.
 */
enum kvr_status kvr_index_save(
    const struct kvr_index *index, const char *path, struct kvr_error *error);
enum kvr_status kvr_index_load(struct kvr_index *index, const char *path, struct kvr_error *error);
/* The same from memory; `name` stands in messages. */
enum kvr_status kvr_index_load_bytes(struct kvr_index *index, const void *data, size_t size,
    const char *name, struct kvr_error *error);

#endif
