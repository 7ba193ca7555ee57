/*
 * prefix-hash: prompts that begin alike go to the same worker.
 *
 * The first `tokens` tokens (or the system prompt) name a group of prompts; the group's hash finds
 * its worker on a ring with bounded load (ring.h). There is no index to keep or to lose, and any
 * number of routers agree. Chained block ids make the key cheap: the id of block k stands for all
 * tokens up to its end, so the key is one id: that of the last block that lies within the first
 * `tokens` tokens, the first block where blocks are longer than that.
 *
 * A hot group spills to the next workers on the ring as they fill, and comes back as they empty, so
 * it lives on as few workers as its load allows.
 */
#include "route/prefix_key.h"
#include "route/ring.h"

enum { TOKENS, OF, BOUND, NODES };

static const struct kvr_parameter parameters[] = {
    [TOKENS] = {.name = "tokens",
        .kind = KVR_PARAMETER_INTEGER,
        .initial = "256",
        .least = 1,
        .most = 1e9,
        .help = "how much of the prompt's beginning is hashed"},
    [OF] = {.name = "of",
        .kind = KVR_PARAMETER_CHOICE,
        .initial = "tokens",
        .choices = "tokens system",
        .help = "hash these tokens, or the system prompt where there is one"},
    KVR_ROUTE_RING_PARAMETERS(BOUND, NODES),
};

struct prefix_hash {
    uint64_t tokens;
    bool system;
    struct kvr_route_ring ring;
};

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    struct prefix_hash *hash = state;

    hash->tokens = (uint64_t)setup->values[TOKENS].integer;
    hash->system = setup->values[OF].integer != 0;
    return kvr_route_ring_init(&hash->ring, &setup->values[BOUND], &setup->values[NODES], error);
}

static void release(void *state)
{
    kvr_route_ring_release(&((struct prefix_hash *)state)->ring);
}

static enum kvr_status fleet_changed(
    void *state, const struct kvr_fleet *fleet, struct kvr_error *error)
{
    struct prefix_hash *hash = state;

    return kvr_route_ring_build(&hash->ring, fleet, error);
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    const struct prefix_hash *hash = state;
    uint64_t key;

    if (hash->system && view->request->system)
        key = view->request->system;
    else if (!kvr_route_prefix_key(view->request, hash->tokens, &key))
        return false;
    decision->worker = kvr_route_ring_find(&hash->ring, view, key);
    decision->reason = KVR_ROUTE_PREFIX_HASH;
    return true;
}

const struct kvr_route_policy kvr_route_prefix_hash = {
    .name = "prefix-hash",
    .summary = "prompts that begin alike on the same worker, by hash",
    .formula = "key = the chained id of the last block within the first `tokens` tokens (of the "
               "first block, where blocks are longer), or of the system prompt; the first worker "
               "at or after hash(key) on the ring whose load is within `bound` times the fair "
               "share.",
    .source = "smg policy prefix_hash (256 tokens, 150 virtual nodes, 1.25; it falls back to the "
              "least loaded, here the next on the ring serves, so that a spill finds its cache "
              "again).",
    .use = "Where many users share few long system prompts, and no index is wanted.",
    .fails = "`tokens` must reach beyond what all prompts share: if every prompt begins with the "
             "same block there is one group, and only the bound spreads it. Without block ids or "
             "a system prompt it leaves the request to the next link.",
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof *parameters,
    .reads_blocks = true,
    .state_size = sizeof(struct prefix_hash),
    .init = init,
    .release = release,
    .fleet_changed = fleet_changed,
    .decide = decide,
};
