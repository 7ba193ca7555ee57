#include "route/choose.h"

uint32_t kvr_route_least_loaded(const struct kvr_route_view *view)
{
    uint32_t best = view->candidates[0];
    double least = kvr_route_load(view, best);

    for (uint32_t i = 1; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        double load = kvr_route_load(view, worker);
        if (load < least || (load == least && kvr_route_rested(view, worker, best))) {
            best = worker;
            least = load;
        }
    }
    return best;
}

struct kvr_route_spread kvr_route_spread(const struct kvr_route_view *view)
{
    struct kvr_route_spread spread = {INFINITY, -INFINITY, 0, 0};
    double squares = 0;

    for (uint32_t i = 0; i < view->candidate_count; i++) {
        double load = kvr_route_load(view, view->candidates[i]);
        spread.least = fmin(spread.least, load);
        spread.most = fmax(spread.most, load);
        spread.mean += load;
        squares += load * load;
    }
    spread.mean /= view->candidate_count;
    spread.deviation = sqrt(fmax(0, squares / view->candidate_count - spread.mean * spread.mean));
    return spread;
}

uint32_t kvr_route_best_match(const struct kvr_route_view *view)
{
    uint32_t best = KVR_NO_WORKER;
    double least = 0;

    if (view->best_matched == 0)
        return KVR_NO_WORKER;
    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        if (view->matched[worker].tokens != view->best_matched)
            continue;
        double load = kvr_route_load(view, worker);
        if (best == KVR_NO_WORKER || load < least ||
            (load == least && kvr_route_rested(view, worker, best))) {
            best = worker;
            least = load;
        }
    }
    return best;
}

double kvr_route_prompt_ms(const struct kvr_route_view *view, uint32_t worker)
{
    const struct kvr_route_match *match = &view->matched[worker];
    double ms = kvr_route_prefill_ms(view, worker, match->tokens);

    if (match->host | match->disk | match->remote)
        ms += kvr_cost_transfer_ms(view->cost, &view->tier_links[0], 1, match->host) +
              kvr_cost_transfer_ms(view->cost, &view->tier_links[1], 1, match->disk) +
              kvr_cost_transfer_ms(
                  view->cost, &view->tier_links[2], view->compression, match->remote);
    return ms;
}

double kvr_route_pulled_ms(
    const struct kvr_route_view *view, uint32_t worker, uint32_t held, uint32_t *pulled)
{
    uint32_t own = view->matched[worker].tokens;
    double alone_ms = kvr_route_prompt_ms(view, worker);

    *pulled = 0;
    if (held <= own)
        return alone_ms;
    double fetched_ms =
        kvr_cost_transfer_ms(view->cost, view->link, view->compression, held - own) +
        kvr_route_prefill_ms(view, worker, held);
    if (fetched_ms >= alone_ms)
        return alone_ms;
    *pulled = held - own;
    return fetched_ms;
}

double kvr_route_tbt_ms(const struct kvr_route_view *view, uint32_t worker)
{
    double context = (double)kvr_worker_tokens(view->fleet, worker) + view->request->input_tokens +
                     kvr_route_output_tokens(view);

    return kvr_cost_decode_ms(view->cost, 1.0 + kvr_worker_load(view->fleet, worker), context) /
           view->fleet->workers[worker].weight;
}
