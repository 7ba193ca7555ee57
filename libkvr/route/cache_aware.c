/*
 * cache-aware: the best match, unless the fleet is out of balance or the match is too small.
 *
 * SGLang's router (today smg) keeps affinity while loads are close, and forgets it when they are
 * not. Two tests, in this order:
 *
 *   most − least > abs  and  most > rel · least      → least loaded   (the fleet is out of balance)
 *   longest match / prompt length > threshold        → that worker
 *   otherwise                                        → least loaded   (little is to be gained)
 *
 * The defaults are those of the router's command line (its structs say .5, 32, 1.1). Early versions
 * sent a small match to the worker with the smallest tree and broke ties by position, so traffic
 * that came one request at a time ended on one worker; here equal matches go to the least loaded of
 * their holders and equal loads take turns.
 */
#include "route/choose.h"

enum { THRESHOLD, ABS, REL };

static const struct kvr_parameter parameters[] = {
    [THRESHOLD] = {.name = "threshold",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "0.3",
        .least = 0,
        .most = 1,
        .help = "share of the prompt that the match must exceed"},
    [ABS] = {.name = "abs",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "64",
        .least = 0,
        .most = 1e9,
        .help = "loads apart by more requests than this, and"},
    [REL] = {.name = "rel",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "1.5",
        .least = 1,
        .most = 1e9,
        .help = "by more than this factor, are out of balance"},
};

struct cache_aware {
    double threshold, abs, rel;
};

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    (void)error;
    *(struct cache_aware *)state = (struct cache_aware){
        setup->values[THRESHOLD].number, setup->values[ABS].number, setup->values[REL].number};
    return KVR_OK;
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    const struct cache_aware *limits = state;
    struct kvr_route_spread spread = kvr_route_spread(view);
    bool balanced =
        !(spread.most - spread.least > limits->abs && spread.most > limits->rel * spread.least);
    bool worthwhile = view->best_matched > limits->threshold * view->request->input_tokens;

    if (view->scores)
        for (uint32_t i = 0; i < view->candidate_count; i++) {
            uint32_t worker = view->candidates[i];
            view->scores[worker] = balanced && worthwhile ? -(double)view->matched[worker].tokens
                                                          : kvr_route_load(view, worker);
        }
    if (balanced && worthwhile) {
        decision->worker = kvr_route_best_match(view);
        decision->reason = KVR_ROUTE_CACHE_MATCH;
    } else {
        decision->worker = kvr_route_least_loaded(view);
        decision->reason = KVR_ROUTE_LOAD_FALLBACK;
    }
    return true;
}

const struct kvr_route_policy kvr_route_cache_aware = {
    .name = "cache-aware",
    .summary = "the best match while loads are close, else the least loaded",
    .formula = "If most − least load > abs and most > rel · least: the least loaded. Else, if "
               "longest match / prompt length > threshold: the worker that holds it, the least "
               "loaded of equals. Else the least loaded.",
    .source = "SGLang gateway and smg, policy cache_aware; defaults of their command line (their "
              "structs have .5, 32, 1.1).",
    .use = "As a robust first choice: it needs no cost model and no calibration.",
    .fails = "A match is all or nothing: just under the threshold nothing counts, however long "
             "the prompt. The gate gives up every affinity at once, also that of workers with "
             "room.",
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof *parameters,
    .state_size = sizeof(struct cache_aware),
    .init = init,
    .decide = decide,
};
