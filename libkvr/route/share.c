#include "route/share.h"

#include <stdlib.h>
#include <string.h>

static const double largest_unit = 1e100;

void kvr_route_share_release(struct kvr_route_share *share)
{
    free(share->sums);
    memset(share, 0, sizeof *share);
}

enum kvr_status kvr_route_share_reserve(
    struct kvr_route_share *share, uint32_t size, struct kvr_error *error)
{
    if (size <= share->size)
        return KVR_OK;
    double *larger = reallocarray(share->sums, size, sizeof *larger);
    if (!larger)
        return kvr_error_memory(error);
    memset(larger + share->size, 0, (size - share->size) * sizeof *larger);
    share->sums = larger;
    share->size = size;
    return KVR_OK;
}

void kvr_route_share_add(
    struct kvr_route_share *share, uint32_t worker, double amount, double window)
{
    if (share->unit == 0)
        share->unit = 1;
    share->sums[worker] += amount * share->unit;
    share->total += amount * share->unit;
    share->unit *= 1 + 1 / window;
    if (share->unit > largest_unit) {
        share->total /= share->unit;
        for (uint32_t i = 0; i < share->size; i++)
            share->sums[i] /= share->unit;
        share->unit = 1;
    }
}
