/* --html: one page that needs nothing else. */
#include "stat/render.h"

#include "stat/diagnose.h"
#include "stat/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define print kvr_buffer_append_format

static const char page_head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
    "<title>kvr-stats</title>\n<style>\n"
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#57606a;--grid:#d8dee4;"
    "--c0:#0b62d6;--c1:#c2410c;--c2:#6b7280;--heat:#0b62d6}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#14171c;--ink:#e6e9ee;--soft:#9aa4b0;"
    "--grid:#333a44;--c0:#6cb0ff;--c1:#ffa25e;--c2:#9aa4b0;--heat:#6cb0ff}}\n"
    "body{background:var(--paper);color:var(--ink);font:16px/1.45 system-ui,sans-serif;"
    "max-width:60rem;margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .3rem}p{color:var(--soft)}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid var(--grid)}"
    "td:first-child,th:first-child{text-align:left;padding-left:0}\n"
    "svg{width:100%;height:auto;display:block}"
    ".tick{font:15px system-ui,sans-serif;fill:var(--soft)}"
    ".axis{font:16px system-ui,sans-serif;fill:var(--ink)}"
    ".grid{stroke:var(--grid);stroke-width:1}.frame{fill:none;stroke:var(--soft)}"
    ".line{fill:none;stroke-width:2.5;stroke-linejoin:round}\n"
    "</style></head><body>\n<h1>kvr-stats</h1>\n";

static struct kvr_chart chart_of(struct kvr_buffer *out, double height)
{
    return (struct kvr_chart){.out = out,
        .width = KVR_CHART_WIDTH,
        .height = height,
        .left = 92,
        .right = 18,
        .top = 34,
        .bottom = 58};
}

static void heading(struct kvr_buffer *out, const char *title, const char *text)
{
    print(out, "<h2>%s</h2>\n", title);
    if (text)
        print(out, "<p>%s</p>\n", text);
}

/* ---- tables ---- */

static void cell(struct kvr_buffer *out, const struct kvr_metric *metric, double value)
{
    if (!isfinite(value))
        kvr_buffer_append_text(out, "<td>–</td>");
    else if (strcmp(metric->unit, "ratio") == 0 && metric->kind == KVR_METRIC_SHARE)
        print(out, "<td>%.1f %%</td>", value * 100);
    else
        print(out, fabs(value) >= 1000 || value == floor(value) ? "<td>%.0f</td>" : "<td>%.3g</td>",
            value);
}

static void headline(struct kvr_buffer *out, const struct kvr_view *view)
{
    static const char *const shown[] = {"requests", "request_rate", "prompt_tokens",
        "token_hit_rate", "request_hit_rate", "time_saved_rate", "ceiling_token_hit_rate",
        "best_token_hit_rate", "regret_rate", "kept_rate", "ttft_p50_ms", "ttft_p99_ms",
        "continuation_ratio", "tpot_p50_ms", "goodput_share", "prediction_bias",
        "prediction_error_p90", "rejected_rate", "failed_rate", "load_skew", "load_jain",
        "eviction_rate", "evicted_unused_rate"};

    kvr_buffer_append_text(out, "<table><tr><th>metric</th><th>value</th><th>unit</th>"
                                "<th style=\"text-align:left\">definition</th></tr>\n");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const struct kvr_metric *metric = kvr_metric_find(shown[i], strlen(shown[i]));
        double value = kvr_metric_value(metric, view);
        if (!isfinite(value))
            continue;
        print(out, "<tr><td>%s</td>", metric->name);
        cell(out, metric, value);
        print(out, "<td>%s</td><td style=\"text-align:left\">",
            strcmp(metric->unit, "ratio") == 0 ? "" : metric->unit);
        kvr_html_text(out, metric->definition, strlen(metric->definition));
        kvr_buffer_append_text(out, "</td></tr>\n");
    }
    kvr_buffer_append_text(out, "</table>\n");
}

static void workers(struct kvr_buffer *out, const struct kvr_render *render)
{
    static const char *const shown[] = {"requests", "prompt_tokens", "token_hit_rate",
        "ttft_p50_ms", "ttft_p99_ms", "kv_usage_max"};
    const struct kvr_run_view *run = render->run;
    enum { COLUMNS = sizeof shown / sizeof *shown };

    if (!run->view.load_count)
        return;
    heading(out, "Workers", NULL);
    kvr_buffer_append_text(out, "<table><tr><th>worker</th>");
    for (int i = 0; i < COLUMNS; i++)
        print(out, "<th>%s</th>", shown[i]);
    kvr_buffer_append_text(out, "</tr>\n");
    for (uint32_t i = 0; i < run->view.load_count; i++) {
        const struct kvr_group *name = &render->report->worker_names.items[run->load_workers[i]];
        struct kvr_view view = kvr_view_worker(run, render->report, i);
        kvr_buffer_append_text(out, "<tr><td>");
        kvr_html_text(out, name->name, name->length);
        kvr_buffer_append_text(out, "</td>");
        for (int j = 0; j < COLUMNS; j++) {
            const struct kvr_metric *metric = kvr_metric_find(shown[j], strlen(shown[j]));
            cell(out, metric, kvr_metric_value(metric, &view));
        }
        kvr_buffer_append_text(out, "</tr>\n");
    }
    kvr_buffer_append_text(out, "</table>\n");
}

