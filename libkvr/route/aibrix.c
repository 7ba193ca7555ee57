/*
 * aibrix: the best match among workers that are not far above the mean load.
 *
 * AIBrix's prefix-cache plugin asks three questions in turn:
 *
 *   most − least running > gate      only the least loaded workers stay in the race (newer sources
 *                                    also ask for most > factor · (mean + 1), factor 2)
 *   by match, then by load           the first with load ≤ mean + sigma · standard deviation
 *   none such holds anything         the least loaded
 *
 * Instead of sorting, one pass finds the best admissible holder: the same worker that the sorted
 * list would give first.
 */
#include "route/choose.h"

enum { GATE, FACTOR, SIGMA };

static const struct kvr_parameter parameters[] = {
    [GATE] = {.name = "gate",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "8",
        .least = 0,
        .most = 1e9,
        .help = "loads further apart leave only the least loaded"},
    [FACTOR] = {.name = "factor",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "0",
        .least = 0,
        .most = 1000,
        .help = "and only when the most is above so many times mean + 1 (newer sources: 2)"},
    [SIGMA] = {.name = "sigma",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "1",
        .least = 0,
        .most = 1000,
        .help = "standard deviations above the mean that a holder may have"},
};

struct aibrix {
    double gate, factor, sigma;
};

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    (void)error;
    *(struct aibrix *)state = (struct aibrix){
        setup->values[GATE].number, setup->values[FACTOR].number, setup->values[SIGMA].number};
    return KVR_OK;
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    const struct aibrix *limits = state;
    struct kvr_route_spread spread = kvr_route_spread(view);
    bool apart = spread.most - spread.least > limits->gate &&
                 spread.most > limits->factor * (spread.mean + 1);
    double most_load = apart ? spread.least : spread.mean + limits->sigma * spread.deviation;
    uint32_t best = KVR_NO_WORKER, longest = 0;
    double least = INFINITY;

    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i], tokens = view->matched[worker].tokens;
        double load = kvr_route_load(view, worker);
        if (view->scores)
            view->scores[worker] = load <= most_load ? -(double)tokens : load;
        if (tokens == 0 || load > most_load || tokens < longest)
            continue;
        if (tokens > longest || load < least ||
            (load == least && kvr_route_rested(view, worker, best))) {
            best = worker;
            longest = tokens;
            least = load;
        }
    }
    decision->reason = best == KVR_NO_WORKER ? KVR_ROUTE_LOAD_FALLBACK : KVR_ROUTE_CACHE_MATCH;
    decision->worker = best == KVR_NO_WORKER ? kvr_route_least_loaded(view) : best;
    return true;
}

const struct kvr_route_policy kvr_route_aibrix = {
    .name = "aibrix",
    .summary = "the best match with a load of at most mean + one standard deviation",
    .formula = "If most − least load > gate and most > factor · (mean + 1): the candidates are the "
               "least loaded workers only. "
               "Then, by longest match and among equals by load, the first with load ≤ mean + "
               "sigma · standard deviation; where none holds anything, the least loaded.",
    .source = "AIBrix, pkg/plugins/gateway/algorithms/prefix_cache.go, and its constants.",
    .use = "Where load counts are good and no cost model is wanted.",
    .fails = "Any match counts, one block of a long prompt too: what every prompt shares draws "
             "sequential traffic to one worker. At light load it uses half of the fleet: k of n "
             "equally loaded workers beside idle ones are within mean + sigma · deviation as soon "
             "as k ≥ n/2 (sigma=1), so nothing drives traffic to the others before `gate` does; a "
             "higher rate then does better.",
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof *parameters,
    .state_size = sizeof(struct aibrix),
    .init = init,
    .decide = decide,
};
