/*
 * lhg: local first, then a global hash. As Mooncake's routing is often taught.
 *
 * If some worker holds the prefix, it gets the request; else the hash of the prompt's beginning
 * finds a worker on a ring, so that the same prefix seen by another router lands on the same worker
 * and is then local. "Holds the prefix" must mean more than what every prompt shares, so the match
 * has to reach `local` of the prompt. The local step has no eye for load: a hot prefix stays where
 * it is, and only the ring, for what is new, has bounded load.
 */
#include "route/choose.h"
#include "route/prefix_key.h"
#include "route/ring.h"

enum { LOCAL, TOKENS, BOUND, NODES };

static const struct kvr_parameter parameters[] = {
    [LOCAL] = {.name = "local",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "0.5",
        .least = 0,
        .most = 1,
        .help = "share of the prompt that a worker must hold to count as local"},
    [TOKENS] = {.name = "tokens",
        .kind = KVR_PARAMETER_INTEGER,
        .initial = "1024",
        .least = 1,
        .most = 1e9,
        .help = "how much of the prompt's beginning the ring hashes"},
    KVR_ROUTE_RING_PARAMETERS(BOUND, NODES),
};

struct lhg {
    double local;
    uint64_t tokens;
    struct kvr_route_ring ring;
};

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    struct lhg *lhg = state;

    lhg->local = setup->values[LOCAL].number;
    lhg->tokens = (uint64_t)setup->values[TOKENS].integer;
    return kvr_route_ring_init(&lhg->ring, &setup->values[BOUND], &setup->values[NODES], error);
}

static void release(void *state)
{
    kvr_route_ring_release(&((struct lhg *)state)->ring);
}

static enum kvr_status fleet_changed(
    void *state, const struct kvr_fleet *fleet, struct kvr_error *error)
{
    struct lhg *lhg = state;

    return kvr_route_ring_build(&lhg->ring, fleet, error);
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    const struct lhg *lhg = state;
    uint64_t key;

    if (view->best_matched && view->best_matched >= lhg->local * view->request->input_tokens) {
        decision->worker = kvr_route_best_match(view);
        decision->reason = KVR_ROUTE_CACHE_MATCH;
        return true;
    }
    if (!kvr_route_prefix_key(view->request, lhg->tokens, &key))
        return false;
    decision->worker = kvr_route_ring_find(&lhg->ring, view, key);
    decision->reason = KVR_ROUTE_PREFIX_HASH;
    return true;
}

const struct kvr_route_policy kvr_route_lhg = {
    .name = "lhg",
    .summary = "the worker that holds the prefix, else a global hash",
    .formula = "If the longest match is at least `local` of the prompt: the worker that holds it, "
               "the least loaded of equals. Else as prefix-hash of the first `tokens` tokens.",
    .source = "\"Local first, global hash\", as taught about Mooncake.",
    .use = "As a baseline between prefix-hash and the policies that weigh load.",
    .fails = "A hot prefix stays on its worker however long the queue (--escape helps). Without "
             "block ids what is new is left to the next link.",
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof *parameters,
    .reads_blocks = true,
    .state_size = sizeof(struct lhg),
    .init = init,
    .release = release,
    .fleet_changed = fleet_changed,
    .decide = decide,
};
