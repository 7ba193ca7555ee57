/*
 * dynamo: NVIDIA Dynamo's overlap-credit cost.
 *
 * Everything is counted in KV blocks. A worker's cost for a request is the prefill that it would
 * have before it, less credit for what it holds, plus the blocks that it decodes from:
 *
 *   prefill = blocks of prompts waiting there + blocks of this prompt
 *   hits    = credit' · device + host · host blocks + disk · disk blocks + shared · remote blocks
 *   credit' = credit / (1 + decay · excess / this prompt's blocks)
 *             excess: waiting prefill blocks above those of the least burdened candidate
 *   cost    = scale · max(0, prefill − hits) + decode + active · requests
 *             decode: blocks of all requests there, with this one
 *
 * The smallest cost wins, ties fall by chance. With a temperature the choice is drawn with
 * probability exp(−normalised cost / temperature), costs normalised to 0 … 1 over the candidates.
 *
 * Where Dynamo counts the tokens of prompts that wait, here the predicted wait is turned back into
 * tokens by the cost model, as the fleet keeps time.
 */
#include "route/choose.h"

enum { CREDIT, DECAY, HOST, DISK, SHARED, SCALE, ACTIVE, TEMPERATURE };

#define WEIGHT_ROW(label, value, text)                                                             \
    {                                                                                              \
        .name = label, .kind = KVR_PARAMETER_NUMBER, .initial = value, .least = 0, .most = 1e6,    \
        .help = text                                                                               \
    }

static const struct kvr_parameter parameters[] = {
    [CREDIT] = WEIGHT_ROW("credit", "1", "of a block found on the device"),
    [DECAY] = WEIGHT_ROW("decay", "0", "lowers the credit of workers with more prefill waiting"),
    [HOST] = WEIGHT_ROW("host", "0.75", "credit of a block found in host memory"),
    [DISK] = WEIGHT_ROW("disk", "0.25", "credit of a block found on disk"),
    [SHARED] = WEIGHT_ROW("shared", "0", "credit of a block found in remote storage"),
    [SCALE] = WEIGHT_ROW("scale", "1", "weight of prefill against decode blocks"),
    [ACTIVE] = WEIGHT_ROW("active", "0", "cost of each request on the worker, in blocks"),
    [TEMPERATURE] = WEIGHT_ROW("temperature", "0", "0: the smallest cost; more: more chance"),
};

enum { PARAMETERS = sizeof parameters / sizeof *parameters };

struct dynamo {
    double weight[PARAMETERS];
};

static enum kvr_status init(
    void *state, const struct kvr_route_setup *setup, struct kvr_error *error)
{
    (void)error;
    for (int i = 0; i < PARAMETERS; i++)
        ((struct dynamo *)state)->weight[i] = setup->values[i].number;
    return KVR_OK;
}

/* Prompt tokens that wait on the worker, from the predicted wait. */
static double waiting_tokens(const struct kvr_route_view *view, uint32_t worker)
{
    return view->cost->prefill_token_ms > 0
               ? kvr_worker_queue_ms(view->fleet, worker) * view->fleet->workers[worker].weight /
                     view->cost->prefill_token_ms
               : 0;
}

static double cost_of(const struct dynamo *dynamo, const struct kvr_route_view *view,
    uint32_t worker, double least_waiting)
{
    const double *weight = dynamo->weight;
    const struct kvr_route_match *match = &view->matched[worker];
    double block = view->request->block_tokens ? view->request->block_tokens : 1;
    double prompt = ceil(view->request->input_tokens / block);
    double waiting = waiting_tokens(view, worker);
    double credit = weight[CREDIT];
    double below = (double)match->host + match->disk + match->remote;
    double device = match->tokens > below ? match->tokens - below : 0;

    if (weight[DECAY] > 0 && prompt > 0)
        credit /= 1 + weight[DECAY] * (waiting - least_waiting) / block / prompt;
    double hits = (credit * device + weight[HOST] * match->host + weight[DISK] * match->disk +
                      weight[SHARED] * match->remote) /
                  block;
    double decode = (double)kvr_worker_tokens(view->fleet, worker) / block + prompt;
    return weight[SCALE] * fmax(0, waiting / block + prompt - hits) + decode +
           weight[ACTIVE] * kvr_worker_load(view->fleet, worker);
}

/* One of the candidates by softmax over the normalised cost: two passes, nothing stored. */
static uint32_t draw(const struct dynamo *dynamo, const struct kvr_route_view *view,
    double least_waiting, double least, double most)
{
    double sharpness = 1 / (dynamo->weight[TEMPERATURE] * (most > least ? most - least : 1));
    double sum = 0;

    for (uint32_t i = 0; i < view->candidate_count; i++)
        sum += exp((least - cost_of(dynamo, view, view->candidates[i], least_waiting)) * sharpness);
    double ticket = kvr_random_unit(view->random) * sum;
    for (uint32_t i = 0; i + 1 < view->candidate_count; i++) {
        ticket -=
            exp((least - cost_of(dynamo, view, view->candidates[i], least_waiting)) * sharpness);
        if (ticket < 0)
            return view->candidates[i];
    }
    return view->candidates[view->candidate_count - 1];
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    const struct dynamo *dynamo = state;
    uint32_t best = KVR_NO_WORKER, ties = 0;
    double least = INFINITY, most = -INFINITY, least_waiting = 0;

    if (dynamo->weight[DECAY] > 0) {
        least_waiting = INFINITY;
        for (uint32_t i = 0; i < view->candidate_count; i++)
            least_waiting = fmin(least_waiting, waiting_tokens(view, view->candidates[i]));
    }
    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        double cost = cost_of(dynamo, view, worker, least_waiting);
        most = fmax(most, cost);
        ties = cost == least ? ties + 1 : cost < least ? 1 : ties;
        /* the k-th of equals replaces the one kept with probability 1/k: each is as likely */
        if (cost < least || (cost == least && kvr_random_below(view->random, ties) == 0)) {
            least = cost;
            best = worker;
        }
        if (view->scores)
            view->scores[worker] = cost;
    }
    if (best == KVR_NO_WORKER)
        return false;
    if (dynamo->weight[TEMPERATURE] > 0)
        best = draw(dynamo, view, least_waiting, least, most);
    decision->worker = best;
    decision->reason = view->matched[best].tokens ? KVR_ROUTE_CACHE_MATCH : KVR_ROUTE_LOAD_FALLBACK;
    return true;
}

const struct kvr_route_policy kvr_route_dynamo = {
    .name = "dynamo",
    .summary = "Dynamo's cost: prefill blocks less credit for hits, plus decode blocks",
    .formula =
        "cost = scale · max(0, prefill blocks − hits) + decode blocks + active · requests; "
        "hits = credit · device + host · host + disk · disk + shared · remote blocks, credit "
        "divided by 1 + decay · excess prefill / prompt. The smallest cost, ties by chance; "
        "with a temperature, softmax over the cost normalised to 0 … 1.",
    .source = "NVIDIA Dynamo 1.6.1, lib/kv-router/src/scheduling, and its defaults.",
    .use = "To compare with a Dynamo deployment, or with its tuned weights.",
    .fails = "Prefill and decode blocks are added as if they cost the same. An idle fleet has no "
             "cost but the overlap, so sequential traffic that shares a prefix stays on one worker "
             "(dynamo#737); a temperature, or --escape under load, spreads it.",
    .parameters = parameters,
    .parameter_count = PARAMETERS,
    .state_size = sizeof(struct dynamo),
    .init = init,
    .decide = decide,
};
