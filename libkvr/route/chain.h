/*
 * A chain of policies as a user writes it: 'session(ttl=10m) > prefix-hash(tokens=1024) > cost'.
 *
 *   chain  = link { ">" link }
 *   link   = name [ "(" [ name "=" value { "," name "=" value } ] ")" ]
 *
 * Spaces may stand anywhere between these. The first link is asked first; one that abstains leaves
 * the decision to the next.
 */
#ifndef KVR_ROUTE_CHAIN_H
#define KVR_ROUTE_CHAIN_H

#include "route/policy.h"

#define KVR_ROUTE_CHAIN_LIMIT 16
#define KVR_ROUTE_PARAMETER_LIMIT 16

struct kvr_route_link {
    const struct kvr_route_policy *policy;
    struct kvr_parameter_value values[KVR_ROUTE_PARAMETER_LIMIT];
    void *state;
};

struct kvr_route_chain {
    struct kvr_route_link links[KVR_ROUTE_CHAIN_LIMIT];
    uint32_t count;
};

/* Reads text and makes the policies' states. KVR_BAD_USAGE says what is wrong and what there is; a
 * failed chain needs no release. */
enum kvr_status kvr_route_chain_read(struct kvr_route_chain *chain, const char *text,
    const struct kvr_cost *cost, uint64_t seed, struct kvr_error *error);
void kvr_route_chain_release(struct kvr_route_chain *chain);

#endif
