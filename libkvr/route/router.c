#include "route/router.h"

#include "route/chain.h"
#include "route/choose.h"
#include "route/share.h"

#include <stdlib.h>
#include <string.h>

struct kvr_router {
    struct kvr_router_options options;
    struct kvr_cost cost;
    struct kvr_fleet fleet;
    struct kvr_route_chain chain;
    struct kvr_random random;
    struct kvr_route_share recent; /* requests placed, for the gate */
    uint64_t version_seen;

    /* By worker, `size` long. matched is all zero between decisions. */
    struct kvr_route_match *matched;
    double *scores;
    struct kvr_route_candidate *explained;
    uint32_t size, explained_count;
};

struct kvr_router_options kvr_router_defaults(void)
{
    return (struct kvr_router_options){
        .policy = KVR_ROUTE_DEFAULT_POLICY,
        .seed = 1,
        .escape_abs = 8,
        .escape_rel = 1.5,
        .escape_share = 2,
        .link = *kvr_link_find("rdma-200"),
        .compression = 1,
        .tier_links = {*kvr_link_find("pcie5"), *kvr_link_find("nvme4"),
            *kvr_link_find("rdma-200")},
        .default_output_tokens = 256,
        .load_ttl_ms = 10e3,
        .lease_ms = 600e3,
        .drain_ms = 60e3,
    };
}

static enum kvr_status check_options(
    const struct kvr_router_options *options, struct kvr_error *error)
{
    if (!(options->compression >= 1 && options->compression <= 1000))
        return kvr_error_set(
            error, KVR_BAD_USAGE, "a compression of %g is not in 1 … 1000", options->compression);
    if (!(options->slo_ttft_ms >= 0 && options->slo_tbt_ms >= 0))
        return kvr_error_set(error, KVR_BAD_USAGE, "an SLO is not negative");
    if (!(options->escape_abs >= 0 && options->escape_rel >= 1 && options->escape_share >= 1))
        return kvr_error_set(error, KVR_BAD_USAGE,
            "a load gate needs abs of at least 0, rel and share of at least 1");
    return KVR_OK;
}

enum kvr_status kvr_router_create(const struct kvr_router_options *options,
    const struct kvr_cost *cost, struct kvr_router **out, struct kvr_error *error)
{
    enum kvr_status status = check_options(options, error);
    struct kvr_router *router;

    if (status != KVR_OK)
        return status;
    router = calloc(1, sizeof *router);
    if (!router)
        return kvr_error_memory(error);
    router->options = *options;
    router->options.policy = NULL;
    router->cost = *cost;
    router->random.state = options->seed;
    kvr_fleet_init(&router->fleet);
    router->fleet.load_ttl_ms = options->load_ttl_ms;
    router->fleet.lease_ms = options->lease_ms;
    router->fleet.drain_ms = options->drain_ms;
    status =
        kvr_route_chain_read(&router->chain, options->policy, &router->cost, options->seed, error);
    if (status != KVR_OK) {
        kvr_fleet_release(&router->fleet);
        free(router);
        return status;
    }
    *out = router;
    return KVR_OK;
}

void kvr_router_destroy(struct kvr_router *router)
{
    if (!router)
        return;
    kvr_route_chain_release(&router->chain);
    kvr_fleet_release(&router->fleet);
    kvr_route_share_release(&router->recent);
    free(router->matched);
    free(router->scores);
    free(router->explained);
    free(router);
}

bool kvr_router_reads_blocks(const struct kvr_router *router)
{
    bool reads = false;

    for (uint32_t i = 0; i < router->chain.count; i++)
        reads |= router->chain.links[i].policy->reads_blocks;
    return reads;
}

struct kvr_fleet *kvr_router_fleet(struct kvr_router *router)
{
    return &router->fleet;
}

/* After the fleet changed: room for every worker, and every policy is told. */
static enum kvr_status follow_fleet(struct kvr_router *router, struct kvr_error *error)
{
    uint32_t size = router->fleet.size;

    if (router->version_seen == router->fleet.version)
        return KVR_OK;
    if (size > router->size) {
        struct kvr_route_match *matched = reallocarray(router->matched, size, sizeof *matched);
        router->matched = matched ? matched : router->matched;
        double *scores = reallocarray(router->scores, size, sizeof *scores);
        router->scores = scores ? scores : router->scores;
        struct kvr_route_candidate *explained =
            reallocarray(router->explained, size, sizeof *explained);
        router->explained = explained ? explained : router->explained;
        if (!matched || !scores || !explained)
            return kvr_error_memory(error);
        memset(matched + router->size, 0, (size - router->size) * sizeof *matched);
        router->size = size;
        enum kvr_status status = kvr_route_share_reserve(&router->recent, size, error);
        if (status != KVR_OK)
            return status;
    }
    for (uint32_t i = 0; i < router->chain.count; i++) {
        const struct kvr_route_link *link = &router->chain.links[i];
        if (link->policy->fleet_changed) {
            enum kvr_status status =
                link->policy->fleet_changed(link->state, &router->fleet, error);
            if (status != KVR_OK)
                return status;
        }
    }
    router->version_seen = router->fleet.version;
    return KVR_OK;
}

