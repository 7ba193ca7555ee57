/* DDSketch: the bound on data made to break it, merging, the ends of the domain. */
#include "tests/unit/unit.h"

#include "base/random.h"
#include "stat/sketch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct kvr_sketch_scale scale_of(double accuracy)
{
    struct kvr_sketch_scale scale;

    assert_int_equal(kvr_sketch_scale_init(&scale, accuracy, NULL), KVR_OK);
    return scale;
}

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;

    return (first > second) - (first < second);
}

/* Every permille quantile is within the accuracy of the exact one. */
static void check_bound(double *values, size_t count, double accuracy)
{
    struct kvr_sketch_scale scale = scale_of(accuracy);
    struct kvr_sketch sketch = {0};

    for (size_t i = 0; i < count; i++)
        assert_true(kvr_sketch_add(&sketch, &scale, values[i]));
    qsort(values, count, sizeof *values, compare);
    for (int permille = 0; permille <= 1000; permille++) {
        double q = permille / 1000.0;
        double exact = values[permille == 1000 ? count - 1 : (size_t)(q * (double)(count - 1))];
        double found = kvr_sketch_quantile(&sketch, &scale, q);
        /* A rounding of the bucket's index may cost the last digits of the bound. */
        if (!(fabs(found - exact) <= exact * accuracy * (1 + 1e-6)))
            fail_msg("q %.3f of %zu values: %.12g instead of %.12g", q, count, found, exact);
    }
    assert_int_equal(sketch.count, count);
    kvr_sketch_release(&sketch);
}

enum { COUNT = 20000 };

static void fill(double *values, int kind, double accuracy)
{
    struct kvr_random random = {(uint64_t)kind + 1};
    double gamma = (1 + accuracy) / (1 - accuracy);

    for (size_t i = 0; i < COUNT; i++) {
        double unit = kvr_random_unit(&random);
        switch (kind) {
        case 0: /* uniform */
            values[i] = unit * 1000;
            break;
        case 1: /* twelve decades */
            values[i] = pow(10, unit * 15 - 5);
            break;
        case 2: /* (125 buckets of 5 % stay in the domain) exactly on the edges of buckets */
            values[i] = pow(gamma, floor(unit * 250) - 125);
            break;
        case 3: /* just past them */
            values[i] = nextafter(pow(gamma, floor(unit * 250) - 125), INFINITY);
            break;
        case 4: /* two far clusters with one value in between */
            values[i] = i == 0 ? 1 : unit < 0.5 ? 1e-5 + unit * 1e-6 : 1e9 + unit;
            break;
        case 5: /* Pareto with infinite mean */
            values[i] = fmin(pow(1 - unit, -2), 1e11);
            break;
        case 6: /* falling, so that the span always grows downwards */
            values[i] = 1e10 / (double)(i + 1);
            break;
        default: /* all the same */
            values[i] = 42.42;
        }
    }
}

static void test_bound(void **state)
{
    static const double accuracies[] = {0.001, 0.01, 0.05};
    double *values = malloc(COUNT * sizeof *values);

    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        for (int i = 0; i < 3; i++) {
            fill(values, kind, accuracies[i]);
            check_bound(values, COUNT, accuracies[i]);
        }
    }
    free(values);
}

static void test_domain(void **state)
{
    struct kvr_sketch_scale scale = scale_of(0.01);
    struct kvr_sketch sketch = {0};

    (void)state;
    assert_true(isnan(kvr_sketch_quantile(&sketch, &scale, 0.5)));
    kvr_sketch_add(&sketch, &scale, NAN);
    kvr_sketch_add(&sketch, &scale, -1);
    assert_int_equal(sketch.count, 0);
    kvr_sketch_add(&sketch, &scale, 0);
    kvr_sketch_add(&sketch, &scale, 1e-9);
    kvr_sketch_add(&sketch, &scale, 1e300);
    kvr_sketch_add(&sketch, &scale, INFINITY);
    assert_int_equal(sketch.count, 4);
    assert_int_equal(sketch.zeros, 2);
    assert_true(kvr_sketch_quantile(&sketch, &scale, 0.4) == 0);
    assert_true(kvr_sketch_quantile(&sketch, &scale, 1) == KVR_SKETCH_MOST);
    assert_int_equal(kvr_sketch_count_until(&sketch, &scale, 1), 2);
    /* Both ends of the domain at once: the size that the header promises. */
    kvr_sketch_add(&sketch, &scale, KVR_SKETCH_LEAST);
    assert_true(sketch.length <= 2074 + 64);
    kvr_sketch_release(&sketch);
    struct kvr_error error = {0};
    assert_int_equal(kvr_sketch_scale_init(&scale, 0, &error), KVR_BAD_USAGE);
    assert_int_equal(kvr_sketch_scale_init(&scale, NAN, &error), KVR_BAD_USAGE);
}

static bool same(const struct kvr_sketch *a, const struct kvr_sketch *b)
{
    int64_t first = a->first < b->first ? a->first : b->first;

    for (int64_t i = first; i < first + 6000; i++) {
        int64_t x = i - a->first, y = i - b->first;
        uint64_t in_a = x >= 0 && x < a->length ? a->counts[x] : 0;
        uint64_t in_b = y >= 0 && y < b->length ? b->counts[y] : 0;
        if (in_a != in_b)
            return false;
    }
    return a->count == b->count && a->zeros == b->zeros && a->least == b->least &&
           a->most == b->most && a->sum_thousandths == b->sum_thousandths;
}

/* Random splits into parts, merged in another order, are the whole. */
static void test_merge(void **state)
{
    struct kvr_sketch_scale scale = scale_of(0.01);
    struct kvr_random random = {7};

    (void)state;
    for (int round = 0; round < 50; round++) {
        struct kvr_sketch whole = {0}, merged = {0}, parts[5] = {{0}};
        for (int i = 0; i < 2000; i++) {
            double value = pow(10, kvr_random_unit(&random) * 12 - 4);
            if (kvr_random_below(&random, 20) == 0)
                value = 0;
            kvr_sketch_add(&whole, &scale, value);
            kvr_sketch_add(&parts[kvr_random_below(&random, 5)], &scale, value);
        }
        uint32_t start = kvr_random_below(&random, 5);
        for (uint32_t i = 0; i < 5; i++)
            assert_true(kvr_sketch_merge(&merged, &parts[(start + i * 2) % 5]));
        assert_true(same(&whole, &merged));
        assert_true(kvr_sketch_quantile(&whole, &scale, 0.77) ==
                    kvr_sketch_quantile(&merged, &scale, 0.77));
        for (int i = 0; i < 5; i++)
            kvr_sketch_release(&parts[i]);
        kvr_sketch_release(&whole);
        kvr_sketch_release(&merged);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_domain),
        cmocka_unit_test(test_merge),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
