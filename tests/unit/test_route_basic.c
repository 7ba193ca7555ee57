/* The first policies, and what the router does round every policy. */
#include "route/chain.h"
#include "tests/unit/route_fixture.h"

static void round_robin_takes_turns(void **state)
{
    struct kvr_router *router = fixture_router("round-robin", 3);

    (void)state;
    for (uint32_t i = 0; i < 9; i++) {
        struct kvr_route_decision decision = fixture_decide(router, REQUEST(.id = 0));
        assert_int_equal(decision.worker, i % 3);
        assert_string_equal(kvr_route_reason_name(decision.reason), "rotation");
    }
    kvr_fleet_set_weight(kvr_router_fleet(router), 1, 2);
    uint32_t count[3] = {0};
    for (int i = 0; i < 8; i++)
        count[fixture_decide(router, REQUEST(.id = 0)).worker]++;
    assert_int_equal(count[0], 2);
    assert_int_equal(count[1], 4);
    assert_int_equal(count[2], 2);
    kvr_router_destroy(router);
}

static void least_loaded_counts_what_has_not_ended(void **state)
{
    struct kvr_router *router = fixture_router("least-loaded", 3);
    struct kvr_fleet *fleet = kvr_router_fleet(router);

    (void)state;
    /* equal loads take turns, then ends and reports decide */
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(fixture_decide(router, REQUEST(.id = i + 1)).worker, i);
    kvr_fleet_done(fleet, 2);
    assert_int_equal(fixture_decide(router, REQUEST(.id = 4)).worker, 1);
    fixture_load(router, 0, 0);
    assert_int_equal(fixture_decide(router, REQUEST(.id = 5)).worker, 0);
    kvr_fleet_set_weight(fleet, 2, 10);
    assert_int_equal(fixture_decide(router, REQUEST(.id = 6)).worker, 2);
    kvr_router_destroy(router);

    /* by tokens: one long prompt weighs more than three short ones */
    router = fixture_router("least-loaded(by=tokens)", 2);
    assert_int_equal(fixture_decide(router, REQUEST(.input_tokens = 10000)).worker, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fixture_decide(router, REQUEST(.id = 0)).worker, 1);
    kvr_router_destroy(router);
}

static void cache_aware_as_its_source_defines_it(void **state)
{
    struct {
        const char *what;
        uint32_t load[3], match[3];
        uint32_t worker;
        enum kvr_route_reason reason;
    } cases[] = {
        {"no match", {2, 1, 3}, {0, 0, 0}, 1, KVR_ROUTE_LOAD_FALLBACK},
        {"match of exactly the threshold", {2, 1, 3}, {30, 0, 0}, 1, KVR_ROUTE_LOAD_FALLBACK},
        {"match above it", {2, 1, 3}, {31, 0, 0}, 0, KVR_ROUTE_CACHE_MATCH},
        {"the longest of several", {0, 0, 9}, {40, 50, 60}, 2, KVR_ROUTE_CACHE_MATCH},
        {"full match", {9, 9, 9}, {0, 100, 0}, 1, KVR_ROUTE_CACHE_MATCH},
        {"equal matches: the less loaded", {5, 4, 0}, {80, 80, 0}, 1, KVR_ROUTE_CACHE_MATCH},
        {"apart by 64 is balanced", {64, 0, 0}, {90, 0, 0}, 0, KVR_ROUTE_CACHE_MATCH},
        {"apart by 65 is not", {65, 0, 1}, {90, 0, 0}, 1, KVR_ROUTE_LOAD_FALLBACK},
        {"but by less than half it is", {195, 130, 140}, {90, 0, 0}, 0, KVR_ROUTE_CACHE_MATCH},
        {"by more than half it is not", {196, 130, 140}, {90, 0, 0}, 1, KVR_ROUTE_LOAD_FALLBACK},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvr_router *router = fixture_router("cache-aware", 3);
        for (uint32_t w = 0; w < 3; w++)
            fixture_load(router, w, cases[i].load[w]);
        struct kvr_route_decision decision = fixture_decide(
            router, REQUEST(MATCHES({0, cases[i].match[0], 0, 0, 0},
                        {1, cases[i].match[1], 0, 0, 0}, {2, cases[i].match[2], 0, 0, 0})));
        if (decision.worker != cases[i].worker || decision.reason != cases[i].reason)
            fail_msg("%s: w%u %s", cases[i].what, decision.worker,
                kvr_route_reason_name(decision.reason));
        assert_int_equal(decision.matched, cases[i].match[cases[i].worker]);
        kvr_router_destroy(router);
    }
}

