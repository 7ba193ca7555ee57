#include "sim/desk.h"

#include "base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct kvr_desk {
    struct kvr_matcher *matcher;
    struct kvr_index *index;
    struct kvr_router *router;
    struct kvr_route_reader reader;
    bool explains;
    uint64_t min_tokens;
    uint32_t *index_of; /* by worker; KVR_NO_WORKER: the index has none */
    uint32_t *fleet_of; /* by the index's number */
    size_t index_size, fleet_size;
    struct kvr_route_match *matches;
    size_t match_size;
};

enum kvr_status kvr_desk_create(
    const struct kvr_desk_options *options, struct kvr_desk **out, struct kvr_error *error)
{
    struct kvr_desk *desk = calloc(1, sizeof *desk);

    if (!desk)
        return kvr_error_memory(error);
    desk->explains = options->router.explain;
    desk->min_tokens = options->match.min_tokens;
    enum kvr_status status = kvr_matcher_create(&desk->matcher, &options->match, error);
    if (status == KVR_OK)
        status = kvr_router_create(&options->router, &options->cost, &desk->router, error);
    if (status != KVR_OK) {
        kvr_desk_destroy(desk);
        return status;
    }
    desk->index = kvr_matcher_index(desk->matcher);
    desk->reader = (struct kvr_route_reader){
        .fleet = kvr_router_fleet(desk->router),
        .block_tokens = options->match.block_size,
        .kv_bytes_per_token = options->cost.kv_bytes_per_token,
    };
    *out = desk;
    return KVR_OK;
}

void kvr_desk_destroy(struct kvr_desk *desk)
{
    if (!desk)
        return;
    kvr_matcher_destroy(desk->matcher);
    kvr_router_destroy(desk->router);
    kvr_route_reader_release(&desk->reader);
    free(desk->index_of);
    free(desk->fleet_of);
    free(desk->matches);
    free(desk);
}

const struct kvr_fleet *kvr_desk_fleet(const struct kvr_desk *desk)
{
    return desk->reader.fleet;
}

struct kvr_matcher *kvr_desk_matcher(struct kvr_desk *desk)
{
    return desk->matcher;
}

static bool room(uint32_t **table, size_t *size, uint32_t at)
{
    size_t old = *size;
    uint32_t *grown = kvr_grow(*table, size, (size_t)at + 1, sizeof *grown);

    if (!grown)
        return false;
    *table = grown;
    for (size_t i = old; i < *size; i++)
        grown[i] = KVR_NO_WORKER;
    return true;
}

/* The index and the fleet both know the worker; their numbers are tied together. */
static enum kvr_status tie(
    struct kvr_desk *desk, uint32_t worker, uint32_t in_index, struct kvr_error *error)
{
    if (!room(&desk->index_of, &desk->index_size, worker) ||
        !room(&desk->fleet_of, &desk->fleet_size, in_index))
        return kvr_error_memory(error);
    desk->index_of[worker] = in_index;
    desk->fleet_of[in_index] = worker;
    return KVR_OK;
}

/* As kvr_match_event() takes a worker line. */
static enum kvr_status change_index(
    struct kvr_desk *desk, const struct kvr_worker_description *worker, struct kvr_error *error)
{
    const struct kvr_capacity *capacity = &worker->capacity;
    uint64_t tokens = KVR_INDEX_UNBOUNDED, blocks = KVR_INDEX_UNBOUNDED;
    uint32_t in_index;
    enum kvr_status status = KVR_OK;

    if (worker->state == KVR_WORKER_DOWN) {
        in_index = kvr_index_worker_lookup(desk->index, worker->name.text, worker->name.length);
        if (in_index != UINT32_MAX)
            kvr_index_worker_remove(desk->index, in_index);
        return KVR_OK;
    }
    if (capacity->amount && capacity->unit == KVR_BLOCKS)
        blocks = capacity->amount;
    else if (capacity->amount)
        status = kvr_capacity_blocks(capacity, 1, desk->reader.kv_bytes_per_token, &tokens, error);
    if (status == KVR_OK)
        status =
            kvr_index_worker(desk->index, worker->name.text, worker->name.length, &in_index, error);
    if (status == KVR_OK && capacity->amount)
        kvr_index_worker_capacity(desk->index, in_index, tokens, blocks);
    return status;
}

