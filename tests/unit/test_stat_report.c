/* Every metric on a stream that was computed by hand, and the report's bounds. */
#include "tests/unit/stat_fixture.h"

#include "stat/render.h"

#include <stdio.h>

static const char *const stream[] = {
    "{\"event\":\"worker\",\"worker\":\"w0\",\"capacity\":1000}",
    "{\"event\":\"worker\",\"worker\":\"w1\"}",
    "{\"event\":\"stored\",\"timestamp\":0,\"worker\":\"w0\",\"hash_ids\":[1,2,9],\"block_size\":"
    "100}",
    /* a: new, hits 200 of 300, 40 ms */
    "{\"id\":\"a\",\"timestamp\":0,\"input_length\":300,\"output_length\":11,\"hash_ids\":[1,2,3],"
    "\"session\":\"s1\",\"match\":{\"w0\":200},\"route\":{\"worker\":\"w0\",\"reason\":\"cache-"
    "match\","
    "\"matched\":200,\"ttft_ms\":50},\"response\":{\"status\":200,\"ttft_ms\":40,\"e2e_ms\":140,"
    "\"output_length\":11,\"cached_tokens\":200}}",
    /* b: continued, sent away from its prefix */
    "{\"id\":\"b\",\"timestamp\":1000,\"input_length\":300,\"output_length\":11,\"hash_ids\":[1,2,"
    "4],"
    "\"session\":\"s1\",\"match\":{\"w0\":200},\"route\":{\"worker\":\"w1\",\"reason\":\"load-"
    "fallback\","
    "\"matched\":0,\"ttft_ms\":60},\"response\":{\"status\":200,\"ttft_ms\":80,\"e2e_ms\":280,"
    "\"cached_tokens\":0}}",
    /* c: rejected */
    "{\"id\":\"c\",\"timestamp\":2000,\"input_length\":100,\"output_length\":1,\"hash_ids\":[5],"
    "\"session\":\"s2\",\"route\":{\"worker\":null,\"reason\":\"rejected\"}}",
    /* d: new, half of its match was gone, and late */
    "{\"id\":\"d\",\"timestamp\":3000,\"input_length\":200,\"output_length\":21,\"hash_ids\":[1,2],"
    "\"session\":\"s3\",\"match\":{\"w0\":200,\"w1\":100},\"route\":{\"worker\":\"w0\",\"matched\":"
    "200,"
    "\"reason\":\"cache-match\",\"ttft_ms\":100},\"response\":{\"status\":200,\"ttft_ms\":200,"
    "\"e2e_ms\":1200,\"output_length\":21,\"cached_tokens\":100}}",
    /* e: answered by a done line, with a failure */
    "{\"id\":\"e\",\"timestamp\":4000,\"input_length\":400,\"output_length\":5,\"hash_ids\":[1,6,7,"
    "8],"
    "\"session\":\"s1\",\"match\":{\"w0\":100,\"w1\":100},\"route\":{\"worker\":\"w1\","
    "\"reason\":\"cache-match\",\"matched\":100,\"ttft_ms\":60}}",
    "{\"event\":\"done\",\"timestamp\":5000,\"id\":\"e\",\"worker\":\"w1\",\"response\":{"
    "\"status\":500}}",
    "{\"event\":\"load\",\"timestamp\":5000,\"worker\":\"w0\",\"kv_usage\":0.9,\"waiting\":1,"
    "\"running\":3}",
    "{\"event\":\"load\",\"timestamp\":5000,\"worker\":\"w1\",\"kv_usage\":0.2,"
    "\"prompt_tokens\":1000,\"cached_tokens\":400}",
    "{\"event\":\"removed\",\"timestamp\":6000,\"worker\":\"w0\",\"hash_ids\":[1,2]}",
    "{\"event\":\"removed\",\"timestamp\":8000,\"worker\":\"w0\",\"hash_ids\":[9,77]}",
};
enum { LINES = sizeof stream / sizeof *stream };

