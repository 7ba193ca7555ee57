/* The report for people. */
#include "stat/render.h"

#include "stat/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BAR_CELLS = 24, NAME_CELLS = 24, NAME_CELLS_MOST = 56 };

#define print kvr_buffer_append_format

/* 12345678 as 12.3 M, and so on from six digits on; NaN as a dash. */
static void quantity(struct kvr_buffer *out, double value, int width)
{
    static const char units[] = " kMGT";
    char text[40];
    int unit = 0;

    if (!isfinite(value)) {
        print(out, "%*s", width, "-");
        return;
    }
    for (bool large = fabs(value) >= 99999.5; large && fabs(value) >= 999.95 && unit < 4; unit++)
        value /= 1000;
    int decimals = value == floor(value) && unit == 0 ? 0
                   : fabs(value) >= 100               ? (unit ? 1 : 0)
                   : fabs(value) >= 10                ? 1
                                                      : 2;
    int length = snprintf(text, sizeof text, "%.*f", decimals, value);
    if (unit)
        snprintf(text + length, sizeof text - (size_t)length, " %c", units[unit]);
    print(out, "%*s", width, text);
}

static void percent(struct kvr_buffer *out, double share, int width)
{
    if (isfinite(share))
        print(out, "%*.1f %%", width - 2, share * 100);
    else
        print(out, "%*s", width, "-");
}

/* Eighths of a cell, so that small differences show. */
static void bar(struct kvr_buffer *out, double share)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int parts = isfinite(share) ? (int)lround(fmin(fmax(share, 0), 1) * BAR_CELLS * 8) : 0;

    for (int i = 0; i < parts / 8; i++)
        kvr_buffer_append_text(out, "█");
    kvr_buffer_append_text(out, eighths[parts % 8]);
}

static int cells_of(const char *text)
{
    int cells = 0;

    for (; *text; text++)
        cells += ((unsigned char)*text & 0xc0) != 0x80;
    return cells;
}

/* A name shortened or filled to so many characters. */
static void label_in(struct kvr_buffer *out, const char *name, int cells)
{
    char text[KVR_SHORT_NAME_BYTES];

    kvr_render_short_name(text, name, (unsigned)cells);
    print(out, "  %s%*s", text, cells - cells_of(text), "");
}

static void label(struct kvr_buffer *out, const char *text)
{
    label_in(out, text, NAME_CELLS);
}

/* The column that so many of the names need. */
static int column_of(const struct kvr_groups *names, const uint32_t *order, uint32_t count)
{
    int cells = NAME_CELLS;

    for (uint32_t i = 0; i < count; i++) {
        int needed = cells_of(names->items[order[i]].name);
        cells = needed > cells ? needed : cells;
    }
    return cells < NAME_CELLS_MOST ? cells : NAME_CELLS_MOST;
}

static void heading(struct kvr_buffer *out, const char *text)
{
    print(out, "\n%s\n", text);
}

static double metric(const struct kvr_view *view, const char *name)
{
    return kvr_metric_named(view, name);
}

static void seconds(struct kvr_buffer *out, double ms)
{
    if (ms < 1e3)
        print(out, "%.0f ms", ms);
    else if (ms < 120e3)
        print(out, "%.1f s", ms / 1e3);
    else if (ms < 2 * 3600e3)
        print(out, "%.1f min", ms / 60e3);
    else
        print(out, "%.1f h", ms / 3600e3);
}

static void summary(struct kvr_buffer *out, const struct kvr_render *render)
{
    const struct kvr_view *view = &render->run->view;
    const struct kvr_windows *windows = &render->report->windows;

    quantity(out, metric(view, "requests"), 0);
    kvr_buffer_append_text(out, " requests");
    if (view->span_ms > 0) {
        kvr_buffer_append_text(out, " in ");
        seconds(out, view->span_ms);
        print(out, " (%.2f/s", metric(view, "request_rate"));
        if (view->span_ms > windows->pane_ms * KVR_WINDOW_PANES && windows->most_request_rate > 0)
            print(out, ", busiest window %.2f/s", windows->most_request_rate);
        kvr_buffer_append_byte(out, ')');
    }
    kvr_buffer_append_text(out, ", ");
    quantity(out, metric(view, "prompt_tokens"), 0);
    print(out, " prompt tokens, %u workers\n", view->load_count);
}

