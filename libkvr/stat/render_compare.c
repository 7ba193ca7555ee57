#include "stat/compare.h"

#include <math.h>
#include <stdio.h>

#define print kvr_buffer_append_format

enum { NAME_CELLS = 24, RUN_CELLS = 16 };

static bool in_percent(const struct kvr_metric *metric)
{
    return metric->kind == KVR_METRIC_SHARE;
}

static void value_text(char *text, size_t size, const struct kvr_metric *metric, double value)
{
    if (!isfinite(value))
        snprintf(text, size, "-");
    else if (in_percent(metric))
        snprintf(text, size, "%.1f %%", value * 100);
    else if (fabs(value) >= 1000 || value == floor(value))
        snprintf(text, size, "%.0f", value);
    else
        snprintf(text, size, fabs(value) >= 100 ? "%.1f" : "%.3f", value);
}

/* "better", "worse", "differs", or "noise". */
static const char *judge(const struct kvr_metric *metric, const struct kvr_difference *difference)
{
    if (isnan(difference->low))
        return "";
    if (!difference->beyond_noise)
        return "noise";
    if (metric->better == 0)
        return "differs";
    return (difference->value > 0) == (metric->better > 0) ? "better" : "worse";
}

static void short_name(char *text, size_t size, const char *name)
{
    const char *slash = strrchr(name, '/');
    char safe[200];

    if (slash)
        name = slash + 1;
    kvr_printable(safe, sizeof safe, name, strlen(name));
    safe[strcspn(safe, ".")] = '\0'; /* run.ndjson.gz is run */
    snprintf(text, size, "%.*s", RUN_CELLS - 2, safe);
}

static void table(const struct kvr_compared *runs, size_t count,
    const struct kvr_metric *const *metrics, struct kvr_buffer *out)
{
    char text[64];

    print(out, "%-*s", NAME_CELLS, "");
    for (size_t i = 0; i < count; i++) {
        short_name(text, sizeof text, runs[i].name);
        print(out, "%*s", RUN_CELLS, text);
        if (i)
            print(out, "%-9s", "");
    }
    if (count == 2)
        print(out, "%14s  %s", "difference", "95 % interval");
    kvr_buffer_append_byte(out, '\n');
    for (; *metrics; metrics++) {
        struct kvr_difference difference = {.low = NAN};
        bool known = false;
        for (size_t i = 0; i < count; i++)
            known |= isfinite(kvr_metric_value(*metrics, &runs[i].run.view));
        if (!known)
            continue;
        print(out, "%-*s", NAME_CELLS, (*metrics)->name);
        for (size_t i = 0; i < count; i++) {
            value_text(text, sizeof text, *metrics, kvr_metric_value(*metrics, &runs[i].run.view));
            print(out, "%*s", RUN_CELLS, text);
            if (!i)
                continue;
            difference = kvr_compare(*metrics, &runs[0], &runs[i]);
            print(out, "  %-7s", judge(*metrics, &difference));
        }
        if (count == 2 && !isnan(difference.low)) {
            double scale = in_percent(*metrics) ? 100 : 1;
            const char *unit = in_percent(*metrics) ? " pt" : "";
            print(out, "%+11.4g%-3s  %+.4g to %+.4g", difference.value * scale, unit,
                difference.low * scale, difference.high * scale);
        }
        while (out->length && out->data[out->length - 1] == ' ')
            out->length--;
        kvr_buffer_append_byte(out, '\n');
    }
    kvr_buffer_append_text(out, "better, worse: by more than the noise against the first run "
                                "(bootstrap by session, 95 %)\n");
}

static void add_number(struct kvr_buffer *out, const char *name, double value)
{
    kvr_line_add(out, name);
    if (isfinite(value))
        kvr_json_write_fixed(out, value, 6);
    else
        kvr_buffer_append_text(out, "null");
}

static void json_object(const struct kvr_compared *runs, size_t count,
    const struct kvr_metric *const *metrics, struct kvr_buffer *out)
{
    kvr_buffer_append_text(out, "{\"runs\":[");
    for (size_t i = 0; i < count; i++) {
        kvr_buffer_append_text(out, i ? ",{\"run\":" : "{\"run\":");
        kvr_json_write_string(out, runs[i].name, strlen(runs[i].name));
        kvr_line_add(out, "metrics");
        kvr_buffer_append_byte(out, '{');
        for (const struct kvr_metric *const *metric = metrics; *metric; metric++)
            add_number(out, (*metric)->name, kvr_metric_value(*metric, &runs[i].run.view));
        kvr_line_end(out);
        if (i) {
            kvr_line_add(out, "against_first");
            kvr_buffer_append_byte(out, '{');
            for (const struct kvr_metric *const *metric = metrics; *metric; metric++) {
                struct kvr_difference difference = kvr_compare(*metric, &runs[0], &runs[i]);
                kvr_line_add(out, (*metric)->name);
                kvr_buffer_append_byte(out, '{');
                add_number(out, "difference", difference.value);
                add_number(out, "low", difference.low);
                add_number(out, "high", difference.high);
                kvr_line_add(out, "verdict");
                const char *verdict = judge(*metric, &difference);
                kvr_json_write_string(out, verdict, strlen(verdict));
                kvr_line_end(out);
            }
            kvr_line_end(out);
        }
        kvr_line_end(out);
    }
    kvr_buffer_append_text(out, "]}");
}

void kvr_render_compared(const struct kvr_compared *runs, size_t count,
    const struct kvr_metric *const *metrics, bool json, struct kvr_buffer *out)
{
    if (json)
        json_object(runs, count, metrics, out);
    else
        table(runs, count, metrics, out);
}
