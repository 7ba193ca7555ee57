/*
 * One worker of the virtual cluster: an inference engine, simulated iteration by iteration.
 *
 * The engine. It repeats steps. A step computes one token for every sequence that decodes and, with
 * what is left of its token budget, chunks of the prompts that are not computed yet, first come
 * first served (continuous batching: Orca, OSDI 2022; chunked prefill: Sarathi-Serve, OSDI 2024;
 * the order of vLLM's scheduler: running requests first, then admissions while budget, slots and
 * memory last). Its duration is kvr_cost_step_ms(): decodes wait for the prefill in their batch.
 * KV memory and the prefix cache are a cache engine's (cache/engine.h). When a decode finds no
 * block, the request admitted last is preempted: it gives its memory back, waits at the head of the
 * queue and is computed again (vLLM's recompute).
 *
 * The problem is speed: an hour of eight workers is millions of steps. The idea: between two events
 * all decode steps are alike, so they are taken at once.
 *
 *     step   s      s+1    s+2    …    s+k−1      the next event: the first sequence of a heap by
 *     time   f(0)   f(1)   f(2)   …    f(k−1)     `event_step`: it ends, or opens a new block
 *
 * Every decoding sequence advances by one token a step, so a sequence needs no work at all in a
 * run: what it has made is its count when it joined plus the steps since. f is convex and piecewise
 * linear in the step (the larger of compute and memory time, each growing by a constant), so a run
 * that is linear at its ends is linear throughout; one that is not is halved. An arrival in the
 * middle of a run cuts it at the end of the step that is under way.
 *
 * Cost: O(log batch) an event; steps with prefill one by one, decode runs O(1) whatever their
 * length. Memory: a few words a request in it, and the cache.
 *
 * Simplifications, stated: a prompt's blocks are findable from its admission on, not as each chunk
 * is computed; copies from slower tiers overlap with everything else; sampling, scheduling and
 * network take no time beyond the cost model's overheads.
 */
#ifndef KVR_SIM_WORKER_H
#define KVR_SIM_WORKER_H

#include "cost/cost.h"
#include "sim/request.h"
#include "sim/tier.h"

struct kvr_sim_worker;

/* What the worker tells the cluster. */
struct kvr_sim_worker_calls {
    void *context;
    /* The prompt is computed and its first token made; true: the decode happens elsewhere, and the
     * sequence's memory stays held until kvr_sim_worker_release(). */
    bool (*prefilled)(void *context, struct kvr_sim_request *request, double now_ms);
    /* It has left the worker for good, with the status given. */
    void (*left)(
        void *context, struct kvr_sim_request *request, enum kvr_sim_status status, double now_ms);
    /* Tokens of the request's prompt that its route.pull finds on the other worker. */
    uint64_t (*pullable)(void *context, const struct kvr_sim_request *request);
};

struct kvr_sim_worker_options {
    const struct kvr_cost *cost;
    const struct kvr_engine *engine;
    const struct kvr_parameter_value *engine_values; /* NULL: its defaults */
    uint64_t capacity_blocks;
    uint32_t block_tokens;
    uint64_t seed;
    double weight;           /* speed: 2 is twice as fast as the cost model says */
    uint64_t batch_tokens;   /* of a step */
    uint64_t batch_requests; /* admitted at a time; below batch_tokens */
    const struct kvr_cache_sink *sink;
    struct kvr_sim_tiers *tiers; /* below the device, this worker's; may be NULL */
    const struct kvr_link *link; /* for pulls */
    double compression;
    struct kvr_sim_worker_calls calls;
};

/* Counted since creation. */
struct kvr_sim_worker_counts {
    uint64_t steps, runs;     /* engine steps; stretches of them simulated at once */
    uint64_t computed_tokens; /* prompt tokens put through prefill, wasted ones too */
    uint64_t decoded_tokens;  /* made by decode steps */
    uint64_t preemptions;
    double busy_ms;
};

/* All pointers but `calls` must outlive the worker. */
enum kvr_status kvr_sim_worker_create(const struct kvr_sim_worker_options *options,
    struct kvr_sim_worker **out, struct kvr_error *error);
void kvr_sim_worker_destroy(struct kvr_sim_worker *worker);

void kvr_sim_worker_set_weight(struct kvr_sim_worker *worker, double weight);

/* When it wants kvr_sim_worker_step(); INFINITY: never by itself. */
double kvr_sim_worker_wake_ms(const struct kvr_sim_worker *worker);

/* A request arrives. with_kv: its prompt was computed elsewhere and its KV is here now. */
void kvr_sim_worker_submit(
    struct kvr_sim_worker *worker, struct kvr_sim_request *request, bool with_kv, double now_ms);

/* To be called at kvr_sim_worker_wake_ms(): what ended is told, the next run begins. */
enum kvr_status kvr_sim_worker_step(struct kvr_sim_worker *worker, struct kvr_error *error);

/* The KV of a request whose decode is elsewhere has left. */
enum kvr_status kvr_sim_worker_release(struct kvr_sim_worker *worker,
    struct kvr_sim_request *request, double now_ms, struct kvr_error *error);

/* The worker dies: all that was in it is returned, linked by next_failed in order of admission and
 * then of arrival, and its cache is empty. */
enum kvr_status kvr_sim_worker_kill(struct kvr_sim_worker *worker, double now_ms,
    struct kvr_sim_request **failed, struct kvr_error *error);

/* What it would report in a `load` line. */
struct kvr_sim_load {
    uint32_t waiting, running;
    double kv_usage;
    uint64_t tokens; /* of the prompts in it and what they have generated */
};
void kvr_sim_worker_load(const struct kvr_sim_worker *worker, struct kvr_sim_load *load);

const struct kvr_sim_worker_counts *kvr_sim_worker_counts(const struct kvr_sim_worker *worker);
struct kvr_cache *kvr_sim_worker_cache(struct kvr_sim_worker *worker);

#endif
