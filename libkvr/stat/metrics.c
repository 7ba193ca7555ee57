#include "stat/metrics.h"

#include <math.h>
#include <stdlib.h>

static double quantile_all(const struct kvr_view *view, enum kvr_sketch_name first, double q)
{
    struct kvr_sketch all = {0};
    double value = NAN;

    if (kvr_tally_all_kinds(view->tally, first, &all))
        value = kvr_sketch_quantile(&all, view->scale, q);
    kvr_sketch_release(&all);
    return value;
}

static double share(const struct kvr_view *view, enum kvr_counter a, enum kvr_counter b)
{
    const uint64_t *counters = view->tally->counters;

    return counters[b] ? (double)counters[a] / (double)counters[b] : NAN;
}

struct kvr_spread kvr_spread(const double *amounts, size_t count)
{
    double sum = 0, squares = 0, most = 0;

    for (size_t i = 0; i < count; i++) {
        sum += amounts[i];
        squares += amounts[i] * amounts[i];
        most = fmax(most, amounts[i]);
    }
    if (!(sum > 0))
        return (struct kvr_spread){NAN, NAN, NAN};
    double n = (double)count, mean = sum / n;
    return (struct kvr_spread){
        most / mean, sqrt(fmax(squares / n - mean * mean, 0)) / mean, sum * sum / (n * squares)};
}

static struct kvr_spread spread_of(const struct kvr_view *view, bool tokens)
{
    struct kvr_spread nothing = {NAN, NAN, NAN};
    double *amounts = calloc(view->load_count + 1, sizeof *amounts);

    if (!amounts)
        return nothing;
    for (uint32_t i = 0; i < view->load_count; i++)
        amounts[i] = tokens ? (double)(view->loads[i].prompt_tokens - view->loads[i].reused_tokens)
                            : (double)view->loads[i].requests;
    struct kvr_spread spread = kvr_spread(amounts, view->load_count);
    free(amounts);
    return spread;
}

/* Nothing is known of blocks where no event line spoke of any. */
static double block_rate(const struct kvr_view *view, int counter)
{
    const uint64_t *counters = view->tally->counters;
    bool seen = counters[KVR_COUNT_STORED_BLOCKS] || counters[KVR_COUNT_EVICTED_BLOCKS];

    return seen && view->span_ms > 0 ? (double)counters[counter] * 1e3 / view->span_ms : NAN;
}

static double store_rate(const struct kvr_view *view)
{
    return block_rate(view, KVR_COUNT_STORED_BLOCKS);
}

static double eviction_rate(const struct kvr_view *view)
{
    return block_rate(view, KVR_COUNT_EVICTED_BLOCKS);
}

static double request_skew(const struct kvr_view *view)
{
    return spread_of(view, false).max_over_mean;
}

static double load_skew(const struct kvr_view *view)
{
    return spread_of(view, true).max_over_mean;
}

static double load_variation(const struct kvr_view *view)
{
    return spread_of(view, true).variation;
}

static double load_jain(const struct kvr_view *view)
{
    return spread_of(view, true).jain;
}

static double ceiling_reached(const struct kvr_view *view)
{
    return share(view, KVR_COUNT_REUSED_TOKENS, KVR_COUNT_KNOWN_TOKENS) /
           share(view, KVR_COUNT_CEILING_TOKENS, KVR_COUNT_CEILING_PROMPT_TOKENS);
}

static double continuation_ratio(const struct kvr_view *view)
{
    const struct kvr_sketch *sketches = view->tally->sketches;
    double later = kvr_sketch_quantile(&sketches[KVR_SKETCH_TTFT_CONTINUED], view->scale, 0.5);

    return later / kvr_sketch_quantile(&sketches[KVR_SKETCH_TTFT_NEW], view->scale, 0.5);
}

static double prediction_bias(const struct kvr_view *view)
{
    return share(view, KVR_COUNT_PREDICTED_US, KVR_COUNT_ACTUAL_US) - 1;
}

static double goodput(const struct kvr_view *view)
{
    return view->tally->counters[KVR_COUNT_SLO_KNOWN] && view->span_ms > 0
               ? (double)view->tally->counters[KVR_COUNT_SLO_MET] * 1e3 / view->span_ms
               : NAN;
}

static double usage_most(const struct kvr_view *view)
{
    double most = NAN;

    for (uint32_t i = 0; i < view->load_count; i++)
        most = fmax(most, view->loads[i].kv_usage);
    return most;
}

