/*
 * mooncake: Algorithm 1 of the Mooncake paper, KV-cache-centric scheduling.
 *
 *   best = the longest prefix that any prefill worker holds
 *   for each prefill worker p:
 *       if best / own(p) > threshold:  TTFT = transfer(best − own) + queue + prefill(from best)
 *       else:                          TTFT = queue + prefill(from own)
 *   p of the smallest TTFT; d, the decode worker of the smallest predicted time between tokens
 *   reject when TTFT or TBT misses its bound
 *   when p is still past the threshold: the prefix is copied to p
 *
 * The copy is not a separate act here: past the threshold p gets the prefix for this very request
 * (route.pull names the holder), and from then on p holds it too. That is how hot prefixes multiply
 * while their holders are busy, and only then: a holder with a short queue has the smallest TTFT
 * itself. The queue is the sum of the predicted prefills placed before, as in the paper; the bounds
 * are --slo-ttft and --slo-tbt, checked by the router on the same predictions.
 *
 * The paper does not print its threshold. Moving KV is several times faster than computing it on
 * every preset, so a small one is right: 1.5.
 */
#include "route/choose.h"

enum { THRESHOLD };

static const struct kvr_parameter parameters[] = {
    [THRESHOLD] = {.name = "threshold",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "1.5",
        .least = 1,
        .most = 1e9,
        .help = "best / own prefix above which the best is transferred"},
};

struct mooncake {
    double threshold;
};

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    (void)error;
    ((struct mooncake *)state)->threshold = setup->values[THRESHOLD].number;
    return KVR_OK;
}

static bool past_threshold(
    const struct mooncake *mooncake, const struct kvr_route_view *view, uint32_t worker)
{
    return view->best_matched > mooncake->threshold * view->matched[worker].tokens;
}

static double transfer_ms(const struct kvr_route_view *view, uint32_t worker)
{
    return kvr_cost_transfer_ms(view->cost, view->link, view->compression,
        view->best_matched - view->matched[worker].tokens);
}

static uint32_t fastest_decoder(const struct kvr_route_view *view, double after_ms)
{
    uint32_t best = KVR_NO_WORKER;
    double least = INFINITY;

    for (uint32_t i = 0; i < view->fleet->decode_count; i++) {
        uint32_t worker = view->fleet->decode[i];
        double tbt_ms = kvr_route_tbt_ms(view, worker, after_ms);
        if (tbt_ms < least || (tbt_ms == least && kvr_route_rested(view, worker, best))) {
            best = worker;
            least = tbt_ms;
        }
    }
    return best;
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    const struct mooncake *mooncake = state;
    uint32_t best = KVR_NO_WORKER;
    double least = INFINITY;

    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        double ttft_ms = kvr_worker_queue_ms(view->fleet, worker);
        if (past_threshold(mooncake, view, worker))
            ttft_ms +=
                transfer_ms(view, worker) + kvr_route_prefill_ms(view, worker, view->best_matched);
        else
            ttft_ms += kvr_route_prompt_ms(view, worker);
        if (ttft_ms < least || (ttft_ms == least && kvr_route_rested(view, worker, best))) {
            best = worker;
            least = ttft_ms;
        }
        if (view->scores)
            view->scores[worker] = ttft_ms;
    }
    if (best == KVR_NO_WORKER)
        return false;
    decision->worker = best;
    decision->reason = view->matched[best].tokens ? KVR_ROUTE_CACHE_MATCH : KVR_ROUTE_EXPLORE;
    if (past_threshold(mooncake, view, best)) {
        decision->pull = (struct kvr_route_pull){.from = kvr_route_best_match(view),
            .tokens = view->best_matched - view->matched[best].tokens,
            .ms = transfer_ms(view, best)};
        decision->reason = KVR_ROUTE_REPLICATE;
    }
    if (view->fleet->workers[best].role == KVR_ROLE_PREFILL)
        decision->decode_worker = fastest_decoder(view, least);
    return true;
}

const struct kvr_route_policy kvr_route_mooncake = {
    .name = "mooncake",
    .summary = "Mooncake's Algorithm 1: prefill here, or transfer the best prefix to here",
    .formula = "For each prefill worker: if best / own prefix > threshold, TTFT = transfer(best − "
               "own) + queue + prefill(from best), else queue + prefill(from own). The smallest "
               "TTFT; the decode worker of the smallest predicted time between tokens; rejected "
               "where --slo-ttft or --slo-tbt is missed. A transfer leaves the prefix replicated.",
    .source = "Qin et al., Mooncake, FAST 2025, Algorithm 1 and section 6; the threshold is not "
              "published.",
    .use = "With prefill and decode pools and a fast link between workers (--link).",
    .fails = "Assumes that links are idle: transfers do not queue behind each other. Needs "
             "workers that can fetch KV (route.pull); elsewhere use cost.",
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof *parameters,
    .state_size = sizeof(struct mooncake),
    .init = init,
    .decide = decide,
};