enum kvr_status kvr_desk_worker(struct kvr_desk *desk, double now_ms,
    const struct kvr_worker_description *worker, bool has_role, bool has_weight,
    struct kvr_error *error)
{
    uint32_t number, in_index;

    enum kvr_status status = change_index(desk, worker, error);
    if (status != KVR_OK)
        return status;
    kvr_fleet_advance(desk->reader.fleet, now_ms);
    status = kvr_route_worker(&desk->reader, worker, has_role, has_weight, error);
    if (status != KVR_OK)
        return status;
    number = kvr_fleet_find(desk->reader.fleet, worker->name.text, worker->name.length);
    in_index = kvr_index_worker_lookup(desk->index, worker->name.text, worker->name.length);
    if (in_index != UINT32_MAX)
        return tie(desk, number, in_index, error);
    if (!room(&desk->index_of, &desk->index_size, number))
        return kvr_error_memory(error);
    desk->index_of[number] = KVR_NO_WORKER;
    return KVR_OK;
}

void kvr_desk_done(struct kvr_desk *desk, double now_ms, uint64_t id)
{
    kvr_fleet_advance(desk->reader.fleet, now_ms);
    if (id)
        kvr_fleet_done(desk->reader.fleet, id);
}

void kvr_desk_load(
    struct kvr_desk *desk, double now_ms, uint32_t worker, const struct kvr_load_report *report)
{
    kvr_fleet_advance(desk->reader.fleet, now_ms);
    kvr_fleet_report(desk->reader.fleet, worker, report);
}

/* The index's matches as the router takes them. */
static enum kvr_status match(struct kvr_desk *desk, const struct kvr_blocks *blocks,
    int64_t time_ms, uint64_t most_tokens, uint32_t *count, struct kvr_error *error)
{
    const struct kvr_index_match *found;
    size_t found_count = kvr_index_find(desk->index, time_ms, blocks, &found);
    struct kvr_route_match *grown =
        kvr_grow(desk->matches, &desk->match_size, found_count + 1, sizeof *grown);

    *count = 0;
    if (!grown)
        return kvr_error_memory(error);
    desk->matches = grown;
    for (size_t i = 0; i < found_count; i++) {
        uint64_t tokens = (uint64_t)found[i].blocks * blocks->block_size;
        tokens = tokens < most_tokens ? tokens : most_tokens;
        if (!tokens || tokens < desk->min_tokens)
            continue;
        grown[(*count)++] = (struct kvr_route_match){
            .worker = desk->fleet_of[found[i].worker],
            .tokens = tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens,
        };
    }
    return KVR_OK;
}

/* The index's number of a worker, made where it has none. */
static enum kvr_status in_index(
    struct kvr_desk *desk, uint32_t worker, uint32_t *number, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;

    if (worker >= desk->index_size || desk->index_of[worker] == KVR_NO_WORKER) {
        const char *name = desk->reader.fleet->names[worker];
        status = kvr_index_worker(desk->index, name, strlen(name), number, error);
        return status == KVR_OK ? tie(desk, worker, *number, error) : status;
    }
    *number = desk->index_of[worker];
    return KVR_OK;
}

static enum kvr_status learn(struct kvr_desk *desk, uint32_t worker,
    const struct kvr_blocks *blocks, int64_t time_ms, struct kvr_error *error)
{
    uint32_t number;
    enum kvr_status status = in_index(desk, worker, &number, error);

    return status == KVR_OK ? kvr_index_place(desk->index, number, time_ms, blocks, NULL, error)
                            : status;
}

enum kvr_status kvr_desk_stored(struct kvr_desk *desk, uint32_t worker, enum kvr_medium medium,
    const struct kvr_blocks *blocks, struct kvr_error *error)
{
    uint32_t number;
    enum kvr_status status = in_index(desk, worker, &number, error);

    return status == KVR_OK ? kvr_index_stored(desk->index, number, medium, blocks, error) : status;
}

