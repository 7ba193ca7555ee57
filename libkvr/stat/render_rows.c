/* --csv and --prom: one row a number. */
#include "stat/render.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Everything that has the metrics: the run, each worker, each group. */
struct scope {
    const char *kind, *name; /* name is NULL for the run */
    struct kvr_view view;
};

static struct scope *scopes_of(const struct kvr_render *render, size_t *count)
{
    const struct kvr_report *report = render->report;
    const struct kvr_run_view *run = render->run;
    uint32_t groups = render->by ? report->group_names.count : 0;
    struct scope *scopes = calloc(1 + (size_t)run->view.load_count + groups, sizeof *scopes);
    uint32_t *order = calloc((size_t)groups + 1, sizeof *order);

    *count = 0;
    if (!scopes || !order) {
        free(order);
        free(scopes);
        return NULL;
    }
    scopes[(*count)++] = (struct scope){"run", NULL, run->view};
    for (uint32_t i = 0; i < run->view.load_count; i++)
        scopes[(*count)++] = (struct scope){"worker",
            report->worker_names.items[run->load_workers[i]].name, kvr_view_worker(run, report, i)};
    uint32_t listed = groups ? kvr_groups_sorted(&report->group_names, order) : 0;
    if (groups && report->group_capacity && report->groups[0].counters[KVR_COUNT_REQUESTS])
        order[listed++] = 0;
    for (uint32_t i = 0; i < listed; i++)
        scopes[(*count)++] = (struct scope){"group", report->group_names.items[order[i]].name,
            kvr_view_tally(run, &report->groups[order[i]])};
    free(order);
    return scopes;
}

/* ---- CSV, RFC 4180 ---- */

static void csv_text(struct kvr_buffer *out, const char *text)
{
    if (!text[strcspn(text, ",\"\r\n")]) {
        kvr_buffer_append_text(out, text);
        return;
    }
    kvr_buffer_append_byte(out, '"');
    for (; *text; text++) {
        if (*text == '"')
            kvr_buffer_append_byte(out, '"');
        kvr_buffer_append_byte(out, *text);
    }
    kvr_buffer_append_byte(out, '"');
}

static void csv_row(struct kvr_buffer *out, const char *scope, const char *name, const char *metric,
    const char *unit, double value)
{
    kvr_buffer_append_format(out, "%s,", scope);
    csv_text(out, name ? name : "");
    kvr_buffer_append_format(out, ",%s,%s,", metric, unit);
    if (isfinite(value))
        kvr_json_write_fixed(out, value, 6);
    kvr_buffer_append_byte(out, '\n');
}

void kvr_render_csv(const struct kvr_render *render, struct kvr_buffer *out)
{
    const struct kvr_report *report = render->report;
    size_t count;
    struct scope *scopes = scopes_of(render, &count);

    kvr_buffer_append_text(out, "scope,name,metric,unit,value\n");
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < kvr_metric_count; j++)
            csv_row(out, scopes[i].kind, scopes[i].name, kvr_metrics[j].name, kvr_metrics[j].unit,
                kvr_metric_value(&kvr_metrics[j], &scopes[i].view));
    }
    uint32_t order[KVR_REASONS + 1];
    uint32_t listed = kvr_groups_sorted(&report->reason_names, order);
    order[listed++] = 0;
    for (uint32_t i = 0; i < listed; i++) {
        if (report->reasons[order[i]])
            csv_row(out, "reason", report->reason_names.items[order[i]].name, "requests", "",
                (double)report->reasons[order[i]]);
    }
    free(scopes);
}

/* ---- Prometheus text exposition ---- */

static void label_text(struct kvr_buffer *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            kvr_buffer_append_byte(out, '\\');
        kvr_buffer_append_byte(out, *text);
    }
}

static void labels(
    struct kvr_buffer *out, const struct scope *scope, const char *more, const char *value)
{
    if (!scope->name && !more)
        return;
    kvr_buffer_append_byte(out, '{');
    if (scope->name) {
        kvr_buffer_append_format(out, "%s=\"", scope->kind);
        label_text(out, scope->name);
        kvr_buffer_append_byte(out, '"');
    }
    if (more)
        kvr_buffer_append_format(out, "%s%s=\"%s\"", scope->name ? "," : "", more, value);
    kvr_buffer_append_byte(out, '}');
}

static void head(struct kvr_buffer *out, const char *name, const char *help, const char *type)
{
    kvr_buffer_append_format(out, "# HELP %s ", name);
    for (; *help; help++) {
        if (*help == '\\')
            kvr_buffer_append_byte(out, '\\');
        kvr_buffer_append_byte(out, *help);
    }
    kvr_buffer_append_format(out, "\n# TYPE %s %s\n", name, type);
}

