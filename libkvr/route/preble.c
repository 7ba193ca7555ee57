/*
 * preble: E2, exploit or explore, with a window of history.
 *
 * Preble asks one question: is there more of the prompt cached than is new? If so, exploit: one of
 * the workers that hold it. If not, explore: any worker. Either way the one with the smallest load
 * cost takes it:
 *
 *   load(w)     prefill ms that w computed in the last `window`
 *               + requests on w · mean output · time of a token
 *   evict(w)    exploring: what must leave w for the new tokens, in ms to compute it again, times
 *               the share of w's prompts that was found in its cache
 *   prefill(w)  exploring: this prompt's prefill on w
 *
 * Two corrections keep exploitation from piling up:
 * - rebalance: when the heaviest load is at least `balance` times the lightest and the choice is
 * the heaviest, the request goes to the lightest, and its prefix with it: from then on both hold
 * it. Only once the heaviest has been busy for a tenth of the window, as a cold fleet is always out
 * of balance.
 * - replicate: when the mean predicted TTFT of the choice has doubled from the older half of the
 *   window to the newer one, the request goes to the lightest worker that does not hold its prefix:
 *   once a bucket.
 *
 * Layout: a ring of 12 buckets of time for each worker, so that history costs the same however
 * many requests it has. Preble keeps these sums for each node of its tree and GPU; here the prefix
 * index is kvr-match's, and the sums are the GPU's.
 */
#include "route/choose.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 12, HALF = BUCKETS / 2, LEAST_SAMPLES = 8 };

enum { WINDOW, BALANCE, HOT };

static const struct kvr_parameter parameters[] = {
    [WINDOW] = {.name = "window",
        .kind = KVR_PARAMETER_DURATION,
        .initial = "3m",
        .least = BUCKETS,
        .most = 1e12,
        .help = "how long history counts"},
    [BALANCE] = {.name = "balance",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "1.5",
        .least = 1,
        .most = 1e9,
        .help = "heaviest / lightest load above which prefixes move"},
    [HOT] = {.name = "hot",
        .kind = KVR_PARAMETER_NUMBER,
        .initial = "2",
        .least = 1,
        .most = 1e9,
        .help = "growth of the TTFT between half-windows above which prefixes are copied"},
};

struct bucket {
    double work_ms, ttft_ms;
    double prompt_tokens, hit_tokens;
    uint32_t requests;
};

struct history {
    struct bucket buckets[BUCKETS];
    struct bucket sum;
    int64_t replicated_at; /* number of the bucket of time */
};

struct preble {
    double bucket_ms, balance, hot;
    struct history *histories; /* by worker */
    uint32_t size;
    int64_t now;                        /* number of the current bucket of time */
    double output_tokens, output_count; /* for the mean output */
};

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    struct preble *preble = state;

    (void)error;
    preble->bucket_ms = setup->values[WINDOW].number / BUCKETS;
    preble->balance = setup->values[BALANCE].number;
    preble->hot = setup->values[HOT].number;
    return KVR_OK;
}

static void release(void *state)
{
    free(((struct preble *)state)->histories);
}

static enum kvr_status fleet_changed(
    void *state, const struct kvr_fleet *fleet, struct kvr_error *error)
{
    struct preble *preble = state;

    if (fleet->size > preble->size) {
        struct history *larger = reallocarray(preble->histories, fleet->size, sizeof *larger);
        if (!larger)
            return kvr_error_memory(error);
        memset(larger + preble->size, 0, (fleet->size - preble->size) * sizeof *larger);
        for (uint32_t i = preble->size; i < fleet->size; i++)
            larger[i].replicated_at = -1;
        preble->histories = larger;
        preble->size = fleet->size;
    }
    return KVR_OK;
}

static void add(struct bucket *sum, const struct bucket *part, double sign)
{
    sum->work_ms += sign * part->work_ms;
    sum->ttft_ms += sign * part->ttft_ms;
    sum->prompt_tokens += sign * part->prompt_tokens;
    sum->hit_tokens += sign * part->hit_tokens;
    sum->requests = (uint32_t)(sum->requests + sign * part->requests);
}

