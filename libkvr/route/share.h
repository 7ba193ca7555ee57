/*
 * Each worker's share of what was placed recently, fading out exponentially by requests, not by
 * time, so that it also works where time stands still.
 *
 * Instead of multiplying all sums by (1 − 1/window) at each request, what is added grows by the
 * inverse, and all is scaled back when that has become large: O(1) a request.
 */
#ifndef KVR_ROUTE_SHARE_H
#define KVR_ROUTE_SHARE_H

#include "base/error.h"

#include <stdint.h>

struct kvr_route_share {
    double *sums; /* by worker, in units of `unit` */
    double total, unit;
    uint32_t size;
};

void kvr_route_share_release(struct kvr_route_share *share);

/* Room for workers 0 … size − 1; new ones have placed nothing. */
enum kvr_status kvr_route_share_reserve(
    struct kvr_route_share *share, uint32_t size, struct kvr_error *error);

/* A placement of that amount; older ones lose 1/window of their weight. window at least 1. */
void kvr_route_share_add(
    struct kvr_route_share *share, uint32_t worker, double amount, double window);

/* 0 … 1; 0 for all before the first placement. */
static inline double kvr_route_share_of(const struct kvr_route_share *share, uint32_t worker)
{
    return share->total > 0 ? share->sums[worker] / share->total : 0;
}

#endif
