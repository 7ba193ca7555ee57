/*
 * The blocks that live requests hold on one worker, a shared one counted once.
 *
 * The engines that manage physical blocks (vllm, sglang) say themselves when memory is out. The
 * others are caches alone and never refuse; for them the worker counts with this. For all of them
 * it tells how full the memory is.
 */
#ifndef KVR_SIM_HELD_H
#define KVR_SIM_HELD_H

#include "base/u64_map.h"
#include "cache/engine.h"

struct kvr_held {
    struct kvr_u64_map holders; /* block id → live requests that have it */
    uint64_t blocks;
};

void kvr_held_release(struct kvr_held *held);

/* Holds the full blocks of a prompt and `unnamed` blocks without an id. KVR_NO_MEMORY leaves held
 * as it was. */
enum kvr_status kvr_held_add(struct kvr_held *held, const uint64_t *ids, size_t count,
    uint64_t unnamed, struct kvr_error *error);
void kvr_held_drop(struct kvr_held *held, const uint64_t *ids, size_t count, uint64_t unnamed);

/* By how many blocks the first call would grow it. */
uint64_t kvr_held_growth(
    const struct kvr_held *held, const uint64_t *ids, size_t count, uint64_t unnamed);

#endif