static const struct expected {
    const char *name;
    double value;
    double share; /* quantiles of a sketch are within 1 % */
} expected[] = {
    {"requests", 5, 0},
    {"request_rate", 5 / 8.0, 1e-12},
    {"prompt_token_rate", 1300 / 8.0, 1e-12},
    {"prompt_tokens", 300 + 300 + 100 + 200 + 400, 0},
    {"output_tokens", 11 + 11 + 1 + 21 + 5, 0},
    {"token_hit_rate", (200 + 0 + 100 + 100) / 1200.0, 1e-12},
    {"request_hit_rate", 3 / 4.0, 1e-12},
    {"time_saved_rate", (20 + 0 + 10 + 10) / (40 + 40 + 30 + 50.0), 1e-12},
    {"prefill_saved_ms", 40, 1e-12},
    {"prefill_ms", 160, 1e-12},
    {"ceiling_token_hit_rate", (0 + 200 + 0 + 200 + 100) / 1300.0, 1e-12},
    {"ceiling_request_hit_rate", 3 / 5.0, 1e-12},
    {"ceiling_time_saved_rate", 50 / (160 + 20.0), 1e-12},
    {"ceiling_reached", (400 / 1200.0) / (500 / 1300.0), 1e-12},
    {"best_token_hit_rate", (200 + 200 + 200 + 100) / 1200.0, 1e-12},
    {"engine_token_hit_rate", 400 / 1000.0, 1e-12},
    {"regret_tokens", 200, 0},
    {"regret_rate", 200 / 1200.0, 1e-12},
    {"regret_ms", 20, 1e-12},
    {"kept_rate", (200 + 0 + 100) / (200 + 0 + 200.0), 1e-12},
    {"match_tokens_p10", 0, 0},
    {"match_tokens_p50", 100, 0.01},
    {"match_tokens_p90", 200, 0.01},
    {"match_tokens_p99", 200, 0.01},
    {"ttft_p50_ms", 80, 0.01},
    {"ttft_p90_ms", 200, 0.01},
    {"ttft_p99_ms", 200, 0.01},
    {"ttft_new_p50_ms", 40, 0.01},
    {"ttft_continued_p50_ms", 80, 0.01},
    {"continuation_ratio", 2, 0.02},
    {"tpot_p50_ms", 20, 0.01},
    {"tpot_p99_ms", 50, 0.01},
    {"e2e_p50_ms", 280, 0.01},
    {"e2e_p99_ms", 1200, 0.01},
    {"goodput_share", 2 / 5.0, 1e-12},
    {"goodput", 2 / 8.0, 1e-12},
    {"prediction_bias", (50 + 60 + 100) / (40 + 80 + 200.0) - 1, 1e-12},
    {"prediction_error_p90", 0.5, 0.01},
    {"rejected_rate", 1 / 5.0, 1e-12},
    {"failed_rate", 1 / 4.0, 1e-12},
    {"request_skew", 1, 1e-12},
    {"load_skew", 600 / 400.0, 1e-12}, /* work 200 and 600 */
    {"load_variation", 200 / 400.0, 1e-12},
    {"load_jain", 800 * 800.0 / (2 * (200 * 200.0 + 600 * 600.0)), 1e-12},
    {"kv_usage_max", 0.9, 1e-12},
    {"kv_usage_min", 0.2, 1e-12},
    {"outstanding_max", 4, 0},
    {"store_rate", 3 / 8.0, 1e-12},
    {"eviction_rate", 3 / 8.0, 1e-12},
    {"evicted_unused_rate", 1 / 3.0, 1e-12},
    {"evicted_tokens", 300, 0},
    {"eviction_age_p50_ms", 6000, 0.01},
};

