#include "stat/sketch.h"

#include "base/rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GROW_BUCKETS = 64 };

enum kvr_status kvr_sketch_scale_init(
    struct kvr_sketch_scale *scale, double accuracy, struct kvr_error *error)
{
    if (!(accuracy >= 1e-4 && accuracy <= 0.5))
        return kvr_error_set(
            error, KVR_BAD_USAGE, "an accuracy of %g is not between 0.0001 and 0.5", accuracy);
    scale->accuracy = accuracy;
    scale->gamma = (1 + accuracy) / (1 - accuracy);
    scale->inverse_log_gamma = 1 / log(scale->gamma);
    scale->lowest = (int32_t)ceil(log(KVR_SKETCH_LEAST) * scale->inverse_log_gamma);
    scale->highest = (int32_t)ceil(log(KVR_SKETCH_MOST) * scale->inverse_log_gamma);
    return KVR_OK;
}

void kvr_sketch_release(struct kvr_sketch *sketch)
{
    free(sketch->counts);
    memset(sketch, 0, sizeof *sketch);
}

void kvr_sketch_clear(struct kvr_sketch *sketch)
{
    uint64_t *counts = sketch->counts;
    int32_t first = sketch->first;
    uint32_t length = sketch->length;

    if (counts && sketch->count)
        memset(counts, 0, length * sizeof *counts);
    *sketch = (struct kvr_sketch){.counts = counts, .first = first, .length = length};
}

int32_t kvr_sketch_bucket(const struct kvr_sketch_scale *scale, double value)
{
    if (value < KVR_SKETCH_LEAST)
        return INT32_MIN;
    if (value >= KVR_SKETCH_MOST)
        return scale->highest;
    return (int32_t)ceil(log(value) * scale->inverse_log_gamma);
}

/* Widens the span to hold bucket, by whole steps so that it happens seldom. */
static bool widen(struct kvr_sketch *sketch, int32_t bucket)
{
    int64_t first = sketch->first, end = first + sketch->length;

    if (!sketch->length)
        first = end = bucket;
    if (bucket < first)
        first = bucket - GROW_BUCKETS / 2;
    if (bucket >= end)
        end = (int64_t)bucket + GROW_BUCKETS / 2;
    uint64_t *counts = calloc((size_t)(end - first), sizeof *counts);
    if (!counts)
        return false;
    if (sketch->length)
        memcpy(counts + (sketch->first - first), sketch->counts, sketch->length * sizeof *counts);
    free(sketch->counts);
    sketch->counts = counts;
    sketch->first = (int32_t)first;
    sketch->length = (uint32_t)(end - first);
    return true;
}

static void add_sum(struct kvr_sketch *sketch, uint64_t thousandths)
{
    if (__builtin_add_overflow(sketch->sum_thousandths, thousandths, &sketch->sum_thousandths))
        sketch->sum_thousandths = UINT64_MAX;
}

bool kvr_sketch_add_bucket(struct kvr_sketch *sketch, int32_t bucket, double value, uint64_t times)
{
    uint64_t thousandths;

    if (times == 0)
        return true;
    if (value > KVR_SKETCH_MOST)
        value = KVR_SKETCH_MOST;
    if (bucket == INT32_MIN) {
        sketch->zeros += times;
    } else {
        uint32_t at = (uint32_t)bucket - (uint32_t)sketch->first;
        if (at >= sketch->length) {
            if (!widen(sketch, bucket))
                return false;
            at = (uint32_t)bucket - (uint32_t)sketch->first;
        }
        sketch->counts[at] += times;
    }
    if (sketch->count == 0 || value < sketch->least)
        sketch->least = value;
    if (sketch->count == 0 || value > sketch->most)
        sketch->most = value;
    sketch->count += times;
    if (__builtin_mul_overflow((uint64_t)llrint(value * 1e3), times, &thousandths))
        thousandths = UINT64_MAX;
    add_sum(sketch, thousandths);
    return true;
}

void kvr_sketch_remove_bucket(struct kvr_sketch *sketch, int32_t bucket, double value)
{
    if (bucket == INT32_MIN)
        sketch->zeros--;
    else
        sketch->counts[bucket - sketch->first]--;
    sketch->count--;
    sketch->sum_thousandths -= (uint64_t)llrint(fmin(value, KVR_SKETCH_MOST) * 1e3);
}

bool kvr_sketch_add(struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale, double value)
{
    if (!(value >= 0))
        return true;
    return kvr_sketch_add_bucket(sketch, kvr_sketch_bucket(scale, value), value, 1);
}

bool kvr_sketch_merge(struct kvr_sketch *into, const struct kvr_sketch *from)
{
    if (from->count == 0)
        return true;
    /* The ends first, so that the span is widened at most twice. */
    uint32_t low = 0, high = from->length;
    while (low < high && from->counts[low] == 0)
        low++;
    while (high > low && from->counts[high - 1] == 0)
        high--;
    if (high > low) {
        uint32_t ends[2] = {low, high - 1};
        for (int i = 0; i < 2; i++) {
            int32_t bucket = from->first + (int32_t)ends[i];
            if ((uint32_t)bucket - (uint32_t)into->first >= into->length && !widen(into, bucket))
                return false;
        }
        for (uint32_t i = low; i < high; i++)
            into->counts[(int64_t)from->first + i - into->first] += from->counts[i];
    }
    if (into->count == 0 || from->least < into->least)
        into->least = from->least;
    if (into->count == 0 || from->most > into->most)
        into->most = from->most;
    into->zeros += from->zeros;
    into->count += from->count;
    add_sum(into, from->sum_thousandths);
    return true;
}

double kvr_sketch_value(const struct kvr_sketch_scale *scale, int32_t bucket)
{
    return 2 * exp(bucket / scale->inverse_log_gamma) / (scale->gamma + 1);
}

double kvr_sketch_quantile(
    const struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale, double q)
{
    if (sketch->count == 0)
        return NAN;
    if (q <= 0)
        return sketch->least;
    if (q >= 1)
        return sketch->most;
    uint64_t rank = kvr_nearest_rank(q, sketch->count);
    uint64_t seen = sketch->zeros;
    if (rank < seen)
        return 0;
    for (uint32_t i = 0; i < sketch->length; i++) {
        seen += sketch->counts[i];
        if (rank < seen) {
            double value = kvr_sketch_value(scale, sketch->first + (int32_t)i);
            /* The ends are known exactly, and no answer lies outside of them. */
            return fmin(fmax(value, sketch->least), sketch->most);
        }
    }
    return sketch->most;
}

uint64_t kvr_sketch_count_until(
    const struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale, double value)
{
    int64_t last = (int64_t)kvr_sketch_bucket(scale, value) - sketch->first;
    uint64_t seen = sketch->zeros;

    for (int64_t i = 0; i <= last && i < sketch->length; i++)
        seen += sketch->counts[i];
    return seen;
}
