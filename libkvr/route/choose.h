/*
 * What many policies do with the candidates: the least loaded, the load's spread, predictions.
 * Loads are compared relative to the workers' weights. Ties go to the worker whose newest placement
 * is oldest, so equal workers take turns and no tie falls on one worker for ever.
 */
#ifndef KVR_ROUTE_CHOOSE_H
#define KVR_ROUTE_CHOOSE_H

#include "route/policy.h"

/* Requests on the worker for each unit of its weight. */
static inline double kvr_route_load(const struct kvr_route_view *view, uint32_t worker)
{
    return kvr_worker_load(view->fleet, worker) / view->fleet->workers[worker].weight;
}

/* Its newest placement is older: the tie-break. Anybody is more rested than KVR_NO_WORKER. */
static inline bool kvr_route_rested(
    const struct kvr_route_view *view, uint32_t worker, uint32_t than)
{
    return than == KVR_NO_WORKER ||
           view->fleet->workers[worker].last_placed < view->fleet->workers[than].last_placed;
}

/* The candidate with the least load. */
uint32_t kvr_route_least_loaded(const struct kvr_route_view *view);

struct kvr_route_spread {
    double least, most, mean, deviation; /* of the candidates' loads; population deviation */
};

struct kvr_route_spread kvr_route_spread(const struct kvr_route_view *view);

/* The candidate of the longest match; among equals the least loaded. KVR_NO_WORKER: none matches.
 */
uint32_t kvr_route_best_match(const struct kvr_route_view *view);

/* Tokens of the prompt that a worker would have to compute: at least one, as an engine recomputes
 * the last token of a prompt found whole. */
static inline double kvr_route_new_tokens(const struct kvr_route_request *request, uint32_t matched)
{
    return matched < request->input_tokens ? (double)(request->input_tokens - matched) : 1;
}

/* Predicted ms to compute the prompt on a worker of that weight with `matched` tokens cached. */
static inline double kvr_route_prefill_ms(
    const struct kvr_route_view *view, uint32_t worker, uint32_t matched)
{
    double new_tokens = kvr_route_new_tokens(view->request, matched);

    return kvr_cost_prefill_ms(
               view->cost, new_tokens, (double)view->request->input_tokens - new_tokens) /
           view->fleet->workers[worker].weight;
}

/* The same with loading from slower tiers where that is faster than computing. */
double kvr_route_prompt_ms(const struct kvr_route_view *view, uint32_t worker);

/* How a worker would best get the prompt's KV from what it holds in its tiers. */
struct kvr_route_plan {
    double ms;              /* loading and computing */
    uint32_t loaded;        /* tokens taken from slower tiers */
    double load_ms;         /* of ms, what they take */
    enum kvr_medium medium; /* the slowest tier read; gpu: none */
};

struct kvr_route_plan kvr_route_plan_prompt(const struct kvr_route_view *view, uint32_t worker);

/* Predicted ms to have the prompt's KV when the missing part of what another worker holds may be
 * fetched over the link: the smaller of prompt_ms and fetching; *pulled tells the tokens fetched,
 * 0 where computing is as fast. */
double kvr_route_pulled_ms(
    const struct kvr_route_view *view, uint32_t worker, uint32_t held, uint32_t *pulled);

/* Output tokens, or what stands for them. */
static inline double kvr_route_output_tokens(const struct kvr_route_view *view)
{
    return view->request->output_tokens ? view->request->output_tokens
                                        : view->default_output_tokens;
}

/* Predicted time between tokens on a worker with one more request of this size, `after_ms` from now
 * when its prefill is over. Of the requests there now the part after_ms / (2 · mean time left) will
 * have ended by then, as if the times left were even between 0 and twice their mean (Mooncake's
 * early rejection based on prediction). */
double kvr_route_tbt_ms(const struct kvr_route_view *view, uint32_t worker, double after_ms);

#endif
