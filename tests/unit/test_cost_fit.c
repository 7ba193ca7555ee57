#include "cost/fit.h"
#include "tests/unit/unit.h"

#include <math.h>

static struct kvr_fit_row row(double n, double c, double time_ms)
{
    return (struct kvr_fit_row){{1, n, n * (c + n / 2)}, time_ms};
}

static void exact_times_give_their_coefficients(void **state)
{
    struct kvr_fit_row rows[12];
    double x[3], error;
    size_t count = 0;

    (void)state;
    for (double n = 16; n <= 4096; n *= 4)
        for (double c = 0; c <= 8192 && count < 12; c += 4096)
            rows[count++] = row(n, c, 2.5 + 0.04 * n + 6e-7 * n * (c + n / 2));
    assert_true(kvr_fit(rows, count, x, &error));
    assert_true(fabs(x[0] - 2.5) < 1e-6 && fabs(x[1] - 0.04) < 1e-8 && fabs(x[2] - 6e-7) < 1e-12);
    assert_true(error < 1e-8);
}

/* The best line through these has a negative start; the fit goes through zero instead. */
static void no_coefficient_is_negative(void **state)
{
    struct kvr_fit_row rows[] = {
        {{1, 10, 0}, 5}, {{1, 20, 0}, 15}, {{1, 30, 0}, 25}, {{1, 40, 0}, 35}};
    double x[3], error;

    (void)state;
    assert_true(kvr_fit(rows, 4, x, &error));
    assert_true(x[0] == 0 && x[1] > 0.5 && x[1] < 1 && x[2] == 0);
    assert_true(error > 0.01);
}

static void nothing_to_fit_is_said(void **state)
{
    struct kvr_fit_row rows[] = {{{0, 0, 0}, 5}};
    double x[3], error;

    (void)state;
    assert_false(kvr_fit(rows, 1, x, &error));
    assert_false(kvr_fit(rows, 0, x, &error));
    assert_true(x[0] == 0 && x[1] == 0 && x[2] == 0);
}

/* Steps over batch and context of a cost with these decode coefficients, `noise` relative. */
static size_t steps_of(
    const struct kvr_cost *cost, double largest, double noise, struct kvr_decode_sample *samples)
{
    size_t count = 0;

    for (double sequences = 1; sequences <= largest; sequences *= 4) {
        for (double context = 64; context <= 4096; context *= 8, count++) {
            samples[count] = (struct kvr_decode_sample){sequences, sequences * context, 0};
            samples[count].time_ms = kvr_cost_decode_ms(cost, sequences, sequences * context) *
                                     (count % 2 ? 1 + noise : 1 - noise);
        }
    }
    return count;
}

static void decode_steps_give_their_coefficients(void **state)
{
    const struct kvr_cost cost = {.prefill_token_ms = 4,
        .prefill_pair_ms = 1e-4,
        .decode_overhead_ms = 3,
        .dense_weights_ms = 30,
        .decode_token_ms = 2e-3};
    struct kvr_cost fitted = {.prefill_token_ms = 4, .prefill_pair_ms = 1e-4};
    struct kvr_decode_sample samples[16];
    size_t count = steps_of(&cost, 64, 0, samples);

    (void)state;
    /* With batches that arithmetic bounds, overhead and weights are told apart */
    assert_true(kvr_fit_decode(&fitted, samples, count) < 1e-6);
    assert_true(fabs(fitted.decode_overhead_ms - 3) < 1e-4);
    assert_true(fabs(fitted.dense_weights_ms - 30) < 1e-4);
    assert_true(fabs(fitted.decode_token_ms - 2e-3) < 1e-7);
    /* and without, they count as weights. */
    count = steps_of(&cost, 1, 0, samples);
    assert_true(kvr_fit_decode(&fitted, samples, count) < 1e-6);
    assert_true(fitted.decode_overhead_ms == 0 && fabs(fitted.dense_weights_ms - 33) < 1e-4);
    /* The error is that of the samples. */
    count = steps_of(&cost, 64, 0.1, samples);
    double error = kvr_fit_decode(&fitted, samples, count);
    assert_true(error > 0.03 && error < 0.101);
    assert_true(fitted.decode_overhead_ms >= 0 && fitted.dense_weights_ms > 20);
    assert_true(kvr_fit_decode(&fitted, samples, 0) == 0);
    assert_true(fitted.dense_weights_ms == 0 && fitted.decode_token_ms == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_times_give_their_coefficients),
        cmocka_unit_test(no_coefficient_is_negative),
        cmocka_unit_test(nothing_to_fit_is_said),
        cmocka_unit_test(decode_steps_give_their_coefficients),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
