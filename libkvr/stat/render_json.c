/* --json: one object with stable names. */
#include "stat/render.h"

#include "stat/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void name(struct kvr_buffer *out, const char *text)
{
    kvr_line_add(out, text);
}

static void number(struct kvr_buffer *out, const char *text, double value)
{
    name(out, text);
    if (isfinite(value))
        kvr_json_write_fixed(out, value, 6);
    else
        kvr_buffer_append_text(out, "null");
}

static void count(struct kvr_buffer *out, const char *text, uint64_t value)
{
    name(out, text);
    kvr_buffer_append_u64(out, value);
}

static void string(struct kvr_buffer *out, const char *text, const char *value)
{
    name(out, text);
    kvr_json_write_string(out, value, strlen(value));
}

static void open_object(struct kvr_buffer *out, const char *text)
{
    name(out, text);
    kvr_buffer_append_byte(out, '{');
}

static void metrics(struct kvr_buffer *out, const struct kvr_view *view)
{
    open_object(out, "metrics");
    for (size_t i = 0; i < kvr_metric_count; i++)
        number(out, kvr_metrics[i].name, kvr_metric_value(&kvr_metrics[i], view));
    kvr_line_end(out);
}

static void distribution(struct kvr_buffer *out, const char *text, const struct kvr_sketch *sketch,
    const struct kvr_sketch_scale *scale)
{
    open_object(out, text);
    count(out, "count", sketch->count);
    if (sketch->count) {
        number(out, "mean", kvr_sketch_mean(sketch));
        number(out, "min", sketch->least);
        for (size_t i = 0; i < kvr_render_quantile_count; i++) {
            char label[8];
            snprintf(label, sizeof label, "p%.0f", kvr_render_quantiles[i] * 100);
            number(out, label, kvr_sketch_quantile(sketch, scale, kvr_render_quantiles[i]));
        }
        number(out, "max", sketch->most);
    }
    kvr_line_end(out);
}

static void latencies(struct kvr_buffer *out, const struct kvr_view *view)
{
    open_object(out, "latency");
    for (int i = 0; i < 3; i++) {
        struct kvr_sketch all = {0};
        open_object(out, kvr_latencies[i].name);
        if (kvr_tally_all_kinds(view->tally, kvr_latencies[i].first, &all))
            distribution(out, "all", &all, view->scale);
        for (int kind = 0; kind < KVR_KIND_COUNT; kind++)
            distribution(out, kvr_kind_names[kind],
                &view->tally->sketches[kvr_latencies[i].first + kind], view->scale);
        kvr_line_end(out);
        kvr_sketch_release(&all);
    }
    kvr_line_end(out);
}

static void matches(
    struct kvr_buffer *out, const struct kvr_view *view, const struct kvr_report *report)
{
    struct kvr_drift drift;
    const struct kvr_sketch *sketch = &view->tally->sketches[KVR_SKETCH_MATCH];
    struct kvr_match_bar bars[KVR_MATCH_BARS];
    size_t bar_count = kvr_render_match_bars(sketch, view->scale, bars);

    distribution(out, "match_tokens", sketch, view->scale);
    name(out, "match_histogram");
    kvr_buffer_append_byte(out, '[');
    for (size_t i = 0; i < bar_count; i++) {
        kvr_buffer_append_text(out, i ? ",{" : "{");
        number(out, "until", bars[i].until);
        count(out, "count", bars[i].count);
        kvr_line_end(out);
    }
    kvr_buffer_append_byte(out, ']');
    if (kvr_match_drift(report, &drift)) {
        open_object(out, "match_drift");
        number(out, "before_p50", drift.before_p50);
        number(out, "after_p50", drift.after_p50);
        number(out, "distance", drift.distance);
        kvr_line_end(out);
    }
    distribution(
        out, "prediction_error", &view->tally->sketches[KVR_SKETCH_PREDICTION_ERROR], view->scale);
    distribution(
        out, "eviction_age_ms", &view->tally->sketches[KVR_SKETCH_EVICTION_AGE], view->scale);
}

