/*
 * round-robin: each worker in turn.
 *
 * The baseline that every other policy must beat. It balances counts perfectly and ignores the
 * cache: of N workers each sees every Nth turn of a conversation, so each must compute, and keep,
 * nearly everything. Weights are honoured as in nginx's smooth weighted round-robin: each worker
 * earns its weight at every turn, the richest is chosen and pays the sum; equal weights give the
 * plain rotation 0, 1, 2, … A worker that joins starts with nothing earned.
 */
#include "route/policy.h"

#include <stdlib.h>

struct round_robin {
    double *earned; /* by worker */
    uint32_t size;
};

static void release(void *state)
{
    free(((struct round_robin *)state)->earned);
}

static enum kvr_status fleet_changed(
    void *state, const struct kvr_fleet *fleet, struct kvr_error *error)
{
    struct round_robin *turn = state;

    if (fleet->count > turn->size) {
        double *larger = reallocarray(turn->earned, fleet->size, sizeof *larger);
        if (!larger)
            return kvr_error_memory(error);
        for (uint32_t i = turn->size; i < fleet->size; i++)
            larger[i] = 0;
        turn->earned = larger;
        turn->size = fleet->size;
    }
    return KVR_OK;
}

static bool decide(
    void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    double *earned = ((struct round_robin *)state)->earned, sum = 0;
    uint32_t best = view->candidates[0];

    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        double weight = view->fleet->workers[worker].weight;
        sum += weight;
        earned[worker] += weight;
        if (earned[worker] > earned[best])
            best = worker;
        if (view->scores)
            view->scores[worker] = -earned[worker];
    }
    earned[best] -= sum;
    decision->worker = best;
    decision->reason = KVR_ROUTE_ROTATION;
    return true;
}

const struct kvr_route_policy kvr_route_round_robin = {
    .name = "round-robin",
    .summary = "each worker in turn",
    .formula = "Every candidate earns its weight; the one that has earned most is chosen and pays "
               "the sum of all weights. Equal weights: w0, w1, w2, …",
    .source = "Every gateway; smooth weighting as in nginx.",
    .use = "As the baseline, and where no prompt shares a prefix with another.",
    .fails = "Each worker computes and keeps nearly every prefix: the hit rate falls with the "
             "number of workers.",
    .state_size = sizeof(struct round_robin),
    .release = release,
    .fleet_changed = fleet_changed,
    .decide = decide,
};
