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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_times_give_their_coefficients),
        cmocka_unit_test(no_coefficient_is_negative),
        cmocka_unit_test(nothing_to_fit_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
