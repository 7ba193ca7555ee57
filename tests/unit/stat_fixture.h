/* Reports from lines of text, for the tests of stat/. */
#ifndef KVR_TESTS_STAT_FIXTURE_H
#define KVR_TESTS_STAT_FIXTURE_H

#include "tests/unit/unit.h"

#include "stat/metrics.h"

#include <math.h>
#include <string.h>

/* Options with a cost model that a person can compute: p(n, c) = 10 + n / 10 ms. */
static inline struct kvr_report_options plain_options(void)
{
    struct kvr_report_options options;

    assert_int_equal(kvr_report_defaults(&options, NULL), KVR_OK);
    memset(&options.cost, 0, sizeof options.cost);
    options.cost.prefill_overhead_ms = 10;
    options.cost.prefill_token_ms = 0.1;
    options.block_tokens = 100;
    return options;
}

static inline enum kvr_status feed(struct kvr_report *report, const char *text)
{
    struct kvr_source_line source = {.text = text, .length = strlen(text), .file = "test"};
    struct kvr_error error = {0};
    struct kvr_line line;

    assert_int_equal(kvr_line_init(&line, &error), KVR_OK);
    enum kvr_status status = kvr_line_parse(&line, &source, &error);
    if (status == KVR_OK)
        status = kvr_report_line(report, &line, &error);
    kvr_line_release(&line);
    return status;
}

static inline struct kvr_report *report_of(
    const struct kvr_report_options *options, const char *const *lines, size_t count)
{
    struct kvr_report *report;

    assert_int_equal(kvr_report_create(&report, options, NULL), KVR_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(feed(report, lines[i]), KVR_OK);
    assert_int_equal(kvr_report_finish(report, NULL), KVR_OK);
    return report;
}

/* Within `share` of what is expected; NaN only where NaN is expected. */
static inline void check_metric(
    const struct kvr_view *view, const char *name, double expected, double share)
{
    double value = kvr_metric_named(view, name);

    if (isnan(expected) ? !isnan(value)
                        : !(fabs(value - expected) <= fabs(expected) * share + 1e-9))
        fail_msg("%s is %.10g, not %.10g", name, value, expected);
}

#endif
