/*
 * A routing policy: given one request and the fleet, which worker?
 *
 * A policy is a struct of functions in one small file and one line in policy_table.c; --help, the
 * manual page and completions come from the table. It sees everything through the view and says
 * its answer in the decision; it never touches the fleet. What is common to all policies (reading
 * the chain, load gates, early rejection, pulling, the decode pool, the prediction, counting the
 * placement) is done once in router.c, around it.
 *
 * A decision costs a few ns a candidate and allocates nothing: state is made at creation, or when
 * the fleet changes, or is a table with a bound.
 *
 * The same calls with the same seed give the same decisions.
 */
#ifndef KVR_ROUTE_POLICY_H
#define KVR_ROUTE_POLICY_H

#include "base/parameter.h"
#include "base/random.h"
#include "cache/engine.h"
#include "cost/cost.h"
#include "route/fleet.h"

/* How much of the request's prompt a worker holds, as a prefix. Tokens below the device come with
 * the tier that holds them; device = tokens − host − disk − remote. */
struct kvr_route_match {
    uint32_t worker;
    uint32_t tokens; /* in all tiers */
    uint32_t host, disk, remote;
};

struct kvr_route_request {
    uint64_t id;   /* any hash of it; 0: none */
    double now_ms; /* arrival; NaN: unknown, time stands still */
    uint32_t input_tokens;
    uint32_t output_tokens;    /* 0: unknown */
    const uint64_t *block_ids; /* chained ids of the prompt's blocks; not kept */
    uint32_t block_count;
    uint32_t block_tokens;                 /* tokens a block; at least 1 where there are ids */
    uint64_t session;                      /* any hash of it; 0: none */
    uint64_t system;                       /* any hash of the system prompt; 0: none */
    int32_t priority;                      /* larger is more important; 0 where the line has none */
    double slo_ttft_ms;                    /* its own bound; 0: none */
    const struct kvr_route_match *matches; /* workers left out hold nothing; not kept */
    uint32_t match_count;
};

/* What a policy sees. Arrays with one element a worker are indexed by the worker's number. */
struct kvr_route_view {
    const struct kvr_fleet *fleet;
    const struct kvr_cost *cost;
    const struct kvr_route_request *request;
    const uint32_t *candidates; /* who may be chosen, ascending; at least one */
    uint32_t candidate_count;
    const struct kvr_route_match *matched; /* by worker; `worker` is not filled in */
    uint32_t best_matched;                 /* the largest among the candidates */
    bool pull;                             /* the router will fetch KV where that is faster … */
    uint32_t most_held;                /* … of what any living worker holds: the largest match */
    double default_output_tokens;      /* stands for an unknown output length */
    const struct kvr_link *tier_links; /* from host, disk, remote to the device: three */
    const struct kvr_link *link;       /* between workers */
    double compression;                /* of what crosses it */
    double slo_ttft_ms, slo_tbt_ms;    /* in force for this request; 0: none */
    struct kvr_random *random;
    double *scores; /* by worker, for --explain; NULL: not wanted. Smaller is better */
};

enum kvr_route_reason {
    KVR_ROUTE_NO_WORKER,
    KVR_ROUTE_ROTATION,      /* round-robin */
    KVR_ROUTE_CHANCE,        /* random, power-of-two */
    KVR_ROUTE_LEAST_LOADED,  /* asked for the least loaded */
    KVR_ROUTE_LOAD_FALLBACK, /* wanted something else, took the least loaded */
    KVR_ROUTE_CACHE_MATCH,
    KVR_ROUTE_SESSION,
    KVR_ROUTE_PREFIX_HASH,
    KVR_ROUTE_EXPLORE,   /* nobody holds enough: placed by cost */
    KVR_ROUTE_REBALANCE, /* affinity given up for balance */
    KVR_ROUTE_REPLICATE, /* a hot prefix gets one more holder */
    KVR_ROUTE_DRAINED,   /* its worker drains or is gone: handed on */
    KVR_ROUTE_ESCAPE,    /* the load gate refused the policy's choice */
    KVR_ROUTE_PULL,      /* the KV is fetched from another worker */
    KVR_ROUTE_REJECTED,
};

/* "cache-match", … as written in route.reason. */
const char *kvr_route_reason_name(enum kvr_route_reason reason);

struct kvr_route_pull {
    uint32_t from;   /* KVR_NO_WORKER: nothing is pulled; the worker itself: from its own tiers */
    uint32_t tokens; /* fetched from there */
    double ms;
    enum kvr_medium medium; /* own tiers: the slowest one read; another worker: gpu */
};

struct kvr_route_decision {
    uint32_t worker;        /* KVR_NO_WORKER: none; else it does the prefill */
    uint32_t decode_worker; /* KVR_NO_WORKER: the same worker decodes */
    enum kvr_route_reason reason;
    const char *policy; /* the name of the link that decided */
    /* Filled in by the router after the policy: */
    uint32_t matched;      /* tokens that the worker holds */
    double queue_ms;       /* predicted wait */
    double prefill_ms;     /* predicted prefill of the rest, and of loading from tiers */
    double ttft_ms;        /* the sum, with the pull */
    double tbt_ms;         /* predicted time between tokens */
    double retry_after_ms; /* rejected: when the queue will have shrunk enough */
    struct kvr_route_pull pull;
};

/* What a policy is made with. */
struct kvr_route_setup {
    const struct kvr_parameter_value *values; /* one a parameter, in the table's order */
    const struct kvr_cost *cost;
    uint64_t seed;
};

struct kvr_route_policy {
    const char *name;
    const char *summary; /* one line, no full stop */
    /* A paragraph each for kvr-policies(7), full sentences. */
    const char *formula, *source, *use, *fails;
    const struct kvr_parameter *parameters;
    size_t parameter_count;
    size_t state_size;   /* bytes, zeroed before init */
    bool reads_blocks;   /* looks at block_ids or system: others need not have them */
    bool keeps_draining; /* may answer with a draining worker: asked also without candidates */

    /* All but decide may be NULL. */
    enum kvr_status (*init)(
        void *state, const struct kvr_route_setup *setup, struct kvr_error *error);
    void (*release)(void *state);
    /* The fleet's version moved: called before the next decision. */
    enum kvr_status (*fleet_changed)(
        void *state, const struct kvr_fleet *fleet, struct kvr_error *error);
    /* Sets decision->worker to a candidate (session: or to a draining worker) and ->reason, or
     * returns false: it has nothing to say, the next link decides. May set decode_worker and pull;
     * KVR_ROUTE_REJECTED with the worker that it would have taken rejects. */
    bool (*decide)(
        void *state, const struct kvr_route_view *view, struct kvr_route_decision *decision);
    /* A placement was made, by whatever link, or by another router. */
    void (*learn)(
        void *state, const struct kvr_route_view *view, const struct kvr_route_decision *decision);
};

/* For the rows of option tables; a test holds them against the table. */
#define KVR_ROUTE_DEFAULT_POLICY "cost"
#define KVR_ROUTE_POLICY_NAMES                                                                     \
    "round-robin|random|least-loaded|power-of-two|session|prefix-hash|cache-aware|cost|dynamo|"    \
    "preble|aibrix|llm-d|lhg|mooncake"

/* The policies, in the order in which help lists them. */
extern const struct kvr_route_policy *const kvr_route_policies[];
extern const size_t kvr_route_policy_count;

/* NULL where no policy has the name. */
const struct kvr_route_policy *kvr_route_policy_find(const char *name, size_t length);

#endif