/* kvr_prefill_saved_seconds_total from prefill_saved_ms: base units, and _total for counters. */
static double family_name(const struct kvr_metric *metric, char *name, size_t size)
{
    size_t length = strlen(metric->name);
    bool ms = length > 3 && strcmp(metric->name + length - 3, "_ms") == 0;
    bool counter = metric->kind == KVR_METRIC_COUNT || metric->kind == KVR_METRIC_MS;

    snprintf(name, size, "kvr_%.*s%s%s", (int)(ms ? length - 3 : length), metric->name,
        ms ? "_seconds" : "", counter ? "_total" : "");
    return ms ? 1e-3 : 1;
}

static void metric_family(struct kvr_buffer *out, const struct kvr_metric *metric,
    const struct scope *scopes, size_t count)
{
    bool counter = metric->kind == KVR_METRIC_COUNT || metric->kind == KVR_METRIC_MS;
    bool begun = false;
    char name[128];
    double factor = family_name(metric, name, sizeof name);

    for (size_t i = 0; i < count; i++) {
        double value = kvr_metric_value(metric, &scopes[i].view);
        if (!isfinite(value))
            continue;
        if (!begun)
            head(out, name, metric->definition, counter ? "counter" : "gauge");
        begun = true;
        kvr_buffer_append_text(out, name);
        labels(out, &scopes[i], NULL, NULL);
        kvr_buffer_append_byte(out, ' ');
        kvr_json_write_double(out, value * factor);
        kvr_buffer_append_byte(out, '\n');
    }
}

static void summary(struct kvr_buffer *out, const char *name, const struct scope *scope,
    const char *kind, const struct kvr_sketch *sketch, double factor)
{
    static const struct {
        double q;
        const char *text;
    } shown[] = {{0.5, "0.5"}, {0.9, "0.9"}, {0.99, "0.99"}};
    struct scope inner = *scope;
    char more[64];

    if (!sketch->count)
        return;
    for (int i = 0; i < 3; i++) {
        snprintf(more, sizeof more, "%s\",quantile=\"%s", kind, shown[i].text);
        kvr_buffer_append_text(out, name);
        labels(out, &inner, "kind", more);
        kvr_buffer_append_byte(out, ' ');
        kvr_json_write_double(
            out, kvr_sketch_quantile(sketch, scope->view.scale, shown[i].q) * factor);
        kvr_buffer_append_byte(out, '\n');
    }
    kvr_buffer_append_format(out, "%s_sum", name);
    labels(out, &inner, "kind", kind);
    kvr_buffer_append_byte(out, ' ');
    kvr_json_write_double(out, (double)sketch->sum_thousandths / 1e3 * factor);
    kvr_buffer_append_format(out, "\n%s_count", name);
    labels(out, &inner, "kind", kind);
    kvr_buffer_append_format(out, " %lu\n", sketch->count);
}

void kvr_render_prometheus(const struct kvr_render *render, struct kvr_buffer *out)
{
    static const char *const names[3] = {"kvr_ttft_seconds", "kvr_tpot_seconds", "kvr_e2e_seconds"};
    static const char *const helps[3] = {"Time to first token by kind of conversation.",
        "Time per output token by kind of conversation.",
        "End-to-end time by kind of conversation."};
    const struct kvr_report *report = render->report;
    size_t count;
    struct scope *scopes = scopes_of(render, &count);

    for (size_t i = 0; i < kvr_metric_count; i++) {
        enum kvr_metric_kind kind = kvr_metrics[i].kind;
        if (kind != KVR_METRIC_QUANTILE && kind != KVR_METRIC_QUANTILE_ALL)
            metric_family(out, &kvr_metrics[i], scopes, count);
    }
    for (int i = 0; i < 3; i++) {
        bool begun = false;
        for (size_t j = 0; j < count; j++) {
            for (int kind = 0; kind < KVR_KIND_COUNT; kind++) {
                const struct kvr_sketch *sketch =
                    &scopes[j].view.tally->sketches[kvr_latencies[i].first + kind];
                if (sketch->count && !begun)
                    head(out, names[i], helps[i], "summary");
                begun |= sketch->count != 0;
                summary(out, names[i], &scopes[j], kvr_kind_names[kind], sketch, 1e-3);
            }
        }
    }
    bool begun = false;
    for (uint32_t i = 0; i < report->reason_names.count; i++) {
        if (!report->reasons[i])
            continue;
        if (!begun)
            head(out, "kvr_route_reasons_total", "Decisions by their reason.", "counter");
        begun = true;
        kvr_buffer_append_text(out, "kvr_route_reasons_total{reason=\"");
        label_text(out, report->reason_names.items[i].name);
        kvr_buffer_append_format(out, "\"} %lu\n", report->reasons[i]);
    }
    if (render->alerts) {
        head(out, "kvr_alerts_fired_total", "Alerts that fired.", "counter");
        kvr_buffer_append_format(out, "kvr_alerts_fired_total %lu\n", render->alerts->fired);
    }
    free(scopes);
}
