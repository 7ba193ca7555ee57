#include "base/clock.h"
#include "tests/unit/unit.h"

#include <math.h>

static double follow(struct kvr_stream_clock *clock, double timestamp_ms)
{
    return kvr_stream_clock_follow(clock, timestamp_ms);
}

static void small_steps_back_are_no_steps(void **state)
{
    struct kvr_stream_clock clock = {0};

    (void)state;
    assert_true(follow(&clock, -5) == -5);
    assert_true(follow(&clock, 1000) == 1000);
    assert_true(follow(&clock, 400) == 1000);
    assert_true(follow(&clock, 1100) == 1100);
    assert_true(follow(&clock, 1100 - KVR_CLOCK_JITTER_MS) == 1100);
    assert_true(follow(&clock, 1200) == 1200);
    assert_true(follow(&clock, NAN) == 1200);
    assert_true(follow(&clock, INFINITY) == 1200);
}

static void another_clock_goes_on_where_the_last_one_stood(void **state)
{
    struct kvr_stream_clock clock = {0};

    (void)state;
    assert_true(follow(&clock, 1.7e12) == 1.7e12);
    assert_true(follow(&clock, 0) == 1.7e12);
    assert_true(follow(&clock, 500) == 1.7e12 + 500);
    assert_true(follow(&clock, 1e300) == 1.7e12 + 500);
    assert_true(follow(&clock, 600) == 1.7e12 + 500);
    assert_true(follow(&clock, 700) == 1.7e12 + 600);
}

static void a_first_time_beyond_reason_is_a_beginning(void **state)
{
    struct kvr_stream_clock clock = {0};

    (void)state;
    assert_true(follow(&clock, 1.7e18) == 0);
    assert_true(follow(&clock, 1.7e18 + 1024) == 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_steps_back_are_no_steps),
        cmocka_unit_test(another_clock_goes_on_where_the_last_one_stood),
        cmocka_unit_test(a_first_time_beyond_reason_is_a_beginning),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