/* ---- plots ---- */

enum { CDF_POINTS = 300, STEPS = 160, NAME_MOST = 40 };

static void cdf(struct kvr_buffer *out, const struct kvr_view *view)
{
    static const char *const texts[] = {"new conversations", "later turns", "kind unknown"};
    struct kvr_chart chart = chart_of(out, KVR_CHART_HEIGHT);
    struct kvr_cdf_point points[CDF_POINTS];
    double least = kvr_render_cdf_start(view), most = 0, x[CDF_POINTS], y[CDF_POINTS];
    int place = 0;

    for (int kind = 0; kind < KVR_KIND_COUNT; kind++) {
        const struct kvr_sketch *sketch = &view->tally->sketches[KVR_SKETCH_TTFT_NEW + kind];
        if (sketch->count) {
            most = fmax(most, sketch->most);
        }
    }
    if (!(most > 0))
        return;
    heading(out, "Time to first token", "Share of requests that see their first token in time.");
    chart.x = (struct kvr_axis){least / 1.1, most * 1.1, true, false, "time to first token, ms"};
    chart.y = (struct kvr_axis){0, 1, false, true, "share of requests, %"};
    kvr_chart_begin(&chart, "distribution of the time to first token");
    for (int kind = 0; kind < KVR_KIND_COUNT; kind++) {
        size_t count = kvr_render_cdf(
            &view->tally->sketches[KVR_SKETCH_TTFT_NEW + kind], view->scale, points, CDF_POINTS);
        if (!count)
            continue;
        for (size_t i = 0; i < count; i++) {
            x[i] = points[i].value;
            y[i] = points[i].share;
        }
        kvr_chart_line(&chart, kind, x, y, count, true);
        kvr_chart_legend(&chart, kind, place++, texts[kind]);
    }
    kvr_chart_end(&chart);
}

static void histogram(struct kvr_buffer *out, const struct kvr_view *view)
{
    const struct kvr_sketch *sketch = &view->tally->sketches[KVR_SKETCH_MATCH];
    struct kvr_match_bar bars[KVR_MATCH_BARS];
    size_t count = kvr_render_match_bars(sketch, view->scale, bars);
    struct kvr_chart chart = chart_of(out, KVR_CHART_HEIGHT);
    double most = 0;

    if (!count)
        return;
    heading(out, "Match length", "How many tokens of their prompt requests reuse.");
    for (size_t i = 0; i < count; i++)
        most = fmax(most, (double)bars[i].count / (double)sketch->count);
    chart.x = (struct kvr_axis){0, (double)count, false, false, NULL};
    chart.y = (struct kvr_axis){0, most * 1.08, false, true, "share of requests, %"};
    kvr_chart_begin(&chart, "histogram of reused tokens");
    for (size_t i = 0; i < count; i++) {
        char text[32];
        double share = (double)bars[i].count / (double)sketch->count;
        double middle = kvr_chart_x(&chart, (double)i + 0.5);
        kvr_chart_rectangle(&chart, "fill:var(--c0)", (double)i + 0.1, 0, (double)i + 0.9, share);
        if (bars[i].until >= 1024)
            snprintf(text, sizeof text, "%gk", bars[i].until / 1024);
        else
            snprintf(text, sizeof text, "%g", bars[i].until);
        kvr_chart_text(
            &chart, middle, chart.height - chart.bottom + 18, "middle", "tick", text, strlen(text));
    }
    static const char title[] = "tokens reused, up to (k = 1024); the first bar is none";
    kvr_chart_text(&chart, (chart.left + chart.width - chart.right) / 2, chart.height - 8, "middle",
        "axis", title, sizeof title - 1);
    kvr_chart_end(&chart);
}

