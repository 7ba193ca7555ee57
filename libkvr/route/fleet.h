/*
 * The fleet: which workers there are, and how loaded each is now.
 *
 * The problem. A router knows what it sent, not what has finished. Some streams carry `done` for
 * every request, some a worker's own `load` reports, many nothing but arrival times.
 *
 * The idea. Every placement is remembered with a time at which it ends by itself:
 *   - while no `done` has ever come, that is the predicted completion: the prefill waits behind the
 *     prefills placed there before, then the output is decoded at the predicted rate;
 *   - once one has come, `done` ends placements, and the time is only a lease (default 10 minutes)
 *     so that a lost `done` cannot make a worker look busy for ever.
 * A `load` report corrects the count: correction = reported − own count at that moment; from then
 * on own placements and completions move the sum, until the report expires.
 *
 * Time is the caller's, in ms. It may stand still (a stream without timestamps): then nothing ends
 * by itself. It never runs backwards: an older time counts as the newest seen.
 *
 * Layout and cost. Workers are numbered 0, 1, 2 … in order of appearance, for ever; what a policy
 * reads of one lies in one struct. Placements are pooled, with a heap by end time and a map by id:
 * O(log outstanding) a request, no allocation in steady state, at most KVR_PLACEMENT_LIMIT of them
 * (beyond it the one that would end first is forgotten).
 */
#ifndef KVR_ROUTE_FLEET_H
#define KVR_ROUTE_FLEET_H

#include "base/error.h"
#include "base/u64_map.h"
#include "line/worker.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define KVR_NO_WORKER UINT32_MAX
#define KVR_WORKER_LIMIT (1u << 20)
#define KVR_PLACEMENT_LIMIT (1u << 20)

struct kvr_worker {
    uint8_t state, role;        /* enum kvr_worker_state, kvr_worker_role */
    uint32_t epoch;             /* counts its failures: older placements are void */
    uint32_t outstanding;       /* placed here and not ended */
    int32_t correction;         /* from the last report, see above */
    int64_t outstanding_tokens; /* input + output tokens of these */
    int64_t token_correction;
    double end_sum_ms;        /* sum of the predicted ends of the outstanding */
    double report_until_ms;   /* the report counts before this time */
    double backlog_end_ms;    /* the prefills placed here are predicted to end */
    double backlog_shift_ms;  /* by how much `done` has moved that forward, in all */
    double weight;            /* speed against the cost model: 2 is twice as fast */
    double kv_usage;          /* reported share of KV memory in use; NaN: never */
    uint32_t waiting;         /* reported; counts before report_until_ms */
    uint64_t last_placed;     /* number of the newest placement here; 0: never */
    uint64_t placed;          /* placements ever */
    double drain_until_ms;    /* while draining: open sessions may stay until then */
    uint64_t capacity_tokens; /* 0: unknown */
};

struct kvr_placement; /* private */

struct kvr_fleet {
    struct kvr_worker *workers;
    char **names;
    uint32_t count, size;
    /* The workers that take new requests, ascending: active with role both or prefill; and those
     * that decode for prefill workers: active with role decode. */
    uint32_t *prefill, *decode;
    uint32_t prefill_count, decode_count;
    uint64_t version; /* grows whenever these lists or a weight change */
    double now_ms;
    uint64_t placements; /* ever made */
    bool done_seen;

    double load_ttl_ms; /* a report expires after it; default 10 s */
    double lease_ms;    /* see above; default 10 min */
    double drain_ms;    /* open sessions stay on a draining worker so long; default 60 s */

    struct kvr_u64_map by_name, by_id;
    struct kvr_placement *pool;
    uint32_t *heap;
    uint32_t pool_size, pool_used, free_list, heap_count;
};

void kvr_fleet_init(struct kvr_fleet *fleet);
void kvr_fleet_release(struct kvr_fleet *fleet);

/* The number of the worker of that name, or KVR_NO_WORKER. */
uint32_t kvr_fleet_find(const struct kvr_fleet *fleet, const char *name, size_t length);

/* The same, but one never heard of joins: active, both roles, weight 1. KVR_NO_MEMORY, or
 * KVR_BAD_INPUT beyond KVR_WORKER_LIMIT names. */
enum kvr_status kvr_fleet_join(struct kvr_fleet *fleet, const char *name, size_t length,
    uint32_t *worker, struct kvr_error *error);

/* Changes of a worker, as its `worker` line says. A worker that goes down loses its placements and
 * reports; one that returns starts empty. weight: 1e-6 … 1e6. */
void kvr_fleet_set_state(struct kvr_fleet *fleet, uint32_t worker, enum kvr_worker_state state);
void kvr_fleet_set_role(struct kvr_fleet *fleet, uint32_t worker, enum kvr_worker_role role);
void kvr_fleet_set_weight(struct kvr_fleet *fleet, uint32_t worker, double weight);

/* Moves time forward and ends what has ended. An earlier time, an infinite one, NaN: no move. */
void kvr_fleet_advance(struct kvr_fleet *fleet, double now_ms);

struct kvr_load_report {
    uint32_t waiting, running; /* requests */
    double kv_usage;           /* 0 … 1, beyond it as the nearer end; NaN: not told */
    int64_t tokens;            /* in flight; negative: not told */
};

/* A worker's own report, at the fleet's time. */
void kvr_fleet_report(
    struct kvr_fleet *fleet, uint32_t worker, const struct kvr_load_report *report);

struct kvr_placement_request {
    uint64_t id; /* what `done` will name; 0: nothing */
    uint32_t worker;
    uint32_t decode_worker; /* KVR_NO_WORKER, or the same: one worker does both */
    uint64_t tokens;        /* input + output */
    double prefill_ms;      /* joins the worker's backlog */
    double decode_ms;       /* from the end of the prefill to the last token */
};

/* Counts a request on its worker; with a decode worker of its own, on the first until the predicted
 * end of the prefill and on the second until it ends. An id still outstanding (a retry) ends its
 * older placement. False when memory is short: then nothing is counted. */
bool kvr_fleet_place(struct kvr_fleet *fleet, const struct kvr_placement_request *request);

/* `done`: the placement of that id ends. False when it is not known (any more). */
bool kvr_fleet_done(struct kvr_fleet *fleet, uint64_t id);

/* Requests on the worker now. */
static inline uint32_t kvr_worker_load(const struct kvr_fleet *fleet, uint32_t worker)
{
    const struct kvr_worker *w = &fleet->workers[worker];
    int64_t load = w->outstanding;

    if (fleet->now_ms < w->report_until_ms)
        load += w->correction;
    return load > 0 ? (uint32_t)load : 0;
}

/* Tokens of these requests. */
static inline uint64_t kvr_worker_tokens(const struct kvr_fleet *fleet, uint32_t worker)
{
    const struct kvr_worker *w = &fleet->workers[worker];
    int64_t tokens = w->outstanding_tokens;

    if (fleet->now_ms < w->report_until_ms)
        tokens += w->token_correction;
    return tokens > 0 ? (uint64_t)tokens : 0;
}

/* Predicted wait before a prefill placed now starts. */
static inline double kvr_worker_queue_ms(const struct kvr_fleet *fleet, uint32_t worker)
{
    double wait = fleet->workers[worker].backlog_end_ms - fleet->now_ms;

    return wait > 0 ? wait : 0;
}

/* A `load` report about it is fresh. */
static inline bool kvr_worker_reported(const struct kvr_fleet *fleet, uint32_t worker)
{
    return fleet->now_ms < fleet->workers[worker].report_until_ms;
}

#endif
