/* The parts around the cluster: conversations from block ids, the report, pacing, the desk, child
 * processes. */
#include "unit.h"

#include "sim/child.h"
#include "sim/lineage.h"
#include "sim/study.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t follow(
    struct kvr_lineage *lineage, const uint64_t *ids, size_t count, bool expected)
{
    struct kvr_error error = {0};
    uint64_t conversation;
    bool continues;

    assert_int_equal(
        kvr_lineage_follow(lineage, ids, count, &conversation, &continues, &error), KVR_OK);
    assert_int_equal(continues, expected);
    return conversation;
}

static void conversations_from_ids(void **state)
{
    static const uint64_t a1[] = {1, 2, 3}, a2[] = {1, 2, 3, 4, 5}, a3[] = {1, 2, 3, 4, 5, 6};
    static const uint64_t b1[] = {1, 12}, b2[] = {1, 12, 13}, c1[] = {1}, d1[] = {1, 22};
    static const uint64_t fork[] = {1, 2, 3, 44};
    struct kvr_lineage lineage = {0};

    (void)state;
    assert_int_equal(follow(&lineage, a1, 3, false), 1);
    assert_int_equal(follow(&lineage, b1, 2, false), 2); /* only the system prompt in common */
    assert_int_equal(follow(&lineage, a2, 5, true), 1);
    assert_int_equal(follow(&lineage, b2, 3, true), 2);
    assert_int_equal(follow(&lineage, c1, 1, false), 3); /* ends where everybody begins … */
    assert_int_equal(follow(&lineage, d1, 2, false), 4); /* … which nobody continues */
    assert_int_equal(follow(&lineage, a3, 6, true), 1);
    assert_int_equal(follow(&lineage, a3, 6, true), 1);   /* asked again */
    assert_int_equal(follow(&lineage, fork, 4, true), 1); /* an earlier turn, edited */
    assert_int_equal(follow(&lineage, NULL, 0, false), 5);
    kvr_lineage_release(&lineage);
}

static void quantiles_are_by_rank(void **state)
{
    struct kvr_sim_report report;
    struct kvr_error error = {0};

    (void)state;
    kvr_sim_report_init(&report, (struct kvr_sim_slo){.ttft_ms = 50, .gap_ms = 10});
    assert_true(isnan(kvr_sim_quantile(&report.all, 0.5)));
    for (int i = 100; i >= 1; i--) {
        struct kvr_sim_request request = {
            .arrival_ms = 1000, .input_tokens = 10, .output_tokens = 3};
        request.result.status = i == 7 ? KVR_SIM_REJECTED : KVR_SIM_OK;
        request.result.first_token_ms = 1000 + i;
        request.result.end_ms = 1000 + i + 8;
        request.result.longest_gap_ms = i == 9 ? 11 : 5;
        request.result.cached[KVR_MEDIUM_GPU] = 4;
        assert_int_equal(kvr_sim_report_add(&report, &request, i % 2, &error), KVR_OK);
    }
    assert_int_equal(report.requests, 100);
    assert_int_equal(report.rejected, 1);
    assert_int_equal(report.completed, 99);
    assert_int_equal(report.cached_tokens, 99 * 4);
    assert_int_equal(report.good, 48); /* 1 … 50 without 7, rejected, and 9, which paused */
    assert_float_equal(kvr_sim_good_share(&report), 0.48, 1e-12);
    assert_float_equal(kvr_sim_quantile(&report.first[0], 0.5), 50, 1e-9);
    assert_float_equal(kvr_sim_quantile(&report.first[0], 0.99), 100, 1e-9);
    assert_float_equal(kvr_sim_quantile(&report.first[1], 0), 1, 1e-9);
    assert_float_equal(kvr_sim_quantile(&report.between, 0.5), 4, 1e-9);
    kvr_sim_report_release(&report);
}

static void pace_scales_and_never_goes_back(void **state)
{
    struct kvr_sim_pace pace = {.rate = 2};

    (void)state;
    assert_float_equal(kvr_sim_pace_ms(&pace, 1000), 1000, 1e-9);
    assert_float_equal(kvr_sim_pace_ms(&pace, 3000), 2000, 1e-9);
    assert_float_equal(kvr_sim_pace_ms(&pace, NAN), 2000, 1e-9);
    assert_float_equal(kvr_sim_pace_ms(&pace, 2000), 2000, 1e-9);
    assert_float_equal(kvr_sim_pace_ms(&pace, 5000), 3000, 1e-9);
}