static void last_window(struct kvr_buffer *out, const struct kvr_report *report)
{
    struct kvr_worker_load *scratch = calloc(KVR_PANE_WORKERS, sizeof *scratch);
    struct kvr_pane sum = {0};
    struct kvr_view view;

    if (scratch && kvr_last_window(report, &sum, scratch, &view)) {
        kvr_buffer_append_text(out, "last ");
        seconds(out, view.span_ms);
        print(out, ": %.2f requests/s, hit rate", metric(&view, "request_rate"));
        percent(out, metric(&view, "token_hit_rate"), 8);
        kvr_buffer_append_text(out, ", TTFT p50");
        quantity(out, metric(&view, "ttft_p50_ms"), 6);
        kvr_buffer_append_text(out, " ms, p99");
        quantity(out, metric(&view, "ttft_p99_ms"), 6);
        print(out, " ms, skew %.2f\n", metric(&view, "load_skew"));
    }
    kvr_pane_release(&sum);
    free(scratch);
}

static void share_row(struct kvr_buffer *out, const struct kvr_view *view, const char *name,
    const char *text, const char *after)
{
    double share = metric(view, name);

    if (!isfinite(share))
        return;
    label(out, text);
    percent(out, share, 9);
    kvr_buffer_append_text(out, "  ");
    bar(out, share);
    if (after)
        kvr_buffer_append_text(out, after);
    kvr_buffer_append_byte(out, '\n');
}

static void reuse(struct kvr_buffer *out, const struct kvr_view *view)
{
    heading(out, "Reuse, share of prompt tokens unless said otherwise");
    share_row(out, view, "token_hit_rate", "token hit rate", NULL);
    share_row(out, view, "request_hit_rate", "request hit rate", "  of requests");
    share_row(out, view, "time_saved_rate", "prefill time saved", "  of prefill time");
    share_row(out, view, "ceiling_token_hit_rate", "ceiling", "  infinite shared cache");
    share_row(out, view, "ceiling_time_saved_rate", "ceiling, time saved", "  of prefill time");
    share_row(out, view, "best_token_hit_rate", "best worker", "  had routing followed the match");
    share_row(out, view, "regret_rate", "regret", "  held by another active worker");
    share_row(out, view, "engine_token_hit_rate", "by the engines", "  their own counters");
    share_row(out, view, "kept_rate", "matches kept", "  of the matched tokens");
    if (view->tally->counters[KVR_COUNT_KNOWN]) {
        label(out, "prefill saved");
        seconds(out, metric(view, "prefill_saved_ms"));
        kvr_buffer_append_text(out, " of ");
        seconds(out, metric(view, "prefill_ms"));
        if (view->tally->counters[KVR_COUNT_BEST]) {
            kvr_buffer_append_text(out, ", regret ");
            seconds(out, metric(view, "regret_ms"));
        }
        kvr_buffer_append_byte(out, '\n');
    }
}

static void latency_row(struct kvr_buffer *out, const char *measure, const char *kind,
    const struct kvr_sketch *sketch, const struct kvr_sketch_scale *scale)
{
    static const double shown[] = {0.5, 0.9, 0.99};
    char text[64];

    snprintf(text, sizeof text, "%s %s", measure, kind);
    label(out, text);
    quantity(out, (double)sketch->count, 9);
    for (int i = 0; i < 3; i++)
        quantity(out, kvr_sketch_quantile(sketch, scale, shown[i]), 10);
    quantity(out, kvr_sketch_mean(sketch), 10);
    kvr_buffer_append_byte(out, '\n');
}

