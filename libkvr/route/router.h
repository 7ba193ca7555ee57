/*
 * The router: a fleet, a chain of policies, and what goes round every policy. One decision:
 *
 *   time moves ─ matches spread out by worker ─ link 1, 2, … until one answers ─ least loaded
 *        │                                        └ escape: a choice past the load gate is refused
 *        └─► prediction ─ pull or compute ─ decode worker ─ early rejection ─ placement counted
 *
 * For kvr-route, kvr-sim and kvr-serve alike:
 *
 *   struct kvr_router_options options = kvr_router_defaults();
 *   options.policy = "session(ttl=10m) > cost";
 *   kvr_router_create(&options, &cost, &router, &error);
 *   kvr_fleet_join(kvr_router_fleet(router), "w0", 2, &worker, &error);
 *   kvr_router_decide(router, &request, &decision, &error);
 *   … kvr_fleet_done(kvr_router_fleet(router), request.id);
 *
 * One thread at a time a router; routers share nothing.
 */
#ifndef KVR_ROUTE_ROUTER_H
#define KVR_ROUTE_ROUTER_H

#include "route/policy.h"

struct kvr_router;

struct kvr_router_options {
    const char *policy; /* a chain, see chain.h */
    uint64_t seed;
    /* The load gate refuses a choice whose load exceeds the least by escape_abs requests and by the
     * factor escape_rel, and one that got more than escape_share times its fair share of the recent
     * requests while another candidate idles. */
    bool escape;
    double escape_abs, escape_rel, escape_share;
    double slo_ttft_ms;            /* reject what is predicted to miss it; 0: never. A request's own
                                      slo_ttft_ms comes before it, also when this is 0 */
    double slo_tbt_ms;             /* the same for the time between tokens */
    int32_t reject_priority;       /* requests of a higher priority are never rejected */
    bool pull;                     /* fetch KV from another worker where that beats computing it */
    struct kvr_link link;          /* for it */
    double compression;            /* of KV on the link and from remote storage, at least 1 */
    struct kvr_link tier_links[3]; /* host, disk, remote to the device */
    double default_output_tokens;  /* for requests that do not tell their output length */
    double load_ttl_ms, lease_ms, drain_ms; /* see fleet.h */
    bool explain;                           /* keep every candidate's numbers */
};

/* Policy cost, seed 1, no gate, no SLO, no pull; links rdma-200, pcie5, nvme4, rdma-200. */
struct kvr_router_options kvr_router_defaults(void);

/* The cost model is copied. KVR_BAD_USAGE where an option is out of range. */
enum kvr_status kvr_router_create(const struct kvr_router_options *options,
    const struct kvr_cost *cost, struct kvr_router **router, struct kvr_error *error);
void kvr_router_destroy(struct kvr_router *router);

/* Whether a policy of the chain looks at block_ids and system; requests may leave them out else. */
bool kvr_router_reads_blocks(const struct kvr_router *router);

/* To join and change workers, and to tell of loads and completions. Valid as long as the router. */
struct kvr_fleet *kvr_router_fleet(struct kvr_router *router);

/*
 * Decides, and counts the placement unless the request was rejected or there is no worker. Always
 * answers; fails only with KVR_NO_MEMORY.
 */
enum kvr_status kvr_router_decide(struct kvr_router *router,
    const struct kvr_route_request *request, struct kvr_route_decision *decision,
    struct kvr_error *error);

/* Another router placed this request on that worker, to be decoded there (KVR_NO_WORKER) or on
 * another: counted and learned as if decided here. */
enum kvr_status kvr_router_learn(struct kvr_router *router, const struct kvr_route_request *request,
    uint32_t worker, uint32_t decode_worker, struct kvr_error *error);

/* A candidate's numbers at the last decision, before its placement was counted. */
struct kvr_route_candidate {
    uint32_t worker;
    uint32_t load;
    uint64_t tokens;
    uint32_t matched;
    double queue_ms, prefill_ms, ttft_ms;
    double score; /* the deciding policy's; smaller is better; NaN: it has none */
};

/* With options.explain: the candidates of the last decision, *count of them. */
const struct kvr_route_candidate *kvr_router_explain(
    const struct kvr_router *router, uint32_t *count);

#endif
