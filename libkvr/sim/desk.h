/*
 * The decision pipeline in process: match, route, learn, as kvr-match and kvr-route do it in a
 * closed loop, without text between them. The same index, the same router, the same order of calls;
 * so the decisions are the same, and where text is asked for, the same bytes.
 *
 *   request ──► prefix index ──► router ──► decision
 *                   ▲                          │
 *                   └───────── placed ◄────────┘
 *
 * Workers have one number here, that of their appearance; the index numbers its own differently
 * once one has been down, hence the two tables.
 */
#ifndef KVR_SIM_DESK_H
#define KVR_SIM_DESK_H

#include "cache/match.h"
#include "route/stream.h"

struct kvr_desk;

struct kvr_desk_options {
    struct kvr_match_options match;
    struct kvr_router_options router;
    struct kvr_cost cost;
};

/* The options' text (policy) is used during the call only. KVR_BAD_USAGE. */
enum kvr_status kvr_desk_create(
    const struct kvr_desk_options *options, struct kvr_desk **desk, struct kvr_error *error);
void kvr_desk_destroy(struct kvr_desk *desk);

/* What a worker line says; see kvr_route_worker(). now_ms NaN: time stands still. */
enum kvr_status kvr_desk_worker(struct kvr_desk *desk, double now_ms,
    const struct kvr_worker_description *worker, bool has_role, bool has_weight,
    struct kvr_error *error);
/* What a done line says. id as in struct kvr_route_request. */
void kvr_desk_done(struct kvr_desk *desk, double now_ms, uint64_t id);
/* What a load line says. */
void kvr_desk_load(
    struct kvr_desk *desk, double now_ms, uint32_t worker, const struct kvr_load_report *report);

/* What stored, removed and cleared lines say of a worker's cache: from then on the index holds for
 * it what the events say. ids and space as in struct kvr_desk_request. KVR_BAD_INPUT where the
 * worker's blocks have another size. */
enum kvr_status kvr_desk_stored(struct kvr_desk *desk, uint32_t worker, enum kvr_medium medium,
    const struct kvr_blocks *blocks, struct kvr_error *error);
enum kvr_status kvr_desk_removed(struct kvr_desk *desk, uint32_t worker, enum kvr_medium medium,
    const struct kvr_blocks *blocks, struct kvr_error *error);
enum kvr_status kvr_desk_cleared(
    struct kvr_desk *desk, uint32_t worker, enum kvr_medium medium, struct kvr_error *error);

/* A request: route as kvr_route_read() fills it with reads_blocks, but for its matches; space and
 * match_tokens are blocks.space and input_tokens as kvr_match_read() gives them. Ids with the
 * namespace folded in may stand for (space, ids): match_ids, then, with the space of no namespace.
 */
struct kvr_desk_request {
    struct kvr_route_request route;
    uint64_t space;
    const uint64_t *match_ids; /* as many as route.block_count; NULL: route.block_ids */
    uint64_t match_tokens;
};

/*
 * Decides and learns. With out (may be NULL) appends `,"match":…,"route":…`, as the two programs
 * would have. Fails with KVR_NO_MEMORY, or KVR_BAD_INPUT where the worker's blocks have another
 * size.
 */
enum kvr_status kvr_desk_decide(struct kvr_desk *desk, const struct kvr_desk_request *request,
    struct kvr_route_decision *decision, struct kvr_buffer *out, struct kvr_error *error);

/* The request went to that worker, whatever was decided or whoever decided: counted and learned.
 * KVR_NO_MEMORY, or KVR_BAD_INPUT where the worker's blocks have another size. */
enum kvr_status kvr_desk_placed(struct kvr_desk *desk, const struct kvr_desk_request *request,
    const char *worker, size_t length, struct kvr_error *error);

/* Acts on an event line that is not about workers: done, load, stored, removed, cleared. */
enum kvr_status kvr_desk_event(
    struct kvr_desk *desk, const struct kvr_line *line, struct kvr_error *error);

const struct kvr_fleet *kvr_desk_fleet(const struct kvr_desk *desk);

/* Reads lines for it: each index has namespaces of its own (a secret seed), so that a request of
 * another matcher's would match nothing that this one knows. */
struct kvr_matcher *kvr_desk_matcher(struct kvr_desk *desk);

#endif
