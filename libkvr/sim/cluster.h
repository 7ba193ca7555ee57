/*
 * The virtual cluster: workers, virtual time, and requests on their way from a decision to the end.
 *
 *   submit ──► decide ──► worker ──► (KV moves) ──► decode worker ──► finished
 *                 ▲          │ dies                     │ dies
 *                 └──────────┴──── retried, or 503 ─────┘
 *
 * The caller brings requests and worker changes in the order of their times and is asked back for
 * every decision (struct kvr_sim_calls), so that the cluster neither knows policies nor lines:
 * kvr-sim puts a router in process or a pipeline of real programs there.
 *
 * Time. Each worker has one wake-up, and each KV copy one end; the next of them is found in a heap
 * by (time, worker number), copies before workers, so that the order never depends on anything but
 * the numbers. What happens at the same moment as an arrival comes after it: arrivals of one moment
 * meet in one batch.
 *
 * Pools. A request whose decision names a decode worker is computed on the first, its KV is copied
 * over the link when its first token is made, or layer by layer from when its first chunk is begun
 * (streams_kv, as Mooncake's layer-wise prefill), and its output goes on there. While it is copied
 * it holds memory on the first.
 *
 * Failures. A worker that goes down loses what is in it and its cache. Each of its requests is
 * decided again, at once, at most `retries` times, from the start; it keeps its arrival time. A
 * decision for a worker that is down counts as a failure too. Draining ends by itself: who decides
 * sends nothing more, what is running runs on.
 */
#ifndef KVR_SIM_CLUSTER_H
#define KVR_SIM_CLUSTER_H

#include "line/worker.h"
#include "sim/worker.h"

struct kvr_sim;

struct kvr_sim_decision {
    uint32_t worker; /* KVR_SIM_NOBODY: none, then rejected says which of two reasons */
    bool rejected;
    uint32_t decode_worker; /* KVR_SIM_NOBODY: the same */
    uint32_t pull_from;     /* KVR_SIM_NOBODY: nothing */
    uint64_t pull_tokens;   /* the prefix that is there, with what the worker has itself */
};

struct kvr_sim_calls {
    void *context;
    /* Where should it go? Called at submit and again for each retry. */
    enum kvr_status (*decide)(void *context, struct kvr_sim_request *request, double now_ms,
        struct kvr_sim_decision *decision, struct kvr_error *error);
    /* It has left the cluster, result filled in: the request is the caller's again. Must not call
     * into the cluster. */
    enum kvr_status (*finished)(
        void *context, struct kvr_sim_request *request, double now_ms, struct kvr_error *error);
    /* Every load_every_ms, while requests are inside, for each worker that is not down. May be
     * NULL.
     */
    enum kvr_status (*load)(void *context, uint32_t worker, double now_ms,
        const struct kvr_sim_load *load, struct kvr_error *error);
    /* A worker's cache changed, see struct kvr_cache_sink. May be NULL. */
    void (*stored)(void *context, uint32_t worker, enum kvr_medium medium, double now_ms,
        const uint64_t *parent, const uint64_t *ids, size_t count);
    void (*removed)(void *context, uint32_t worker, enum kvr_medium medium, double now_ms,
        const uint64_t *ids, size_t count);
    void (*cleared)(void *context, uint32_t worker, enum kvr_medium medium, double now_ms);
};

#define KVR_SIM_TIER_LIMIT 3

struct kvr_sim_options {
    struct kvr_cost cost;
    const struct kvr_engine *engine;
    const struct kvr_parameter_value *engine_values; /* NULL: the engine's defaults */
    uint64_t capacity_tokens;                        /* of a worker that does not say its own */
    uint32_t block_tokens; /* of the workers' caches; 0: that of the first request */
    uint64_t batch_tokens, batch_requests;
    struct kvr_sim_tier_options tiers[KVR_SIM_TIER_LIMIT];
    size_t tier_count;                    /* a remote one is shared by all workers */
    const struct kvr_engine *tier_engine; /* leaf LRU */
    struct kvr_link link;                 /* between workers */
    double compression;                   /* of what crosses it */
    bool streams_kv; /* KV leaves for the decode worker while the prompt is computed */
    uint32_t retries;
    double load_every_ms;      /* 0: never */
    bool (*interrupted)(void); /* asked at every step; true ends it with KVR_IO. NULL: never */
    uint64_t seed;
};

/* Step budget 8192 tokens, 256 requests a batch, RDMA links, one retry. */
struct kvr_sim_options kvr_sim_defaults(void);

/* KVR_BAD_USAGE where an option is out of range. */
enum kvr_status kvr_sim_create(const struct kvr_sim_options *options,
    const struct kvr_sim_calls *calls, struct kvr_sim **sim, struct kvr_error *error);
void kvr_sim_destroy(struct kvr_sim *sim);

/*
 * A worker joins, changes, drains, fails or returns at now_ms, which is not before any earlier
 * time. Workers are numbered in order of appearance. has_role, has_weight: those members were
 * given. KVR_BAD_INPUT: out of range.
 */
enum kvr_status kvr_sim_change_worker(struct kvr_sim *sim, double now_ms,
    const struct kvr_worker_description *worker, bool has_role, bool has_weight,
    struct kvr_error *error);

uint32_t kvr_sim_worker_count(const struct kvr_sim *sim);
const char *kvr_sim_worker_name(const struct kvr_sim *sim, uint32_t worker);
/* KVR_SIM_NOBODY for a stranger. */
uint32_t kvr_sim_find_worker(const struct kvr_sim *sim, const char *name, size_t length);
/* Of its cache; 0 before its first request. */
uint32_t kvr_sim_worker_block_tokens(const struct kvr_sim *sim, uint32_t worker);
struct kvr_sim_worker_counts kvr_sim_worker_totals(const struct kvr_sim *sim, uint32_t worker);

/* Lets everything before time_ms happen. */
enum kvr_status kvr_sim_advance(struct kvr_sim *sim, double time_ms, struct kvr_error *error);

/* Lets the next thing happen, whatever its time. KVR_END: nothing is going on. */
enum kvr_status kvr_sim_next(struct kvr_sim *sim, struct kvr_error *error);

/* A request arrives at request->arrival_ms, not before any earlier time: advances to it first. */
enum kvr_status kvr_sim_submit(
    struct kvr_sim *sim, struct kvr_sim_request *request, struct kvr_error *error);

/* Requests in the cluster now. */
uint64_t kvr_sim_inside(const struct kvr_sim *sim);
double kvr_sim_now_ms(const struct kvr_sim *sim);

#endif
