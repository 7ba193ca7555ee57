/* The key of a prompt's beginning, for policies that hash it. */
#ifndef KVR_ROUTE_PREFIX_KEY_H
#define KVR_ROUTE_PREFIX_KEY_H

#include "route/policy.h"

/* The chained id of the last block within the first `tokens` tokens; of the first block where
 * blocks are longer, of the last where the prompt is shorter. False: the request has no ids. */
static inline bool kvr_route_prefix_key(
    const struct kvr_route_request *request, uint64_t tokens, uint64_t *key)
{
    if (request->block_count == 0)
        return false;
    uint64_t blocks = tokens / (request->block_tokens ? request->block_tokens : 1);
    if (blocks > request->block_count)
        blocks = request->block_count;
    *key = request->block_ids[blocks ? blocks - 1 : 0];
    return true;
}

#endif