static void latencies(struct kvr_buffer *out, const struct kvr_view *view)
{
    static const char *const kinds[] = {"new", "later turns", "(kind unknown)"};
    bool begun = false;

    for (int i = 0; i < 3; i++) {
        struct kvr_sketch all = {0};
        int filled = 0;
        if (!kvr_tally_all_kinds(view->tally, kvr_latencies[i].first, &all) || !all.count) {
            kvr_sketch_release(&all);
            continue;
        }
        if (!begun) {
            heading(out, "Latency, ms");
            print(out, "  %*s%9s%10s%10s%10s%10s\n", NAME_CELLS, "", "count", "p50", "p90", "p99",
                "mean");
            begun = true;
        }
        latency_row(out, kvr_latencies[i].text, "", &all, view->scale);
        for (int kind = 0; kind < KVR_KIND_COUNT; kind++)
            filled += view->tally->sketches[kvr_latencies[i].first + kind].count != 0;
        for (int kind = 0; kind < KVR_KIND_COUNT && filled > 1; kind++) {
            const struct kvr_sketch *sketch = &view->tally->sketches[kvr_latencies[i].first + kind];
            if (sketch->count)
                latency_row(out, kvr_latencies[i].text, kinds[kind], sketch, view->scale);
        }
        kvr_sketch_release(&all);
    }
    if (view->tally->counters[KVR_COUNT_SLO_KNOWN]) {
        label(out, "within the TTFT bound");
        percent(out, metric(view, "goodput_share"), 9);
        print(out, "  goodput %.2f/s\n", metric(view, "goodput"));
    }
    if (view->tally->counters[KVR_COUNT_PREDICTED]) {
        label(out, "TTFT predicted");
        print(out, "bias %+.1f %%, p90 error %.1f %%\n", metric(view, "prediction_bias") * 100,
            metric(view, "prediction_error_p90") * 100);
    }
    share_row(out, view, "rejected_rate", "rejected", "  of requests");
    share_row(out, view, "failed_rate", "failed", "  of answers");
}

static void matches(
    struct kvr_buffer *out, const struct kvr_view *view, const struct kvr_report *report)
{
    struct kvr_drift drift;
    const struct kvr_sketch *sketch = &view->tally->sketches[KVR_SKETCH_MATCH];
    struct kvr_match_bar bars[KVR_MATCH_BARS];
    size_t count = kvr_render_match_bars(sketch, view->scale, bars);

    if (!count)
        return;
    heading(out, "Tokens reused by a request");
    label(out, "p10 p50 p90 p99");
    for (int i = 0; i < 4; i++)
        quantity(out, kvr_sketch_quantile(sketch, view->scale, (double[]){.1, .5, .9, .99}[i]), 9);
    kvr_buffer_append_byte(out, '\n');
    if (kvr_match_drift(report, &drift)) {
        label(out, "drift");
        print(out, "median %.0f in the first tenth, %.0f in the last; distance %.2f of 1\n",
            drift.before_p50, drift.after_p50, drift.distance);
    }
    for (size_t i = 0; i < count; i++) {
        char text[40];
        double share = (double)bars[i].count / (double)sketch->count;
        if (i == 0)
            snprintf(text, sizeof text, "none");
        else
            snprintf(text, sizeof text, "%.0f to %.0f", i == 1 ? 1 : bars[i].until / 2 + 1,
                bars[i].until);
        if (!bars[i].count)
            continue;
        label(out, text);
        percent(out, share, 9);
        kvr_buffer_append_text(out, "  ");
        bar(out, share);
        kvr_buffer_append_byte(out, '\n');
    }
}

/* A table of tallies, one a row: the workers, or the groups of --by. */
static void tally_row(
    struct kvr_buffer *out, const char *name, int cells, const struct kvr_view *view, double most)
{
    double work = (double)(view->tally->counters[KVR_COUNT_PROMPT_TOKENS] -
                           view->tally->counters[KVR_COUNT_REUSED_TOKENS]);