/* A match longer than the prompt, or tiers that hold more than is matched: what is too much is in
 * the slowest tiers, which come last. */
static void cut_match(struct kvr_route_match *match, uint32_t most)
{
    uint32_t *const tiers[] = {&match->remote, &match->disk, &match->host};
    uint64_t excess = match->tokens > most ? match->tokens - most : 0;
    uint64_t below = (uint64_t)match->host + match->disk + match->remote;

    if (below > match->tokens)
        excess += below - match->tokens;
    match->tokens = match->tokens < most ? match->tokens : most;
    for (int i = 0; excess && i < 3; i++) {
        uint32_t less = *tiers[i] < excess ? *tiers[i] : (uint32_t)excess;
        *tiers[i] -= less;
        excess -= less;
    }
}

static void spread_matches(struct kvr_router *router, struct kvr_route_view *view)
{
    const struct kvr_route_request *request = view->request;

    for (uint32_t i = 0; i < request->match_count; i++) {
        const struct kvr_route_match *match = &request->matches[i];
        if (match->worker >= router->fleet.count)
            continue;
        const struct kvr_worker *worker = &router->fleet.workers[match->worker];
        struct kvr_route_match *place = &router->matched[match->worker];
        if (match->tokens < place->tokens) /* named twice: the longer counts */
            continue;
        *place = *match;
        cut_match(place, request->input_tokens);
        if (place->tokens > view->best_matched && worker->state == KVR_WORKER_ACTIVE &&
            worker->role != KVR_ROLE_DECODE)
            view->best_matched = place->tokens;
        if (place->tokens > view->most_held && worker->state != KVR_WORKER_DOWN)
            view->most_held = place->tokens;
    }
}

static void clear_matches(struct kvr_router *router, const struct kvr_route_request *request)
{
    for (uint32_t i = 0; i < request->match_count; i++)
        if (request->matches[i].worker < router->fleet.count)
            memset(&router->matched[request->matches[i].worker], 0, sizeof *router->matched);
}

/* The load gate of --escape. Recent means the last 64 requests a worker, fading. */
static bool overloaded(
    const struct kvr_router *router, const struct kvr_route_view *view, uint32_t worker)
{
    const struct kvr_router_options *options = &router->options;
    double least = INFINITY, weights = 0;

    if (!options->escape || view->candidate_count == 0)
        return false;
    for (uint32_t i = 0; i < view->candidate_count; i++) {
        least = fmin(least, kvr_route_load(view, view->candidates[i]));
        weights += view->fleet->workers[view->candidates[i]].weight;
    }
    double load = kvr_route_load(view, worker);
    double fair = view->fleet->workers[worker].weight / weights;
    return (load - least > options->escape_abs && load > options->escape_rel * least) ||
           (least == 0 && view->candidate_count > 1 &&
               kvr_route_share_of(&router->recent, worker) > options->escape_share * fair);
}

static void forget_answer(const struct kvr_router *router, const struct kvr_route_view *view,
    struct kvr_route_decision *decision)
{
    decision->worker = decision->decode_worker = KVR_NO_WORKER;
    decision->pull = (struct kvr_route_pull){.from = KVR_NO_WORKER};
    for (uint32_t i = 0; view->scores && i < router->fleet.count; i++)
        view->scores[i] = NAN;
}

/* Asks link after link; the least loaded where all abstain or are refused. */
static void choose(struct kvr_router *router, const struct kvr_route_view *view,
    struct kvr_route_decision *decision)
{
    bool refused = false;

    for (uint32_t i = 0; i < router->chain.count; i++) {
        const struct kvr_route_link *link = &router->chain.links[i];
        if (view->candidate_count == 0 && !link->policy->keeps_draining)
            continue;
        forget_answer(router, view, decision);
        if (!link->policy->decide(link->state, view, decision))
            continue;
        decision->policy = link->policy->name;
        if (decision->reason == KVR_ROUTE_REJECTED || !overloaded(router, view, decision->worker))
            return;
        refused = true;
    }
    forget_answer(router, view, decision);
    decision->policy = "least-loaded";
    if (view->candidate_count == 0) {
        decision->policy = router->chain.links[0].policy->name;
        decision->reason = KVR_ROUTE_NO_WORKER;
    } else {
        decision->worker = kvr_route_least_loaded(view);
        decision->reason = refused ? KVR_ROUTE_ESCAPE : KVR_ROUTE_LOAD_FALLBACK;
    }
}

