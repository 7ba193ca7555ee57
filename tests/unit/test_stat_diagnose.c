/* Who is at fault: streams whose losses are all the router's, all the cache's, or nobody's. */
#include "tests/unit/stat_fixture.h"

#include "stat/diagnose.h"

#include <stdio.h>

/* 50 conversations of six turns on two workers. Each turn repeats 100 tokens of each turn before.
 */
static struct kvr_diagnosis diagnose(
    double held_by_best, double held_by_chosen, double kept, bool with_match, bool with_ids)
{
    struct kvr_report_options options = plain_options();
    struct kvr_report *report;
    struct kvr_run_view run;
    char line[600];

    assert_int_equal(kvr_report_create(&report, &options, NULL), KVR_OK);
    for (int i = 0; i < 300; i++) {
        int session = i % 50, turn = i / 50, used = 0;
        int best = (int)(turn * 100 * held_by_best), chosen = (int)(turn * 100 * held_by_chosen);
        used += snprintf(line, sizeof line, "{\"id\":%d,\"timestamp\":%d,\"input_length\":%d", i,
            i * 100, (turn + 1) * 100);
        for (int block = 0; block <= turn && with_ids; block++)
            used += snprintf(line + used, sizeof line - (size_t)used, "%s%d",
                block ? "," : ",\"hash_ids\":[", session * 10 + block + 1);
        if (with_ids)
            used += snprintf(line + used, sizeof line - (size_t)used, "]");
        if (with_match)
            used += snprintf(line + used, sizeof line - (size_t)used,
                ",\"match\":{\"w0\":%d,\"w1\":%d}", best, chosen);
        snprintf(line + used, sizeof line - (size_t)used,
            ",\"route\":{\"worker\":\"w%d\",\"reason\":\"x\"},\"response\":{\"status\":200,"
            "\"cached_tokens\":%d}}",
            with_match ? 1 : i % 2, (int)(chosen * kept));
        assert_int_equal(feed(report, line), KVR_OK);
    }
    assert_int_equal(kvr_report_finish(report, NULL), KVR_OK);
    assert_int_equal(kvr_run_view_init(&run, report, NULL), KVR_OK);
    struct kvr_diagnosis diagnosis = kvr_diagnose(&run.view, report->match_seen);
    kvr_run_view_release(&run);
    kvr_report_destroy(report);
    return diagnosis;
}

static void test_verdicts(void **state)
{
    struct kvr_diagnosis found;

    (void)state;
    found = diagnose(1, 1, 1, true, true);
    assert_string_equal(kvr_verdict_name(found.verdict), "fine");
    found = diagnose(1, 0.3, 1, true, true);
    assert_string_equal(kvr_verdict_name(found.verdict), "router-shattering-locality");
    assert_true(fabs(found.router - 0.3) < 0.01 && fabs(found.cache - 1) < 0.01);
    found = diagnose(0.3, 0.3, 1, true, true);
    assert_string_equal(kvr_verdict_name(found.verdict), "cache-thrashing");
    assert_true(fabs(found.router - 1) < 0.01 && fabs(found.cache - 0.3) < 0.01);
    found = diagnose(1, 1, 0.3, true, true); /* promised and gone */
    assert_string_equal(kvr_verdict_name(found.verdict), "cache-thrashing");
    found = diagnose(0.5, 0.1, 1, true, true);
    assert_string_equal(kvr_verdict_name(found.verdict), "router-and-cache");
    /* Without a match nobody knows what the other worker held. */
    found = diagnose(1, 0.3, 1, false, true);
    assert_string_equal(kvr_verdict_name(found.verdict), "unknown");
    assert_true(isnan(found.cache) && isnan(found.router));
    found = diagnose(1, 0.3, 1, false, false);
    assert_string_equal(kvr_verdict_name(found.verdict), "unknown");
}

/* One cache and no router. */
static void test_one_cache(void **state)
{
    static const char *const lines[] = {
        "{\"input_length\":200,\"hash_ids\":[1,2],\"cache\":{\"hit\":0}}",
        "{\"input_length\":200,\"hash_ids\":[1,2],\"cache\":{\"hit\":0}}",
        "{\"input_length\":200,\"hash_ids\":[1,2],\"cache\":{\"hit\":100}}"};
    struct kvr_report_options options = plain_options();
    struct kvr_report *report = report_of(&options, lines, 3);
    struct kvr_buffer text = {0};
    struct kvr_run_view run;

    (void)state;
    assert_int_equal(kvr_run_view_init(&run, report, NULL), KVR_OK);
    struct kvr_diagnosis found = kvr_diagnose(&run.view, report->match_seen);
    assert_string_equal(kvr_verdict_name(found.verdict), "cache-thrashing");
    kvr_diagnosis_text(&found, &text);
    assert_non_null(strstr(kvr_buffer_text(&text), "caches keep 25 %"));
    kvr_buffer_release(&text);
    kvr_run_view_release(&run);
    kvr_report_destroy(report);
}

static void test_little(void **state)
{
    static const char *const lines[] = {
        "{\"input_length\":200,\"hash_ids\":[1,2],\"route\":{\"worker\":\"w0\",\"matched\":0}}",
        "{\"input_length\":200,\"hash_ids\":[3,4],\"route\":{\"worker\":\"w1\",\"matched\":0}}"};
    struct kvr_report_options options = plain_options();
    struct kvr_report *report = report_of(&options, lines, 2);
    struct kvr_run_view run;

    (void)state;
    assert_int_equal(kvr_run_view_init(&run, report, NULL), KVR_OK);
    assert_int_equal(
        kvr_diagnose(&run.view, report->match_seen).verdict, KVR_VERDICT_LITTLE_TO_SHARE);
    kvr_run_view_release(&run);
    kvr_report_destroy(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_one_cache),
        cmocka_unit_test(test_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
