/* What must hold whatever the input: hashing, bounds, argmin, rejection, and no magnets. */
#include "cache/index.h"
#include "tests/unit/route_fixture.h"

#include <stdlib.h>

/* The worker of each of so many sessions that nobody has seen, in an empty fleet of `workers`
 * (one may be missing). */
static void map_sessions(
    const char *policy, uint32_t workers, uint32_t without, uint32_t *worker, uint32_t count)
{
    struct kvr_router *router = fixture_router(policy, workers);

    if (without != KVR_NO_WORKER)
        kvr_fleet_set_state(kvr_router_fleet(router), without, KVR_WORKER_DOWN);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t block = i + 1;
        worker[i] = fixture_decide(router,
            REQUEST(.session = i + 1, .block_ids = &block, .block_count = 1, .block_tokens = 100))
                        .worker;
    }
    kvr_router_destroy(router);
}

static void consistent_hashing_moves_at_most_its_share(void **state)
{
    enum { KEYS = 20000, WORKERS = 16 };
    static const char *const policies[] = {
        "session(bound=0)", "prefix-hash(bound=0)", "lhg(bound=0)"};
    static uint32_t before[KEYS], after[KEYS];

    (void)state;
    for (size_t p = 0; p < 3; p++) {
        uint32_t moved = 0, held[WORKERS] = {0};
        map_sessions(policies[p], WORKERS, KVR_NO_WORKER, before, KEYS);
        map_sessions(policies[p], WORKERS, 5, after, KEYS);
        for (uint32_t i = 0; i < KEYS; i++) {
            held[before[i]]++;
            if (before[i] == 5)
                assert_int_not_equal(after[i], 5);
            else
                assert_int_equal(after[i], before[i]); /* a leaving worker moves only its own */
        }
        /* 150 points a worker: shares within a third of the mean */
        for (uint32_t w = 0; w < WORKERS; w++)
            assert_in_range(held[w], KEYS / WORKERS * 2 / 3, KEYS / WORKERS * 4 / 3);
        /* a joining worker takes its share from all others, and nothing else moves */
        map_sessions(policies[p], WORKERS + 1, KVR_NO_WORKER, after, KEYS);
        for (uint32_t i = 0; i < KEYS; i++) {
            if (after[i] != before[i]) {
                assert_int_equal(after[i], WORKERS);
                moved++;
            }
        }
        assert_in_range(moved, 1, KEYS / (WORKERS + 1) * 4 / 3);
    }
}

static void bounded_load_is_bounded(void **state)
{
    enum { WORKERS = 7, REQUESTS = 5000 };
    static const char *const policies[] = {"session", "prefix-hash", "lhg"};

    (void)state;
    for (size_t p = 0; p < 3; p++) {
        struct kvr_router *router = fixture_router(policies[p], WORKERS);
        uint32_t load[WORKERS] = {0};
        uint64_t block = 77; /* one key for all */
        for (uint32_t i = 0; i < REQUESTS; i++) {
            struct kvr_route_decision decision =
                fixture_decide(router, REQUEST(.session = p == 0 ? i + 1 : 9, .block_ids = &block,
                                           .block_count = 1, .block_tokens = 100));
            load[decision.worker]++;
            assert_true(load[decision.worker] <= ceil(1.25 * (i + 1) / WORKERS));
        }
        kvr_router_destroy(router);
    }
}

