#include "route/fleet.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

static uint32_t join(struct kvr_fleet *fleet, const char *name)
{
    uint32_t worker;

    assert_int_equal(kvr_fleet_join(fleet, name, strlen(name), &worker, NULL), KVR_OK);
    return worker;
}

static void place(struct kvr_fleet *fleet, uint64_t id, uint32_t worker, double prefill_ms)
{
    struct kvr_placement_request request = {id, worker, KVR_NO_WORKER, 10, prefill_ms, 5};

    assert_true(kvr_fleet_place(fleet, &request));
}

static void workers_keep_their_numbers(void **state)
{
    struct kvr_fleet fleet;
    char name[16];

    (void)state;
    kvr_fleet_init(&fleet);
    for (int i = 0; i < 200000; i++) {
        snprintf(name, sizeof name, "pod-%d", i);
        assert_int_equal(join(&fleet, name), i);
    }
    assert_int_equal(join(&fleet, "pod-17"), 17);
    assert_int_equal(fleet.prefill_count, 200000);
    assert_int_equal(fleet.prefill[199999], 199999);
    assert_int_equal(kvr_fleet_find(&fleet, "pod-2999", 8), 2999);
    assert_int_equal(kvr_fleet_find(&fleet, "pod-200000", 10), KVR_NO_WORKER);
    assert_int_equal(kvr_fleet_join(&fleet, "a\0b", 3, &(uint32_t){0}, NULL), KVR_BAD_INPUT);
    kvr_fleet_release(&fleet);
}

static void states_and_roles_decide_who_takes_requests(void **state)
{
    struct kvr_fleet fleet;

    (void)state;
    kvr_fleet_init(&fleet);
    uint32_t a = join(&fleet, "a"), b = join(&fleet, "b"), c = join(&fleet, "c");
    kvr_fleet_set_role(&fleet, b, KVR_ROLE_DECODE);
    kvr_fleet_set_role(&fleet, c, KVR_ROLE_PREFILL);
    assert_int_equal(fleet.prefill_count, 2);
    assert_int_equal(fleet.decode_count, 1);
    kvr_fleet_set_state(&fleet, a, KVR_WORKER_DRAINING);
    kvr_fleet_set_state(&fleet, b, KVR_WORKER_DOWN);
    assert_int_equal(fleet.prefill_count, 1);
    assert_int_equal(fleet.prefill[0], c);
    assert_int_equal(fleet.decode_count, 0);
    kvr_fleet_set_state(&fleet, a, KVR_WORKER_ACTIVE);
    assert_int_equal(fleet.prefill_count, 2);
    assert_int_equal(fleet.prefill[0], a);
    kvr_fleet_release(&fleet);
}

static void without_done_a_placement_ends_when_predicted(void **state)
{
    struct kvr_fleet fleet;

    (void)state;
    kvr_fleet_init(&fleet);
    uint32_t worker = join(&fleet, "a");
    place(&fleet, 1, worker, 100); /* prefill 0–100, ends 105 */
    place(&fleet, 2, worker, 50);  /* prefill 100–150, ends 155 */
    assert_int_equal(kvr_worker_load(&fleet, worker), 2);
    assert_int_equal(kvr_worker_tokens(&fleet, worker), 20);
    assert_true(kvr_worker_queue_ms(&fleet, worker) == 150);
    kvr_fleet_advance(&fleet, 104.9);
    assert_int_equal(kvr_worker_load(&fleet, worker), 2);
    kvr_fleet_advance(&fleet, 105);
    assert_int_equal(kvr_worker_load(&fleet, worker), 1);
    assert_true(kvr_worker_queue_ms(&fleet, worker) == 45);
    kvr_fleet_advance(&fleet, 50); /* time never runs backwards */
    assert_true(fleet.now_ms == 105);
    kvr_fleet_advance(&fleet, 1000);
    assert_int_equal(kvr_worker_load(&fleet, worker), 0);
    assert_int_equal(kvr_worker_tokens(&fleet, worker), 0);
    assert_true(kvr_worker_queue_ms(&fleet, worker) == 0);
    kvr_fleet_release(&fleet);
}