/* What must hold for every policy: one table, every row of the policy table. */
static void every_policy_answers_in_every_fleet(void **state)
{
    (void)state;
    for (size_t i = 0; i < kvr_route_policy_count; i++) {
        const char *name = kvr_route_policies[i]->name;

        struct kvr_router *router = fixture_router(name, 0);
        struct kvr_route_decision decision = fixture_decide(router, REQUEST(.id = 0));
        assert_int_equal(decision.worker, KVR_NO_WORKER);
        assert_int_equal(decision.reason, KVR_ROUTE_NO_WORKER);
        kvr_router_destroy(router);

        router = fixture_router(name, 1);
        assert_int_equal(fixture_decide(router, REQUEST(.id = 0)).worker, 0);
        assert_int_equal(fixture_decide(router, REQUEST(MATCHES({0, 100, 0, 0, 0}))).worker, 0);
        /* a match on a worker that does not exist, or longer than the prompt */
        assert_int_equal(fixture_decide(router, REQUEST(MATCHES({77, 5, 0, 0, 0}))).worker, 0);
        decision = fixture_decide(router, REQUEST(MATCHES({0, UINT32_MAX, 0, 0, 0})));
        assert_int_equal(decision.matched, 100);
        /* named twice: the longer counts */
        decision = fixture_decide(router, REQUEST(MATCHES({0, 90, 0, 0, 0}, {0, 40, 0, 0, 0})));
        assert_int_equal(decision.matched, 90);
        assert_int_equal(kvr_router_decide(router, REQUEST(.id = 0), &decision, NULL), KVR_OK);
        assert_int_equal(decision.worker, 0); /* an empty prompt */
        kvr_router_destroy(router);

        router = fixture_router(name, 3);
        for (uint32_t w = 0; w < 3; w++)
            kvr_fleet_set_state(kvr_router_fleet(router), w, KVR_WORKER_DRAINING);
        decision = fixture_decide(router, REQUEST(MATCHES({1, 100, 0, 0, 0})));
        assert_int_equal(decision.reason, KVR_ROUTE_NO_WORKER);
        kvr_fleet_set_state(kvr_router_fleet(router), 2, KVR_WORKER_ACTIVE);
        for (int n = 0; n < 10; n++)
            assert_int_equal(fixture_decide(router, REQUEST(MATCHES({1, 100, 0, 0, 0}))).worker, 2);
        kvr_router_destroy(router);
    }
}

/* The same calls with the same seed give the same decisions, and thousands of workers work. */
static void every_policy_repeats_itself(void **state)
{
    (void)state;
    for (size_t i = 0; i < kvr_route_policy_count; i++) {
        struct kvr_router *one = fixture_router(kvr_route_policies[i]->name, 3000);
        struct kvr_router *two = fixture_router(kvr_route_policies[i]->name, 3000);
        struct kvr_random random = {5};

        for (uint32_t n = 0; n < 300; n++) {
            uint64_t block = kvr_random_below(&random, 20);
            struct kvr_route_request *request = REQUEST(.id = n + 1, .now_ms = n,
                .session = 1 + kvr_random_below(&random, 50), .block_ids = &block, .block_count = 1,
                .block_tokens = 100,
                MATCHES(
                    {kvr_random_below(&random, 3000), kvr_random_below(&random, 101), 0, 0, 0}));
            struct kvr_route_decision a = fixture_decide(one, request);
            struct kvr_route_decision b = fixture_decide(two, request);
            assert_int_equal(a.worker, b.worker);
            assert_int_equal(a.reason, b.reason);
            assert_true(a.worker < 3000);
        }
        kvr_router_destroy(one);
        kvr_router_destroy(two);
    }
}

static void the_gate_refuses_an_overloaded_choice(void **state)
{
    struct kvr_router_options options = kvr_router_defaults();
    struct kvr_route_request *request = REQUEST(MATCHES({0, 90, 0, 0, 0}));

    (void)state;
    options.policy = "cache-aware";
    options.escape = true; /* more than 8 above the least and more than 1.5 times it */
    struct kvr_router *router = fixture_router_with(&options, 2);
    fixture_load(router, 0, 8);
    assert_int_equal(fixture_decide(router, request).worker, 0);
    fixture_load(router, 0, 9);
    struct kvr_route_decision decision = fixture_decide(router, request);
    assert_int_equal(decision.worker, 1);
    assert_int_equal(decision.reason, KVR_ROUTE_ESCAPE);
    assert_string_equal(decision.policy, "least-loaded");
    fixture_load(router, 0, 30);
    fixture_load(router, 1, 20);
    assert_int_equal(fixture_decide(router, request).worker, 0);
    kvr_router_destroy(router);
}

