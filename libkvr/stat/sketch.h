/*
 * DDSketch: quantiles with a bounded relative error, mergeable bucket for bucket (Masson, Rim and
 * Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees",
 * VLDB 2019).
 *
 * The problem: the p99 of a stream of any length, in constant memory, from parts that were read by
 * different machines. The idea: bucket i counts the values in (γ^(i-1), γ^i] with
 * γ = (1 + a) / (1 − a); answering 2γ^i / (γ + 1) for any of them is off by at most the share a.
 * Buckets do not depend on the data, so two sketches add like two histograms, in any order, and
 * the sum of the parts is the sketch of the whole, exactly.
 *
 * The paper bounds memory by collapsing the lowest buckets, which gives up the bound for low
 * quantiles. We bound the domain instead: values below KVR_SKETCH_LEAST count as zero, those above
 * KVR_SKETCH_MOST as that. At 1 % that is at most 2,074 buckets, 17 kB; a sketch holds only the
 * span between its least and its greatest bucket, usually a few hundred.
 *
 * The sum is kept as a whole number of thousandths, so that it does not depend on order either.
 */
#ifndef KVR_STAT_SKETCH_H
#define KVR_STAT_SKETCH_H

#include "base/error.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_SKETCH_LEAST 1e-6
#define KVR_SKETCH_MOST 1e12

/* What all sketches of one run share. */
struct kvr_sketch_scale {
    double accuracy; /* a: relative error of every quantile */
    double gamma;
    double inverse_log_gamma;
    int32_t lowest, highest; /* the buckets of the domain's ends */
};

/* A sketch of all zero bytes is an empty sketch. Ownership: kvr_sketch_release(). */
struct kvr_sketch {
    uint64_t *counts; /* of buckets first … first + length - 1 */
    int32_t first;
    uint32_t length;
    uint64_t zeros; /* values below KVR_SKETCH_LEAST */
    uint64_t count; /* all values */
    uint64_t sum_thousandths;
    double least, most; /* exact; of no meaning while count is 0 */
};

/* KVR_BAD_USAGE unless accuracy is from 0.0001 to 0.5. */
enum kvr_status kvr_sketch_scale_init(
    struct kvr_sketch_scale *scale, double accuracy, struct kvr_error *error);

void kvr_sketch_release(struct kvr_sketch *sketch);
void kvr_sketch_clear(struct kvr_sketch *sketch); /* empties without freeing */

/* The bucket of a value, INT32_MIN for one that counts as zero. For adding one value to several
 * sketches. */
int32_t kvr_sketch_bucket(const struct kvr_sketch_scale *scale, double value);

/* Adds a value whose bucket is known, `times` times. False when memory is short. */
bool kvr_sketch_add_bucket(struct kvr_sketch *sketch, int32_t bucket, double value, uint64_t times);

/* The same once, where everything about the value is known: for adding it to several sketches. */
static inline uint64_t kvr_sketch_thousandths(double value)
{
    return (uint64_t)llrint((value < KVR_SKETCH_MOST ? value : KVR_SKETCH_MOST) * 1e3);
}

static inline bool kvr_sketch_add_known(
    struct kvr_sketch *sketch, int32_t bucket, double value, uint64_t thousandths)
{
    uint32_t at = (uint32_t)bucket - (uint32_t)sketch->first;

    /* The common case: a bucket that is there, values within the ends, a sum that fits. */
    if (at >= sketch->length || bucket == INT32_MIN || !(value >= sketch->least) ||
        !(value <= sketch->most) || sketch->count == 0 ||
        sketch->sum_thousandths > UINT64_MAX - thousandths)
        return kvr_sketch_add_bucket(sketch, bucket, value, 1);
    sketch->counts[at]++;
    sketch->count++;
    sketch->sum_thousandths += thousandths;
    return true;
}

/* Takes one value back that was added before. `least` and `most` stay what they were. */
void kvr_sketch_remove_bucket(struct kvr_sketch *sketch, int32_t bucket, double value);

/* Values that are negative or no number are left out: nothing here measures them. */
bool kvr_sketch_add(struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale, double value);

/* Both of one scale. */
bool kvr_sketch_merge(struct kvr_sketch *into, const struct kvr_sketch *from);

/* The value of the nearest rank (base/rank.h), off by at most the accuracy; NaN when empty.
 * q is from 0 to 1; 0 and 1 are exact. */
double kvr_sketch_quantile(
    const struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale, double q);

/* How many values are at most `value`, exact but for values in its own bucket, which all count. */
uint64_t kvr_sketch_count_until(
    const struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale, double value);

/* What bucket i stands for. */
double kvr_sketch_value(const struct kvr_sketch_scale *scale, int32_t bucket);

static inline double kvr_sketch_mean(const struct kvr_sketch *sketch)
{
    return (double)sketch->sum_thousandths / 1e3 / (double)sketch->count;
}

#endif