static void over_time(struct kvr_buffer *out, const struct kvr_timeline *timeline)
{
    double *x = calloc(timeline->step_count * 3 + 1, sizeof *x), most = 0;
    double *hit = x + timeline->step_count, *rate = hit + timeline->step_count;
    char title[64];

    if (!x || timeline->step_count < 2) {
        free(x);
        return;
    }
    for (size_t i = 0; i < timeline->step_count; i++) {
        x[i] = timeline->steps[i].start + timeline->step_length / 2;
        hit[i] = timeline->steps[i].hit_rate;
        rate[i] = timeline->steps[i].request_rate;
        most = fmax(most, rate[i]);
    }
    snprintf(title, sizeof title, "time since the first request, %s", timeline->unit);
    heading(out, "Hit rate and load over time", NULL);
    struct kvr_chart chart = chart_of(out, 260);
    chart.top = 14;
    chart.x = (struct kvr_axis){0, timeline->length, false, false, title};
    chart.y = (struct kvr_axis){0, 1, false, true, "token hit rate, %"};
    kvr_chart_begin(&chart, "token hit rate over time");
    kvr_chart_line(&chart, 0, x, hit, timeline->step_count, false);
    kvr_chart_end(&chart);
    chart.y = (struct kvr_axis){0, most > 0 ? most * 1.08 : 1, false, false, "requests/s"};
    kvr_chart_begin(&chart, "requests per second over time");
    kvr_chart_line(&chart, 1, x, rate, timeline->step_count, false);
    kvr_chart_end(&chart);
    free(x);
}

static void heat_map(
    struct kvr_buffer *out, const struct kvr_timeline *timeline, const struct kvr_render *render)
{
    uint32_t rows = timeline->worker_count, all = render->run->view.load_count;
    char title[64], text[128], shown[KVR_SHORT_NAME_BYTES];

    if (!rows || timeline->step_count < 2)
        return;
    struct kvr_chart chart = chart_of(out, 74 + (rows < 8 ? 30 : 18) * rows);
    chart.top = 14;
    size_t widest = 0;
    for (uint32_t row = 0; row < rows; row++) {
        kvr_render_short_name(shown,
            render->report->worker_names.items[render->run->load_workers[row]].name, NAME_MOST);
        widest = strlen(shown) > widest ? strlen(shown) : widest;
    }
    chart.left = fmax(120, 16 + 8.5 * (double)widest);
    snprintf(text, sizeof text, rows < all ? "%s; %u of %u workers" : "%s", timeline->heat_text,
        rows, all);
    heading(out, "Workers over time", text);
    snprintf(title, sizeof title, "time since the first request, %s", timeline->unit);
    chart.x = (struct kvr_axis){0, timeline->length, false, false, title};
    chart.y = (struct kvr_axis){0, rows, false, false, NULL};
    kvr_chart_begin(&chart, timeline->heat_text);
    for (uint32_t row = 0; row < rows; row++) {
        const struct kvr_group *name =
            &render->report->worker_names.items[render->run->load_workers[row]];
        double low = rows - row - 1;
        kvr_render_short_name(shown, name->name, NAME_MOST);
        kvr_chart_text(&chart, chart.left - 8, kvr_chart_y(&chart, low + 0.5) + 5, "end", "tick",
            shown, strlen(shown));
        for (size_t i = 0; i < timeline->step_count; i++) {
            double heat = timeline->heat[i * rows + row];
            char style[64];
            if (!(heat > 0.005))
                continue;
            snprintf(style, sizeof style, "fill:var(--heat);fill-opacity:%.2f", fmin(heat, 1));
            kvr_chart_rectangle(&chart, style, timeline->steps[i].start, low + 0.04,
                timeline->steps[i].start + timeline->step_length, low + 0.96);
        }
    }
    kvr_chart_end(&chart);
}

enum kvr_status kvr_render_html(
    const struct kvr_render *render, struct kvr_buffer *out, struct kvr_error *error)
{
    const struct kvr_view *view = &render->run->view;
    struct kvr_diagnosis found = kvr_diagnose(view, render->report->match_seen);
    struct kvr_buffer text = {0};
    struct kvr_timeline timeline;

    enum kvr_status status = kvr_timeline_make(&timeline, render, STEPS, error);
    if (status != KVR_OK)
        return status;
    kvr_buffer_append_text(out, page_head);
    kvr_diagnosis_text(&found, &text);
    kvr_buffer_append_text(out, "<p><strong>");
    kvr_html_text(out, text.data, text.length);
    kvr_buffer_append_text(out, "</strong></p>\n");
    kvr_buffer_release(&text);
    headline(out, view);
    cdf(out, view);
    histogram(out, view);
    over_time(out, &timeline);
    heat_map(out, &timeline, render);
    workers(out, render);
    kvr_buffer_append_text(out, "</body></html>\n");
    kvr_timeline_release(&timeline);
    return out->failed ? kvr_error_memory(error) : KVR_OK;
}