static void workers(struct kvr_buffer *out, const struct kvr_render *render)
{
    static const char *const states[] = {"active", "draining", "down"};
    const struct kvr_report *report = render->report;

    name(out, "workers");
    kvr_buffer_append_byte(out, '[');
    for (uint32_t i = 0; i < render->run->view.load_count; i++) {
        uint32_t worker = render->run->load_workers[i];
        const struct kvr_worker_stat *stat = &report->workers[worker];
        struct kvr_view view = kvr_view_worker(render->run, report, i);
        kvr_buffer_append_text(out, i ? ",{" : "{");
        name(out, "worker");
        kvr_json_write_string(out, report->worker_names.items[worker].name,
            report->worker_names.items[worker].length);
        string(out, "state", states[stat->state]);
        if (stat->capacity_tokens)
            count(out, "capacity_tokens", stat->capacity_tokens);
        if (report->blocks_seen) {
            count(out, "resident_blocks", stat->resident_blocks);
            count(out, "resident_tokens", stat->resident_tokens);
            if (stat->capacity_tokens)
                number(out, "occupancy",
                    (double)stat->resident_tokens / (double)stat->capacity_tokens);
        }
        if (report->done_seen)
            count(out, "outstanding", stat->outstanding);
        number(out, "kv_usage", stat->kv_usage);
        number(out, "waiting", stat->waiting);
        number(out, "running", stat->running);
        metrics(out, &view);
        latencies(out, &view);
        kvr_line_end(out);
    }
    kvr_buffer_append_byte(out, ']');
}

static void groups(struct kvr_buffer *out, const struct kvr_render *render)
{
    const struct kvr_report *report = render->report;
    uint32_t *order = calloc(report->group_names.count + 1, sizeof *order);

    if (!render->by || !order) {
        free(order);
        return;
    }
    string(out, "by", render->by);
    name(out, "groups");
    kvr_buffer_append_byte(out, '[');
    uint32_t listed = kvr_groups_sorted(&report->group_names, order);
    if (report->group_capacity && report->groups[0].counters[KVR_COUNT_REQUESTS])
        order[listed++] = 0;
    for (uint32_t i = 0; i < listed; i++) {
        struct kvr_view view = kvr_view_tally(render->run, &report->groups[order[i]]);
        kvr_buffer_append_text(out, i ? ",{" : "{");
        name(out, "group");
        kvr_json_write_string(out, report->group_names.items[order[i]].name,
            report->group_names.items[order[i]].length);
        metrics(out, &view);
        latencies(out, &view);
        kvr_line_end(out);
    }
    kvr_buffer_append_byte(out, ']');
    free(order);
}

static void reasons(struct kvr_buffer *out, const char *text, const struct kvr_report *report,
    const uint64_t *counts)
{
    uint32_t order[KVR_REASONS + 1];
    uint32_t listed = kvr_groups_sorted(&report->reason_names, order);

    order[listed++] = 0;
    open_object(out, text);
    for (uint32_t i = 0; i < listed; i++) {
        const struct kvr_group *reason = &report->reason_names.items[order[i]];
        if (!counts[order[i]])
            continue;
        if (out->data[out->length - 1] != '{')
            kvr_buffer_append_byte(out, ',');
        kvr_json_write_string(out, reason->name, reason->length);
        kvr_buffer_append_byte(out, ':');
        kvr_buffer_append_u64(out, counts[order[i]]);
    }
    kvr_line_end(out);
}

static const char *const window_metrics[] = {"requests", "request_rate", "token_hit_rate",
    "ttft_p50_ms", "ttft_p99_ms", "match_tokens_p50", "rejected_rate", "eviction_rate"};
enum { WINDOW_METRICS = sizeof window_metrics / sizeof *window_metrics };

static void last_window(struct kvr_buffer *out, const struct kvr_report *report)
{
    struct kvr_worker_load *scratch = calloc(KVR_PANE_WORKERS, sizeof *scratch);
    struct kvr_pane sum = {0};
    struct kvr_view view;

    if (scratch && kvr_last_window(report, &sum, scratch, &view)) {
        open_object(out, "last");
        for (size_t i = 0; i < WINDOW_METRICS; i++)
            number(out, window_metrics[i], kvr_metric_named(&view, window_metrics[i]));
        number(out, "load_skew", kvr_metric_named(&view, "load_skew"));
        kvr_line_end(out);
    }
    kvr_pane_release(&sum);
    free(scratch);
}

static void windows(struct kvr_buffer *out, const struct kvr_render *render)
{
    const struct kvr_report *report = render->report;
    const struct kvr_windows *history = &report->windows;
    double pane_ms = history->pane_ms;

    open_object(out, "windows");
    number(out, "window_ms", pane_ms * KVR_WINDOW_PANES);
    number(out, "busiest_request_rate", history->most_request_rate);
    number(out, "late_lines", report->merged_parts ? NAN : (double)history->late_lines);
    count(out, "untimed_lines", history->untimed_lines);
    last_window(out, report);
    number(out, "point_ms", pane_ms * (double)history->history_step);
    name(out, "points");
    kvr_buffer_append_byte(out, '[');
    for (uint32_t i = 0; i < history->history_count; i++) {
        const struct kvr_pane *pane = &history->history[i];
        struct kvr_view view = {
            &report->scale, &pane->tally, pane_ms * (double)pane->panes, NULL, 0};
        kvr_buffer_append_text(out, i ? ",{" : "{");
        number(out, "start_ms", (double)pane->index * pane_ms);
        for (size_t j = 0; j < WINDOW_METRICS; j++)
            number(out, window_metrics[j], kvr_metric_named(&view, window_metrics[j]));
        reasons(out, "reasons", report, pane->reasons);
        kvr_line_end(out);
    }
    kvr_buffer_append_text(out, "]}");
}

