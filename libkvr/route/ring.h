/*
 * A consistent-hash ring with bounded load.
 *
 * The problem: keys must find the same worker again, few may move when workers come or go, and one
 * hot key must not drown its worker.
 *
 * The idea. Every worker owns `nodes` points on a ring of 64-bit hashes, made from its name, so
 * that all routers see the same ring. A key belongs to the first point at or after its hash (Karger
 * et al., 1997): a worker that joins takes only what falls to its points, 1/N on average. With
 * bounded load (Mirrokni, Thorup, Zadimoghaddam, arXiv:1608.01350) a worker is passed over when it
 * has more than `bound` times its fair share of all requests, counting the new one; the next point
 * decides. Some worker is always below its bound, as the bounds add up to more than the requests.
 *
 * Cost: log2(points) to find, then a step for each worker passed over. The ring is rebuilt when the
 * fleet changes: points · log(points).
 */
#ifndef KVR_ROUTE_RING_H
#define KVR_ROUTE_RING_H

#include "route/policy.h"

struct kvr_route_ring_point {
    uint64_t hash;
    uint32_t worker;
};

struct kvr_route_ring {
    double bound;   /* at least 1; 0: unbounded */
    uint32_t nodes; /* points of a worker of weight 1 */
    struct kvr_route_ring_point *points;
    uint32_t count, size;
};

/* Two rows for the parameters of a policy that has a ring. */
#define KVR_ROUTE_RING_PARAMETERS(bound_at, nodes_at)                                              \
    [bound_at] = {.name = "bound",                                                                 \
        .kind = KVR_PARAMETER_NUMBER,                                                              \
        .initial = "1.25",                                                                         \
        .least = 0,                                                                                \
        .most = 1e6,                                                                               \
        .help = "the ring passes over workers above so many times the fair share; 0: never"},      \
    [nodes_at] = {.name = "nodes",                                                                 \
        .kind = KVR_PARAMETER_INTEGER,                                                             \
        .initial = "150",                                                                          \
        .least = 1,                                                                                \
        .most = 10000,                                                                             \
        .help = "points on the ring for a worker of weight 1"}

/* An empty ring with the values of these rows. KVR_BAD_USAGE for a bound between 0 and 1. */
enum kvr_status kvr_route_ring_init(struct kvr_route_ring *ring,
    const struct kvr_parameter_value *bound, const struct kvr_parameter_value *nodes,
    struct kvr_error *error);
void kvr_route_ring_release(struct kvr_route_ring *ring);

/* The ring of the fleet's candidates: `nodes` points for weight 1, in proportion for others. */
enum kvr_status kvr_route_ring_build(
    struct kvr_route_ring *ring, const struct kvr_fleet *fleet, struct kvr_error *error);

/* The key's worker. The ring is not empty. */
uint32_t kvr_route_ring_find(
    const struct kvr_route_ring *ring, const struct kvr_route_view *view, uint64_t key);

#endif