/* The worker that is not down and holds most of the prompt, more than `own` tokens; draining ones
 * may give too. */
static uint32_t fullest_holder(
    const struct kvr_router *router, const struct kvr_route_view *view, uint32_t own)
{
    const struct kvr_route_request *request = view->request;
    uint32_t best = KVR_NO_WORKER, most = own;

    for (uint32_t i = 0; i < request->match_count; i++) {
        uint32_t worker = request->matches[i].worker;
        if (worker < router->fleet.count && view->matched[worker].tokens > most &&
            router->fleet.workers[worker].state != KVR_WORKER_DOWN) {
            best = worker;
            most = view->matched[worker].tokens;
        }
    }
    return best;
}

/*
 * Computing, reading down the worker's own tiers, or fetching what another worker holds: whichever
 * takes the least time (LMCache's least-loaded + pull). What is not computed is said in `pull`.
 */
static void consider_pull(const struct kvr_router *router, const struct kvr_route_view *view,
    struct kvr_route_decision *decision)
{
    uint32_t own = view->matched[decision->worker].tokens, pulled = 0;
    struct kvr_route_plan plan = kvr_route_plan_prompt(view, decision->worker);
    uint32_t holder = fullest_holder(router, view, own);

    if (holder != KVR_NO_WORKER)
        kvr_route_pulled_ms(view, decision->worker, view->matched[holder].tokens, &pulled);
    if (pulled) {
        decision->pull = (struct kvr_route_pull){.from = holder,
            .tokens = pulled,
            .ms = kvr_cost_transfer_ms(view->cost, view->link, view->compression, pulled)};
        decision->reason = KVR_ROUTE_PULL;
    } else if (plan.loaded) {
        decision->pull =
            (struct kvr_route_pull){decision->worker, plan.loaded, plan.load_ms, plan.medium};
    }
}

static void predict(const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    uint32_t worker = decision->worker;
    uint32_t decoder = decision->decode_worker == KVR_NO_WORKER ? worker : decision->decode_worker;
    bool fetched = decision->pull.from != KVR_NO_WORKER && decision->pull.from != worker;

    decision->matched = view->matched[worker].tokens;
    decision->queue_ms = kvr_worker_queue_ms(view->fleet, worker);
    if (fetched)
        decision->prefill_ms =
            kvr_route_prefill_ms(view, worker, decision->matched + decision->pull.tokens);
    else
        decision->prefill_ms = kvr_route_prompt_ms(view, worker);
    decision->ttft_ms =
        decision->queue_ms + decision->prefill_ms + (fetched ? decision->pull.ms : 0);
    decision->tbt_ms = kvr_route_tbt_ms(view, decoder, decision->ttft_ms);
}

/* The decode worker of a prefill worker: the one with the fewest tokens for its weight. */
static uint32_t choose_decoder(const struct kvr_route_view *view)
{
    const struct kvr_fleet *fleet = view->fleet;
    uint32_t best = KVR_NO_WORKER;
    double least = INFINITY;

    for (uint32_t i = 0; i < fleet->decode_count; i++) {
        uint32_t worker = fleet->decode[i];
        double load = (double)kvr_worker_tokens(fleet, worker) / fleet->workers[worker].weight;
        if (load < least || (load == least && kvr_route_rested(view, worker, best))) {
            best = worker;
            least = load;
        }
    }
    return best;
}

static bool misses_slo(const struct kvr_router *router, const struct kvr_route_view *view,
    const struct kvr_route_decision *decision)
{
    if (view->request->priority > router->options.reject_priority)
        return false;
    return (view->slo_ttft_ms > 0 && decision->ttft_ms > view->slo_ttft_ms) ||
           (view->slo_tbt_ms > 0 && decision->tbt_ms > view->slo_tbt_ms);
}

static void reject(const struct kvr_route_view *view, struct kvr_route_decision *decision)
{
    double excess_ms = decision->ttft_ms - view->slo_ttft_ms;
    bool waiting_helps = view->slo_ttft_ms > 0 && excess_ms > 0 && decision->queue_ms >= excess_ms;

    decision->retry_after_ms = waiting_helps ? excess_ms : NAN;
    decision->reason = KVR_ROUTE_REJECTED;
    decision->worker = decision->decode_worker = KVR_NO_WORKER;
    decision->pull = (struct kvr_route_pull){.from = KVR_NO_WORKER};
}