static void done_ends_it_and_takes_its_prefill_off_the_queue(void **state)
{
    struct kvr_fleet fleet;

    (void)state;
    kvr_fleet_init(&fleet);
    uint32_t worker = join(&fleet, "a");
    place(&fleet, 1, worker, 100);
    place(&fleet, 2, worker, 50);
    place(&fleet, 3, worker, 30);
    assert_true(kvr_fleet_done(&fleet, 2)); /* with it, request 1's prefill is over */
    assert_true(kvr_worker_queue_ms(&fleet, worker) == 30);
    assert_true(kvr_fleet_done(&fleet, 1));
    assert_true(kvr_worker_queue_ms(&fleet, worker) == 30);
    assert_true(kvr_fleet_done(&fleet, 3));
    assert_true(kvr_worker_queue_ms(&fleet, worker) == 0);
    assert_false(kvr_fleet_done(&fleet, 3));
    assert_int_equal(kvr_worker_load(&fleet, worker), 0);

    /* now `done` is known to come: the prediction ends nothing, the lease does */
    place(&fleet, 4, worker, 10);
    kvr_fleet_advance(&fleet, fleet.lease_ms - 1);
    assert_int_equal(kvr_worker_load(&fleet, worker), 1);
    kvr_fleet_advance(&fleet, fleet.lease_ms);
    assert_int_equal(kvr_worker_load(&fleet, worker), 0);
    kvr_fleet_release(&fleet);
}

static void a_report_corrects_and_expires(void **state)
{
    struct kvr_fleet fleet;
    struct kvr_load_report report = {.waiting = 2, .running = 5, .kv_usage = 0.5, .tokens = 700};

    (void)state;
    kvr_fleet_init(&fleet);
    fleet.done_seen = true;
    uint32_t worker = join(&fleet, "a");
    place(&fleet, 1, worker, 1);
    kvr_fleet_report(&fleet, worker, &report);
    assert_int_equal(kvr_worker_load(&fleet, worker), 7);
    assert_int_equal(kvr_worker_tokens(&fleet, worker), 700);
    place(&fleet, 2, worker, 1);
    assert_int_equal(kvr_worker_load(&fleet, worker), 8);
    kvr_fleet_done(&fleet, 1);
    kvr_fleet_done(&fleet, 2);
    assert_int_equal(kvr_worker_load(&fleet, worker), 6);
    kvr_fleet_advance(&fleet, fleet.load_ttl_ms);
    assert_int_equal(kvr_worker_load(&fleet, worker), 0);
    assert_false(kvr_worker_reported(&fleet, worker));
    kvr_fleet_release(&fleet);
}

static void a_failed_worker_loses_its_load_and_old_placements_stay_void(void **state)
{
    struct kvr_fleet fleet;

    (void)state;
    kvr_fleet_init(&fleet);
    uint32_t worker = join(&fleet, "a");
    place(&fleet, 1, worker, 100);
    kvr_fleet_set_state(&fleet, worker, KVR_WORKER_DOWN);
    kvr_fleet_set_state(&fleet, worker, KVR_WORKER_ACTIVE);
    assert_int_equal(kvr_worker_load(&fleet, worker), 0);
    place(&fleet, 2, worker, 40);
    assert_true(kvr_worker_queue_ms(&fleet, worker) == 40);
    assert_true(kvr_fleet_done(&fleet, 1)); /* a late answer of the old life */
    assert_int_equal(kvr_worker_load(&fleet, worker), 1);
    assert_true(kvr_worker_queue_ms(&fleet, worker) == 40);
    kvr_fleet_release(&fleet);
}

