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
    struct kvr_route_ring_point *points;
    uint32_t count, size;
};

void kvr_route_ring_release(struct kvr_route_ring *ring);

/* The ring of the fleet's candidates: `nodes` points for weight 1, in proportion for others. */
enum kvr_status kvr_route_ring_build(struct kvr_route_ring *ring, const struct kvr_fleet *fleet,
    uint32_t nodes, struct kvr_error *error);

/* The key's worker. bound: as above, at least 1; 0: unbounded. The ring is not empty. */
uint32_t kvr_route_ring_find(const struct kvr_route_ring *ring, const struct kvr_route_view *view,
    uint64_t key, double bound);

#endif