static void explain(struct kvr_router *router, const struct kvr_route_view *view)
{
    for (uint32_t i = 0; i < view->candidate_count; i++) {
        uint32_t worker = view->candidates[i];
        double queue_ms = kvr_worker_queue_ms(view->fleet, worker);
        double prefill_ms = kvr_route_prompt_ms(view, worker);
        router->explained[i] = (struct kvr_route_candidate){
            .worker = worker,
            .load = kvr_worker_load(view->fleet, worker),
            .tokens = kvr_worker_tokens(view->fleet, worker),
            .matched = view->matched[worker].tokens,
            .queue_ms = queue_ms,
            .prefill_ms = prefill_ms,
            .ttft_ms = queue_ms + prefill_ms,
            .score = view->scores[worker],
        };
    }
    router->explained_count = view->candidate_count;
}

static enum kvr_status place(struct kvr_router *router, const struct kvr_route_view *view,
    const struct kvr_route_decision *decision, struct kvr_error *error)
{
    double output_tokens = kvr_route_output_tokens(view);
    struct kvr_placement_request placement = {
        .id = view->request->id,
        .worker = decision->worker,
        .decode_worker = decision->decode_worker,
        .tokens = view->request->input_tokens + (uint64_t)output_tokens,
        .prefill_ms = decision->ttft_ms - decision->queue_ms,
        .decode_ms = output_tokens * decision->tbt_ms,
    };

    if (!kvr_fleet_place(&router->fleet, &placement))
        return kvr_error_memory(error);
    kvr_route_share_add(
        &router->recent, decision->worker, 1, 64.0 * fmax(1, view->candidate_count));
    for (uint32_t i = 0; i < router->chain.count; i++) {
        const struct kvr_route_link *link = &router->chain.links[i];
        if (link->policy->learn)
            link->policy->learn(link->state, view, decision);
    }
    return KVR_OK;
}

static enum kvr_status open_view(struct kvr_router *router, const struct kvr_route_request *request,
    struct kvr_route_view *view, struct kvr_error *error)
{
    const struct kvr_router_options *options = &router->options;

    kvr_fleet_advance(&router->fleet, request->now_ms);
    enum kvr_status status = follow_fleet(router, error);
    if (status != KVR_OK)
        return status;
    *view = (struct kvr_route_view){
        .fleet = &router->fleet,
        .cost = &router->cost,
        .request = request,
        .candidates = router->fleet.prefill,
        .candidate_count = router->fleet.prefill_count,
        .matched = router->matched,
        .pull = options->pull,
        .default_output_tokens = options->default_output_tokens,
        .tier_links = options->tier_links,
        .link = &options->link,
        .compression = options->compression,
        .slo_ttft_ms = request->slo_ttft_ms > 0 ? request->slo_ttft_ms : options->slo_ttft_ms,
        .slo_tbt_ms = options->slo_tbt_ms,
        .random = &router->random,
        .scores = options->explain ? router->scores : NULL,
    };
    spread_matches(router, view);
    return KVR_OK;
}

enum kvr_status kvr_router_decide(struct kvr_router *router,
    const struct kvr_route_request *request, struct kvr_route_decision *decision,
    struct kvr_error *error)
{
    struct kvr_route_view view;
    enum kvr_status status = open_view(router, request, &view, error);

    if (status != KVR_OK)
        return status;
    *decision = (struct kvr_route_decision){.retry_after_ms = NAN};
    router->explained_count = 0;
    choose(router, &view, decision);
    if (router->options.explain)
        explain(router, &view);
    if (decision->worker != KVR_NO_WORKER) {
        bool rejected = decision->reason == KVR_ROUTE_REJECTED;
        if (router->options.pull && !rejected && decision->pull.from == KVR_NO_WORKER)
            consider_pull(router, &view, decision);
        if (decision->decode_worker == KVR_NO_WORKER && router->fleet.decode_count &&
            router->fleet.workers[decision->worker].role == KVR_ROLE_PREFILL)
            decision->decode_worker = choose_decoder(&view);
        predict(&view, decision);
        if (rejected || misses_slo(router, &view, decision))
            reject(&view, decision);
        else
            status = place(router, &view, decision, error);
    }
    clear_matches(router, request);
    return status;
}

enum kvr_status kvr_router_learn(struct kvr_router *router, const struct kvr_route_request *request,
    uint32_t worker, uint32_t decode_worker, struct kvr_error *error)
{
    struct kvr_route_view view;
    enum kvr_status status = open_view(router, request, &view, error);

    if (status != KVR_OK)
        return status;
    struct kvr_route_decision decision = {
        .worker = worker,
        .decode_worker = decode_worker,
        .pull.from = KVR_NO_WORKER,
        .policy = "another",
    };
    predict(&view, &decision);
    status = place(router, &view, &decision, error);
    clear_matches(router, request);
    return status;
}

const struct kvr_route_candidate *kvr_router_explain(
    const struct kvr_router *router, uint32_t *count)
{
    *count = router->explained_count;
    return router->explained;
}