static void test_every_metric(void **state)
{
    struct kvr_report_options options = plain_options();
    struct kvr_run_view run;

    (void)state;
    options.slo_ttft_ms = 100;
    struct kvr_report *report = report_of(&options, stream, LINES);
    assert_int_equal(kvr_run_view_init(&run, report, NULL), KVR_OK);
    assert_int_equal(sizeof expected / sizeof *expected, kvr_metric_count); /* none forgotten */
    for (size_t i = 0; i < kvr_metric_count; i++) {
        assert_string_equal(kvr_metrics[i].name, expected[i].name);
        check_metric(&run.view, expected[i].name, expected[i].value, expected[i].share);
    }
    assert_int_equal(run.view.load_count, 2);
    struct kvr_view w0 = kvr_view_worker(&run, report, 0);
    check_metric(&w0, "token_hit_rate", 300 / 500.0, 1e-12);
    assert_int_equal(report->reasons[kvr_groups_look(&report->reason_names, "cache-match", 11)], 3);
    kvr_run_view_release(&run);
    kvr_report_destroy(report);
}

static void test_bad_members(void **state)
{
    static const char *const bad[] = {
        "{\"input_length\":-1}",
        "{\"input_length\":1.5}",
        "{\"input_length\":\"x\"}",
        "{\"timestamp\":\"now\"}",
        "{\"hash_ids\":[1,-2]}",
        "{\"hash_ids\":{}}",
        "{\"match\":[]}",
        "{\"match\":{\"w0\":\"x\"}}",
        "{\"route\":7}",
        "{\"response\":[]}",
        "{\"block_size\":0,\"hash_ids\":[1]}",
        "{\"event\":\"load\",\"kv_usage\":0.5}",
        "{\"event\":\"load\",\"worker\":\"w0\",\"kv_usage\":-0.5}",
        "{\"event\":\"stored\",\"worker\":\"w0\",\"hash_ids\":7}",
    };
    struct kvr_report_options options = plain_options();
    struct kvr_report *report;

    (void)state;
    assert_int_equal(kvr_report_create(&report, &options, NULL), KVR_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (feed(report, bad[i]) != KVR_BAD_INPUT)
            fail_msg("taken: %s", bad[i]);
    }
    assert_int_equal(report->request_lines, 0);
    kvr_report_destroy(report);
}

/* Every table has a bound, and what goes past it is counted under a name of its own. */
static void test_bounds(void **state)
{
    struct kvr_report_options options = plain_options();
    struct kvr_report *report;
    struct kvr_run_view run;
    struct kvr_error error;
    char line[300];

    (void)state;
    options.worker_limit = 3;
    options.group_limit = 2;
    options.block_limit = 10;
    options.session_limit = 4;
    options.pending_limit = 5;
    assert_int_equal(kvr_expression_create(&options.by, ".model", &error), KVR_OK);
    assert_int_equal(kvr_report_create(&report, &options, NULL), KVR_OK);
    for (int i = 0; i < 100; i++) {
        snprintf(line, sizeof line,
            "{\"id\":%d,\"timestamp\":%d,\"input_length\":100,\"hash_ids\":[%d],\"model\":\"m%d\","
            "\"session\":%d,\"route\":{\"worker\":\"w%d\",\"reason\":\"r%d\"}}",
            i, i * 1000000, i, i, i, i, i);
        assert_int_equal(feed(report, line), KVR_OK);
    }
    assert_int_equal(kvr_report_finish(report, NULL), KVR_OK);
    assert_int_equal(kvr_run_view_init(&run, report, NULL), KVR_OK);
    check_metric(&run.view, "requests", 100, 0);
    assert_int_equal(report->worker_names.count, 4);
    assert_int_equal(report->workers[0].tally.counters[KVR_COUNT_REQUESTS], 97);
    assert_int_equal(report->group_names.count, 3);
    assert_int_equal(report->groups[0].counters[KVR_COUNT_REQUESTS], 98);
    assert_int_equal(report->reason_names.count, KVR_REASONS);
    assert_true(report->ceiling.full);
    check_metric(&run.view, "ceiling_token_hit_rate", NAN, 0);
    check_metric(&run.view, "regret_rate", NAN, 0);
    assert_true(report->sessions_full);
    assert_int_equal(report->forgotten, 95);
    assert_true(report->windows.history_count <= KVR_HISTORY_POINTS);
    kvr_run_view_release(&run);
    kvr_report_destroy(report);
    kvr_expression_destroy(options.by);
}

