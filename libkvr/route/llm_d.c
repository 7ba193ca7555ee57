/*
 * llm-d: a weighted sum of scorers, behind an affinity filter.
 *
 * The scheduler of llm-d (with the Gateway API inference extension) is a chain of filters, scorers
 * and a picker. Here is its usual chain as one policy:
 *
 *   filter   workers that hold at least `affinity` of the prompt, if any, and all others only with
 *            probability `explore`; the filter is off when the best of them would make the request
 *            wait more than `penalty` longer than the best of all
 *   scores   prefix = matched blocks / prompt blocks, at most 256 of them, blocks weighted by tier
 *            queue  = (most waiting − waiting) / (most − least waiting), 1 where all are equal
 *            kv     = 1 − share of KV memory in use
 *            load   = ½ · (1 − waiting / 128), off by default
 *   picker   the largest sum of weight · score, ties by chance
 *
 * Waiting and KV use are the worker's reports where they are fresh, else the router's own counts.
 */
#include "route/choose.h"

enum { PREFIX, QUEUE, KV, LOAD, HOST, DISK, REMOTE, AFFINITY, EXPLORE, PENALTY };

static const double load_range = 128, block_limit = 256;

#define NUMBER_ROW(label, value, largest, text)                                                    \
    {                                                                                              \
        .name = label, .kind = KVR_PARAMETER_NUMBER, .initial = value, .least = 0,                 \
        .most = largest, .help = text                                                              \
    }

static const struct kvr_parameter parameters[] = {
    [PREFIX] = NUMBER_ROW("prefix", "3", 1e6, "weight of the prefix score"),
    [QUEUE] = NUMBER_ROW("queue", "2", 1e6, "weight of the queue score"),
    [KV] = NUMBER_ROW("kv", "2", 1e6, "weight of the KV use score"),
    [LOAD] = NUMBER_ROW("load", "0", 1e6, "weight of the load-aware score"),
    [HOST] = NUMBER_ROW("host", "0.8", 1, "worth of a block in host memory"),
    [DISK] = NUMBER_ROW("disk", "0.5", 1, "worth of a block on disk"),
    [REMOTE] = NUMBER_ROW("remote", "0.5", 1, "worth of a block in remote storage"),
    [AFFINITY] = NUMBER_ROW("affinity", "0.8", 1, "share of the prompt that makes a holder"),
    [EXPLORE] = NUMBER_ROW("explore", "0.01", 1, "probability of looking at all workers anyway"),
    [PENALTY] = {.name = "penalty",
        .kind = KVR_PARAMETER_DURATION,
        .initial = "5s",
        .least = 0,
        .most = 1e12,
        .help = "affinity ends when it costs more time to the first token than this"},
};

enum { PARAMETERS = sizeof parameters / sizeof *parameters };

struct llm_d {
    double value[PARAMETERS];
};

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    (void)error;
    for (int i = 0; i < PARAMETERS; i++)
        ((struct llm_d *)state)->value[i] = setup->values[i].number;
    return KVR_OK;
}

static double waiting(const struct kvr_route_view *view, uint32_t worker)
{
    return kvr_worker_reported(view->fleet, worker) ? view->fleet->workers[worker].waiting
                                                    : kvr_worker_load(view->fleet, worker);
}

static double kv_usage(const struct kvr_route_view *view, uint32_t worker)
{
    const struct kvr_worker *w = &view->fleet->workers[worker];

    if (kvr_worker_reported(view->fleet, worker) && !isnan(w->kv_usage))
        return w->kv_usage;
    return w->capacity_tokens
               ? fmin(1, (double)kvr_worker_tokens(view->fleet, worker) / w->capacity_tokens)
               : 0;
}

static double prefix_score(
    const struct llm_d *llm_d, const struct kvr_route_view *view, uint32_t worker)
{
    const struct kvr_route_match *match = &view->matched[worker];
    double block = view->request->block_tokens ? view->request->block_tokens : 1;
    double prompt = fmin(view->request->input_tokens, block_limit * block);
    double below = (double)match->host + match->disk + match->remote;
    double device = match->tokens > below ? match->tokens - below : 0;
    double worth = device + llm_d->value[HOST] * match->host + llm_d->value[DISK] * match->disk +
                   llm_d->value[REMOTE] * match->remote;

    return prompt > 0 ? fmin(1, worth / prompt) : 0;
}

