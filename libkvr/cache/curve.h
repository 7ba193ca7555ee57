/*
 * The exact hit curve of leaf LRU for every capacity, in one pass over the requests.
 *
 * LRU is a stack algorithm (Mattson et al., 1970): at any time a cache of C blocks holds the C
 * blocks on top of one stack, whatever C is. With prefix-pinned requests that stays true. A request
 * puts its path on top, root uppermost, so a parent is always above its children; a path longer
 * than C leaves its first C blocks, which are the top C. A block is a hit for every capacity that
 * is at least its depth in the stack before the request, and because depth grows along the path the
 * blocks hit are a leading run. So the histogram of depths is the curve.
 */
#ifndef KVR_CACHE_CURVE_H
#define KVR_CACHE_CURVE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_curve;

struct kvr_curve_options {
    uint32_t block_tokens;
    /* Share of the sessions that is looked at, (0, 1]. Capacities are scaled by it (as in SHARDS,
     * Waldspurger et al., FAST 2015). Blocks that sessions share count in each sampled session as
     * usual. */
    double sample;
    uint64_t seed;
};

struct kvr_curve_point {
    uint64_t capacity_blocks;
    double hit_blocks, hit_tokens; /* of all that was looked at */
    double token_hit_rate;
    double standard_error; /* of the rate, by sessions; 0 without sampling */
};

struct kvr_curve_totals {
    uint64_t requests, accesses, prompt_tokens; /* looked at */
    uint64_t sessions;
    uint64_t footprint_blocks;  /* different blocks, scaled by the sample */
    uint64_t compulsory_tokens; /* missed at every capacity */
};

enum kvr_status kvr_curve_create(
    struct kvr_curve **out, const struct kvr_curve_options *options, struct kvr_error *error);
void kvr_curve_destroy(struct kvr_curve *curve);

/* One request. session 0: unknown, then its second block stands for it. */
enum kvr_status kvr_curve_add(struct kvr_curve *curve, const uint64_t *ids, size_t count,
    uint64_t input_tokens, uint64_t session, struct kvr_error *error);

void kvr_curve_totals(const struct kvr_curve *curve, struct kvr_curve_totals *totals);

/* The point of a capacity, after all requests; the first call adds the histogram up. */
void kvr_curve_point(
    struct kvr_curve *curve, uint64_t capacity_blocks, struct kvr_curve_point *point);

/* The knee: the capacity, among powers of 2^(1/8), that lies farthest above the straight line from
 * (0, 0) to (footprint, most hits): from there on a block gains less than the average block
 * (Satopaa et al., Kneedle, ICDCSW 2011). */
uint64_t kvr_curve_knee(struct kvr_curve *curve);

/* The smallest capacity that reaches `share` of the hit tokens that any capacity reaches. */
uint64_t kvr_curve_capacity_for(struct kvr_curve *curve, double share);

#endif