    label_in(out, name, cells);
    quantity(out, metric(view, "requests"), 9);
    percent(out, metric(view, "token_hit_rate"), 9);
    quantity(out, metric(view, "ttft_p50_ms"), 9);
    quantity(out, metric(view, "ttft_p99_ms"), 9);
    quantity(out, work, 9);
    kvr_buffer_append_byte(out, ' ');
    bar(out, most > 0 ? work / most : 0);
    kvr_buffer_append_byte(out, '\n');
}

static void tally_heading(struct kvr_buffer *out, const char *text, int cells)
{
    heading(out, text);
    print(out, "  %*s%9s%9s%9s%9s%9s\n", cells, "", "requests", "hit rate", "TTFT p50", "TTFT p99",
        "work");
}

static void workers(struct kvr_buffer *out, const struct kvr_render *render)
{
    static const char *const states[] = {"", ", draining", ", down"};
    const struct kvr_run_view *run = render->run;
    double most = 0;
    enum { SHOWN = 32 };

    if (!run->view.load_count)
        return;
    int cells = column_of(&render->report->worker_names, run->load_workers,
        run->view.load_count < SHOWN ? run->view.load_count : SHOWN);
    tally_heading(out, "Workers; work is prompt tokens not reused", cells);
    for (uint32_t i = 0; i < run->view.load_count; i++)
        most = fmax(most, (double)(run->loads[i].prompt_tokens - run->loads[i].reused_tokens));
    for (uint32_t i = 0; i < run->view.load_count && i < SHOWN; i++) {
        const struct kvr_worker_stat *stat = &render->report->workers[run->load_workers[i]];
        struct kvr_view view = kvr_view_worker(run, render->report, i);
        char name[KVR_SHORT_NAME_BYTES + 16];
        kvr_render_short_name(name, render->report->worker_names.items[run->load_workers[i]].name,
            (unsigned)cells - (unsigned)strlen(states[stat->state]));
        strcat(name, states[stat->state]);
        tally_row(out, name, cells, &view, most);
    }
    if (run->view.load_count > SHOWN)
        print(out, "  … and %u more (--json lists all)\n", run->view.load_count - SHOWN);
    label(out, "skew");
    if (isfinite(metric(&run->view, "load_skew")))
        print(out, "work max/mean %.2f, variation %.2f, Jain %.3f; ",
            metric(&run->view, "load_skew"), metric(&run->view, "load_variation"),
            metric(&run->view, "load_jain"));
    print(out, "requests max/mean %.2f\n", metric(&run->view, "request_skew"));
}

static void caches(struct kvr_buffer *out, const struct kvr_render *render)
{
    const struct kvr_run_view *run = render->run;
    uint32_t shown = run->view.load_count < 32 ? run->view.load_count : 32;
    int cells = column_of(&render->report->worker_names, run->load_workers, shown);
    bool begun = false;

    for (uint32_t i = 0; i < shown; i++) {
        const struct kvr_worker_stat *stat = &render->report->workers[run->load_workers[i]];
        struct kvr_view view = kvr_view_worker(run, render->report, i);
        double usage = stat->kv_usage;
        if (isnan(usage) && stat->capacity_tokens && render->report->blocks_seen)
            usage = (double)stat->resident_tokens / (double)stat->capacity_tokens;
        if (isnan(usage) && !stat->resident_blocks &&
            !stat->tally.counters[KVR_COUNT_EVICTED_BLOCKS])
            continue;
        if (!begun) {
            heading(out, "Caches");
            print(out, "  %*s%9s%10s%10s%12s%9s\n", cells, "", "blocks", "evicted", "age p50 s",
                "never used", "KV use");
            begun = true;
        }
        label_in(out, render->report->worker_names.items[run->load_workers[i]].name, cells);
        bool seen = render->report->blocks_seen;
        quantity(out, seen ? (double)stat->resident_blocks : NAN, 9);
        quantity(out, seen ? (double)stat->tally.counters[KVR_COUNT_EVICTED_BLOCKS] : NAN, 10);
        quantity(out, metric(&view, "eviction_age_p50_ms") / 1e3, 10);
        percent(out, metric(&view, "evicted_unused_rate"), 12);
        percent(out, usage, 9);
        kvr_buffer_append_byte(out, ' ');
        bar(out, usage);
        kvr_buffer_append_byte(out, '\n');
    }
}