static double predicted_ttft_ms(const struct kvr_route_view *view, uint32_t worker)
{
    return kvr_worker_queue_ms(view->fleet, worker) + kvr_route_prompt_ms(view, worker);
}

/* Whether only holders may be chosen. */
static bool filter_holds(const struct llm_d *llm_d, const struct kvr_route_view *view)
{
    double best_holder_ms = INFINITY, best_ms = INFINITY;

    if (view->best_matched < llm_d->value[AFFINITY] * view->request->input_tokens ||
        view->best_matched == 0 || kvr_random_unit(view->random) < llm_d->value[EXPLORE])
        return false;
    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        double ttft_ms = predicted_ttft_ms(view, worker);
        best_ms = fmin(best_ms, ttft_ms);
        if (view->matched[worker].tokens >= llm_d->value[AFFINITY] * view->request->input_tokens)
            best_holder_ms = fmin(best_holder_ms, ttft_ms);
    }
    return best_holder_ms - best_ms <= llm_d->value[PENALTY];
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    const struct llm_d *llm_d = state;
    const double *value = llm_d->value;
    bool filtered = filter_holds(llm_d, view);
    double least_waiting = INFINITY, most_waiting = 0, best_score = -INFINITY;
    uint32_t best = KVR_NO_WORKER, ties = 0;

    for (uint32_t i = 0; i < view->candidate_count; i++) {
        double requests = waiting(view, view->candidates[i]);
        least_waiting = fmin(least_waiting, requests);
        most_waiting = fmax(most_waiting, requests);
    }
    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        if (filtered &&
            view->matched[worker].tokens < value[AFFINITY] * view->request->input_tokens)
            continue;
        double requests = waiting(view, worker);
        double queue = most_waiting > least_waiting
                           ? (most_waiting - requests) / (most_waiting - least_waiting)
                           : 1;
        double score = value[PREFIX] * prefix_score(llm_d, view, worker) + value[QUEUE] * queue +
                       value[KV] * (1 - kv_usage(view, worker)) +
                       value[LOAD] * 0.5 * fmax(0, 1 - requests / load_range);
        ties = score == best_score ? ties + 1 : score > best_score ? 1 : ties;
        if (score > best_score ||
            (score == best_score && kvr_random_below(view->random, ties) == 0)) {
            best = worker;
            best_score = score;
        }
        if (view->scores)
            view->scores[worker] = -score;
    }
    decision->worker = best;
    decision->reason = view->matched[best].tokens ? KVR_ROUTE_CACHE_MATCH : KVR_ROUTE_LOAD_FALLBACK;
    return true;
}

const struct kvr_route_policy kvr_route_llm_d = {
    .name = "llm-d",
    .summary = "weighted scores of prefix, queue and KV use, behind an affinity filter",
    .formula = "Only workers that hold at least `affinity` of the prompt, if there are any, except "
               "with probability explore, and unless the best of them is predicted to answer more "
               "than `penalty` later than the best of all. Of these the largest prefix · (blocks "
               "matched, weighted by tier, of at most 256) + queue · (most waiting − waiting) / "
               "(most − least) + kv · (1 − KV use) + load · (1 − waiting/128) / 2; ties by chance.",
    .source = "llm-d inference scheduler and kv-cache; weights 3, 2, 2 as in the gateway "
              "extension's usual profile.",
    .use = "To compare with a gateway of that family; its scorers take the workers' own reports.",
    .fails = "The weights trade unlike things: a whole prefix (3) outweighs the emptiest queue (2) "
             "however long both are. An idle fleet that shares a prefix is drawn to one worker.",
    .parameters = parameters,
    .parameter_count = PARAMETERS,
    .state_size = sizeof(struct llm_d),
    .init = init,
    .decide = decide,
};