/* Empties the buckets that time has passed into, for every worker. */
static void follow_time(struct preble *preble, double now_ms)
{
    double number = floor(now_ms / preble->bucket_ms);
    int64_t now = number < 9e18 ? (int64_t)number : INT64_MAX / 2;

    if (now <= preble->now)
        return;
    int64_t steps = now - preble->now < BUCKETS ? now - preble->now : BUCKETS;
    for (int64_t step = 1; step <= steps; step++) {
        int64_t at = (now - steps + step) % BUCKETS;
        for (uint32_t worker = 0; worker < preble->size; worker++) {
            struct history *history = &preble->histories[worker];
            add(&history->sum, &history->buckets[at], -1);
            memset(&history->buckets[at], 0, sizeof history->buckets[at]);
        }
    }
    preble->now = now;
}

static double mean_output(const struct preble *preble, const struct kvr_route_view *view)
{
    return preble->output_count > 0 ? preble->output_tokens / preble->output_count
                                    : view->default_output_tokens;
}

static double load_ms(const struct preble *preble, const struct kvr_route_view *view,
    uint32_t worker, double request_ms)
{
    return fmax(0, preble->histories[worker].sum.work_ms) +
           kvr_worker_load(view->fleet, worker) * request_ms / view->fleet->workers[worker].weight;
}

/* What must leave for the new tokens, in ms to compute it again, times how likely that is. A cache
 * with a known capacity is taken to be full unless the worker reports its use. */
static double eviction_ms(
    const struct preble *preble, const struct kvr_route_view *view, uint32_t worker)
{
    const struct kvr_worker *w = &view->fleet->workers[worker];
    const struct bucket *sum = &preble->histories[worker].sum;
    double need = kvr_route_new_tokens(view->request, view->matched[worker].tokens), room = 0;

    if (w->capacity_tokens == 0 || sum->prompt_tokens <= 0)
        return 0;
    if (kvr_worker_reported(view->fleet, worker) && !isnan(w->kv_usage))
        room = (1 - w->kv_usage) * w->capacity_tokens;
    return need > room ? kvr_cost_prefill_compute_ms(view->cost, need - room, 0) / w->weight *
                             fmax(0, sum->hit_tokens) / sum->prompt_tokens
                       : 0;
}

/* Has the mean TTFT grown by the factor from the older half of the window to the newer? */
static bool is_hot(const struct preble *preble, uint32_t worker)
{
    const struct history *history = &preble->histories[worker];
    struct bucket newer = {0}, older = {0};

    for (int i = 0; i < BUCKETS; i++) {
        int64_t age = (preble->now - i) % BUCKETS;
        if (age < 0)
            age += BUCKETS;
        add(age < HALF ? &newer : &older, &history->buckets[i], 1);
    }
    return newer.requests >= LEAST_SAMPLES && older.requests >= LEAST_SAMPLES &&
           newer.ttft_ms / newer.requests >= preble->hot * older.ttft_ms / older.requests;
}

struct extremes {
    uint32_t heaviest, lightest, lightest_stranger; /* the last: of those without the prefix */
    double most_ms, least_ms;
};

static struct extremes find_extremes(
    const struct preble *preble, const struct kvr_route_view *view, double request_ms)
{
    struct extremes found = {KVR_NO_WORKER, KVR_NO_WORKER, KVR_NO_WORKER, -1, INFINITY};
    double stranger_ms = INFINITY;

    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        double ms = load_ms(preble, view, worker, request_ms);
        if (ms > found.most_ms) {
            found.most_ms = ms;
            found.heaviest = worker;
        }
        if (ms < found.least_ms) {
            found.least_ms = ms;
            found.lightest = worker;
        }
        if (view->matched[worker].tokens < view->best_matched && ms < stranger_ms) {
            stranger_ms = ms;
            found.lightest_stranger = worker;
        }
    }
    return found;
}

