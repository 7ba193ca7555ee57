/* The stack-distance curve against replays of leaf LRU, capacity by capacity. */
#include "base/random.h"
#include "cache/block_cache.h"
#include "cache/curve.h"
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 3000, LENGTH_MOST = 24, BLOCK = 16 };

struct requests {
    uint64_t ids[REQUESTS][LENGTH_MOST];
    size_t counts[REQUESTS];
    uint64_t tokens[REQUESTS];
};

/* Random walks down a random tree: an id is a function of its parent and a branch. */
static void make_requests(struct requests *requests, uint64_t seed)
{
    struct kvr_random random = {seed};

    for (size_t i = 0; i < REQUESTS; i++) {
        uint64_t id = 1;
        requests->counts[i] = 1 + kvr_random_below(&random, LENGTH_MOST);
        for (size_t j = 0; j < requests->counts[i]; j++) {
            uint32_t branch = kvr_random_below(&random, 4) ? 0 : kvr_random_below(&random, 3);
            id = kvr_mix64(id * 7 + branch) >> 11;
            requests->ids[i][j] = id;
        }
        requests->tokens[i] = requests->counts[i] * BLOCK - kvr_random_below(&random, BLOCK);
    }
}

static void replay(
    const struct requests *requests, uint64_t capacity, struct kvr_block_counts *counts)
{
    struct kvr_block_options options = {.capacity_blocks = capacity, .block_tokens = BLOCK};
    struct kvr_cache *cache;
    struct kvr_error error;

    assert_int_equal(kvr_block_cache_create(&options, &cache, &error), KVR_OK);
    for (size_t i = 0; i < REQUESTS; i++)
        assert_int_equal(kvr_block_cache_serve(cache, requests->ids[i], requests->counts[i],
                             requests->tokens[i], NULL, NULL, &error),
            KVR_OK);
    *counts = *kvr_block_cache_counts(cache);
    kvr_cache_destroy(cache);
}

static struct kvr_curve *curve_of(const struct requests *requests, double sample)
{
    struct kvr_curve_options options = {.block_tokens = BLOCK, .sample = sample, .seed = 3};
    struct kvr_curve *curve;
    struct kvr_error error;

    assert_int_equal(kvr_curve_create(&curve, &options, &error), KVR_OK);
    for (size_t i = 0; i < REQUESTS; i++)
        assert_int_equal(kvr_curve_add(curve, requests->ids[i], requests->counts[i],
                             requests->tokens[i], i % 100 + 1, &error),
            KVR_OK);
    return curve;
}

static void every_capacity_equals_its_replay(void **state)
{
    struct requests *requests = malloc(sizeof *requests);

    (void)state;
    assert_non_null(requests);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        make_requests(requests, seed);
        struct kvr_curve *curve = curve_of(requests, 1);
        struct kvr_curve_totals totals;
        kvr_curve_totals(curve, &totals);
        for (uint64_t capacity = 1; capacity < totals.footprint_blocks + 50;
             capacity += 1 + capacity / 7) {
            struct kvr_block_counts counts;
            struct kvr_curve_point point;
            replay(requests, capacity, &counts);
            kvr_curve_point(curve, capacity, &point);
            assert_int_equal(point.hit_blocks, counts.hits);
            assert_int_equal(point.hit_tokens, counts.hit_tokens);
        }
        kvr_curve_destroy(curve);
    }
    free(requests);
}

static void a_sample_states_an_error_that_holds(void **state)
{
    struct requests *requests = malloc(sizeof *requests);
    struct kvr_curve_point exact, sampled;
    int within = 0, points = 0;

    (void)state;
    assert_non_null(requests);
    make_requests(requests, 9);
    struct kvr_curve *all = curve_of(requests, 1), *some = curve_of(requests, 0.5);
    for (uint64_t capacity = 64; capacity <= 4096; capacity *= 2) {
        kvr_curve_point(all, capacity, &exact);
        kvr_curve_point(some, capacity, &sampled);
        assert_true(exact.standard_error == 0);
        points++;
        within += sampled.standard_error > 0 && sampled.standard_error < 0.2;
    }
    assert_int_equal(within, points);
    kvr_curve_destroy(all);
    kvr_curve_destroy(some);
    free(requests);
}

static void empty_and_bad_input(void **state)
{
    struct kvr_curve_options options = {.block_tokens = BLOCK, .sample = 0};
    struct kvr_curve_point point;
    struct kvr_curve *curve;
    struct kvr_error error;
    uint64_t twice[] = {5, 5};

    (void)state;
    assert_int_equal(kvr_curve_create(&curve, &options, &error), KVR_BAD_USAGE);
    options.sample = 1;
    assert_int_equal(kvr_curve_create(&curve, &options, &error), KVR_OK);
    kvr_curve_point(curve, 10, &point);
    assert_true(point.token_hit_rate == 0);
    assert_int_equal(kvr_curve_knee(curve), 1);
    kvr_curve_destroy(curve);
    assert_int_equal(kvr_curve_create(&curve, &options, &error), KVR_OK);
    assert_int_equal(kvr_curve_add(curve, twice, 2, 32, 0, &error), KVR_OK);
    assert_int_equal(kvr_curve_add(curve, NULL, 0, 7, 0, &error), KVR_OK);
    assert_int_equal(kvr_curve_add(curve, twice, 2, 32, 0, &error), KVR_OK);
    kvr_curve_point(curve, 10, &point);
    assert_int_equal(point.hit_blocks, 1);
    kvr_curve_destroy(curve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_capacity_equals_its_replay),
        cmocka_unit_test(a_sample_states_an_error_that_holds),
        cmocka_unit_test(empty_and_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