static void early_rejection_rejects_exactly_the_predicted_misses(void **state)
{
    struct kvr_router_options options = kvr_router_defaults();
    uint32_t rejected = 0;

    (void)state;
    options.policy = "least-loaded";
    options.slo_ttft_ms = 250;
    struct kvr_router *router = fixture_router_with(&options, 1);
    /* 1 ms a token, 100 tokens each: TTFT 100, 200, then 300 is a miss */
    for (int i = 0; i < 4; i++) {
        struct kvr_route_decision decision = fixture_decide(router, REQUEST(.id = 0));
        if (i < 2) {
            assert_int_equal(decision.worker, 0);
            assert_true(decision.ttft_ms == 100 * (i + 1));
        } else {
            assert_int_equal(decision.worker, KVR_NO_WORKER);
            assert_int_equal(decision.reason, KVR_ROUTE_REJECTED);
            assert_true(decision.ttft_ms == 300);
            assert_true(decision.retry_after_ms == 50);
            rejected++;
        }
    }
    assert_int_equal(rejected, 2);
    /* the same request 50 ms later is exactly in time; a more important one always */
    assert_int_equal(fixture_decide(router, REQUEST(.now_ms = 49)).worker, KVR_NO_WORKER);
    assert_int_equal(fixture_decide(router, REQUEST(.now_ms = 50)).worker, 0);
    assert_int_equal(fixture_decide(router, REQUEST(.now_ms = 50, .priority = 1)).worker, 0);
    /* its own SLO comes first; one that no waiting can meet has no retry time */
    assert_int_equal(fixture_decide(router, REQUEST(.now_ms = 50, .slo_ttft_ms = 1000)).worker, 0);
    struct kvr_route_decision decision =
        fixture_decide(router, REQUEST(.now_ms = 1e6, .slo_ttft_ms = 99));
    assert_int_equal(decision.reason, KVR_ROUTE_REJECTED);
    assert_true(isnan(decision.retry_after_ms));
    kvr_router_destroy(router);
}

static void pulling_is_chosen_where_it_beats_computing(void **state)
{
    struct kvr_router_options options = kvr_router_defaults();

    (void)state;
    options.policy = "least-loaded";
    options.pull = true;
    /* 1,000 bytes a token; 2e6 bytes/s: 0.5 ms a token, and 10 ms latency */
    options.link = (struct kvr_link){"test", 2e6, 10};
    struct kvr_router *router = fixture_router_with(&options, 2);
    fixture_load(router, 0, 5);
    struct kvr_route_decision decision =
        fixture_decide(router, REQUEST(MATCHES({0, 80, 0, 0, 0}, {1, 20, 0, 0, 0})));
    /* worker 1 lacks 60 tokens of worker 0's: 40 ms against 60 */
    assert_int_equal(decision.worker, 1);
    assert_int_equal(decision.reason, KVR_ROUTE_PULL);
    assert_int_equal(decision.pull.from, 0);
    assert_int_equal(decision.pull.tokens, 60);
    assert_true(decision.pull.ms == 40);
    assert_int_equal(decision.matched, 20);
    assert_true(decision.prefill_ms == 20 && decision.ttft_ms == 60);
    /* 19 tokens: 19.5 ms against 19 */
    fixture_load(router, 1, 0);
    decision = fixture_decide(router, REQUEST(MATCHES({0, 39, 0, 0, 0}, {1, 20, 0, 0, 0})));
    assert_int_equal(decision.worker, 1);
    assert_int_equal(decision.pull.from, KVR_NO_WORKER);
    assert_int_equal(decision.reason, KVR_ROUTE_LEAST_LOADED);
    kvr_router_destroy(router);
}

static void a_prefill_worker_gets_a_decode_worker(void **state)
{
    struct kvr_router *router = fixture_router("least-loaded", 4);
    struct kvr_fleet *fleet = kvr_router_fleet(router);

    (void)state;
    kvr_fleet_set_role(fleet, 0, KVR_ROLE_PREFILL);
    kvr_fleet_set_role(fleet, 1, KVR_ROLE_DECODE);
    kvr_fleet_set_role(fleet, 2, KVR_ROLE_DECODE);
    kvr_fleet_set_state(fleet, 3, KVR_WORKER_DOWN);
    struct kvr_route_decision first = fixture_decide(router, REQUEST(.id = 1));
    struct kvr_route_decision second = fixture_decide(router, REQUEST(.id = 2));
    assert_int_equal(first.worker, 0);
    assert_int_equal(first.decode_worker, 1);
    assert_int_equal(second.decode_worker, 2);
    kvr_router_destroy(router);
}

