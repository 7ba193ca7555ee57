/*
 * Ids of one block size read as ids of another.
 *
 * Ids are chained, so the last id of a run names the whole run. Going up (16-token ids, 256-token
 * chunks) takes every sixteenth id. Going down (512-token ids, 16-token blocks) makes up ids for
 * the blocks inside: equal for equal outer ids, so that what matched still matches, a block at a
 * time; the last inner block keeps the outer id. Made-up ids fill the lower 53 bits and keep the
 * rest.
 *
 * Going down, the partial block at the prompt's end has inner full blocks: they are named from the
 * output's first id where there is one (a later prompt then names the same block so), else from the
 * partial id.
 */
#ifndef KVR_CACHE_REGROUP_H
#define KVR_CACHE_REGROUP_H

#include "cache/engine.h"

struct kvr_regrouped {
    struct kvr_cache_request request; /* its ids point into `ids` */
    uint64_t *ids;
    size_t capacity;
};

/* Fills into->request, valid until the next call with the same `into`. KVR_BAD_INPUT where neither
 * size is a multiple of the other. Zero bytes are an empty kvr_regrouped. */
enum kvr_status kvr_regroup(struct kvr_regrouped *into, const struct kvr_cache_request *request,
    uint32_t block_tokens, struct kvr_error *error);
void kvr_regrouped_release(struct kvr_regrouped *regrouped);

#endif
