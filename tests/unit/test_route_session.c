/* session and prefix-hash: who stays, who moves, once, and what their keys are. */
#include "tests/unit/route_fixture.h"

static struct kvr_route_decision turn(struct kvr_router *router, uint64_t session, double now_ms)
{
    return fixture_decide(router, REQUEST(.session = session, .now_ms = now_ms));
}

static void a_session_stays_while_others_come_and_go(void **state)
{
    struct kvr_router *router = fixture_router("session", 4);
    struct kvr_fleet *fleet = kvr_router_fleet(router);
    uint32_t home[200], joined, drained = 0;

    (void)state;
    for (uint64_t s = 0; s < 200; s++)
        home[s] = turn(router, s + 1, 0).worker;
    for (char name = 'a'; name < 'e'; name++)
        kvr_fleet_join(fleet, &name, 1, &joined, NULL);
    kvr_fleet_set_state(fleet, 2, KVR_WORKER_DOWN);
    for (uint64_t s = 0; s < 200; s++) {
        struct kvr_route_decision decision = turn(router, s + 1, 10);
        if (home[s] != 2) { /* joining moves nobody, a failure only its own */
            assert_int_equal(decision.worker, home[s]);
            assert_int_equal(decision.reason, KVR_ROUTE_SESSION);
        } else {
            assert_int_not_equal(decision.worker, 2);
            assert_int_equal(decision.reason, KVR_ROUTE_DRAINED);
            home[s] = decision.worker;
            drained++;
        }
    }
    assert_in_range(drained, 20, 80);
    /* handed on once: it stays there, also when the old worker returns */
    kvr_fleet_set_state(fleet, 2, KVR_WORKER_ACTIVE);
    for (uint64_t s = 0; s < 200; s++) {
        struct kvr_route_decision decision = turn(router, s + 1, 20);
        assert_int_equal(decision.worker, home[s]);
        assert_int_equal(decision.reason, KVR_ROUTE_SESSION);
    }
    kvr_router_destroy(router);
}

static void a_draining_worker_keeps_open_sessions_until_its_time_is_over(void **state)
{
    struct kvr_router_options options = kvr_router_defaults();
    uint64_t open = 0;

    (void)state;
    options.policy = "session";
    options.drain_ms = 1000;
    struct kvr_router *router = fixture_router_with(&options, 2);
    struct kvr_fleet *fleet = kvr_router_fleet(router);
    for (uint64_t s = 1; !open; s++)
        if (turn(router, s, 0).worker == 0)
            open = s;
    kvr_fleet_advance(fleet, 100);
    kvr_fleet_set_state(fleet, 0, KVR_WORKER_DRAINING);
    for (uint64_t s = 100; s < 150; s++) /* no new session goes there */
        assert_int_equal(turn(router, s, 200).worker, 1);
    struct kvr_route_decision decision = turn(router, open, 1099);
    assert_int_equal(decision.worker, 0);
    assert_int_equal(decision.reason, KVR_ROUTE_SESSION);
    decision = turn(router, open, 1100);
    assert_int_equal(decision.worker, 1);
    assert_int_equal(decision.reason, KVR_ROUTE_DRAINED);
    assert_int_equal(turn(router, open, 1200).reason, KVR_ROUTE_SESSION);
    kvr_router_destroy(router);

    /* where all workers drain, open sessions still have theirs, new ones have none */
    router = fixture_router_with(&options, 1);
    assert_int_equal(turn(router, 1, 0).worker, 0);
    kvr_fleet_set_state(kvr_router_fleet(router), 0, KVR_WORKER_DRAINING);
    assert_int_equal(turn(router, 1, 500).worker, 0);
    assert_int_equal(turn(router, 2, 500).reason, KVR_ROUTE_NO_WORKER);
    assert_int_equal(turn(router, 1, 1000).reason, KVR_ROUTE_NO_WORKER);
    kvr_router_destroy(router);
}

static void a_session_without_a_key_or_after_its_time_is_the_next_links_or_new(void **state)
{
    struct kvr_router *router = fixture_router("session(ttl=1s) > round-robin", 3);

    (void)state;
    struct kvr_route_decision decision = turn(router, 0, 0);
    assert_string_equal(decision.policy, "round-robin");
    assert_int_equal(turn(router, 5, 0).reason, KVR_ROUTE_SESSION);
    /* its worker fails, but the session had ended by itself: nothing is handed on */
    uint32_t home = turn(router, 5, 1000).worker;
    kvr_fleet_set_state(kvr_router_fleet(router), home, KVR_WORKER_DOWN);
    assert_int_equal(turn(router, 5, 2001).reason, KVR_ROUTE_SESSION);
    kvr_router_destroy(router);
}

