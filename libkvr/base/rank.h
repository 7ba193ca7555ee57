/*
 * Quantiles by nearest rank: the least value that at least a share q of all values does not exceed,
 * which is what "99 % of the requests wait at most so long" says. One rule for exact lists and for
 * sketches.
 */
#ifndef KVR_BASE_RANK_H
#define KVR_BASE_RANK_H

#include <math.h>
#include <stdint.h>

/* The place, from 0, of quantile q (0 to 1) among count values in ascending order; count is above
 * 0. 0.07 of 100 values is the seventh of them, though the product is a little over 7. */
static inline uint64_t kvr_nearest_rank(double q, uint64_t count)
{
    double rank = ceil(q * (double)count * (1 - 1e-12));

    if (!(rank > 1))
        return 0;
    return rank < (double)count ? (uint64_t)rank - 1 : count - 1;
}

#endif
