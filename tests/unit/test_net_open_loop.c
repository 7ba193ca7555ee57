/* When requests are due. The calls themselves are tested by tests/send.bats against a server. */
#include "net/open_loop.h"
#include "tests/unit/unit.h"

#include <math.h>

static bool near(double a, double b, double most)
{
    return fabs(a - b) <= most;
}

static void a_rate_spaces_evenly_whatever_the_timestamps_and_the_clock(void **state)
{
    struct kvr_pace pace = {.rate = 4, .speed = 1};

    (void)state;
    assert_true(near(kvr_pace_next(&pace, 7000, 1000), 1000, 0));
    assert_true(near(kvr_pace_next(&pace, NAN, 1900), 1250, 1e-9));
    assert_true(near(kvr_pace_next(&pace, 1, 1900), 1500, 1e-9));
}

static void chance_has_exponential_intervals_and_repeats_with_its_seed(void **state)
{
    struct kvr_pace pace = {.rate = 10, .poisson = true, .random.state = 5}, again = pace;
    enum { COUNT = 20000 };
    double last_ms = 0, sum = 0, squares = 0;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        double due_ms = kvr_pace_next(&pace, NAN, 0), step_ms = due_ms - last_ms;
        assert_true(near(due_ms, kvr_pace_next(&again, NAN, 0), 0));
        assert_true(step_ms >= 0);
        sum += step_ms;
        squares += step_ms * step_ms;
        last_ms = due_ms;
    }
    /* the mean is 100 ms, and so is the deviation */
    assert_true(near(sum / COUNT, 100, 3));
    assert_true(near(sqrt(squares / COUNT - sum / COUNT * (sum / COUNT)), 100, 5));
}

static void timestamps_pass_faster_and_count_from_the_first(void **state)
{
    struct kvr_pace pace = {.speed = 2}, at_once = {.speed = 0};

    (void)state;
    assert_true(isnan(kvr_pace_next(&pace, NAN, 50))); /* without one: at once */
    assert_true(near(kvr_pace_next(&pace, 5000, 100), 100, 0));
    assert_true(near(kvr_pace_next(&pace, 6000, 999), 600, 0));
    assert_true(near(kvr_pace_next(&pace, 4000, 999), -400, 0)); /* earlier: overdue */
    assert_true(isnan(kvr_pace_next(&at_once, 5000, 100)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_spaces_evenly_whatever_the_timestamps_and_the_clock),
        cmocka_unit_test(chance_has_exponential_intervals_and_repeats_with_its_seed),
        cmocka_unit_test(timestamps_pass_faster_and_count_from_the_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