static uint32_t smallest_cost(
    const struct preble *preble, const struct kvr_route_view *view, bool exploit, double request_ms)
{
    uint32_t best = KVR_NO_WORKER;
    double least = INFINITY;

    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        double cost = load_ms(preble, view, worker, request_ms);
        if (exploit && view->matched[worker].tokens != view->best_matched)
            continue;
        if (!exploit)
            cost += eviction_ms(preble, view, worker) + kvr_route_prompt_ms(view, worker);
        if (cost < least || (cost == least && kvr_route_rested(view, worker, best))) {
            best = worker;
            least = cost;
        }
        if (view->scores)
            view->scores[worker] = cost;
    }
    return best;
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    struct preble *preble = state;
    uint32_t cached = view->best_matched;

    follow_time(preble, view->fleet->now_ms);
    bool exploit = cached && cached >= view->request->input_tokens - cached;
    double request_ms = mean_output(preble, view) * kvr_cost_decode_ms(view->cost, 1, 0);
    uint32_t best = smallest_cost(preble, view, exploit, request_ms);
    if (best == KVR_NO_WORKER)
        return false;
    decision->worker = best;
    decision->reason = exploit ? KVR_ROUTE_CACHE_MATCH : KVR_ROUTE_EXPLORE;
    if (!exploit)
        return true;

    struct extremes found = find_extremes(preble, view, request_ms);
    double busy_ms = 0.1 * BUCKETS * preble->bucket_ms;
    if (best == found.heaviest && found.most_ms >= busy_ms &&
        found.most_ms >= preble->balance * found.least_ms && found.lightest != best) {
        decision->worker = found.lightest;
        decision->reason = KVR_ROUTE_REBALANCE;
    } else if (found.lightest_stranger != KVR_NO_WORKER &&
               preble->histories[best].replicated_at != preble->now && is_hot(preble, best)) {
        preble->histories[best].replicated_at = preble->now;
        decision->worker = found.lightest_stranger;
        decision->reason = KVR_ROUTE_REPLICATE;
    }
    return true;
}

static void learn(
    void *state, const struct kvr_route_view *view, const struct kvr_route_decision *decision)
{
    struct preble *preble = state;
    struct history *history = &preble->histories[decision->worker];
    struct bucket part = {
        .work_ms = decision->prefill_ms,
        .ttft_ms = decision->ttft_ms,
        .prompt_tokens = view->request->input_tokens,
        .hit_tokens = decision->matched,
        .requests = 1,
    };

    follow_time(preble, view->fleet->now_ms);
    add(&history->buckets[preble->now % BUCKETS], &part, 1);
    add(&history->sum, &part, 1);
    if (view->request->output_tokens) {
        preble->output_tokens += view->request->output_tokens;
        preble->output_count++;
    }
}

const struct kvr_route_policy kvr_route_preble = {
    .name = "preble",
    .summary = "Preble's E2: exploit when more is cached than new, else explore by load",
    .formula = "If the longest match ≥ the new tokens: of the workers that hold it, the one with "
               "the smallest load = prefill ms computed in the window + requests · mean output · "
               "time of a token. Else of all workers the one with the smallest load + eviction + "
               "prefill. If the choice is the heaviest and at least balance · the lightest: the "
               "lightest instead. If its mean TTFT grew by `hot` between half-windows: the "
               "lightest that does not hold the prefix, once a twelfth of the window.",
    .source = "Srivatsa et al., Preble, arXiv:2407.00023, E2; "
              "preble/global_scheduler_with_time.py (3 minutes, 1.5, 2).",
    .use = "With long shared prefixes whose popularity shifts.",
    .fails = "All or nothing at half the prompt. Loads are sums of work, not queues: a worker that "
             "has caught up still counts as heavy until the window passes.",
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof *parameters,
    .state_size = sizeof(struct preble),
    .init = init,
    .release = release,
    .fleet_changed = fleet_changed,
    .decide = decide,
    .learn = learn,
};