/* What a done line measured replaces what routing promised. */
static void test_done_measures(void **state)
{
    static const char *const lines[] = {
        "{\"id\":1,\"timestamp\":0,\"input_length\":100,\"route\":{\"worker\":\"w0\",\"matched\":"
        "50}}",
        "{\"event\":\"done\",\"id\":1,\"response\":{\"status\":200,\"cached_tokens\":10,\"ttft_"
        "ms\":5}}",
        "{\"id\":2,\"timestamp\":1,\"input_length\":100,\"route\":{\"worker\":\"w0\",\"matched\":"
        "50}}",
        "{\"id\":3,\"timestamp\":2,\"input_length\":100,\"route\":{\"worker\":\"w0\",\"matched\":"
        "70}}",
        "{\"event\":\"done\",\"id\":2,\"response\":{\"status\":200,\"cached_tokens\":20,\"ttft_"
        "ms\":5}}",
        "{\"event\":\"done\",\"id\":99,\"response\":{\"status\":200}}",
    };
    struct kvr_report_options options = plain_options();
    struct kvr_report *report = report_of(&options, lines, sizeof lines / sizeof *lines);
    struct kvr_run_view run;

    (void)state;
    assert_int_equal(kvr_run_view_init(&run, report, NULL), KVR_OK);
    /* 10 and 20 measured, 70 promised and never answered */
    check_metric(&run.view, "token_hit_rate", (10 + 20 + 70) / 300.0, 1e-12);
    check_metric(&run.view, "kept_rate", (10 + 20) / (50 + 50.0), 1e-12);
    assert_int_equal(report->unmatched_done, 1);
    assert_int_equal(run.total.sketches[KVR_SKETCH_TTFT_UNKNOWN].count, 2);
    kvr_run_view_release(&run);
    kvr_report_destroy(report);
}

/* Disorder within --late changes nothing; beyond it, only the windows miss the line. */
static void test_late(void **state)
{
    static const char *const ordered[] = {"{\"timestamp\":0,\"input_length\":10}",
        "{\"timestamp\":9000,\"input_length\":10}", "{\"timestamp\":12000,\"input_length\":10}",
        "{\"timestamp\":70000,\"input_length\":10}"};
    const char *const shuffled[] = {ordered[1], ordered[2], ordered[0], ordered[3]};
    struct kvr_report_options options = plain_options();

    (void)state;
    options.late_ms = 12000;
    for (int round = 0; round < 2; round++) {
        struct kvr_report *report = report_of(&options, round ? shuffled : ordered, 4);
        assert_int_equal(report->windows.late_lines, 0);
        assert_int_equal(report->windows.history_count, 3);
        assert_int_equal(report->windows.history[0].tally.counters[KVR_COUNT_REQUESTS], 2);
        assert_int_equal(report->windows.history[1].tally.counters[KVR_COUNT_REQUESTS], 1);
        kvr_report_destroy(report);
    }
    options.late_ms = 0;
    struct kvr_report *report = report_of(&options, shuffled, 4);
    assert_int_equal(report->windows.late_lines, 1);
    struct kvr_tally total = {0};
    assert_true(kvr_report_total(report, &total));
    assert_int_equal(total.counters[KVR_COUNT_REQUESTS], 4);
    kvr_tally_release(&total);
    kvr_report_destroy(report);
}

/* Matches of 500 tokens for half of the time, then a quarter of them 0 and the others 300. */
static void test_drift(void **state)
{
    struct kvr_report_options options = plain_options();
    struct kvr_report *report;
    struct kvr_drift drift;
    char line[200];

    (void)state;
    assert_int_equal(kvr_report_create(&report, &options, NULL), KVR_OK);
    assert_false(kvr_match_drift(report, &drift));
    for (int i = 0; i < 4000; i++) {
        int reused = i < 2000 ? 500 : i % 4 ? 300 : 0;
        snprintf(line, sizeof line,
            "{\"timestamp\":%d,\"input_length\":1000,\"route\":{\"worker\":\"w0\",\"matched\":%d}}",
            i * 250, reused);
        assert_int_equal(feed(report, line), KVR_OK);
    }
    assert_int_equal(kvr_report_finish(report, NULL), KVR_OK);
    assert_true(kvr_match_drift(report, &drift));
    assert_true(fabs(drift.before_p50 - 500) <= 5 && fabs(drift.after_p50 - 300) <= 3);
    assert_true(drift.distance == 1); /* all of the later ones are shorter than all before */
    kvr_report_destroy(report);
}

