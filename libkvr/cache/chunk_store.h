/*
 * Stores of whole chunks beside the engine's own cache: what lmcache.c and mooncake.c share.
 * Internal to these two.
 *
 * Such a store knows no tree and no live requests. A request looks up the leading run of its
 * prompt's full chunks, touches what it found, computes the rest, and puts the rest in. A chunk
 * that finds no room is not stored; the request goes on all the same, so admission never fails.
 * What differs, and is given as rules: what a touch does, how room is made, and what time does.
 *
 * Layout: a map from id to slot, an id a slot; the rules keep their own arrays by slot.
 */
#ifndef KVR_CACHE_CHUNK_STORE_H
#define KVR_CACHE_CHUNK_STORE_H

#include "base/u64_map.h"
#include "cache/engine.h"
#include "cache/handles.h"

struct chunk_store;

struct chunk_rules {
    /* Time has come to now_ms: what ends, ends; what runs in the background, runs. */
    void (*advance)(struct chunk_store *store, double now_ms);
    /* A request found these, prefix first. */
    void (*hit)(struct chunk_store *store, const uint32_t *slots, size_t count, double now_ms);
    /* Of these chunks, in order, how many may be put in; makes room for those that are new. */
    size_t (*claim)(struct chunk_store *store, const uint64_t *ids, size_t count);
    /* These are new, in the order of the prompt. */
    void (*added)(struct chunk_store *store, const uint32_t *slots, size_t count, double now_ms);
    /* Slots below `count` are about to be used. False when memory is short. */
    bool (*reserve)(struct chunk_store *store, size_t count);
};

struct chunk_live {
    uint64_t *chain; /* ids that the output fills, where outputs are saved */
    size_t count, capacity, next;
    uint64_t tokens, parent;
    bool has_parent, used;
};

struct chunk_store {
    struct kvr_cache base;
    const struct chunk_rules *rules;
    struct kvr_cache_sink sink;
    uint32_t chunk_tokens, capacity, used;
    bool save_outputs;
    double now_ms; /* of the last request */

    struct kvr_u64_map slots;
    uint64_t *ids; /* by slot */
    uint8_t *held; /* by slot: 1 where it holds a chunk */
    size_t ids_capacity, held_capacity;
    uint32_t slot_count, *unused;
    size_t unused_count, unused_capacity;
    uint32_t *scratch;
    size_t scratch_capacity;

    struct chunk_live *live;
    struct kvr_handles handles;
    uint64_t live_bytes; /* of the live requests' chains */
    struct kvr_cache_stats stats;
};

void chunk_store_init(struct chunk_store *store, const struct chunk_rules *rules,
    const struct kvr_engine_options *options, bool save_outputs);
void chunk_store_release(struct chunk_store *store);

/* The slot of an id, UINT32_MAX where it is not stored. */
uint32_t chunk_store_find(const struct chunk_store *store, uint64_t id);

/* Frees a slot, counts an eviction and tells of it, unless `clearing`. The rules have taken it out
 * of their orders. */
void chunk_store_drop(struct chunk_store *store, uint32_t slot, bool clearing);

/* After the drops of a clear(): tells, counts. */
void chunk_store_cleared(struct chunk_store *store, uint64_t before, bool all);

size_t chunk_store_bytes(const struct chunk_store *store);

/* Members of struct kvr_engine. */
enum kvr_status chunk_store_admit(struct kvr_cache *base, const struct kvr_cache_request *request,
    struct kvr_admission *admission, struct kvr_error *error);
enum kvr_status chunk_store_output(struct kvr_cache *base, uint32_t handle, uint64_t tokens,
    uint64_t *made, struct kvr_error *error);
enum kvr_status chunk_store_finish(
    struct kvr_cache *base, uint32_t handle, struct kvr_error *error);
void chunk_store_resident(
    const struct kvr_cache *base, enum kvr_medium medium, kvr_cache_visit *visit, void *context);

#endif