static void the_session_table_is_bounded_and_forgets_the_oldest(void **state)
{
    struct kvr_router *router = fixture_router("session(limit=100)", 8);
    uint32_t home[300];

    (void)state;
    for (uint64_t s = 0; s < 300; s++)
        home[s] = turn(router, s + 1, 0).worker;
    /* the last hundred are remembered: a failure hands exactly their sessions on */
    kvr_fleet_set_state(kvr_router_fleet(router), home[250], KVR_WORKER_DOWN);
    assert_int_equal(turn(router, 251, 1).reason, KVR_ROUTE_DRAINED);
    for (uint64_t s = 0; s < 100; s++)
        assert_int_equal(turn(router, s + 1, 1).reason, KVR_ROUTE_SESSION);
    kvr_router_destroy(router);
}

static void a_session_that_escapes_stays_where_it_went(void **state)
{
    struct kvr_router_options options = kvr_router_defaults();

    (void)state;
    options.policy = "session";
    options.escape = true;
    struct kvr_router *router = fixture_router_with(&options, 2);
    uint32_t home = turn(router, 7, 0).worker;
    fixture_load(router, home, 50);
    struct kvr_route_decision decision = turn(router, 7, 1);
    assert_int_equal(decision.worker, 1 - home);
    assert_int_equal(decision.reason, KVR_ROUTE_ESCAPE);
    fixture_load(router, home, 0);
    assert_int_equal(turn(router, 7, 2).worker, 1 - home);
    kvr_router_destroy(router);
}

static struct kvr_route_decision hashed(
    struct kvr_router *router, const uint64_t *blocks, uint32_t count, uint64_t system)
{
    return fixture_decide(router,
        REQUEST(.block_ids = blocks, .block_count = count, .block_tokens = 16, .system = system));
}

static void prefix_hash_looks_at_the_first_tokens_only(void **state)
{
    /* tokens=40 are two whole blocks of 16 */
    struct kvr_router *router = fixture_router("prefix-hash(tokens=40,bound=0)", 50);
    const uint64_t one[] = {1, 2, 3, 4}, other_tail[] = {1, 2, 9, 8}, other_head[] = {1, 5, 3, 4};

    (void)state;
    uint32_t worker = hashed(router, one, 4, 0).worker;
    assert_int_equal(hashed(router, other_tail, 4, 0).worker, worker);
    assert_int_not_equal(hashed(router, other_head, 4, 0).worker, worker);
    /* a shorter prompt hashes what it has; the system prompt is not asked for */
    assert_int_equal(hashed(router, one, 2, 77).worker, worker);
    struct kvr_route_decision decision = hashed(router, NULL, 0, 77);
    assert_int_equal(decision.reason, KVR_ROUTE_LOAD_FALLBACK);
    kvr_router_destroy(router);

    /* blocks longer than `tokens`: the first block is the key */
    router = fixture_router("prefix-hash(tokens=3,bound=0)", 50);
    assert_int_equal(hashed(router, one, 4, 0).worker, hashed(router, other_head, 4, 0).worker);
    kvr_router_destroy(router);

    router = fixture_router("prefix-hash(of=system,bound=0)", 50);
    worker = hashed(router, one, 4, 77).worker;
    assert_int_equal(hashed(router, other_head, 4, 77).worker, worker);
    assert_int_not_equal(hashed(router, one, 4, 78).worker, worker);
    kvr_router_destroy(router);
}

static void a_ring_honours_weights_and_names_not_numbers(void **state)
{
    struct kvr_router *router = fixture_router("prefix-hash(bound=0)", 4);
    struct kvr_router *renumbered = fixture_router("prefix-hash(bound=0)", 0);
    uint32_t count[4] = {0}, worker;

    (void)state;
    for (int i = 3; i >= 0; i--) {
        char name[] = {'w', (char)('0' + i)};
        kvr_fleet_join(kvr_router_fleet(renumbered), name, 2, &worker, NULL);
    }
    for (uint64_t block = 0; block < 2000; block++) /* another router, the same answers */
        assert_int_equal(
            hashed(router, &block, 1, 0).worker, 3 - hashed(renumbered, &block, 1, 0).worker);
    kvr_fleet_set_weight(kvr_router_fleet(router), 3, 3);
    for (uint64_t block = 0; block < 6000; block++)
        count[hashed(router, &block, 1, 0).worker]++;
    assert_in_range(count[3], 2600, 3400); /* 3 of 6 shares */
    assert_in_range(count[0], 700, 1300);
    kvr_router_destroy(router);
    kvr_router_destroy(renumbered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_stays_while_others_come_and_go),
        cmocka_unit_test(a_draining_worker_keeps_open_sessions_until_its_time_is_over),
        cmocka_unit_test(a_session_without_a_key_or_after_its_time_is_the_next_links_or_new),
        cmocka_unit_test(the_session_table_is_bounded_and_forgets_the_oldest),
        cmocka_unit_test(a_session_that_escapes_stays_where_it_went),
        cmocka_unit_test(prefix_hash_looks_at_the_first_tokens_only),
        cmocka_unit_test(a_ring_honours_weights_and_names_not_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
