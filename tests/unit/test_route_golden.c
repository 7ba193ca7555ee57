/*
 * Golden decisions: for each policy a table of small cases computed by hand. Prompts have 100
 * tokens of 1 ms each in blocks of 10; a worker's wait is given in ms and stands for one request
 * placed before, or its load as reported requests.
 */
#include "tests/unit/route_fixture.h"

struct golden {
    const char *what;
    uint32_t load[4]; /* reported requests */
    double queue_ms[4];
    uint32_t match[4];
    uint32_t worker;
    enum kvr_route_reason reason;
};

static void run_table(
    const char *policy, uint32_t workers, const struct golden *cases, size_t count)
{
    static const uint64_t blocks[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

    for (size_t i = 0; i < count; i++) {
        struct kvr_router_options options = kvr_router_defaults();
        options.policy = policy;
        options.link = (struct kvr_link){"test", 1e7, 0}; /* 1,000 bytes a token: 0.1 ms */
        struct kvr_router *router = fixture_router_with(&options, workers);
        struct kvr_fleet *fleet = kvr_router_fleet(router);
        for (uint32_t w = 0; w < workers; w++) {
            struct kvr_placement_request before = {
                0, w, KVR_NO_WORKER, 0, cases[i].queue_ms[w], 1e9};
            if (cases[i].queue_ms[w] > 0)
                assert_true(kvr_fleet_place(fleet, &before));
            fixture_load(router, w, cases[i].load[w]);
        }
        struct kvr_route_match matches[4];
        for (uint32_t w = 0; w < 4; w++)
            matches[w] = (struct kvr_route_match){.worker = w, .tokens = cases[i].match[w]};
        struct kvr_route_decision decision = fixture_decide(
            router, REQUEST(.block_ids = blocks, .block_count = 10, .block_tokens = 10,
                        .matches = matches, .match_count = workers));
        if (decision.worker != cases[i].worker || decision.reason != cases[i].reason)
            fail_msg("%s, %s: w%d %s", policy, cases[i].what, (int)decision.worker,
                kvr_route_reason_name(decision.reason));
        kvr_router_destroy(router);
    }
}

#define RUN(policy, workers, table) run_table(policy, workers, table, sizeof table / sizeof *table)

static void cost_takes_the_smallest_ttft(void **state)
{
    static const struct golden cases[] = {
        {"no match, no queue: the first", {0}, {0}, {0}, 0, KVR_ROUTE_LOAD_FALLBACK},
        {"no match: the shortest queue", {0}, {9, 5, 7}, {0}, 1, KVR_ROUTE_LOAD_FALLBACK},
        {"a match saves more than it waits", {0}, {39, 0, 0}, {40, 0, 0}, 0, KVR_ROUTE_CACHE_MATCH},
        {"a match waits more than it saves", {0}, {41, 0, 3}, {40, 0, 0}, 1,
            KVR_ROUTE_LOAD_FALLBACK},
        {"exactly equal: the rested one", {0}, {40, 0, 3}, {40, 0, 0}, 1, KVR_ROUTE_LOAD_FALLBACK},
        {"a smaller match with a smaller queue", {0}, {50, 9, 0}, {80, 30, 0}, 0,
            KVR_ROUTE_CACHE_MATCH},
        {"and when it pays", {0}, {60, 9, 0}, {80, 30, 0}, 1, KVR_ROUTE_CACHE_MATCH},
        {"full match: one token is computed", {0}, {98, 0, 0}, {100, 0, 0}, 0,
            KVR_ROUTE_CACHE_MATCH},
        {"full match behind 100 ms", {0}, {100, 0, 0}, {100, 0, 0}, 1, KVR_ROUTE_LOAD_FALLBACK},
    };

    (void)state;
    RUN("cost(spread=0)", 3, cases);
    RUN("cost", 3, cases); /* nothing was decided before: all shares are 0 */
}

static void dynamo_adds_prefill_and_decode_blocks(void **state)
{
    /* prompt 10 blocks; cost = max(0, waiting/10 + 10 − matched/10) + tokens there/10 + 10 */
    static const struct golden cases[] = {
        {"the only match", {0}, {0}, {0, 50, 0}, 1, KVR_ROUTE_CACHE_MATCH},
        {"20 ms wait is 2 blocks, 30 matched 3", {0}, {0, 20, 0}, {0, 30, 0}, 1,
            KVR_ROUTE_CACHE_MATCH},
        {"40 ms wait is 4 blocks", {0}, {30, 40, 20}, {0, 10, 0}, 2, KVR_ROUTE_LOAD_FALLBACK},
        {"30 decoding tokens are 3 blocks", {40, 30, 40}, {0}, {10, 10, 0}, 1,
            KVR_ROUTE_CACHE_MATCH},
        {"against 2 matched blocks", {0, 30, 30}, {0}, {0, 20, 0}, 0, KVR_ROUTE_LOAD_FALLBACK},
        {"full match", {0}, {0, 0, 99}, {0, 0, 100}, 2, KVR_ROUTE_CACHE_MATCH},
    };
    uint32_t count[3] = {0};

    (void)state;
    RUN("dynamo", 3, cases);

    /* ties fall by chance, on every worker */
    struct kvr_router *router = fixture_router("dynamo", 3);
    for (uint64_t i = 1; i <= 300; i++) {
        struct kvr_route_decision decision =
            fixture_decide(router, REQUEST(.id = i, .block_tokens = 10));
        kvr_fleet_done(kvr_router_fleet(router), i);
        count[decision.worker]++;
    }
    for (int i = 0; i < 3; i++)
        assert_in_range(count[i], 70, 130);
    kvr_router_destroy(router);
}

static void dynamo_credits_tiers(void **state)
{
    struct kvr_router *router = fixture_router("dynamo", 3);

    (void)state;
    /* 40 on the device; 60 in host memory are worth 45; 90 on disk 22.5 */
    struct kvr_route_decision decision = fixture_decide(
        router, REQUEST(.block_tokens = 10,
                    MATCHES({0, 40, 0, 0, 0}, {1, 60, 60, 0, 0}, {2, 90, 0, 90, 0})));
    assert_int_equal(decision.worker, 1);
    kvr_router_destroy(router);
}

static void dynamo_draws_by_softmax(void **state)
{
    struct kvr_router *router = fixture_router("dynamo(temperature=1)", 2);
    uint32_t first = 0;

    (void)state;
    /* costs normalised to 0 and 1: e^0 / (e^0 + e^-1) = 0.731 */
    for (uint64_t i = 1; i <= 2000; i++) {
        struct kvr_route_decision decision =
            fixture_decide(router, REQUEST(.id = i, .block_tokens = 10, MATCHES({0, 50, 0, 0, 0})));
        kvr_fleet_done(kvr_router_fleet(router), i);
        first += decision.worker == 0;
    }
    assert_in_range(first, 1402, 1522); /* 1462 ± 3 deviations of 19.8 */
    kvr_router_destroy(router);
}

static void aibrix_admits_up_to_one_deviation(void **state)
{
    static const struct golden cases[] = {
        {"no match: the least loaded", {3, 1, 2}, {0}, {0}, 1, KVR_ROUTE_LOAD_FALLBACK},
        {"apart by 9: only the least loaded", {9, 0, 0}, {0}, {90, 10, 0}, 1,
            KVR_ROUTE_CACHE_MATCH},
        {"apart by 9, no match there", {9, 0, 0}, {0}, {90, 0, 0}, 1, KVR_ROUTE_LOAD_FALLBACK},
        /* mean 3, deviation 1.41: 4 is admitted */
        {"load 4 of 4, 1, 4", {4, 1, 4}, {0}, {90, 10, 0}, 0, KVR_ROUTE_CACHE_MATCH},
        /* mean 4, deviation 2.83: 8 is over 6.83 */
        {"load 8 of 8, 2, 2", {8, 2, 2}, {0}, {90, 10, 0}, 1, KVR_ROUTE_CACHE_MATCH},
        {"equal matches by load", {2, 1, 0}, {0}, {50, 50, 0}, 1, KVR_ROUTE_CACHE_MATCH},
        {"equal loads, full match", {4, 4, 4}, {0}, {0, 0, 100}, 2, KVR_ROUTE_CACHE_MATCH},
    };

    (void)state;
    /* most 9, mean 3: 9 > 2 · 4 is apart, 9 > 3 · 4 is not; then 9 is over 3 + 4.24 */
    static const struct golden factor[] = {
        {"apart by the factor", {9, 0, 0}, {0}, {90, 0, 0}, 1, KVR_ROUTE_LOAD_FALLBACK}};
    static const struct golden not_apart[] = {
        {"not by this one, sigma 2", {9, 0, 0}, {0}, {90, 0, 0}, 0, KVR_ROUTE_CACHE_MATCH}};
    RUN("aibrix", 3, cases);
    RUN("aibrix(factor=2)", 3, factor);
    RUN("aibrix(factor=3,sigma=2)", 3, not_apart);
}

static void llm_d_weighs_its_scores(void **state)
{
    static const struct golden cases[] = {
        /* 3 · match + 2 · queue + 2 */
        {"half a prompt beats a middling queue", {2, 0, 4}, {0}, {50, 0, 0}, 0,
            KVR_ROUTE_CACHE_MATCH},
        {"but not the longest against none", {4, 0, 4}, {0}, {50, 0, 0}, 1,
            KVR_ROUTE_LOAD_FALLBACK},
        {"70 % does", {4, 0, 4}, {0}, {70, 0, 0}, 0, KVR_ROUTE_CACHE_MATCH},
        {"80 % makes the others fall out", {0, 9, 0}, {0}, {79, 80, 0}, 1, KVR_ROUTE_CACHE_MATCH},
        {"until the wait costs over 5 s", {0, 9, 0}, {0, 5081, 0}, {79, 80, 0}, 0,
            KVR_ROUTE_CACHE_MATCH},
    };

    (void)state;
    RUN("llm-d(explore=0)", 3, cases);
}

static void lhg_is_local_first_then_a_hash(void **state)
{
    static const struct golden cases[] = {
        {"half the prompt is local", {9, 0, 0}, {500, 0, 0}, {50, 0, 0}, 0, KVR_ROUTE_CACHE_MATCH},
        {"the longest of two", {0}, {0}, {60, 70, 0}, 1, KVR_ROUTE_CACHE_MATCH},
        {"equal ones by load", {5, 4, 0}, {0}, {60, 60, 0}, 1, KVR_ROUTE_CACHE_MATCH},
    };

    (void)state;
    RUN("lhg", 3, cases);
    struct kvr_router *router = fixture_router("lhg(tokens=20)", 8);
    uint64_t blocks[] = {1, 2, 3};
    struct kvr_route_request *request = REQUEST(.block_ids = blocks, .block_count = 3,
        .block_tokens = 10, .now_ms = 0, MATCHES({3, 49, 0, 0, 0}));
    struct kvr_route_decision decision = fixture_decide(router, request);
    assert_int_equal(decision.reason, KVR_ROUTE_PREFIX_HASH);
    blocks[2] = 99; /* after the first 20 tokens: the same worker */
    request->now_ms = 1e6;
    assert_int_equal(fixture_decide(router, request).worker, decision.worker);
    kvr_router_destroy(router);
}

static void mooncake_transfers_past_its_threshold(void **state)
{
    static const struct golden cases[] = {
        {"nobody holds anything", {0}, {0}, {0}, 0, KVR_ROUTE_EXPLORE},
        /* w0: 0 + 40; w1: past: 6 transfer + 40 prefill */
        {"the holder without a queue", {0}, {0}, {60, 0, 0}, 0, KVR_ROUTE_CACHE_MATCH},
        /* w0: 7 + 40 against 6 + 40 */
        {"a queue longer than the transfer", {0}, {7, 0, 0}, {60, 0, 0}, 1, KVR_ROUTE_REPLICATE},
        /* 60/41 is within 1.5: w1 computes 59 itself; w2 transfers: 46 */
        {"not past the threshold", {0}, {20, 0, 0}, {60, 41, 0}, 2, KVR_ROUTE_REPLICATE},
        {"not past it, others busy", {0}, {20, 0, 20}, {60, 41, 0}, 1, KVR_ROUTE_CACHE_MATCH},
    };

    (void)state;
    RUN("mooncake", 3, cases);
}

static void mooncake_chooses_both_pools_and_rejects_misses(void **state)
{
    struct kvr_router_options options = kvr_router_defaults();
    struct kvr_cost cost = one_ms_a_token;
    struct kvr_router *router;
    uint32_t worker;

    (void)state;
    cost.dense_weights_ms = 10;
    cost.decode_token_ms = 0.01;
    options.policy = "mooncake";
    options.slo_tbt_ms = 30;
    assert_int_equal(kvr_router_create(&options, &cost, &router, NULL), KVR_OK);
    struct kvr_fleet *fleet = kvr_router_fleet(router);
    for (int i = 0; i < 4; i++) {
        kvr_fleet_join(fleet, (const char *[]){"p0", "p1", "d0", "d1"}[i], 2, &worker, NULL);
        kvr_fleet_set_role(fleet, worker, i < 2 ? KVR_ROLE_PREFILL : KVR_ROLE_DECODE);
    }
    struct kvr_load_report busy = {.running = 1, .kv_usage = NAN, .tokens = 1000};
    kvr_fleet_report(fleet, 2, &busy);
    /* d0: 10 + .01 · (1000 + 100 + 400) = 25; d1: 10 + .01 · 500 = 15 */
    struct kvr_route_decision decision = fixture_decide(router, REQUEST(.output_tokens = 400));
    assert_int_equal(decision.worker, 0);
    assert_int_equal(decision.decode_worker, 3);
    assert_true(decision.tbt_ms == 15);
    /* The first decodes for 400 · 15 ms after its prefill of 100: 6,100 ms are left. When this
     * prefill is over, 100 ms on, 1 − 100/12200 of it is still there: 10 + .01 · 995.90 */
    decision = fixture_decide(router, REQUEST(.output_tokens = 400));
    assert_int_equal(decision.worker, 1);
    assert_int_equal(decision.decode_worker, 3);
    assert_true(fabs(decision.tbt_ms - 19.95902) < 1e-5);
    /* Mean time left (6100 + 100 + 400 · 19.95902) / 2; 200 ms on: 10 + .01 · (985.90 + 1000),
     * against 30 on d0, whose 1,000 tokens are reported and have no time */
    decision = fixture_decide(router, REQUEST(.output_tokens = 900));
    assert_int_equal(decision.decode_worker, 3);
    assert_true(fabs(decision.tbt_ms - 29.85899) < 1e-5);
    /* 30.01 on d0 is the least */
    decision = fixture_decide(router, REQUEST(.output_tokens = 901));
    assert_int_equal(decision.reason, KVR_ROUTE_REJECTED);
    kvr_router_destroy(router);
}

static void slower_tiers_are_read_where_that_beats_computing(void **state)
{
    struct kvr_router_options options = kvr_router_defaults();

    (void)state;
    options.policy = "cost";
    options.pull = true;
    /* 1,000 bytes a token: host 0.1 ms a token, disk 2 ms, remote 0.5 ms and 5 ms latency */
    options.tier_links[0] = (struct kvr_link){"host", 1e7, 0};
    options.tier_links[1] = (struct kvr_link){"disk", 5e5, 0};
    options.tier_links[2] = (struct kvr_link){"remote", 2e6, 5};
    options.link = (struct kvr_link){"slow", 1e3, 0};
    struct {
        struct kvr_route_match match;
        double prefill_ms;
        uint32_t loaded;
        enum kvr_medium medium;
    } cases[] = {
        {{0, 60, 0, 0, 0}, 40, 0, KVR_MEDIUM_GPU}, {{0, 60, 40, 0, 0}, 40 + 4, 40, KVR_MEDIUM_CPU},
        {{0, 60, 0, 40, 0}, 80, 0, KVR_MEDIUM_GPU}, /* 80 to read, 40 to compute */
        {{0, 60, 20, 20, 0}, 60 + 2, 20, KVR_MEDIUM_CPU},
        {{0, 60, 0, 0, 40}, 40 + 25, 40, KVR_MEDIUM_REMOTE},
        {{0, 60, 0, 0, 8}, 48, 0, KVR_MEDIUM_GPU}, /* 9 to fetch, 8 to compute */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_router *router = fixture_router_with(&options, 1);
        struct kvr_route_decision decision =
            fixture_decide(router, REQUEST(.matches = &cases[i].match, .match_count = 1));
        assert_true(fabs(decision.prefill_ms - cases[i].prefill_ms) < 1e-9);
        assert_true(decision.ttft_ms == decision.prefill_ms);
        assert_int_equal(decision.pull.tokens, cases[i].loaded);
        assert_int_equal(decision.pull.medium, cases[i].medium);
        assert_int_equal(decision.pull.from, cases[i].loaded ? 0 : KVR_NO_WORKER);
        kvr_router_destroy(router);
    }
}

static void preble_exploits_at_half_a_prompt(void **state)
{
    static const struct golden cases[] = {
        {"49 cached, 51 new: explore", {0}, {0}, {49, 0, 0}, 0, KVR_ROUTE_EXPLORE},
        {"50 cached: exploit", {0}, {0}, {0, 50, 0}, 1, KVR_ROUTE_CACHE_MATCH},
        {"full match", {0}, {0}, {0, 0, 100}, 2, KVR_ROUTE_CACHE_MATCH},
    };

    (void)state;
    RUN("preble", 3, cases);
}

static void preble_rebalances_when_the_heaviest_is_busy(void **state)
{
    struct kvr_router *router = fixture_router("preble(window=12s)", 2);
    uint32_t moved_at = 0;

    (void)state;
    /* Every request has half its prompt on w0: 50 ms of work, and 256 output tokens of 1 ms while
     * it is there. A tenth of the window is 1,200 ms: four requests; the fifth moves. */
    for (uint32_t i = 0; i < 26 && !moved_at; i++) {
        struct kvr_route_decision decision =
            fixture_decide(router, REQUEST(MATCHES({0, 50, 0, 0, 0})));
        if (decision.reason == KVR_ROUTE_REBALANCE) {
            assert_int_equal(decision.worker, 1);
            moved_at = i + 1;
        } else {
            assert_int_equal(decision.worker, 0);
        }
    }
    assert_int_equal(moved_at, 5);
    kvr_router_destroy(router);
}

static void preble_replicates_what_became_hot(void **state)
{
    struct kvr_router *router = fixture_router("preble(window=12m,balance=1000)", 3);

    (void)state;
    /* Older half of 12 minutes: 8 requests without a wait; newer half: 8 at one moment, the wait
     * grows by 50 ms each: mean TTFT 50, then 225. The next goes to one that does not hold it. */
    for (int i = 0; i < 8; i++)
        fixture_decide(router, REQUEST(.now_ms = i * 1000.0, MATCHES({0, 50, 0, 0, 0})));
    for (int i = 0; i < 8; i++)
        assert_int_equal(
            fixture_decide(router, REQUEST(.now_ms = 7 * 60e3, MATCHES({0, 50, 0, 0, 0}))).worker,
            0);
    struct kvr_route_decision decision =
        fixture_decide(router, REQUEST(.now_ms = 7 * 60e3, MATCHES({0, 50, 0, 0, 0})));
    assert_int_equal(decision.reason, KVR_ROUTE_REPLICATE);
    assert_int_equal(decision.worker, 1);
    decision = fixture_decide(router, REQUEST(.now_ms = 7 * 60e3, MATCHES({0, 50, 0, 0, 0})));
    assert_int_equal(decision.reason, KVR_ROUTE_CACHE_MATCH); /* once a twelfth of the window */
    kvr_router_destroy(router);
}

static void power_of_two_takes_the_better_of_its_pair(void **state)
{
    static const struct golden cases[] = {
        {"two workers: the less loaded", {3, 2}, {0}, {0}, 1, KVR_ROUTE_CHANCE},
        {"the other way", {1, 2}, {0}, {0}, 0, KVR_ROUTE_CHANCE},
    };
    struct kvr_router *router = fixture_router("power-of-two", 3);
    uint32_t worst = 0;

    (void)state;
    RUN("power-of-two(  )", 2, cases);
    /* the most loaded of three is never the better of two */
    for (int i = 0; i < 200; i++) {
        fixture_load(router, 0, 0);
        fixture_load(router, 1, 5);
        fixture_load(router, 2, 9);
        worst += fixture_decide(router, REQUEST(.id = 0)).worker == 2;
    }
    assert_int_equal(worst, 0);
    kvr_router_destroy(router);
}

static void random_draws_by_weight(void **state)
{
    struct kvr_router *router = fixture_router("random", 3);
    uint32_t count[3] = {0};

    (void)state;
    kvr_fleet_set_weight(kvr_router_fleet(router), 2, 2);
    for (int i = 0; i < 4000; i++)
        count[fixture_decide(router, REQUEST(.id = 0)).worker]++;
    assert_in_range(count[0], 918, 1082); /* 1000 ± 3 deviations of 27.4 */
    assert_in_range(count[1], 918, 1082);
    assert_in_range(count[2], 1905, 2095);
    kvr_router_destroy(router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_takes_the_smallest_ttft),
        cmocka_unit_test(dynamo_adds_prefill_and_decode_blocks),
        cmocka_unit_test(dynamo_credits_tiers),
        cmocka_unit_test(dynamo_draws_by_softmax),
        cmocka_unit_test(aibrix_admits_up_to_one_deviation),
        cmocka_unit_test(llm_d_weighs_its_scores),
        cmocka_unit_test(lhg_is_local_first_then_a_hash),
        cmocka_unit_test(mooncake_transfers_past_its_threshold),
        cmocka_unit_test(mooncake_chooses_both_pools_and_rejects_misses),
        cmocka_unit_test(slower_tiers_are_read_where_that_beats_computing),
        cmocka_unit_test(preble_exploits_at_half_a_prompt),
        cmocka_unit_test(preble_rebalances_when_the_heaviest_is_busy),
        cmocka_unit_test(preble_replicates_what_became_hot),
        cmocka_unit_test(power_of_two_takes_the_better_of_its_pair),
        cmocka_unit_test(random_draws_by_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