static void a_split_request_counts_on_both_workers(void **state)
{
    struct kvr_fleet fleet;

    (void)state;
    kvr_fleet_init(&fleet);
    uint32_t p = join(&fleet, "p"), d = join(&fleet, "d");
    struct kvr_placement_request request = {7, p, d, 10, 100, 400};
    assert_true(kvr_fleet_place(&fleet, &request));
    assert_int_equal(kvr_worker_load(&fleet, p), 1);
    assert_int_equal(kvr_worker_load(&fleet, d), 1);
    kvr_fleet_advance(&fleet, 100);
    assert_int_equal(kvr_worker_load(&fleet, p), 0);
    assert_int_equal(kvr_worker_load(&fleet, d), 1);
    assert_true(kvr_fleet_done(&fleet, 7));
    assert_int_equal(kvr_worker_load(&fleet, d), 0);

    /* done before the predicted end of the prefill ends both halves */
    assert_true(kvr_fleet_place(&fleet, &request));
    assert_true(kvr_fleet_done(&fleet, 7));
    assert_int_equal(kvr_worker_load(&fleet, p) + kvr_worker_load(&fleet, d), 0);
    assert_true(kvr_worker_queue_ms(&fleet, p) == 0);
    kvr_fleet_release(&fleet);
}

static void a_retry_of_the_same_id_replaces_its_placement(void **state)
{
    struct kvr_fleet fleet;

    (void)state;
    kvr_fleet_init(&fleet);
    uint32_t a = join(&fleet, "a"), b = join(&fleet, "b");
    place(&fleet, 9, a, 10);
    place(&fleet, 9, b, 10);
    assert_int_equal(kvr_worker_load(&fleet, a), 0);
    assert_int_equal(kvr_worker_load(&fleet, b), 1);
    assert_false(fleet.done_seen);
    kvr_fleet_release(&fleet);
}

static void a_retry_does_not_wait_behind_itself(void **state)
{
    struct kvr_fleet fleet;

    (void)state;
    kvr_fleet_init(&fleet);
    uint32_t a = join(&fleet, "a");
    place(&fleet, 8, a, 100);
    place(&fleet, 9, a, 50);
    place(&fleet, 9, a, 50);
    assert_int_equal(kvr_worker_load(&fleet, a), 2);
    assert_true(kvr_worker_queue_ms(&fleet, a) <= 150);
    kvr_fleet_release(&fleet);
}

static void memory_is_bounded_where_nothing_ever_ends(void **state)
{
    struct kvr_fleet fleet;
    uint64_t total = 0;

    (void)state;
    kvr_fleet_init(&fleet);
    for (int i = 0; i < 4; i++)
        join(&fleet, (const char *[]){"a", "b", "c", "d"}[i]);
    for (uint64_t i = 1; i <= KVR_PLACEMENT_LIMIT + 100000; i++)
        place(&fleet, i, i % 4, 1);
    for (uint32_t i = 0; i < 4; i++)
        total += kvr_worker_load(&fleet, i);
    assert_true(total <= KVR_PLACEMENT_LIMIT && total > KVR_PLACEMENT_LIMIT - 4);
    assert_int_equal(fleet.by_id.length, total);
    kvr_fleet_release(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_keep_their_numbers),
        cmocka_unit_test(states_and_roles_decide_who_takes_requests),
        cmocka_unit_test(without_done_a_placement_ends_when_predicted),
        cmocka_unit_test(done_ends_it_and_takes_its_prefill_off_the_queue),
        cmocka_unit_test(a_report_corrects_and_expires),
        cmocka_unit_test(a_failed_worker_loses_its_load_and_old_placements_stay_void),
        cmocka_unit_test(a_split_request_counts_on_both_workers),
        cmocka_unit_test(a_retry_of_the_same_id_replaces_its_placement),
        cmocka_unit_test(a_retry_does_not_wait_behind_itself),
        cmocka_unit_test(memory_is_bounded_where_nothing_ever_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
