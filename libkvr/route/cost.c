/*
 * cost: the smallest predicted time to first token.
 *
 *   score(w) = queue(w) + prefill(what w does not hold) + loading or pulling what it gets otherwise
 *
 * There is no threshold between affinity and balance here: a worker that holds the prefix is
 * preferred exactly while the prefill it saves is longer than the wait that it adds. The prefill
 * part comes from the cost model (kvr-cost(5)), the wait from the prefills placed before and not
 * over yet (fleet.h). With --pull the missing part may come from whoever holds most.
 *
 * The magnet. Traffic that comes one request at a time never queues, so the smallest TTFT is always
 * where most is cached, and what every prompt shares (a first block, a system prompt) is enough to
 * send everything to one worker for ever: 40,001 of 40,002 requests in some routers. It is the best
 * answer for each request and the worst for the next burst. So the prefill is charged by how much
 * of the recent work its worker already has:
 *
 *   score(w) = queue(w) + prefill(w) · (1 + spread · share(w) / (1 − share(w)))
 *
 * share(w) is w's part of the prefill time placed with the last `window` requests a worker, fading
 * out, relative to its weight. share/(1 − share) is the wait behind itself of work that keeps a
 * server busy for that share of the time (M/D/1 doubles it, which `spread` could say). In a
 * balanced fleet all shares are equal and the factor changes no comparison between equal prefills;
 * when one worker has all the work, only a match that saves 99 % of the prefill keeps a request
 * there. spread=0 is the plain rule.
 *
 * Cost: some ten operations a candidate.
 */
#include "route/choose.h"
#include "route/share.h"

enum { SPREAD, WINDOW };

static const struct kvr_parameter parameters[] = {
    [SPREAD] = {.name = "spread",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "1",
        .least = 0,
        .most = 1000,
        .help = "how much a worker's share of recent work counts; 0: the plain smallest TTFT"},
    [WINDOW] = {.name = "window",
        .kind = KVR_PARAMETER_INTEGER,
        .initial = "64",
        .least = 1,
        .most = 1e6,
        .help = "requests a worker over which recent work fades"},
};

struct cost {
    double spread, window;
    struct kvr_route_share work; /* prefill ms placed */
};

static const double largest_share = 0.99;

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    struct cost *cost = state;

    (void)error;
    cost->spread = setup->values[SPREAD].number;
    cost->window = setup->values[WINDOW].number;
    return KVR_OK;
}

static void release(void *state)
{
    kvr_route_share_release(&((struct cost *)state)->work);
}

static enum kvr_status fleet_changed(
    void *state, const struct kvr_fleet *fleet, struct kvr_error *error)
{
    return kvr_route_share_reserve(&((struct cost *)state)->work, fleet->size, error);
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    const struct cost *cost = state;
    uint32_t best = KVR_NO_WORKER, held = view->pull ? view->most_held : 0, pulled;
    double least = INFINITY;

    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        double prefill_ms = held > view->matched[worker].tokens
                                ? kvr_route_pulled_ms(view, worker, held, &pulled)
                                : kvr_route_prompt_ms(view, worker);
        double share = fmin(kvr_route_share_of(&cost->work, worker), largest_share);
        double score = kvr_worker_queue_ms(view->fleet, worker) +
                       prefill_ms * (1 + cost->spread * share / (1 - share));
        if (score < least || (score == least && kvr_route_rested(view, worker, best))) {
            best = worker;
            least = score;
        }
        if (view->scores)
            view->scores[worker] = score;
    }
    if (best == KVR_NO_WORKER) /* every prediction overflowed */
        return false;
    decision->worker = best;
    decision->reason = view->matched[best].tokens ? KVR_ROUTE_CACHE_MATCH : KVR_ROUTE_LOAD_FALLBACK;
    return true;
}

static void learn(
    void *state, const struct kvr_route_view *view, const struct kvr_route_decision *decision)
{
    struct cost *cost = state;
    double workers = view->candidate_count ? view->candidate_count : 1;

    kvr_route_share_add(
        &cost->work, decision->worker, decision->prefill_ms, cost->window * workers);
}

const struct kvr_route_policy kvr_route_cost = {
    .name = "cost",
    .summary = "the smallest predicted time to first token",
    .formula = "argmin of queue + prefill · (1 + spread · share / (1 − share)), where queue is the "
               "predicted wait, prefill the predicted time for what the worker does not hold "
               "(with loading from tiers, and with --pull fetching where that is faster), and "
               "share the worker's part of the prefill work of the last `window` requests a "
               "worker, at most 0.99.",
    .source = "The common core of Mooncake's Algorithm 1 (FAST 2025), Preble (arXiv:2407.00023) "
              "and llm-d's predicted latency; the share is ours, against magnets.",
    .use = "By default: it weighs affinity against queueing in milliseconds and needs only the "
           "model and the hardware.",
    .fails = "As good as its cost model: an MFU twice too high makes it undervalue the cache "
             "by half. Without done lines or timestamps its queues are guesses.",
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof *parameters,
    .state_size = sizeof(struct cost),
    .init = init,
    .release = release,
    .fleet_changed = fleet_changed,
    .decide = decide,
    .learn = learn,
};