/* The desk learns what it places, forgets who goes down, and knows who returns. */
static void desk_follows_workers(void **state)
{
    static const uint64_t ids[] = {1, 2, 3, 4};
    struct kvr_desk_options options = {
        .match = {.block_size = 16}, .router = kvr_router_defaults()};
    struct kvr_worker_description worker = {.weight = 1};
    struct kvr_route_decision decision;
    struct kvr_error error = {0};
    struct kvr_desk *desk = NULL;
    struct kvr_buffer out = {0};

    (void)state;
    assert_int_equal(kvr_cost_preset(&options.cost, NULL, NULL, 0, &error), KVR_OK);
    options.router.policy = "cache-aware";
    assert_int_equal(kvr_desk_create(&options, &desk, &error), KVR_OK);
    kvr_buffer_append_text(&out, "{\"id\":1");
    for (char name = 'a'; name < 'd'; name++) {
        worker.name = (struct kvr_text){&name, 1};
        assert_int_equal(kvr_desk_worker(desk, NAN, &worker, true, true, &error), KVR_OK);
    }
    struct kvr_desk_request request = {.match_tokens = 64,
        .route = {.id = 1,
            .input_tokens = 64,
            .output_tokens = 1,
            .block_ids = ids,
            .block_count = 4,
            .block_tokens = 16}};
    assert_int_equal(kvr_desk_decide(desk, &request, &decision, &out, &error), KVR_OK);
    assert_int_equal(decision.matched, 0);
    uint32_t home = decision.worker;
    request.route.id = 2;
    assert_int_equal(kvr_desk_decide(desk, &request, &decision, NULL, &error), KVR_OK);
    assert_int_equal(decision.worker, home);
    assert_int_equal(decision.matched, 64);
    char name = (char)('a' + home);
    worker.name = (struct kvr_text){&name, 1};
    worker.state = KVR_WORKER_DOWN;
    assert_int_equal(kvr_desk_worker(desk, 10, &worker, false, false, &error), KVR_OK);
    assert_int_equal(kvr_desk_decide(desk, &request, &decision, NULL, &error), KVR_OK);
    assert_int_not_equal(decision.worker, home);
    assert_int_equal(decision.matched, 0);
    worker.state = KVR_WORKER_ACTIVE;
    assert_int_equal(kvr_desk_worker(desk, 20, &worker, false, false, &error), KVR_OK);
    request.route.id = 3;
    assert_int_equal(kvr_desk_decide(desk, &request, &decision, NULL, &error), KVR_OK);
    assert_int_not_equal(decision.worker, home);
    assert_int_equal(decision.matched, 64);
    assert_non_null(kvr_buffer_text(&out));
    assert_ptr_equal(
        strstr(out.data, "{\"id\":1,\"match\":{},\"route\":{\"worker\":\"a\""), out.data);
    kvr_desk_destroy(desk);
    kvr_buffer_release(&out);
}

static struct kvr_child *start(const char *command)
{
    struct kvr_error error = {0};
    struct kvr_child *child = NULL;

    assert_int_equal(kvr_child_start(&child, command, 2000, &error), KVR_OK);
    return child;
}

static void child_answers_in_lock_step(void **state)
{
    struct kvr_child *child = start("cat");
    struct kvr_error error = {0};
    const char *answer;
    size_t length, large = 3 << 20;
    char *text = malloc(large);

    (void)state;
    memset(text, 'x', large);
    for (int i = 0; i < 1000; i++) {
        char line[32];
        int size = snprintf(line, sizeof line, "{\"id\":%d}", i);
        assert_int_equal(kvr_child_tell(child, "{\"event\":\"done\"}", 16, &error), KVR_OK);
        assert_int_equal(
            kvr_child_ask(child, line, (size_t)size, &answer, &length, &error), KVR_OK);
        assert_int_equal(length, size);
        assert_memory_equal(answer, line, length);
    }
    /* larger than any pipe, both ways at once */
    assert_int_equal(kvr_child_ask(child, text, large, &answer, &length, &error), KVR_OK);
    assert_int_equal(length, large);
    /* nobody reads the loop: lines pile up and are given up; a huge one takes the patience first */
    for (int i = 0; i < 3000; i++)
        assert_int_equal(kvr_child_loop(child, text, 1000, &error), KVR_OK);
    assert_int_equal(kvr_child_end(child, &error), KVR_OK);
    child = start("cat");
    assert_int_equal(kvr_child_loop(child, text, large, &error), KVR_OK);
    assert_int_equal(kvr_child_loop(child, text, large, &error), KVR_OK);
    assert_int_equal(kvr_child_end(child, &error), KVR_OK);
    /* one that reads it gets lines of any size */
    child = start("exec 3<$KVR_LOOP; while read -r line; do echo \"$line\"; head -c 3000000 <&3 | "
                  "wc -c; done");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvr_child_ask(child, "x", 1, &answer, &length, &error), KVR_OK);
        assert_int_equal(kvr_child_loop(child, text, 2999999, &error), KVR_OK);
        if (i == 0) {
            assert_int_equal(kvr_child_ask(child, "", 0, &answer, &length, &error), KVR_OK);
            assert_int_equal(strtol(answer, NULL, 10), 3000000);
            assert_int_equal(kvr_child_loop(child, text, 2999999, &error), KVR_OK);
        }
    }
    assert_int_equal(kvr_child_end(child, &error), KVR_OK);
    free(text);
}

static void child_failures_are_told(void **state)
{
    static const struct {
        const char *command, *says;
    } cases[] = {
        {"true", "ended"}, {"exec sleep 100", "did not answer in time"}, {"kill -9 $$", "ended"}};
    struct kvr_error error = {0};
    const char *answer;
    size_t length;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct kvr_child *child = start(cases[i].command);
        assert_int_equal(kvr_child_ask(child, "{}", 2, &answer, &length, &error), KVR_IO);
        assert_non_null(strstr(error.text, cases[i].says));
        kvr_child_end(child, NULL);
    }
    assert_int_equal(kvr_child_end(start("exit 7"), &error), KVR_IO);
    assert_non_null(strstr(error.text, "status 7"));
    assert_int_equal(kvr_child_end(start("kill -9 $$"), &error), KVR_IO);
    assert_non_null(strstr(error.text, "signal 9"));
    assert_int_equal(kvr_child_end(NULL, &error), KVR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_from_ids),
        cmocka_unit_test(quantiles_are_by_rank),
        cmocka_unit_test(pace_scales_and_never_goes_back),
        cmocka_unit_test(desk_follows_workers),
        cmocka_unit_test(child_answers_in_lock_step),
        cmocka_unit_test(child_failures_are_told),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