enum kvr_status kvr_desk_removed(struct kvr_desk *desk, uint32_t worker, enum kvr_medium medium,
    const struct kvr_blocks *blocks, struct kvr_error *error)
{
    uint32_t number;
    enum kvr_status status = in_index(desk, worker, &number, error);

    return status == KVR_OK ? kvr_index_removed(desk->index, number, medium, blocks, error)
                            : status;
}

enum kvr_status kvr_desk_cleared(
    struct kvr_desk *desk, uint32_t worker, enum kvr_medium medium, struct kvr_error *error)
{
    uint32_t number;
    enum kvr_status status = in_index(desk, worker, &number, error);

    if (status == KVR_OK)
        kvr_index_cleared(desk->index, number, medium);
    return status;
}

enum kvr_status kvr_desk_decide(struct kvr_desk *desk, const struct kvr_desk_request *request,
    struct kvr_route_decision *decision, struct kvr_buffer *out, struct kvr_error *error)
{
    struct kvr_route_request route = request->route;
    struct kvr_match_request text = {
        .has_blocks = route.block_count > 0,
        .input_tokens = request->match_tokens,
        .time_ms = isnan(route.now_ms) ? 0 : (int64_t)floor(route.now_ms),
    };

    if (route.block_count)
        text.blocks = (struct kvr_blocks){request->space,
            request->match_ids ? request->match_ids : route.block_ids, route.block_count,
            route.block_tokens};
    enum kvr_status status =
        match(desk, &text.blocks, text.time_ms, request->match_tokens, &route.match_count, error);
    if (status != KVR_OK)
        return status;
    route.matches = desk->matches;
    if (out) {
        kvr_line_add(out, "match");
        kvr_match_write(desk->matcher, &text, out);
    }
    status = kvr_router_decide(desk->router, &route, decision, error);
    if (status != KVR_OK)
        return status;
    if (out) {
        uint32_t count = 0;
        const struct kvr_route_candidate *candidates =
            desk->explains ? kvr_router_explain(desk->router, &count) : NULL;
        kvr_line_add(out, "route");
        kvr_route_write(desk->reader.fleet, decision, candidates, count, out);
    }
    if (decision->worker == KVR_NO_WORKER)
        return KVR_OK;
    return learn(desk, decision->worker, &text.blocks, text.time_ms, error);
}

enum kvr_status kvr_desk_placed(struct kvr_desk *desk, const struct kvr_desk_request *request,
    const char *worker, size_t length, struct kvr_error *error)
{
    struct kvr_route_request route = request->route;
    struct kvr_blocks blocks = {0};
    uint32_t number;

    route.matches = NULL;
    route.match_count = 0;
    if (route.block_count)
        blocks = (struct kvr_blocks){
            request->space, route.block_ids, route.block_count, route.block_tokens};
    enum kvr_status status =
        kvr_fleet_join(kvr_router_fleet(desk->router), worker, length, &number, error);
    if (status == KVR_OK)
        status = kvr_router_learn(desk->router, &route, number, KVR_NO_WORKER, error);
    if (status != KVR_OK || !route.block_count)
        return status;
    int64_t time_ms = isnan(route.now_ms) ? 0 : (int64_t)floor(route.now_ms);
    return learn(desk, number, &blocks, time_ms, error);
}

enum kvr_status kvr_desk_event(
    struct kvr_desk *desk, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_value name = kvr_line_get(line, KVR_NAME_WORKER);
    struct kvr_text text;
    uint32_t number;

    enum kvr_status status = kvr_match_event(desk->matcher, line, error);
    if (status == KVR_OK)
        status = kvr_route_event(&desk->reader, line, error);
    if (status != KVR_OK || !kvr_value_text(name, &desk->reader.scratch, &text) || !text.length)
        return status;
    /* A worker's first cache event may have made it known to the index. */
    uint32_t in_index = kvr_index_worker_lookup(desk->index, text.text, text.length);
    if (in_index == UINT32_MAX)
        return KVR_OK;
    status = kvr_fleet_join(kvr_router_fleet(desk->router), text.text, text.length, &number, error);
    return status == KVR_OK ? tie(desk, number, in_index, error) : status;
}
