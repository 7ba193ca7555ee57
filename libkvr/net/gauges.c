#include "net/gauges.h"

#include "base/grow.h"

#include <math.h>
#include <stdio.h>

static const double first_second = 0.001, first_token = 16;

void kvr_gauges_release(struct kvr_gauges *gauges)
{
    free(gauges->rows);
    memset(gauges, 0, sizeof *gauges);
}

struct kvr_gauge_row *kvr_gauges_row(
    struct kvr_gauges *gauges, const char *worker, const char *reason)
{
    for (size_t i = 0; i < gauges->count; i++) {
        struct kvr_gauge_row *row = &gauges->rows[i];
        if (strncmp(row->worker, worker, sizeof row->worker - 1) == 0 &&
            strcmp(row->reason, reason) == 0)
            return row;
    }
    struct kvr_gauge_row *grown =
        kvr_grow(gauges->rows, &gauges->capacity, gauges->count + 1, sizeof *grown);
    if (!grown)
        return NULL;
    gauges->rows = grown;
    struct kvr_gauge_row *row = &grown[gauges->count++];
    memset(row, 0, sizeof *row);
    snprintf(row->worker, sizeof row->worker, "%s", worker);
    snprintf(row->reason, sizeof row->reason, "%s", reason);
    return row;
}

/* Bucket i counts what is at most first_bound · 2^i; the last one all the rest. */
void kvr_histogram_add(struct kvr_histogram *histogram, double value, double first_bound)
{
    size_t bucket = 0;

    if (isnan(value))
        return;
    for (double bound = first_bound; bucket < KVR_GAUGE_BUCKETS && value > bound; bound *= 2)
        bucket++;
    histogram->buckets[bucket]++;
    histogram->sum += value;
    histogram->count++;
}

static void append_label(struct kvr_buffer *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            kvr_buffer_append_byte(out, '\\');
        if (*text == '\n')
            kvr_buffer_append_text(out, "\\n");
        else
            kvr_buffer_append_byte(out, *text);
    }
}

void kvr_gauge_line(struct kvr_buffer *out, const char *name, const char *worker,
    const char *more_labels, double value)
{
    kvr_buffer_append_text(out, name);
    if (worker) {
        kvr_buffer_append_text(out, "{worker=\"");
        append_label(out, worker);
        kvr_buffer_append_byte(out, '"');
        kvr_buffer_append_text(out, more_labels);
        kvr_buffer_append_byte(out, '}');
    }
    kvr_buffer_append_format(out, " %.17g\n", value);
}

static void write_histogram(struct kvr_buffer *out, const char *name, const char *worker,
    const char *reason, const struct kvr_histogram *histogram, double first_bound)
{
    char full[96], labels[128];
    uint64_t count = 0;
    double bound = first_bound;

    snprintf(full, sizeof full, "%s_bucket", name);
    for (size_t i = 0; i <= KVR_GAUGE_BUCKETS; i++, bound *= 2) {
        count += histogram->buckets[i];
        if (i == KVR_GAUGE_BUCKETS)
            snprintf(labels, sizeof labels, ",reason=\"%s\",le=\"+Inf\"", reason);
        else
            snprintf(labels, sizeof labels, ",reason=\"%s\",le=\"%g\"", reason, bound);
        kvr_gauge_line(out, full, worker, labels, (double)count);
    }
    snprintf(labels, sizeof labels, ",reason=\"%s\"", reason);
    snprintf(full, sizeof full, "%s_sum", name);
    kvr_gauge_line(out, full, worker, labels, histogram->sum);
    snprintf(full, sizeof full, "%s_count", name);
    kvr_gauge_line(out, full, worker, labels, (double)histogram->count);
}