static double usage_least(const struct kvr_view *view)
{
    double least = NAN;

    for (uint32_t i = 0; i < view->load_count; i++)
        least = fmin(least, view->loads[i].kv_usage);
    return least;
}

static double outstanding_most(const struct kvr_view *view)
{
    double most = NAN;

    for (uint32_t i = 0; i < view->load_count; i++)
        most = fmax(most, view->loads[i].outstanding);
    return most;
}

#define COUNT(name, unit, better, a, definition, formula)                                          \
    {                                                                                              \
        name, unit, better, KVR_METRIC_COUNT, KVR_COUNT_##a, 0, 0, NULL, definition, formula       \
    }
#define SHARE(name, better, a, b, definition, formula)                                             \
    {                                                                                              \
        name, "ratio", better, KVR_METRIC_SHARE, KVR_COUNT_##a, KVR_COUNT_##b, 0, NULL,            \
            definition, formula                                                                    \
    }
#define RATE(name, unit, better, a, definition, formula)                                           \
    {                                                                                              \
        name, unit, better, KVR_METRIC_RATE, KVR_COUNT_##a, 0, 0, NULL, definition, formula        \
    }
#define MS(name, better, a, definition, formula)                                                   \
    {                                                                                              \
        name, "ms", better, KVR_METRIC_MS, KVR_COUNT_##a, 0, 0, NULL, definition, formula          \
    }
#define QUANTILE(name, unit, better, a, q, definition, formula)                                    \
    {                                                                                              \
        name, unit, better, KVR_METRIC_QUANTILE, KVR_SKETCH_##a, 0, q, NULL, definition, formula   \
    }
#define QUANTILE_ALL(name, a, q, definition, formula)                                              \
    {                                                                                              \
        name, "ms", -1, KVR_METRIC_QUANTILE_ALL, KVR_SKETCH_##a, 0, q, NULL, definition, formula   \
    }
#define FUNCTION(name, unit, better, function, definition, formula)                                \
    {                                                                                              \
        name, unit, better, KVR_METRIC_FUNCTION, 0, 0, 0, function, definition, formula            \
    }

const struct kvr_metric kvr_metrics[] = {
#include "stat/metrics.def"
};
const size_t kvr_metric_count = sizeof kvr_metrics / sizeof *kvr_metrics;

const struct kvr_metric *kvr_metric_find(const char *name, size_t length)
{
    for (size_t i = 0; i < kvr_metric_count; i++) {
        if (strlen(kvr_metrics[i].name) == length && memcmp(kvr_metrics[i].name, name, length) == 0)
            return &kvr_metrics[i];
    }
    return NULL;
}

double kvr_metric_value(const struct kvr_metric *metric, const struct kvr_view *view)
{
    const struct kvr_tally *tally = view->tally;

    switch (metric->kind) {
    case KVR_METRIC_COUNT:
        return (double)tally->counters[metric->a];
    case KVR_METRIC_SHARE:
        return share(view, metric->a, metric->b);
    case KVR_METRIC_RATE:
        return view->span_ms > 0 ? (double)tally->counters[metric->a] * 1e3 / view->span_ms : NAN;
    case KVR_METRIC_MS:
        return (double)tally->counters[metric->a] / 1e3;
    case KVR_METRIC_QUANTILE:
        return kvr_sketch_quantile(&tally->sketches[metric->a], view->scale, metric->q);
    case KVR_METRIC_QUANTILE_ALL:
        return quantile_all(view, metric->a, metric->q);
    case KVR_METRIC_FUNCTION:
        return metric->function(view);
    }
    return NAN;
}

double kvr_metric_named(const struct kvr_view *view, const char *name)
{
    const struct kvr_metric *metric = kvr_metric_find(name, strlen(name));

    return metric ? kvr_metric_value(metric, view) : NAN;
}

/* What scdoc would read as markup gets a backslash. */
static void scdoc_text(struct kvr_buffer *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("_*\\#<>[]", *text))
            kvr_buffer_append_byte(out, '\\');
        kvr_buffer_append_byte(out, *text);
    }
}

