#include "sim/report.h"

#include "base/grow.h"
#include "base/rank.h"
#include "line/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void kvr_sim_report_init(struct kvr_sim_report *report, struct kvr_sim_slo slo)
{
    *report = (struct kvr_sim_report){.slo = slo, .first_arrival_ms = NAN};
}

static void release_times(struct kvr_sim_times *times)
{
    free(times->values);
    memset(times, 0, sizeof *times);
}

void kvr_sim_report_release(struct kvr_sim_report *report)
{
    release_times(&report->first[0]);
    release_times(&report->first[1]);
    release_times(&report->all);
    release_times(&report->between);
    release_times(&report->gaps);
}

static bool note(struct kvr_sim_times *times, double value)
{
    double *grown = kvr_grow(times->values, &times->size, times->count + 1, sizeof *grown);

    if (!grown)
        return false;
    times->values = grown;
    grown[times->count++] = value;
    times->sorted = false;
    return true;
}

enum kvr_status kvr_sim_report_add(struct kvr_sim_report *report,
    const struct kvr_sim_request *request, bool continuation, struct kvr_error *error)
{
    const struct kvr_sim_result *result = &request->result;
    double ttft_ms = result->first_token_ms - request->arrival_ms, between_ms = 0;
    bool noted = true;

    report->requests++;
    report->recomputed_tokens += result->recomputed;
    if (!(report->first_arrival_ms <= request->arrival_ms))
        report->first_arrival_ms = request->arrival_ms;
    report->last_arrival_ms = fmax(report->last_arrival_ms, request->arrival_ms);
    report->end_ms = fmax(report->end_ms, result->end_ms);
    if (result->status != KVR_SIM_OK) {
        report->rejected += result->status == KVR_SIM_REJECTED;
        report->failed += result->status != KVR_SIM_REJECTED;
        return KVR_OK;
    }
    report->completed++;
    report->prompt_tokens += request->input_tokens;
    report->cached_tokens += kvr_sim_cached_tokens(request);
    report->output_tokens += request->output_tokens;
    if (request->output_tokens > 1) {
        between_ms =
            (result->end_ms - result->first_token_ms) / (double)(request->output_tokens - 1);
        noted = note(&report->between, between_ms) && note(&report->gaps, result->longest_gap_ms);
    }
    noted = noted && note(&report->first[continuation], ttft_ms) && note(&report->all, ttft_ms);
    if ((report->slo.ttft_ms <= 0 || ttft_ms <= report->slo.ttft_ms) &&
        (report->slo.tbt_ms <= 0 || between_ms <= report->slo.tbt_ms) &&
        (report->slo.gap_ms <= 0 || result->longest_gap_ms <= report->slo.gap_ms))
        report->good++;
    return noted ? KVR_OK : kvr_error_memory(error);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double kvr_sim_quantile(struct kvr_sim_times *times, double p)
{
    if (!times->count)
        return NAN;
    if (!times->sorted)
        qsort(times->values, times->count, sizeof *times->values, ascending);
    times->sorted = true;
    return times->values[kvr_nearest_rank(p, times->count)];
}

double kvr_sim_good_share(const struct kvr_sim_report *report)
{
    return report->requests ? (double)report->good / (double)report->requests : NAN;
}

double kvr_sim_goodput(const struct kvr_sim_report *report)
{
    double span_ms = report->last_arrival_ms - report->first_arrival_ms;

    return span_ms > 0 ? (double)report->good / span_ms * 1e3 : NAN;
}

double kvr_sim_skew(const struct kvr_sim *sim)
{
    uint32_t count = kvr_sim_worker_count(sim);
    double most = 0, sum = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct kvr_sim_worker_counts counts = kvr_sim_worker_totals(sim, i);
        double work = (double)(counts.computed_tokens + counts.decoded_tokens);
        most = fmax(most, work);
        sum += work;
    }
    return sum > 0 ? most * count / sum : NAN;
}

static double hit_rate(const struct kvr_sim_report *report)
{
    return report->prompt_tokens ? (double)report->cached_tokens / (double)report->prompt_tokens
                                 : NAN;
}