static void title(struct kvr_buffer *out, const char *name, const char *type, const char *help)
{
    kvr_buffer_append_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_rows(const struct kvr_gauges *gauges, struct kvr_buffer *out)
{
    char labels[96];

    title(out, "kvr_requests_total", "counter", "Requests ended, by worker, reason and status.");
    for (size_t i = 0; i < gauges->count; i++) {
        const struct kvr_gauge_row *row = &gauges->rows[i];
        for (unsigned class = 0; class < 6; class ++) {
            if (!row->by_class[class])
                continue;
            if (class)
                snprintf(
                    labels, sizeof labels, ",reason=\"%s\",status=\"%uxx\"", row->reason, class);
            else
                snprintf(labels, sizeof labels, ",reason=\"%s\",status=\"none\"", row->reason);
            kvr_gauge_line(
                out, "kvr_requests_total", row->worker, labels, (double)row->by_class[class]);
        }
    }
    title(out, "kvr_ttft_seconds", "histogram", "From the request's head to its first token.");
    for (size_t i = 0; i < gauges->count; i++)
        write_histogram(out, "kvr_ttft_seconds", gauges->rows[i].worker, gauges->rows[i].reason,
            &gauges->rows[i].ttft_s, first_second);
    title(out, "kvr_e2e_seconds", "histogram", "From the request's head to the answer's end.");
    for (size_t i = 0; i < gauges->count; i++)
        write_histogram(out, "kvr_e2e_seconds", gauges->rows[i].worker, gauges->rows[i].reason,
            &gauges->rows[i].e2e_s, first_second);
    static const char *const tokens[] = {
        "kvr_input_tokens_total", "kvr_matched_tokens_total", "kvr_cached_tokens_total"};
    static const char *const helps[] = {"Tokens of prompts.",
        "Tokens that the chosen worker was thought to hold: saved prefill.",
        "Tokens that workers said they took from their caches."};
    for (size_t j = 0; j < 3; j++) {
        title(out, tokens[j], "counter", helps[j]);
        for (size_t i = 0; i < gauges->count; i++) {
            const struct kvr_gauge_row *row = &gauges->rows[i];
            const uint64_t values[] = {row->input_tokens, row->matched_tokens, row->cached_tokens};
            snprintf(labels, sizeof labels, ",reason=\"%s\"", row->reason);
            kvr_gauge_line(out, tokens[j], row->worker, labels, (double)values[j]);
        }
    }
}

void kvr_gauges_write(const struct kvr_gauges *gauges, struct kvr_buffer *out)
{
    const struct {
        const char *name, *help;
        double value;
    } counters[] = {
        {"kvr_decisions_total", "Decisions made.", (double)gauges->decisions},
        {"kvr_decision_seconds_total", "Time that they took.", gauges->decision_ms / 1e3},
        {"kvr_decision_timeouts_total", "Decisions that did not come in time.",
            (double)gauges->decision_timeouts},
        {"kvr_fallbacks_total", "Requests that went to the least loaded worker instead.",
            (double)gauges->fallbacks},
        {"kvr_retries_total", "Attempts after the first.", (double)gauges->retries},
        {"kvr_rejected_total", "Requests answered with 429.", (double)gauges->rejected},
        {"kvr_unavailable_total", "Requests answered with 503.", (double)gauges->unavailable},
        {"kvr_client_gone_total", "Requests whose client went away.", (double)gauges->client_gone},
        {"kvr_bad_requests_total", "Requests refused for what they were.",
            (double)gauges->bad_requests},
        {"kvr_log_lines_lost_total", "Lines that the access log could not take.",
            (double)gauges->log_lost},
        {"kvr_merged_lines_lost_total", "Lines of others that a full pipeline could not take.",
            (double)gauges->merged_lost},
        {"kvr_loads_total", "Loads read from workers' metrics.", (double)gauges->loads},
    };

    write_rows(gauges, out);
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        title(out, counters[i].name, "counter", counters[i].help);
        kvr_gauge_line(out, counters[i].name, NULL, NULL, counters[i].value);
    }
    title(out, "kvr_match_tokens", "histogram", "Length of the chosen worker's match.");
    write_histogram(out, "kvr_match_tokens", "all", "all", &gauges->match_tokens, first_token);
}