void kvr_metrics_describe(bool scdoc, struct kvr_buffer *out)
{
    for (size_t i = 0; i < kvr_metric_count; i++) {
        const struct kvr_metric *metric = &kvr_metrics[i];
        const char *unit = *metric->unit ? metric->unit : "count";
        if (!scdoc) {
            kvr_buffer_append_format(out, "%s (%s)\n    %s\n    = %s\n", metric->name, unit,
                metric->definition, metric->formula);
            continue;
        }
        kvr_buffer_append_byte(out, '*');
        scdoc_text(out, metric->name);
        kvr_buffer_append_format(out, "* (%s)\n\t", unit);
        scdoc_text(out, metric->definition);
        kvr_buffer_append_text(out, "\n\tFormula: ");
        scdoc_text(out, metric->formula);
        kvr_buffer_append_text(out, "\n\n");
    }
}

/* ---- views ---- */

static struct kvr_worker_load load_of(const struct kvr_worker_stat *worker)
{
    const uint64_t *counters = worker->tally.counters;

    return (struct kvr_worker_load){.requests = counters[KVR_COUNT_REQUESTS],
        .prompt_tokens = counters[KVR_COUNT_PROMPT_TOKENS],
        .known_tokens = counters[KVR_COUNT_KNOWN_TOKENS],
        .reused_tokens = counters[KVR_COUNT_REUSED_TOKENS],
        .evicted_blocks = counters[KVR_COUNT_EVICTED_BLOCKS],
        .kv_usage = worker->kv_usage_most,
        .outstanding = (double)worker->outstanding_most};
}

enum kvr_status kvr_run_view_init(
    struct kvr_run_view *run, const struct kvr_report *report, struct kvr_error *error)
{
    uint32_t count = report->worker_names.count, kept = 0;
    bool outstanding = false; /* whether any line told what was under way */

    memset(run, 0, sizeof *run);
    run->loads = calloc(count, sizeof *run->loads);
    run->load_workers = calloc(count, sizeof *run->load_workers);
    if (!run->loads || !run->load_workers || !kvr_report_total(report, &run->total))
        return kvr_error_memory(error);
    kvr_groups_sorted(&report->worker_names, run->load_workers);
    for (uint32_t i = 0; i + 1 < count; i++) {
        uint32_t worker = run->load_workers[i];
        if (worker == report->no_worker)
            continue;
        run->load_workers[kept] = worker;
        run->loads[kept++] = load_of(&report->workers[worker]);
    }
    /* Workers past the limit are one more, when there are any. */
    if (report->workers[0].tally.counters[KVR_COUNT_REQUESTS]) {
        run->load_workers[kept] = 0;
        run->loads[kept++] = load_of(&report->workers[0]);
    }
    for (uint32_t i = 0; i < kept; i++) {
        const struct kvr_worker_stat *worker = &report->workers[run->load_workers[i]];
        outstanding |=
            worker->outstanding_most || !isnan(worker->waiting) || !isnan(worker->running);
    }
    for (uint32_t i = 0; i < kept && !outstanding; i++)
        run->loads[i].outstanding = NAN;
    run->view = (struct kvr_view){&report->scale, &run->total,
        report->windows.newest_ms - report->windows.oldest_ms, run->loads, kept};
    return KVR_OK;
}

void kvr_run_view_release(struct kvr_run_view *run)
{
    kvr_tally_release(&run->total);
    free(run->loads);
    free(run->load_workers);
    memset(run, 0, sizeof *run);
}

struct kvr_view kvr_view_tally(const struct kvr_run_view *run, const struct kvr_tally *tally)
{
    return (struct kvr_view){run->view.scale, tally, run->view.span_ms, NULL, 0};
}

struct kvr_view kvr_view_worker(
    const struct kvr_run_view *run, const struct kvr_report *report, uint32_t load)
{
    return (struct kvr_view){run->view.scale, &report->workers[run->load_workers[load]].tally,
        run->view.span_ms, &run->loads[load], 1};
}

struct kvr_view kvr_view_pane(const struct kvr_report *report, const struct kvr_pane *pane,
    double span_ms, struct kvr_worker_load *scratch)
{
    struct kvr_view view = {&report->scale, &pane->tally, span_ms, scratch, 0};
    uint32_t known = report->worker_names.count;

    /* A worker that is known and did nothing counts: that is what skew is about. */
    for (uint32_t i = 1; i < known && i < KVR_PANE_WORKERS; i++) {
        if (i == report->no_worker || report->workers[i].state == KVR_WORKER_DOWN)
            continue;
        struct kvr_worker_load *load = &scratch[view.load_count++];
        *load =
            i < pane->worker_count ? pane->workers[i] : (struct kvr_worker_load){.kv_usage = NAN};
        if (isnan(load->kv_usage))
            load->kv_usage = report->workers[i].kv_usage;
    }
    return view;
}
