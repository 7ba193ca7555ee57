/*
 * cost: the smallest predicted time to first token.
 *
 *   score(w) = queue(w) + prefill(what w does not hold, or loading and pulling it)
 *
 * There is no threshold between affinity and balance here: a worker that holds the prefix is
 * preferred exactly while the prefill it saves is longer than the wait that it adds. The prefill
 * part comes from the cost model (kvr-cost(5)), the wait from the prefills placed before and not
 * over yet (fleet.h). With --pull the missing part may come from whoever holds most.
 *
 * The magnet. Traffic that comes one request at a time never queues, so the smallest TTFT is always
 * where most is cached, and what every prompt shares (a first block, a system prompt) is enough to
 * send everything to one worker for ever: 40,001 of 40,002 requests in some routers. It is the best
 * answer for each request and the worst for the next burst. So the prefill is charged more on a
 * worker that has too much of the recent work:
 *
 *   prefill(w) · (1 + spread · x² / (1 − x)),   x = (share(w) − fair) / min(1 − fair, 8 · fair)
 *
 * share(w) is w's part of the prefill time placed with the last `window` requests a worker, fading
 * out; fair is 1 / workers. x is 0 in a balanced fleet and nearly so in one that fluctuates, and 1
 * when one worker has everything, or nine times its part of a large fleet; with spread=20 half a
 * prompt cached holds a request up to x = 0.2, nine tenths of it up to x = 0.5. Shares mean nothing
 * before enough has been seen: x grows in between half a window and a whole one of eight workers
 * (or all, where there are fewer).
 *
 * The flood. When every worker has prompts waiting, work that is done twice delays all that wait
 * behind it, and the rule that is best for each request is bad for all: it gives up matches for
 * shorter queues, which makes all queues longer. About as many will wait behind a request as wait
 * in front of it, so beyond one of them on every worker each one more counts the prefill `work`
 * times more.
 *
 * Both leave the plain rule alone in a fleet that is neither one-sided nor flooded. spread=0,work=0
 * is the plain rule always.
 *
 * Cost: some ten operations a candidate.
 */
#include "route/choose.h"
#include "route/share.h"

enum { SPREAD, WINDOW, WORK };

static const struct kvr_parameter parameters[] = {
    [SPREAD] = {.name = "spread",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "20",
        .least = 0,
        .most = 1e6,
        .help = "how much a worker's excess share of recent work counts; 0: not"},
    [WINDOW] = {.name = "window",
        .kind = KVR_PARAMETER_INTEGER,
        .initial = "64",
        .least = 1,
        .most = 1e6,
        .help = "requests a worker over which recent work fades"},
    [WORK] = {.name = "work",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "2",
        .least = 0,
        .most = 1000,
        .help = "how much each prompt beyond one that waits on every worker counts; 0: not"},
};

struct cost {
    double spread, window, work;
    struct kvr_route_share placed; /* prefill ms */
    double mean_ms;                /* of recent prefills */
    double requests;               /* ever placed */
};

static const double largest_excess = 0.99, calm_prompts = 1, few_workers = 8;

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    struct cost *cost = state;

    (void)error;
    cost->spread = setup->values[SPREAD].number;
    cost->window = setup->values[WINDOW].number;
    cost->work = setup->values[WORK].number;
    return KVR_OK;
}

static void release(void *state)
{
    kvr_route_share_release(&((struct cost *)state)->placed);
}

static enum kvr_status fleet_changed(
    void *state, const struct kvr_fleet *fleet, struct kvr_error *error)
{
    return kvr_route_share_reserve(&((struct cost *)state)->placed, fleet->size, error);
}

/* How much more a prefill counts on every worker: 1 unless prompts wait on all of them. */
static double flood(const struct cost *cost, const struct kvr_route_view *view)
{
    double least_ms = INFINITY;

    if (cost->work == 0 || cost->mean_ms == 0)
        return 1;
    for (uint32_t i = 0; i < view->candidate_count; i++)
        least_ms = fmin(least_ms, kvr_worker_queue_ms(view->fleet, view->candidates[i]));
    return 1 + cost->work * fmax(0, least_ms / cost->mean_ms - calm_prompts);
}

/* What a share above the fair one is multiplied with to give x, see above. */
static double excess_scale(const struct cost *cost, const struct kvr_route_view *view, double fair)
{
    double workers = fmin(view->candidate_count, few_workers);
    double trust = 2 * cost->requests / (cost->window * workers) - 1;

    if (cost->spread == 0 || trust <= 0 || view->candidate_count < 2)
        return 0;
    return fmin(1, trust) / fmin(1 - fair, few_workers * fair);
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    const struct cost *cost = state;
    uint32_t best = KVR_NO_WORKER, held = view->pull ? view->most_held : 0, pulled;
    double least = INFINITY, everywhere = flood(cost, view);
    double fair = 1.0 / view->candidate_count, scale = excess_scale(cost, view, fair);

    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        double prefill_ms = held > view->matched[worker].tokens
                                ? kvr_route_pulled_ms(view, worker, held, &pulled)
                                : kvr_route_prompt_ms(view, worker);
        double excess = (kvr_route_share_of(&cost->placed, worker) - fair) * scale;
        double factor = everywhere;
        if (excess > 0) {
            excess = fmin(excess, largest_excess);
            factor += cost->spread * excess * excess / (1 - excess);
        }
        double score = kvr_worker_queue_ms(view->fleet, worker) + prefill_ms * factor;
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
    double window = cost->window * (view->candidate_count ? view->candidate_count : 1);
    double spent_ms = decision->ttft_ms - decision->queue_ms;

    kvr_route_share_add(&cost->placed, decision->worker, spent_ms, window);
    cost->requests++;
    cost->mean_ms += (spent_ms - cost->mean_ms) / fmin(cost->requests, window);
}

const struct kvr_route_policy kvr_route_cost = {
    .name = "cost",
    .summary = "the smallest predicted time to first token",
    .formula =
        "argmin of queue + prefill, in ms: the predicted wait, and the predicted time for "
        "what the worker does not hold (with loading from tiers, and with --pull fetching "
        "where that is faster). Prefill counts 1 + spread · x² / (1 − x) times, where x = "
        "(share − fair) / min(1 − fair, 8 · fair) of the prefill work of the last `window` "
        "requests a worker, where positive; and `work` times more for each prompt beyond one that "
        "waits on every worker. In a fleet neither one-sided nor flooded that is the plain "
        "smallest TTFT.",
    .source = "The common core of Mooncake's Algorithm 1 (FAST 2025), Preble (arXiv:2407.00023) "
              "and llm-d's predicted latency; spread and work are ours, against magnets and "
              "floods.",
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
