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

/*
 * Tiers hold a prefix in their order: eviction moves leaves down first, so what lies in host memory
 * follows what is on the device, and so on. So there are four ways to get the prompt: from the
 * device alone, or reading down to host memory, disk, remote storage; the rest is computed.
 */
struct kvr_route_plan kvr_route_plan_prompt(const struct kvr_route_view *view, uint32_t worker)
{
    const struct kvr_route_match *match = &view->matched[worker];
    const uint32_t below[] = {match->host, match->disk, match->remote};
    uint64_t slower = (uint64_t)match->host + match->disk + match->remote;
    uint32_t held = slower < match->tokens ? match->tokens - (uint32_t)slower : 0;
    struct kvr_route_plan best = {kvr_route_prefill_ms(view, worker, held), 0, 0, KVR_MEDIUM_GPU};
    struct kvr_route_plan plan = {0};

    for (int tier = 0; tier < 3; tier++) {
        uint32_t left = match->tokens - held, tokens = below[tier] < left ? below[tier] : left;
        if (tokens == 0)
            continue;
        held += tokens;
        plan.loaded += tokens;
        plan.load_ms += kvr_cost_transfer_ms(
            view->cost, &view->tier_links[tier], tier == 2 ? view->compression : 1, tokens);
        plan.ms = plan.load_ms + kvr_route_prefill_ms(view, worker, held);
        plan.medium = (enum kvr_medium)(KVR_MEDIUM_CPU + tier);
        if (plan.ms < best.ms)
            best = plan;
    }
    return best;
}

double kvr_route_prompt_ms(const struct kvr_route_view *view, uint32_t worker)
{
    const struct kvr_route_match *match = &view->matched[worker];

    return match->host | match->disk | match->remote
               ? kvr_route_plan_prompt(view, worker).ms
               : kvr_route_prefill_ms(view, worker, match->tokens);
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

double kvr_route_tbt_ms(const struct kvr_route_view *view, uint32_t worker, double after_ms)
{
    const struct kvr_worker *w = &view->fleet->workers[worker];
    double left_ms = w->outstanding ? w->end_sum_ms / w->outstanding - view->fleet->now_ms : 0;
    double stay = left_ms > 0 ? fmax(0, 1 - after_ms / (2 * left_ms)) : 1;
    double context = (double)kvr_worker_tokens(view->fleet, worker) * stay +
                     view->request->input_tokens + kvr_route_output_tokens(view);
    double sequences = 1 + kvr_worker_load(view->fleet, worker) * stay;

    return kvr_cost_decode_ms(view->cost, sequences, context) / w->weight;
}