static void prefixes(struct kvr_buffer *out, const struct kvr_render *render)
{
    const struct kvr_prefixes *tree = &render->report->prefixes;
    uint32_t *top = calloc(render->prefixes + 1, sizeof *top);

    if (!render->prefixes || !top || tree->full) {
        free(top);
        return;
    }
    name(out, "prefixes");
    kvr_buffer_append_byte(out, '[');
    size_t found = kvr_prefixes_top(tree, render->prefixes, top);
    for (size_t i = 0; i < found; i++) {
        const struct kvr_prefix_node *node = &tree->nodes[top[i]];
        const char *sample = tree->samples.data + node->sample;
        kvr_buffer_append_text(out, i ? ",{" : "{");
        count(out, "tokens", node->tokens);
        count(out, "requests", node->requests);
        count(out, "workers", (uint64_t)__builtin_popcountll(node->workers));
        name(out, "sample_id");
        kvr_buffer_append_text(out, *sample ? sample : "null");
        kvr_line_end(out);
    }
    kvr_buffer_append_byte(out, ']');
    distribution(out, "reuse_distance_blocks", &tree->distances, &render->report->scale);
    count(out, "block_accesses", tree->accesses);
    count(out, "distinct_blocks", tree->first_uses);
    free(top);
}

static void alerts(struct kvr_buffer *out, const struct kvr_render *render)
{
    const struct kvr_alerts *list = render->alerts;

    if (!list)
        return;
    count(out, "alerts_fired", list->fired);
    name(out, "alerts");
    kvr_buffer_append_byte(out, '[');
    for (size_t i = 0; i < list->event_count; i++) {
        const struct kvr_alert_event *event = &list->events[i];
        const struct kvr_rule *rule = &list->rules[event->rule];
        kvr_buffer_append_text(out, i ? ",{" : "{");
        string(out, "name", rule->name);
        string(out, "severity", rule->severity);
        if (event->worker != UINT32_MAX)
            string(out, "worker", render->report->worker_names.items[event->worker].name);
        number(out, "value", event->value);
        number(out, "threshold", event->threshold);
        number(out, "since", event->since_ms);
        number(out, "fired", event->fired_ms);
        number(out, "cleared", event->cleared_ms);
        if (rule->hint)
            string(out, "hint", rule->hint);
        kvr_line_end(out);
    }
    kvr_buffer_append_byte(out, ']');
}

static void diagnosis(struct kvr_buffer *out, const struct kvr_render *render)
{
    struct kvr_diagnosis found = kvr_diagnose(&render->run->view, render->report->match_seen);
    struct kvr_buffer text = {0};

    kvr_diagnosis_text(&found, &text);
    open_object(out, "diagnosis");
    string(out, "verdict", kvr_verdict_name(found.verdict));
    number(out, "ceiling", found.ceiling);
    number(out, "best", found.best);
    number(out, "chosen", found.chosen);
    number(out, "router_keeps", found.router);
    number(out, "cache_keeps", found.cache);
    number(out, "promises_kept", found.kept);
    name(out, "text");
    kvr_json_write_string(out, text.data, text.length);
    kvr_line_end(out);
    kvr_buffer_release(&text);
}

static void add_left_out(void *context, const char *what, const char *why)
{
    struct kvr_buffer *out = context;

    string(out, what, why);
}

void kvr_render_json(const struct kvr_render *render, struct kvr_buffer *out)
{
    const struct kvr_report *report = render->report;
    const struct kvr_view *view = &render->run->view;

    kvr_buffer_append_byte(out, '{');
    count(out, "requests", view->tally->counters[KVR_COUNT_REQUESTS]);
    count(out, "events", report->event_lines);
    count(out, "bad_lines", render->bad_lines);
    number(out, "first_ms", report->windows.oldest_ms);
    number(out, "last_ms", report->windows.newest_ms);
    number(out, "accuracy", report->scale.accuracy);
    metrics(out, view);
    latencies(out, view);
    matches(out, view, report);
    workers(out, render);
    groups(out, render);
    reasons(out, "reasons", report, report->reasons);
    prefixes(out, render);
    windows(out, render);
    alerts(out, render);
    diagnosis(out, render);
    open_object(out, "left_out");
    kvr_report_left_out(report, add_left_out, out);
    kvr_line_end(out);
    kvr_line_end(out);
}
