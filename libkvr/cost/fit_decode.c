#include "cost/fit.h"

#include <math.h>

enum { ROWS_MOST = 64, ROUNDS = 16 };

static double compute_ms(const struct kvr_cost *cost, const struct kvr_decode_sample *sample)
{
    return sample->sequences * cost->prefill_token_ms +
           sample->context_tokens * cost->prefill_pair_ms;
}

static double memory_ms(const struct kvr_cost *cost, const struct kvr_decode_sample *sample)
{
    return cost->dense_weights_ms + sample->context_tokens * cost->decode_token_ms;
}

static double error_of(
    const struct kvr_cost *cost, const struct kvr_decode_sample *samples, size_t count)
{
    double squares = 0;

    for (size_t i = 0; i < count; i++) {
        double fitted = kvr_cost_decode_ms(cost, samples[i].sequences, samples[i].context_tokens);
        squares += pow(fitted / samples[i].time_ms - 1, 2);
    }
    return count > 0 ? sqrt(squares / (double)count) : 0;
}

/* One round: the steps that the coefficients so far call bound by arithmetic give the overhead, the
 * others overhead and weights together and the reading of contexts. */
static void improve(struct kvr_cost *cost, const struct kvr_decode_sample *samples, size_t count)
{
    struct kvr_fit_row rows[ROWS_MOST];
    double left = 0, weight = 0, x[KVR_FIT_TERMS], error;
    size_t bound = 0;

    for (size_t i = 0; i < count; i++) {
        double time_ms = samples[i].time_ms, compute = compute_ms(cost, &samples[i]);
        if (compute > memory_ms(cost, &samples[i])) {
            left += (time_ms - compute) / (time_ms * time_ms);
            weight += 1 / (time_ms * time_ms);
        } else {
            rows[bound++] = (struct kvr_fit_row){{1, samples[i].context_tokens, 0}, time_ms};
        }
    }
    cost->decode_overhead_ms = weight > 0 ? fmax(left / weight, 0) : 0;
    if (bound == 0 || !kvr_fit(rows, bound, x, &error))
        return;
    cost->decode_overhead_ms = fmin(cost->decode_overhead_ms, x[0]);
    cost->dense_weights_ms = x[0] - cost->decode_overhead_ms;
    cost->decode_token_ms = x[1];
}

double kvr_fit_decode(struct kvr_cost *cost, const struct kvr_decode_sample *samples, size_t count)
{
    count = count < ROWS_MOST ? count : ROWS_MOST;
    /* At first no step is bound by arithmetic. */
    cost->decode_overhead_ms = cost->decode_token_ms = 0;
    cost->dense_weights_ms = INFINITY;
    improve(cost, samples, count);
    struct kvr_cost best = *cost;
    double error = error_of(cost, samples, count);
    for (int round = 1; round < ROUNDS; round++) {
        improve(cost, samples, count);
        double now = error_of(cost, samples, count);
        if (now < error) {
            best = *cost;
            error = now;
        }
    }
    *cost = best;
    if (!isfinite(cost->dense_weights_ms)) /* no samples */
        cost->dense_weights_ms = 0;
    return error;
}