static void groups(struct kvr_buffer *out, const struct kvr_render *render)
{
    const struct kvr_report *report = render->report;
    uint32_t *order = calloc(report->group_names.count + 1, sizeof *order);
    char title[128];
    double most = 0;
    enum { SHOWN = 40 };

    if (!render->by || !order) {
        free(order);
        return;
    }
    snprintf(title, sizeof title, "By %.100s", render->by);
    uint32_t count = kvr_groups_sorted(&report->group_names, order);
    if (report->group_capacity && report->groups[0].counters[KVR_COUNT_REQUESTS])
        order[count++] = 0;
    int cells = column_of(&report->group_names, order, count < SHOWN ? count : SHOWN);
    tally_heading(out, title, cells);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t *counters = report->groups[order[i]].counters;
        most = fmax(
            most, (double)(counters[KVR_COUNT_PROMPT_TOKENS] - counters[KVR_COUNT_REUSED_TOKENS]));
    }
    for (uint32_t i = 0; i < count && i < SHOWN; i++) {
        struct kvr_view view = kvr_view_tally(render->run, &report->groups[order[i]]);
        tally_row(out, report->group_names.items[order[i]].name, cells, &view, most);
    }
    if (count > SHOWN)
        print(out, "  … and %u more (--json lists all)\n", count - SHOWN);
    free(order);
}

static void reasons(struct kvr_buffer *out, const struct kvr_report *report)
{
    uint32_t order[KVR_REASONS + 1];
    uint64_t all = 0;

    for (uint32_t i = 0; i < report->reason_names.count; i++)
        all += report->reasons[i];
    if (!all)
        return;
    heading(out, "Routing reasons");
    uint32_t listed = kvr_groups_sorted(&report->reason_names, order);
    order[listed++] = 0;
    int cells = column_of(&report->reason_names, order, listed);
    for (uint32_t i = 0; i < listed; i++) {
        double share = (double)report->reasons[order[i]] / (double)all;
        if (!report->reasons[order[i]])
            continue;
        label_in(out, report->reason_names.items[order[i]].name, cells);
        percent(out, share, 9);
        kvr_buffer_append_text(out, "  ");
        bar(out, share);
        kvr_buffer_append_byte(out, '\n');
    }
}

static void prefixes(struct kvr_buffer *out, const struct kvr_render *render)
{
    const struct kvr_prefixes *tree = &render->report->prefixes;
    const struct kvr_sketch_scale *scale = &render->report->scale;
    uint32_t *top = calloc(render->prefixes + 1, sizeof *top);

    if (render->prefixes && top && !tree->full && tree->accesses) {
        size_t found = kvr_prefixes_top(tree, render->prefixes, top);
        heading(out, "Shared prefixes, by what sharing them saves");
        print(out, "  %10s%10s%9s  %s\n", "tokens", "requests", "workers", "first request");
        for (size_t i = 0; i < found; i++) {
            const struct kvr_prefix_node *node = &tree->nodes[top[i]];
            char safe[64];
            const char *sample = tree->samples.data + node->sample;
            print(out, "  %10u%10u%9d  %s\n", node->tokens, node->requests,
                __builtin_popcountll(node->workers),
                *sample ? kvr_printable(safe, sizeof safe, sample, strlen(sample)) : "-");
        }
        heading(out, "Reuse distance, different blocks between two uses of the same one");
        label(out, "p10 p50 p90 p99");
        for (int i = 0; i < 4; i++)
            quantity(out,
                kvr_sketch_quantile(&tree->distances, scale, (double[]){.1, .5, .9, .99}[i]), 9);
        kvr_buffer_append_byte(out, '\n');
        label(out, "first uses");
        percent(out, (double)tree->first_uses / (double)tree->accesses, 9);
        kvr_buffer_append_text(out, "  of block uses\n");
    }
    free(top);
}

