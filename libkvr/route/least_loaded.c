/*
 * least-loaded: the worker with the fewest requests on it.
 *
 * Load is what the router placed and has not seen end, corrected by the worker's own reports (see
 * fleet.h), for each unit of weight; with by=tokens the tokens of these requests, which tells a
 * long prompt from a short one. Equal loads take turns. It is also what every other policy falls
 * back to.
 */
#include "route/choose.h"

enum { BY };
enum { BY_REQUESTS, BY_TOKENS, BY_QUEUE };

static const struct kvr_parameter parameters[] = {
    [BY] = {.name = "by",
        .kind = KVR_PARAMETER_CHOICE,
        .initial = "requests",
        .choices = "requests tokens queue",
        .help = "what is counted: requests, their tokens, or ms of predicted wait"},
};

struct least_loaded {
    int64_t by;
};

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    (void)error;
    ((struct least_loaded *)state)->by = setup->values[BY].integer;
    return KVR_OK;
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    int64_t by = ((const struct least_loaded *)state)->by;
    uint32_t best = KVR_NO_WORKER;
    double least = INFINITY;

    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        double load = by == BY_REQUESTS ? kvr_route_load(view, worker)
                      : by == BY_TOKENS ? (double)kvr_worker_tokens(view->fleet, worker) /
                                              view->fleet->workers[worker].weight
                                        : kvr_worker_queue_ms(view->fleet, worker);
        if (best == KVR_NO_WORKER || load < least ||
            (load == least && kvr_route_rested(view, worker, best))) {
            best = worker;
            least = load;
        }
        if (view->scores)
            view->scores[worker] = load;
    }
    decision->worker = best;
    decision->reason = KVR_ROUTE_LEAST_LOADED;
    return true;
}

const struct kvr_route_policy kvr_route_least_loaded_policy = {
    .name = "least-loaded",
    .summary = "the worker with the fewest requests on it",
    .formula = "argmin of (requests placed and not ended, corrected by fresh load reports) / "
               "weight; equal loads take turns.",
    .source = "Every gateway (least connections, least requests).",
    .use = "Without shared prefixes, and with --pull, which moves the KV to the request (LMCache).",
    .fails = "It spreads a conversation over all workers as round-robin does; counts of requests "
             "hide that one prompt is a thousand times longer than another (by=tokens).",
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof *parameters,
    .state_size = sizeof(struct least_loaded),
    .init = init,
    .decide = decide,
};