static void cost_is_the_argmin_of_its_predictions(void **state)
{
    enum { WORKERS = 20, ROUNDS = 2000 };
    static const char *const policies[] = {"cost(spread=0)", "cost"};

    (void)state;
    for (int p = 0; p < 2; p++) {
        struct kvr_router_options options = kvr_router_defaults();
        struct kvr_random random = {11};
        options.policy = policies[p];
        options.explain = true;
        struct kvr_router *router = fixture_router_with(&options, WORKERS);
        for (uint32_t i = 0; i < ROUNDS; i++) {
            struct kvr_route_match matches[WORKERS];
            uint32_t count = kvr_random_below(&random, WORKERS + 1), candidates;
            for (uint32_t m = 0; m < count; m++)
                matches[m] = (struct kvr_route_match){.worker = kvr_random_below(&random, WORKERS),
                    .tokens = kvr_random_below(&random, 101)};
            struct kvr_route_decision decision = fixture_decide(router,
                REQUEST(.now_ms = i * 5.0, .output_tokens = 1 + kvr_random_below(&random, 50),
                    .matches = matches, .match_count = count));
            const struct kvr_route_candidate *candidate = kvr_router_explain(router, &candidates);
            assert_int_equal(candidates, WORKERS);
            for (uint32_t w = 0; w < WORKERS; w++) {
                assert_true(candidate[decision.worker].score <= candidate[w].score);
                if (p == 0) {
                    assert_true(candidate[w].score == candidate[w].ttft_ms);
                    assert_true(decision.ttft_ms <= candidate[w].ttft_ms);
                }
            }
        }
        kvr_router_destroy(router);
    }
}

static void early_rejection_rejects_the_predicted_misses_and_no_other(void **state)
{
    (void)state;
    for (size_t p = 0; p < kvr_route_policy_count; p++) {
        struct kvr_router_options options = kvr_router_defaults();
        struct kvr_random random = {3};
        uint32_t rejected = 0, taken = 0;
        options.policy = kvr_route_policies[p]->name;
        options.slo_ttft_ms = 300;
        struct kvr_router *router = fixture_router_with(&options, 4);
        for (uint32_t i = 0; i < 2000; i++) {
            uint64_t block = kvr_random_below(&random, 9);
            struct kvr_route_decision decision = fixture_decide(router,
                REQUEST(.now_ms = i * 20.0, .output_tokens = 1, .session = block + 1,
                    .block_ids = &block, .block_count = 1, .block_tokens = 100,
                    MATCHES(
                        {kvr_random_below(&random, 4), kvr_random_below(&random, 101), 0, 0, 0})));
            if (decision.worker == KVR_NO_WORKER) {
                assert_int_equal(decision.reason, KVR_ROUTE_REJECTED);
                assert_true(decision.ttft_ms > 300);
                rejected++;
            } else {
                assert_true(decision.ttft_ms <= 300);
                taken++;
            }
        }
        assert_int_equal(rejected + taken, 2000);
        assert_true(taken > 0);
        kvr_router_destroy(router);
    }
}

/*
 * The magnet: one request at a time, each over before the next, 16 groups of prompts that share one
 * block with all others and half the prompt within the group. 40,002 of them on four workers.
 */
enum { MAGNET_REQUESTS = 40002, MAGNET_WORKERS = 4, MAGNET_BLOCKS = 64, MAGNET_GROUPS = 16 };