/* Reuse distance and popularity of a b c a | a b d: worked out by hand. */
static void test_prefixes(void **state)
{
    static const char *const lines[] = {
        "{\"id\":\"x\",\"input_length\":300,\"hash_ids\":[1,2,3],\"route\":{\"worker\":\"w0\"}}",
        "{\"id\":\"y\",\"input_length\":100,\"hash_ids\":[9]}",
        "{\"id\":\"z\",\"input_length\":250,\"hash_ids\":[1,2,4],\"route\":{\"worker\":\"w1\"}}",
        "{\"id\":\"v\",\"input_length\":100,\"hash_ids\":[1],\"route\":{\"worker\":\"w1\"}}",
    };
    struct kvr_report_options options = plain_options();
    uint32_t top[4];

    (void)state;
    options.prefixes = true;
    struct kvr_report *report = report_of(&options, lines, 4);
    const struct kvr_prefixes *tree = &report->prefixes;
    assert_int_equal(tree->accesses, 8);
    assert_int_equal(tree->first_uses, 5);
    /* 1: after 2, 3, 9; 2: after 3, 9, 1; 1 again: after 2, 4 */
    assert_int_equal(tree->distances.count, 3);
    assert_true(tree->distances.least == 2 && tree->distances.most == 3);
    assert_int_equal(tree->distances.sum_thousandths, (3 + 3 + 2) * 1000);
    /* [1,2]: 200 tokens, 2 requests saves 200; [1]: 100 tokens, 3 requests saves 200 */
    assert_int_equal(kvr_prefixes_top(tree, 4, top), 2);
    bool first_is_long = tree->nodes[top[0]].tokens == 200;
    const struct kvr_prefix_node *longer = &tree->nodes[top[first_is_long ? 0 : 1]];
    const struct kvr_prefix_node *shorter = &tree->nodes[top[first_is_long ? 1 : 0]];
    assert_int_equal(longer->tokens, 200);
    assert_int_equal(longer->requests, 2);
    assert_int_equal(__builtin_popcountll(longer->workers), 2);
    assert_int_equal(shorter->tokens, 100);
    assert_int_equal(shorter->requests, 3);
    assert_string_equal(tree->samples.data + shorter->sample, "\"x\"");
    kvr_report_destroy(report);
}

/* Against the definition: a list of last uses, searched. */
static void test_distance_random(void **state)
{
    enum { BLOCKS = 300, USES = 150000 };
    struct kvr_sketch_scale scale;
    struct kvr_prefixes tree = {.limit = 1000};
    struct kvr_random random = {3};
    static uint64_t order[BLOCKS]; /* latest first */
    size_t known = 0;
    uint64_t sum = 0;

    (void)state;
    assert_int_equal(kvr_sketch_scale_init(&scale, 0.01, NULL), KVR_OK);
    for (int i = 0; i < USES; i++) { /* more than the tree's first times: renumbers on the way */
        uint64_t id = 1 + kvr_random_below(&random, 1 + kvr_random_below(&random, BLOCKS));
        size_t at = 0;
        while (at < known && order[at] != id)
            at++;
        if (at == known)
            known++;
        else
            sum += at;
        memmove(order + 1, order, at * sizeof *order);
        order[0] = id;
        assert_int_equal(
            kvr_prefixes_request(&tree, &scale, &id, 1, 0, 16, 16, NULL, 0, -1, NULL), KVR_OK);
    }
    assert_int_equal(tree.distances.sum_thousandths, sum * 1000);
    assert_int_equal(tree.first_uses, known);
    kvr_prefixes_release(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_metric),
        cmocka_unit_test(test_bad_members),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_done_measures),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_distance_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
