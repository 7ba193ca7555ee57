/*
 * random and power-of-two: chance, and chance with one look.
 *
 * Choosing at random needs no state at all and is even only in the long run: of N requests on N
 * workers the fullest gets about log N / log log N. Looking at two random workers and taking the
 * less loaded brings that to log log N (Azar, Broder, Karlin, Upfal, "Balanced allocations", 1994;
 * Mitzenmacher 1996), and unlike "the least loaded of all" it does not send a burst to one worker
 * while the reports are old. As smg does, the two are compared by their reported KV use where both
 * report it, else by requests.
 */
#include "route/choose.h"

/* A candidate drawn in proportion to the weights. */
static uint32_t draw(const struct kvr_route_view *view, uint32_t except)
{
    double sum = 0, ticket;
    uint32_t last = KVR_NO_WORKER;

    for (uint32_t i = 0; i < view->candidate_count; i++)
        if (view->candidates[i] != except)
            sum += view->fleet->workers[view->candidates[i]].weight;
    ticket = kvr_random_unit(view->random) * sum;
    for (uint32_t i = 0; i < view->candidate_count; i++) {
        if (view->candidates[i] == except)
            continue;
        last = view->candidates[i];
        ticket -= view->fleet->workers[last].weight;
        if (ticket < 0)
            break;
    }
    return last;
}

static bool decide_random(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    (void)state;
    decision->worker = draw(view, KVR_NO_WORKER);
    decision->reason = KVR_ROUTE_CHANCE;
    return true;
}

static bool decide_two(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    uint32_t one = draw(view, KVR_NO_WORKER), two = one;
    double load_one = kvr_route_load(view, one), load_two = load_one;

    (void)state;
    if (view->candidate_count > 1) {
        two = draw(view, one);
        load_two = kvr_route_load(view, two);
        double use_one = view->fleet->workers[one].kv_usage;
        double use_two = view->fleet->workers[two].kv_usage;
        if (kvr_worker_reported(view->fleet, one) && kvr_worker_reported(view->fleet, two) &&
            !isnan(use_one) && !isnan(use_two)) {
            load_one = use_one;
            load_two = use_two;
        }
    }
    if (view->scores) {
        view->scores[two] = load_two;
        view->scores[one] = load_one;
    }
    decision->worker =
        load_two < load_one || (load_two == load_one && kvr_route_rested(view, two, one)) ? two
                                                                                          : one;
    decision->reason = KVR_ROUTE_CHANCE;
    return true;
}

const struct kvr_route_policy kvr_route_random = {
    .name = "random",
    .summary = "any worker, by weight",
    .formula = "A candidate drawn with probability weight / sum of weights.",
    .source = "Every gateway.",
    .use = "As a second baseline: stateless, so any number of routers agree.",
    .fails = "Uneven in the short run, and blind to the cache.",
    .decide = decide_random,
};

const struct kvr_route_policy kvr_route_power_of_two = {
    .name = "power-of-two",
    .summary = "the less loaded of two random workers",
    .formula = "Two different candidates drawn by weight; the one with less reported KV use where "
               "both report it freshly, else with fewer requests for its weight.",
    .source = "Azar et al., 1994; Mitzenmacher, 1996; smg policy power_of_two.",
    .use = "With many routers, or load reports that arrive late.",
    .fails = "Blind to the cache.",
    .decide = decide_two,
};