static uint32_t busiest_under(struct kvr_router *router, bool times)
{
    struct kvr_index_options index_options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index;
    uint32_t placed[MAGNET_WORKERS] = {0}, worker, most = 0;

    index_options.capacity_blocks = 20000;
    assert_int_equal(kvr_index_create(&index, &index_options, NULL), KVR_OK);
    for (int i = 0; i < MAGNET_WORKERS; i++) {
        char name[] = {'w', (char)('0' + i)};
        assert_int_equal(kvr_index_worker(index, name, 2, &worker, NULL), KVR_OK);
    }
    uint64_t space = kvr_index_space(index, NULL, 0, NULL, 0, NULL, 0, 16);
    for (uint64_t n = 0; n < MAGNET_REQUESTS; n++) {
        uint64_t ids[MAGNET_BLOCKS];
        for (uint64_t b = 0; b < MAGNET_BLOCKS; b++)
            ids[b] = b == 0                  ? 1
                     : b < MAGNET_BLOCKS / 2 ? 1000 + n % MAGNET_GROUPS * 100 + b
                                             : 1000000 + n * 100 + b;
        struct kvr_blocks blocks = {space, ids, MAGNET_BLOCKS, 16};
        const struct kvr_index_match *found;
        size_t count = kvr_index_find(index, (int64_t)n, &blocks, &found);
        struct kvr_route_match matches[MAGNET_WORKERS];
        for (size_t i = 0; i < count; i++)
            matches[i] =
                (struct kvr_route_match){.worker = found[i].worker, .tokens = found[i].blocks * 16};
        uint32_t chosen = 0;
        if (router) {
            chosen = fixture_decide(router,
                REQUEST(.id = n + 1, .now_ms = times ? (double)n * 2000 : NAN,
                    .input_tokens = MAGNET_BLOCKS * 16, .output_tokens = 10, .block_ids = ids,
                    .block_count = MAGNET_BLOCKS, .block_tokens = 16, .session = n / 8 + 1,
                    .matches = matches, .match_count = (uint32_t)count))
                         .worker;
            kvr_fleet_done(kvr_router_fleet(router), n + 1);
        } else if (count) { /* the longest match, whoever it is, and any worker for the first */
            size_t longest = 0;
            for (size_t i = 1; i < count; i++)
                if (found[i].blocks > found[longest].blocks)
                    longest = i;
            chosen = found[longest].worker;
        }
        assert_int_equal(kvr_index_place(index, chosen, (int64_t)n, &blocks, NULL, NULL), KVR_OK);
        placed[chosen]++;
    }
    for (int i = 0; i < MAGNET_WORKERS; i++)
        most = placed[i] > most ? placed[i] : most;
    kvr_index_destroy(index);
    return most;
}

static void the_longest_match_alone_is_a_magnet(void **state)
{
    (void)state;
    assert_true(busiest_under(NULL, false) >= MAGNET_REQUESTS - 1);
}

/* These follow a published rule that is a magnet by itself, and kvr-policies(7) says so under "How
 * it fails". The gate cures them. */
static bool follows_a_magnet(const char *name)
{
    static const char *const magnets[] = {"dynamo", "aibrix", "llm-d", "mooncake"};

    for (size_t i = 0; i < sizeof magnets / sizeof *magnets; i++)
        if (strcmp(name, magnets[i]) == 0)
            return true;
    return false;
}

static void no_other_policy_lets_one_worker_have_it_all(void **state)
{
    (void)state;
    for (size_t p = 0; p < kvr_route_policy_count; p++) {
        const char *name = kvr_route_policies[p]->name;
        for (int times = 0; times < 2; times++) {
            struct kvr_router *router = fixture_router(name, MAGNET_WORKERS);
            uint32_t most = busiest_under(router, times);
            if (follows_a_magnet(name) ? most < MAGNET_REQUESTS - 1
                                       : most > MAGNET_REQUESTS * 2 / 5)
                fail_msg("%s: %u of %u on one worker", name, most, MAGNET_REQUESTS);
            kvr_router_destroy(router);
        }
    }
}

static void the_gate_cures_every_magnet(void **state)
{
    (void)state;
    for (size_t p = 0; p < kvr_route_policy_count; p++) {
        struct kvr_router_options options = kvr_router_defaults();
        options.policy = kvr_route_policies[p]->name;
        options.escape = true;
        struct kvr_router *router = fixture_router_with(&options, MAGNET_WORKERS);
        uint32_t most = busiest_under(router, false);
        if (most > MAGNET_REQUESTS * 51 / 100) /* twice the fair share */
            fail_msg("%s: %u of %u on one worker", options.policy, most, MAGNET_REQUESTS);
        kvr_router_destroy(router);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(consistent_hashing_moves_at_most_its_share),
        cmocka_unit_test(bounded_load_is_bounded),
        cmocka_unit_test(cost_is_the_argmin_of_its_predictions),
        cmocka_unit_test(early_rejection_rejects_the_predicted_misses_and_no_other),
        cmocka_unit_test(the_longest_match_alone_is_a_magnet),
        cmocka_unit_test(no_other_policy_lets_one_worker_have_it_all),
        cmocka_unit_test(the_gate_cures_every_magnet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