void kvr_sim_table_head(struct kvr_buffer *out, size_t name_width)
{
    kvr_buffer_append_format(out, "%-*s %6s %26s %26s %17s %6s %9s\n", (int)name_width, "", "hit",
        "TTFT of first turns, ms", "TTFT of continuations, ms", "TBT, ms", "in", "goodput");
    kvr_buffer_append_format(out, "%-*s %6s %8s %8s %8s %8s %8s %8s %8s %8s %6s %9s %5s %8s %6s\n",
        (int)name_width, "policy", "rate", "p50", "p90", "p99", "p50", "p90", "p99", "p90",
        "gap p90", "SLO", "/s", "skew", "rejected", "failed");
}

static void cell(struct kvr_buffer *out, int width, int decimals, double value)
{
    if (isnan(value))
        kvr_buffer_append_format(out, " %*s", width, "-");
    else
        kvr_buffer_append_format(out, " %*.*f", width, decimals, value);
}

static void percent(struct kvr_buffer *out, double share)
{
    cell(out, 5, 1, share * 100);
    kvr_buffer_append_text(out, isnan(share) ? " " : "%");
}

void kvr_sim_table_row(struct kvr_sim_report *report, const char *name, size_t name_width,
    double skew, struct kvr_buffer *out)
{
    kvr_buffer_append_format(out, "%-*s", (int)name_width, name);
    percent(out, hit_rate(report));
    for (int kind = 0; kind < 2; kind++) {
        cell(out, 8, 0, kvr_sim_quantile(&report->first[kind], 0.5));
        cell(out, 8, 0, kvr_sim_quantile(&report->first[kind], 0.9));
        cell(out, 8, 0, kvr_sim_quantile(&report->first[kind], 0.99));
    }
    cell(out, 8, 1, kvr_sim_quantile(&report->between, 0.9));
    cell(out, 8, 1, kvr_sim_quantile(&report->gaps, 0.9));
    bool bounded = report->slo.ttft_ms > 0 || report->slo.tbt_ms > 0 || report->slo.gap_ms > 0;
    percent(out, bounded ? kvr_sim_good_share(report) : NAN);
    cell(out, 9, 2, bounded ? kvr_sim_goodput(report) : NAN);
    cell(out, 5, 2, skew);
    kvr_buffer_append_format(out, " %8llu %6llu\n", (unsigned long long)report->rejected,
        (unsigned long long)report->failed);
}

static void member(struct kvr_buffer *out, const char *name, double value, int decimals)
{
    kvr_buffer_append_format(out, ",\"%s\":", name);
    kvr_json_write_fixed(out, value, decimals);
}

static void quantiles(struct kvr_buffer *out, const char *name, struct kvr_sim_times *times)
{
    kvr_buffer_append_format(out, ",\"%s\":{\"count\":%zu", name, times->count);
    member(out, "p50", kvr_sim_quantile(times, 0.5), 3);
    member(out, "p90", kvr_sim_quantile(times, 0.9), 3);
    member(out, "p99", kvr_sim_quantile(times, 0.99), 3);
    kvr_buffer_append_byte(out, '}');
}

void kvr_sim_report_write(struct kvr_sim_report *report, const char *name, double rate, double skew,
    struct kvr_buffer *out)
{
    kvr_buffer_append_text(out, "{\"policy\":");
    kvr_json_write_string(out, name, strlen(name));
    member(out, "rate", rate, 6);
    kvr_buffer_append_format(out,
        ",\"requests\":%llu,\"completed\":%llu,\"rejected\":%llu,\"failed\":%llu"
        ",\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"recomputed_tokens\":%llu"
        ",\"output_tokens\":%llu",
        (unsigned long long)report->requests, (unsigned long long)report->completed,
        (unsigned long long)report->rejected, (unsigned long long)report->failed,
        (unsigned long long)report->prompt_tokens, (unsigned long long)report->cached_tokens,
        (unsigned long long)report->recomputed_tokens, (unsigned long long)report->output_tokens);
    member(out, "hit_rate", hit_rate(report), 6);
    quantiles(out, "ttft_ms", &report->all);
    quantiles(out, "ttft_new_ms", &report->first[0]);
    quantiles(out, "ttft_continuation_ms", &report->first[1]);
    quantiles(out, "tbt_ms", &report->between);
    quantiles(out, "gap_ms", &report->gaps);
    member(out, "in_slo", kvr_sim_good_share(report), 6);
    member(out, "goodput_per_s", kvr_sim_goodput(report), 6);
    member(out, "skew", skew, 4);
    member(out, "end_ms", report->end_ms, 3);
    kvr_buffer_append_byte(out, '}');
}