static void another_routers_placements_are_learned(void **state)
{
    struct kvr_router *router = fixture_router("least-loaded", 2);

    (void)state;
    assert_int_equal(
        kvr_router_learn(router, REQUEST(.id = 1, .input_tokens = 9), 0, KVR_NO_WORKER, NULL),
        KVR_OK);
    assert_int_equal(fixture_decide(router, REQUEST(.id = 2)).worker, 1);
    assert_int_equal(kvr_worker_load(kvr_router_fleet(router), 0), 1);
    assert_int_equal(
        kvr_router_learn(router, REQUEST(.id = 3, .input_tokens = 9), 0, 1, NULL), KVR_OK);
    assert_int_equal(kvr_worker_load(kvr_router_fleet(router), 0), 2);
    assert_int_equal(kvr_worker_load(kvr_router_fleet(router), 1), 2);
    kvr_router_destroy(router);
}

static void explain_tells_every_candidates_numbers(void **state)
{
    struct kvr_router_options options = kvr_router_defaults();
    uint32_t count;

    (void)state;
    options.policy = "cache-aware";
    options.explain = true;
    struct kvr_router *router = fixture_router_with(&options, 3);
    kvr_fleet_set_state(kvr_router_fleet(router), 1, KVR_WORKER_DRAINING);
    fixture_decide(router, REQUEST(MATCHES({2, 60, 0, 0, 0})));
    const struct kvr_route_candidate *candidate = kvr_router_explain(router, &count);
    assert_int_equal(count, 2);
    assert_int_equal(candidate[0].worker, 0);
    assert_true(candidate[0].ttft_ms == 100 && candidate[0].score == 0);
    assert_int_equal(candidate[1].worker, 2);
    assert_int_equal(candidate[1].matched, 60);
    assert_true(candidate[1].ttft_ms == 40 && candidate[1].score == -60);
    kvr_router_destroy(router);
}

static void chains_are_read_or_refused_with_the_reason(void **state)
{
    static const struct {
        const char *text, *message; /* message NULL: good */
    } cases[] = {
        {"round-robin", NULL},
        {"  cache-aware ( threshold=0.5 , abs=3 )  >least-loaded ", NULL},
        {"cache-aware()", NULL},
        {"", "a policy's name is missing"},
        {"cache-aware >", "a policy's name is missing"},
        {"nonsense", "no policy 'nonsense'; there are round-robin"},
        {"cache-aware(threshold=2)", "policy 'cache-aware': '2' of parameter 'threshold'"},
        {"cache-aware(thresh=1)", "there is no parameter 'thresh'"},
        {"cache-aware(threshold=1", "the ')' is missing"},
        {"cache-aware least-loaded", "expected '>' before 'least-loaded'"},
        {"least-loaded(by=luck)", "is not one of: requests tokens queue"},
    };
    struct kvr_route_chain chain;
    struct kvr_error error;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum kvr_status status =
            kvr_route_chain_read(&chain, cases[i].text, &one_ms_a_token, 1, &error);
        assert_int_equal(status, cases[i].message ? KVR_BAD_USAGE : KVR_OK);
        if (status == KVR_OK)
            kvr_route_chain_release(&chain);
        else if (!strstr(error.text, cases[i].message))
            fail_msg("'%s' says: %s", cases[i].text, error.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_robin_takes_turns),
        cmocka_unit_test(least_loaded_counts_what_has_not_ended),
        cmocka_unit_test(cache_aware_as_its_source_defines_it),
        cmocka_unit_test(every_policy_answers_in_every_fleet),
        cmocka_unit_test(every_policy_repeats_itself),
        cmocka_unit_test(the_gate_refuses_an_overloaded_choice),
        cmocka_unit_test(early_rejection_rejects_exactly_the_predicted_misses),
        cmocka_unit_test(pulling_is_chosen_where_it_beats_computing),
        cmocka_unit_test(a_prefill_worker_gets_a_decode_worker),
        cmocka_unit_test(another_routers_placements_are_learned),
        cmocka_unit_test(explain_tells_every_candidates_numbers),
        cmocka_unit_test(chains_are_read_or_refused_with_the_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
