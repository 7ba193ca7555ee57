#include "route/ring.h"

#include "route/choose.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum kvr_status kvr_route_ring_init(struct kvr_route_ring *ring,
    const struct kvr_parameter_value *bound, const struct kvr_parameter_value *nodes,
    struct kvr_error *error)
{
    *ring = (struct kvr_route_ring){.bound = bound->number, .nodes = (uint32_t)nodes->integer};
    if (ring->bound > 0 && ring->bound < 1)
        return kvr_error_set(error, KVR_BAD_USAGE, "bound is 0 or at least 1");
    return KVR_OK;
}

void kvr_route_ring_release(struct kvr_route_ring *ring)
{
    free(ring->points);
    memset(ring, 0, sizeof *ring);
}

static int by_hash(const void *left, const void *right)
{
    const struct kvr_route_ring_point *a = left, *b = right;

    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return (a->worker > b->worker) - (a->worker < b->worker);
}

static uint32_t points_of(const struct kvr_worker *worker, uint32_t nodes)
{
    double points = nodes * worker->weight + 0.5;

    return points < 1 ? 1 : points > 100.0 * nodes ? 100 * nodes : (uint32_t)points;
}

enum kvr_status kvr_route_ring_build(
    struct kvr_route_ring *ring, const struct kvr_fleet *fleet, struct kvr_error *error)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < fleet->prefill_count; i++)
        total += points_of(&fleet->workers[fleet->prefill[i]], ring->nodes);
    if (total > UINT32_MAX)
        return kvr_error_set(error, KVR_BAD_USAGE, "the hash ring would have too many points");
    if (total > ring->size) {
        struct kvr_route_ring_point *larger = reallocarray(ring->points, total, sizeof *larger);
        if (!larger)
            return kvr_error_memory(error);
        ring->points = larger;
        ring->size = (uint32_t)total;
    }
    ring->count = 0;
    for (uint32_t i = 0; i < fleet->prefill_count; i++) {
        uint32_t worker = fleet->prefill[i];
        uint64_t name = XXH3_64bits(fleet->names[worker], strlen(fleet->names[worker]));
        struct kvr_random points = {name};
        for (uint32_t j = points_of(&fleet->workers[worker], ring->nodes); j; j--)
            ring->points[ring->count++] =
                (struct kvr_route_ring_point){kvr_random_u64(&points), worker};
    }
    if (ring->count)
        qsort(ring->points, ring->count, sizeof *ring->points, by_hash);
    return KVR_OK;
}

static uint32_t first_at_or_after(const struct kvr_route_ring *ring, uint64_t hash)
{
    uint32_t low = 0, high = ring->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ring->points[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low == ring->count ? 0 : low;
}

uint32_t kvr_route_ring_find(
    const struct kvr_route_ring *ring, const struct kvr_route_view *view, uint64_t key)
{
    uint32_t at = first_at_or_after(ring, kvr_mix64(key + 0x9e3779b97f4a7c15u));
    double requests = 1, weights = 0;

    if (ring->bound == 0)
        return ring->points[at].worker;
    for (uint32_t i = 0; i < view->candidate_count; i++) {
        requests += kvr_worker_load(view->fleet, view->candidates[i]);
        weights += view->fleet->workers[view->candidates[i]].weight;
    }
    for (uint32_t step = 0; step < ring->count; step++) {
        uint32_t worker = ring->points[at].worker;
        double share = ring->bound * requests * view->fleet->workers[worker].weight / weights;
        if (kvr_worker_load(view->fleet, worker) + 1.0 <= ceil(share))
            return worker;
        at = at + 1 == ring->count ? 0 : at + 1;
    }
    return kvr_route_least_loaded(view);
}