static void alerts(struct kvr_buffer *out, const struct kvr_render *render)
{
    const struct kvr_alerts *list = render->alerts;
    enum { SHOWN = 20 };

    if (!list)
        return;
    heading(out, "Alerts");
    if (!list->fired)
        kvr_buffer_append_text(out, "  none fired\n");
    for (size_t i = 0; i < list->event_count && i < SHOWN; i++) {
        const struct kvr_alert_event *event = &list->events[i];
        const struct kvr_rule *rule = &list->rules[event->rule];
        print(out, "  %s %s%s%s at ", rule->severity, rule->name,
            event->worker == UINT32_MAX ? "" : " on ",
            event->worker == UINT32_MAX ? ""
                                        : render->report->worker_names.items[event->worker].name);
        seconds(out, event->fired_ms - render->report->windows.oldest_ms);
        print(out, " (%s %.3g)%s\n", rule->conditions[0].metric->name, event->value,
            isnan(event->cleared_ms) ? ", still firing" : "");
        if (rule->hint) {
            char safe[500];
            print(
                out, "    %s\n", kvr_printable(safe, sizeof safe, rule->hint, strlen(rule->hint)));
        }
    }
    if (list->fired > SHOWN)
        print(out, "  … and %lu more (--json lists them)\n", list->fired - SHOWN);
}

static void add_left_out(void *context, const char *name, const char *why)
{
    print(context, "  left out: %s: %s\n", name, why);
}

/* Requests without a number or a worker in them, as lines of an unknown log are. */
static bool says_nothing(const struct kvr_view *view)
{
    const uint64_t *counters = view->tally->counters;

    for (int i = 0; i < KVR_SKETCH_COUNT; i++)
        if (view->tally->sketches[i].count)
            return false;
    return counters[KVR_COUNT_REQUESTS] && !counters[KVR_COUNT_PROMPT_TOKENS] && !view->load_count;
}

static void closing(struct kvr_buffer *out, const struct kvr_render *render)
{
    const struct kvr_report *report = render->report;
    struct kvr_diagnosis found = kvr_diagnose(&render->run->view, report->match_seen);

    heading(out, "Diagnosis");
    if (says_nothing(&render->run->view))
        kvr_buffer_append_text(out, "  no request tells its input_length, route or response: "
                                    "another program's log? --from and --map read those\n");
    kvr_buffer_append_text(out, "  ");
    kvr_diagnosis_text(&found, out);
    kvr_buffer_append_byte(out, '\n');
    if (report->windows.late_lines)
        print(out, "  %lu lines came too late for their window (--late)\n",
            report->windows.late_lines);
    if (report->windows.untimed_lines)
        print(out,
            "  %lu lines have no time, or one far from the others': in no window (--time-unit)\n",
            report->windows.untimed_lines);
    if (kvr_report_lost_done(report))
        print(out, "  %lu done lines without their request\n", kvr_report_lost_done(report));
    kvr_report_left_out(report, add_left_out, out);
}

void kvr_render_table(const struct kvr_render *render, struct kvr_buffer *out)
{
    const struct kvr_view *view = &render->run->view;

    summary(out, render);
    if (render->live)
        last_window(out, render->report);
    if (view->tally->counters[KVR_COUNT_KNOWN] || view->tally->counters[KVR_COUNT_CEILING] ||
        view->tally->counters[KVR_COUNT_ENGINE_PROMPT_TOKENS])
        reuse(out, view);
    latencies(out, view);
    matches(out, view, render->report);
    workers(out, render);
    caches(out, render);
    groups(out, render);
    reasons(out, render->report);
    prefixes(out, render);
    alerts(out, render);
    if (!render->report->options.brief)
        closing(out, render);
}
