/*
 * Which pages of a backend's pool hold which blocks of tokens: a prefix cache with LRU eviction.
 *
 * The pool is cut into slots of one block (hash_ids' block) each. A request takes slots for its
 * whole prompt: first those that hold its leading blocks already, then, for the rest, the slots
 * used longest ago. Ids chain (an id stands for its whole prefix), so the leading run of known ids
 * is what can be skipped. A request touches its blocks last to first, so that of a prefix the end
 * leaves before the beginning. One request is computed at a time; what it takes is its own until
 * the next call.
 */
#ifndef KVR_KERNELS_PREFIX_STORE_H
#define KVR_KERNELS_PREFIX_STORE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct kvr_prefix_store;

/* pages and page_tokens of the pool. KVR_BAD_USAGE where block_tokens is no multiple of
 * page_tokens, or no block fits. */
enum kvr_status kvr_prefix_store_create(uint32_t pages, uint32_t page_tokens, uint32_t block_tokens,
    struct kvr_prefix_store **store, struct kvr_error *error);
void kvr_prefix_store_destroy(struct kvr_prefix_store *store);

/*
 * Pages for a prompt of so many tokens whose full blocks are named by ids (count may be less than
 * the blocks there are, and 0). *page_table is the store's, valid until the next call;
 * *cached_tokens says what the pages hold of it already, at most tokens − 1, as the last token has
 * to be computed for its logits. KVR_BAD_INPUT where the prompt is larger than the pool.
 */
enum kvr_status kvr_prefix_store_take(struct kvr_prefix_store *store, const uint64_t *ids,
    size_t count, uint64_t tokens, const uint32_t **page_table, uint32_t *cached_tokens,
    struct kvr_error *error);

#endif
